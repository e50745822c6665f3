"""Connections between sidecars: nothing in the clear beyond this machine, nothing half set."""

from pathlib import Path

import pytest

from ackd.config.load import load_text
from ackd.config.mistakes import MistakesError
from ackd.config.peers import TLS_FILES, everywhere, parse_advertised, parse_peer_address

FILE = Path("ackd.toml")


def only(text: str, file: Path = FILE) -> str:
    """The one line of the report."""
    with pytest.raises(MistakesError) as caught:
        load_text(text, file, {})
    (line,) = [str(each) for each in caught.value.mistakes]
    return line


def with_tls(folder: Path, *lines: str) -> str:
    """A section that names three files which are there."""
    for key in TLS_FILES:
        (folder / key).write_text("PEM")
    files = [f'{key} = "{key}"' for key in TLS_FILES]
    return "\n".join(("[peers]", "on = true", *files, *lines))


def test_by_default_the_machine_itself_is_listened_on() -> None:
    peers = load_text("", FILE, {}).peers
    assert (peers.on, peers.listen, peers.advertise) == (True, "127.0.0.1:0", "")


def test_an_address_of_a_pod_comes_from_the_environment(tmp_path: Path) -> None:
    """Nothing else is needed, in either address family; TLS files may be given."""
    listen = {"ACKD_PEERS__LISTEN": ":7083"}
    for address in ("10.0.0.7", "fd00::7"):
        environ = {**listen, "ACKD_PEERS__ADVERTISE": address}
        peers = load_text("[peers]\non = true", FILE, environ).peers
        assert (peers.listen, peers.advertise) == (":7083", address)
    environ = {**listen, "ACKD_PEERS__ADVERTISE": "10.0.0.7"}
    peers = load_text(with_tls(tmp_path), tmp_path / "ackd.toml", environ).peers
    assert peers.tls_ca_file == tmp_path / "tls_ca_file"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.7", ("10.0.0.7", 0)),
        ("fd00::7083", ("fd00::7083", 0)),
        ("[fd00::7]", ("fd00::7", 0)),
        ("[fd00::7]:7083", ("fd00::7", 7083)),
        ("pod-7.example", ("pod-7.example", 0)),
        ("pod-7.example:7083", ("pod-7.example", 7083)),
        ("10.0.0.7:7083", ("10.0.0.7", 7083)),
    ],
)
def test_what_is_given_to_others_may_lack_the_port(text: str, expected: tuple[str, int]) -> None:
    found = parse_advertised(text)
    assert (found.host, found.port) == expected


@pytest.mark.parametrize("text", ["[fd00::7", "fd00::7:x", "host:x", "a b", "host/path"])
def test_what_is_given_to_others_is_a_host(text: str) -> None:
    with pytest.raises(ValueError, match=r"address"):
        parse_advertised(text)


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:7083", "::1"])
def test_what_leaves_the_machine_has_tls_on_it_as_well(tmp_path: Path, address: str) -> None:
    """Others take an address of this machine for one without TLS."""
    lines = ('listen = ":7083"', f'advertise = "{address}"')
    line = only("\n".join(("[peers]", "on = true", *lines)))
    assert line.startswith(f'ackd.toml:4:1: peers.advertise = "{address}": others on this machine')
    assert load_text(with_tls(tmp_path, *lines), tmp_path / "ackd.toml", {}).peers.on


def test_every_address_can_be_listened_on_but_not_connected_to(tmp_path: Path) -> None:
    file = tmp_path / "ackd.toml"
    line = only(with_tls(tmp_path, 'listen = "[::]:7082"'), file)
    assert 'peers.listen = "[::]:7082": every address of the machine: it needs `peers.adv' in line
    line = only(with_tls(tmp_path, 'listen = ":7082"', 'advertise = ":7082"'), file)
    assert 'peers.advertise = ":7082": nobody can connect to every address' in line


def test_the_tls_files_go_together(tmp_path: Path) -> None:
    for key in TLS_FILES:
        (tmp_path / key).write_text("PEM")
    text = '[peers]\non = true\nlisten = "10.0.0.7:7082"\ntls_key_file = "tls_key_file"\n'
    line = only(text, tmp_path / "ackd.toml")
    assert "peers.tls_key_file: needs `peers.tls_cert_file` as well" in line


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('listen = "unix:/run/peers.sock"', "sidecars connect by TCP"),
        ('listen = "127.0.0.1"', "not an address"),
        ('advertise = "[::1:7082"', "brackets"),
        ('advertise = "a host"', "host and port only"),
        ("connections_max = 0", "too small"),
        ("connections_max = 100000", "too large"),
    ],
)
def test_values_out_of_bounds_are_mistakes(text: str, part: str) -> None:
    assert part in only(f"[peers]\non = true\n{text}")


def test_what_is_off_needs_nothing() -> None:
    assert not load_text('[peers]\non = false\nlisten = "10.0.0.7:7082"', FILE, {}).peers.on


@pytest.mark.parametrize(
    ("host", "expected"),
    [("", True), ("0.0.0.0", True), ("[::]", True), ("127.0.0.1", False), ("a", False)],  # noqa: S104
)
def test_which_addresses_are_every_address(host: str, *, expected: bool) -> None:
    assert everywhere(parse_peer_address(f"{host}:7082")) is expected
