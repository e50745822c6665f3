"""Connections between sidecars: nothing in the clear beyond this machine, nothing half set."""

from pathlib import Path

import pytest

from ackd.config.load import load_text
from ackd.config.mistakes import MistakesError
from ackd.config.peers import TLS_FILES, everywhere, parse_peer_address

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
    assert (peers.on, peers.listen, peers.advertise, peers.tls) == (False, "127.0.0.1:0", "", False)


def test_an_address_of_a_pod_comes_from_the_environment(tmp_path: Path) -> None:
    text = with_tls(tmp_path, 'listen = ":7082"')
    environ = {"ACKD_PEERS__ADVERTISE": "10.0.0.7:7082"}
    peers = load_text(text, tmp_path / "ackd.toml", environ).peers
    assert (peers.listen, peers.advertise, peers.tls) == (":7082", "10.0.0.7:7082", True)
    assert peers.tls_ca_file == tmp_path / "tls_ca_file"


@pytest.mark.parametrize("key", ["listen", "advertise"])
@pytest.mark.parametrize("address", ["10.0.0.7:7082", "host.example:7082", "0.0.0.0:7082"])
def test_without_tls_only_this_machine(key: str, address: str) -> None:
    line = only(f'[peers]\non = true\n{key} = "{address}"')
    assert line.startswith(f'ackd.toml:3:1: peers.{key} = "{address}": other machines can reach')
    assert "`peers.tls_cert_file`, `peers.tls_key_file`, `peers.tls_ca_file`" in line
    assert line.endswith("allowed: without TLS a loopback address")


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
