"""Make the store that the settings ask for: in memory, embedded, a server, Sentinel, Cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ackd.config.schema import StoreSettings
from ackd.config.store_url import StoreTarget, parse_store_url
from ackd.errors import StoreSetupError
from ackd.ports import Store
from ackd.store.connect import StoreAccess
from ackd.store.durable import Barrier
from ackd.store.embedded import Embedded, running_socket
from ackd.store.keys import Keys
from ackd.store.memory import MemoryStore
from ackd.store.nodes import Cluster, Find, Single, Topology, by_sentinel, fixed
from ackd.store.redis import RedisStore


def open_store(settings: StoreSettings, state_dir: Path, *, beside: bool = False) -> Store:
    """Make the store that `settings.url` names. It connects when it is first used.

    `beside`: for commands that run while a sidecar may run. If a sidecar's embedded server runs,
    the store connects to its socket; otherwise it starts that server and stops it when it closes.
    This reads the state directory (blocking file I/O).

    Raises StoreSetupError if the address can't be parsed.
    """
    try:
        target = parse_store_url(settings.url)
    except ValueError as error:
        raise StoreSetupError(f"store.url: {error}") from error
    if target.kind == "memory":
        return MemoryStore()
    access = _access(settings, target)
    barrier = Barrier(
        settings.durability,
        settings.replicas_min,
        settings.timeout_ms,
        failover=target.kind in ("sentinel", "cluster"),
    )
    embedded: Embedded | None = None
    topology: Topology
    if target.kind == "cluster":
        topology = Cluster(access, target.hosts, barrier.check_server)
    else:
        find: Find
        socket = running_socket(state_dir) if beside and target.kind == "embedded" else None
        if socket is not None:
            find = fixed(partial(access.unix, socket))
        elif target.kind == "embedded":
            embedded = Embedded(state_dir, access, settings.durability)
            find = embedded.find
        elif target.kind == "sentinel":
            find = by_sentinel(access, target.hosts, target.service)
        elif target.kind == "unix":
            find = fixed(partial(access.unix, target.path))
        else:
            find = fixed(partial(access.tcp, *target.hosts[0]))
        topology = Single(access, find, barrier.check_server)
    return RedisStore(topology, Keys(settings.prefix), barrier, embedded)


def _access(settings: StoreSettings, target: StoreTarget) -> StoreAccess:
    embedded = target.kind == "embedded"
    return StoreAccess(
        timeout_ms=settings.timeout_ms,
        username=None if embedded else settings.username,
        password_file=None if embedded else settings.password_file,
        tls=target.tls,
        tls_ca_file=settings.tls_ca_file,
        tls_cert_file=settings.tls_cert_file,
        tls_key_file=settings.tls_key_file,
        db=target.db,
    )
