"""Listen addresses: `host:port`, `[v6]:port`, `:port` (all interfaces) and `unix:/path`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

PORT_MAX = 65_535
# The kernel's sun_path holds 108 bytes, the last one a NUL.
UNIX_PATH_BYTES_MAX = 107


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """`host` "" means all interfaces; `port` 0 takes a free one."""

    host: str
    port: int

    @property
    def local(self) -> bool:
        """Whether only this machine can connect. A name other than `localhost` may be anywhere."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket file; who may connect is a matter of file permissions."""

    path: str

    @property
    def local(self) -> bool:
        """Always: a socket file is reachable on this machine only."""
        return True

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Parse a listen address. Raises `ValueError` with a sentence for the operator."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path or "\0" in path:
            message = "a unix address needs a path: unix:/run/ackd.sock"
            raise ValueError(message)
        if len(path.encode()) > UNIX_PATH_BYTES_MAX:
            message = f"a socket's path has at most {UNIX_PATH_BYTES_MAX} bytes"
            raise ValueError(message)
        return UnixAddress(path)
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port[:6]) > PORT_MAX:
        message = "not an address like 127.0.0.1:7080, [::1]:7080 or unix:/run/ackd.sock"
        raise ValueError(message)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        message = "an IPv6 address goes into brackets: [::1]:7080"
        raise ValueError(message)
    if any(mark.isspace() or mark in "/@" for mark in host):
        message = "not an address like 127.0.0.1:7080: host and port only"
        raise ValueError(message)
    return TcpAddress(host, int(port[:6]))
