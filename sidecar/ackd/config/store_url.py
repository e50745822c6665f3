"""Parse the forms of `store.url`. `ackd.store` connects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from ackd.config.address import PORT_MAX

StoreKind = Literal["embedded", "memory", "single", "unix", "sentinel", "cluster"]

REDIS_PORT = 6379
SENTINEL_PORT = 26_379
DB_MAX = 65_535

_KINDS: dict[str, StoreKind] = {
    "redis": "single",
    "rediss": "single",
    "unix": "unix",
    "sentinel": "sentinel",
    "sentinels": "sentinel",
    "cluster": "cluster",
    "clusters": "cluster",
}


@dataclass(frozen=True, slots=True)
class StoreTarget:
    """Where the store is. `hosts`: the server, all Sentinels, or some nodes of the cluster."""

    kind: StoreKind
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    db: int = 0
    service: str = ""
    tls: bool = False

    @property
    def private(self) -> bool:
        """Whether no other process can reach it."""
        return self.kind in ("embedded", "memory")


def parse_store_url(url: str) -> StoreTarget:
    """Parse `store.url`. Raises `ValueError` with a sentence for the operator."""
    if url == "embedded":
        return StoreTarget("embedded")
    if url == "memory":
        return StoreTarget("memory")
    parts = urlsplit(url)
    kind = _KINDS.get(parts.scheme)
    if kind is None:
        forms = ", ".join(["embedded", "memory", *(f"{scheme}://" for scheme in _KINDS)])
        message = f"not a store's address: one of {forms}"
        raise ValueError(message)
    if "@" in parts.netloc:
        message = "user and password go into `username` and `password_file`"
        raise ValueError(message)
    if parts.query or parts.fragment:
        message = "options go into settings of their own, not behind `?` or `#`"
        raise ValueError(message)
    return _target(kind, parts)


def _target(kind: StoreKind, parts: SplitResult) -> StoreTarget:
    if kind == "unix":
        path = unquote(parts.netloc + parts.path)
        if not path.startswith("/"):
            message = "a socket needs its whole path: unix:///run/redis.sock"
            raise ValueError(message)
        return StoreTarget(kind, path=path)
    port = SENTINEL_PORT if kind == "sentinel" else REDIS_PORT
    hosts = tuple(_host(text, port) for text in parts.netloc.split(","))
    tls = parts.scheme.endswith("s") and parts.scheme != "redis"
    rest = parts.path.removeprefix("/")
    if kind == "sentinel":
        if not rest or "/" in rest:
            message = "needs the name of the service: sentinel://host:26379/name"
            raise ValueError(message)
        return StoreTarget(kind, hosts, service=unquote(rest), tls=tls)
    if kind == "cluster":
        if rest:
            message = "a cluster has no database numbers"
            raise ValueError(message)
        return StoreTarget(kind, hosts, tls=tls)
    if len(hosts) > 1:
        message = "one host only; several go with sentinel:// or cluster://"
        raise ValueError(message)
    if rest and not (rest.isascii() and rest.isdecimal() and int(rest[:6]) <= DB_MAX):
        message = "the path is the database's number: redis://host:6379/0"
        raise ValueError(message)
    return StoreTarget(kind, hosts, db=int(rest[:6] or 0), tls=tls)


def _host(text: str, default_port: int) -> tuple[str, int]:
    """Parse `host`, `host:port` or `[v6]:port`. Raises ValueError."""
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif ":" in text:
        host, _, port = text.rpartition(":")
    number = int(port[:6]) if port.isascii() and port.isdecimal() else default_port
    if not host or (port and not port.isdecimal()) or not 0 < number <= PORT_MAX:
        message = f"{text!r} is not a host with a port"
        raise ValueError(message)
    return host, number
