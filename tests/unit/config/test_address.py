"""Listen addresses and store URLs: every form, and which addresses only this machine can reach."""

import pytest

from ackd.config.address import TcpAddress, UnixAddress, parse_address
from ackd.config.store_url import StoreTarget, parse_store_url


@pytest.mark.parametrize(
    ("text", "address", "local"),
    [
        ("127.0.0.1:7080", TcpAddress("127.0.0.1", 7080), True),
        ("127.9.9.9:0", TcpAddress("127.9.9.9", 0), True),
        ("localhost:80", TcpAddress("localhost", 80), True),
        ("[::1]:7080", TcpAddress("::1", 7080), True),
        ("0.0.0.0:7080", TcpAddress("0.0.0.0", 7080), False),  # noqa: S104  the case
        ("[::]:7080", TcpAddress("::", 7080), False),
        (":7080", TcpAddress("", 7080), False),
        ("ackd.internal:65535", TcpAddress("ackd.internal", 65535), False),
        ("unix:/run/ackd.sock", UnixAddress("/run/ackd.sock"), True),
        ("unix:///run/ackd.sock", UnixAddress("/run/ackd.sock"), True),
    ],
)
def test_address_is_read(text: str, address: TcpAddress | UnixAddress, *, local: bool) -> None:
    parsed = parse_address(text)
    assert parsed == address
    assert parsed.local is local
    assert parse_address(str(parsed)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7080",
        "127.0.0.1",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "::1:7080",
        "http://x:1",
        "a b:1",
        "unix:",
        "unix:/" + "x" * 200,
        "me@host:1",
        "host:8\u0966",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|path|bracket"):
        parse_address(text)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("embedded", StoreTarget("embedded")),
        ("memory", StoreTarget("memory")),
        ("redis://h", StoreTarget("single", (("h", 6379),))),
        ("redis://h:1/3", StoreTarget("single", (("h", 1),), db=3)),
        ("rediss://[::1]:7", StoreTarget("single", (("::1", 7),), tls=True)),
        ("unix:///run/r.sock", StoreTarget("unix", path="/run/r.sock")),
        (
            "sentinel://a,b:26380/main",
            StoreTarget("sentinel", (("a", 26379), ("b", 26380)), service="main"),
        ),
        ("cluster://a:1,b:2", StoreTarget("cluster", (("a", 1), ("b", 2)))),
        ("clusters://a", StoreTarget("cluster", (("a", 6379),), tls=True)),
    ],
)
def test_store_url_is_read(url: str, target: StoreTarget) -> None:
    assert parse_store_url(url) == target


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis",
        "http://h",
        "redis://",
        "redis://h:x",
        "redis://h:0",
        "redis://h:70000",
        "redis://h/x",
        "redis://a,b",
        "redis://u:p@h",
        "redis://h?db=1",
        "sentinel://h",
        "cluster://h/1",
        "unix://run/r.sock",
    ],
)
def test_what_is_no_store_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r".{10,}"):
        parse_store_url(url)
