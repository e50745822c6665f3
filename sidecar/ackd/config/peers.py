"""Settings of the connections between the sidecars of one store."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from ackd.config.address import TcpAddress, parse_address
from ackd.options import setting

TLS_FILES = ("tls_cert_file", "tls_key_file", "tls_ca_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """Connections to the other sidecars of the store, by which each delivers any message."""

    on: bool = setting(
        True,
        "Whether this sidecar connects to others and takes connections, so that its application "
        "gets messages of their partitions, and theirs get messages of its own. Without effect "
        "where only this process can reach the store: `memory` and `embedded`.",
    )
    listen: str = setting(
        "127.0.0.1:0",
        "Where other sidecars connect: `host:port`, `[v6]:port`, or `:port` for every address of "
        "the machine. Port 0 takes a free one.",
    )
    advertise: str = setting(
        "",
        "The address that this sidecar gives to the others: a host, or `host:port` if they connect "
        "to another port than `listen` has. Empty: what it listens on. Needed where that is every "
        "address of the machine. Others on other machines connect with TLS.",
    )
    tls_cert_file: Path | None = setting(
        None,
        "Certificate of this sidecar (PEM), for both directions: others that connect and its own "
        "connections. The TLS files go together, and are read again when they change. All sidecars "
        "of a store have them or none; without them each makes itself a certificate.",
    )
    tls_key_file: Path | None = setting(None, "Its key (PEM).")
    tls_ca_file: Path | None = setting(
        None, "Certificate authorities (PEM) of all sidecars of the store; no other counts."
    )
    connections_max: int = setting(
        256,
        "Most connections to and from other sidecars. A quarter of them is kept for those that "
        "this sidecar makes, and a quarter for those that others make.",
        min=1,
        max=10_000,
    )


def parse_peer_address(text: str) -> TcpAddress:
    """Raises `ValueError` with a sentence for the operator."""
    address = parse_address(text)
    if not isinstance(address, TcpAddress):
        message = "sidecars connect by TCP: an address like 127.0.0.1:7082 or [::1]:7082"
        raise ValueError(message)  # noqa: TRY004  it is a value of the configuration
    return address


def parse_advertised(text: str) -> TcpAddress:
    """As above, or a host alone, whose port is then 0. Raises `ValueError`, too."""
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return TcpAddress(str(ipaddress.ip_address(host)), 0)
    except ValueError:
        return parse_peer_address(text if ":" in text else f"{text}:0")


def everywhere(address: TcpAddress) -> bool:
    """Whether it stands for every address of the machine, so that nobody can connect to it."""
    try:
        return not address.host or ipaddress.ip_address(address.host).is_unspecified
    except ValueError:
        return False
