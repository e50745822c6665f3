"""The store's servers, and which of them has a key: one server, a primary, the nodes of a cluster.

Each server has two connections, one for flushes and one for everything else, so that the long read
of a takeover does not delay settles. Both must have met the same server run: the first connection
that meets a new run makes the other one connect again before its next call (R9).
"""

from __future__ import annotations

import asyncio
from binascii import crc_hqx
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol

from ackd.errors import StoreError, StoreSetupError
from ackd.store.connect import Dial, Link, StoreAccess, refusal
from ackd.store.exchange import Answer, Command, Exchange, ServerError

SLOTS = 16_384
"""Of every cluster."""
Address = tuple[str, int]
Find = Callable[[], Awaitable[Dial]]
"""Says how to connect now."""
Greet = Callable[[Link], Awaitable[None]]
"""Checks each new connection before it is used. Raises StoreError if the server won't do."""


class ElsewhereError(StoreError):
    """The server can't be reached, or another server keeps the key now; nothing was decided."""


class Node:
    """One server. `find` says how to connect (a Sentinel may name another server each time)."""

    def __init__(self, access: StoreAccess, find: Find, greet: Greet) -> None:
        self._find = find
        self._greet = greet
        self._dial: Dial | None = None
        self.run = ""
        self.had_replicas = False
        self._flush = Link(access, self._make)
        self._aux = Link(access, self._make)
        self._aux_lock = asyncio.Lock()

    @property
    def connected(self) -> bool:
        """Whether at least one of the connections is open."""
        return self._flush.open or self._aux.open

    async def flush_link(self) -> Link:
        """Borrow the connection for flushes, of which only one is in flight at a time."""
        return await self._ready(self._flush)

    @asynccontextmanager
    async def aux_link(self) -> AsyncIterator[Link]:
        """Borrow the other connection, for one user at a time."""
        async with self._aux_lock:
            yield await self._ready(self._aux)

    async def _ready(self, link: Link) -> Link:
        if link.open and link.server is not None and link.server.run == self.run:
            return link
        try:
            self._dial = await self._find()
            await link.connect()
            await self._greet(link)
        except BaseException as error:
            await link.close()
            if isinstance(error, StoreError) and not isinstance(error, StoreSetupError):
                raise ElsewhereError(error.detail) from error
            raise
        if link.server is None:
            raise ElsewhereError("the store closed the connection at once")
        self.run = link.server.run
        self.had_replicas |= link.server.replicas > 0
        return link

    async def _make(self) -> Exchange:
        if self._dial is None:
            raise StoreError("the store has no address yet")
        return await self._dial()

    async def close(self) -> None:
        await self._flush.close()
        await self._aux.close()


class Topology(Protocol):
    """Knows which node has a key."""

    @property
    def together(self) -> bool:
        """Whether one script call may use all keys of a node. In a cluster it may not."""

    def node(self, key: str) -> Node:
        """Return the node that has this key. Raises StoreError if it is unknown."""

    def nodes(self) -> list[Node]:
        """Return all nodes that have keys."""

    async def start(self) -> None:
        """Find the nodes. Raises StoreError."""

    async def moved(self) -> bool:
        """A node failed or refused a key: find the nodes again. Returns whether they changed.
        Raises StoreError.
        """


class Single:
    """A topology of one server, which has all keys."""

    together = True

    def __init__(self, access: StoreAccess, find: Find, greet: Greet) -> None:
        self._node = Node(access, find, greet)

    def node(self, key: str) -> Node:
        return self._node

    def nodes(self) -> list[Node]:
        return [self._node]

    async def start(self) -> None:
        """Do nothing: a single server has no other nodes to discover."""

    async def moved(self) -> bool:
        """Return False: a new connection to the single server is enough."""
        return False


def fixed(dial: Dial) -> Find:
    """Make a `Find` that always returns the same address."""

    async def find() -> Dial:
        return dial

    return find


def by_sentinel(access: StoreAccess, sentinels: tuple[Address, ...], service: str) -> Find:
    """Ask the Sentinels in turn for the primary."""

    async def find() -> Dial:
        errors = []
        for address in sentinels:
            try:
                host, port = await _primary(access, address, service)
            except StoreError as error:
                errors.append(f"{address[0]}:{address[1]}: {error}")
                continue
            return partial(access.tcp, host, port)
        raise StoreError(f"no Sentinel names a primary of {service!r}: {'; '.join(errors)}")

    return find


async def _primary(access: StoreAccess, address: Address, service: str) -> Address:
    """Sentinels have users of their own: try without ours first, then with it if they refuse."""
    bare = replace(access, username=None, password_file=None, db=0)
    command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
    try:
        answer = await _ask_once(bare, address, command)
    except StoreSetupError:
        if access.password_file is None:
            raise
        answer = await _ask_once(replace(access, db=0), address, command)
    if not isinstance(answer, list):
        raise StoreError("knows no such service")
    return answer[0].decode(), int(answer[1])


async def _ask_once(access: StoreAccess, address: Address, command: Command) -> Answer:
    """Connect, ask once, disconnect. Raises StoreError, also for an answer that is an error."""
    link = Link(access, partial(access.tcp, *address))
    try:
        await link.connect(identify=False)
        (answer,) = await link.ask([command])
    finally:
        await link.close()
    if isinstance(answer, ServerError):
        raise refusal(answer)
    return answer


def hash_slot(key: str) -> int:
    """Compute a key's slot in a cluster: from the text between braces, or from the whole key."""
    data = key.encode()
    start = data.find(b"{") + 1
    end = data.find(b"}", start) if start else -1
    if end > start:
        data = data[start:end]
    return crc_hqx(data, 0) % SLOTS


class Cluster:
    """A topology of nodes by hash slot. The map comes from any node that answers."""

    together = False

    def __init__(self, access: StoreAccess, seeds: tuple[Address, ...], greet: Greet) -> None:
        self._access = access
        self._greet = greet
        self._seeds = seeds
        self._nodes: dict[Address, Node] = {}
        self._slots: list[tuple[int, int, Address]] = []

    def node(self, key: str) -> Node:
        """Return the primary of the key's slot according to the map."""
        slot = hash_slot(key)
        for first, last, address in self._slots:
            if first <= slot <= last:
                return self._nodes[address]
        raise StoreError(f"the cluster serves nobody's slot {slot}")

    def _at(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            find = fixed(partial(self._access.tcp, *address))
            node = self._nodes[address] = Node(self._access, find, self._greet)
        return node

    def nodes(self) -> list[Node]:
        """Return the primaries in the order of their slots."""
        return [self._nodes[address] for address in dict.fromkeys(a for _, _, a in self._slots)]

    async def start(self) -> None:
        await self.moved()

    async def moved(self) -> bool:
        """Read the map from the first node that answers: known ones, then the configured ones."""
        known = [address for _, _, address in self._slots]
        errors = []
        for address in dict.fromkeys((*known, *self._seeds)):
            try:
                answer = await _ask_once(self._access, address, ("CLUSTER", "SLOTS"))
            except StoreError as error:
                errors.append(f"{address[0]}:{address[1]}: {error}")
                continue
            if isinstance(answer, list) and answer:
                return await self._learn(answer, address)
            errors.append(f"{address[0]}:{address[1]}: {answer!r}")
        raise StoreError(f"no node of the cluster answers: {'; '.join(errors)}")

    async def _learn(self, answer: list[list[Answer]], asked: Address) -> bool:
        slots = []
        for first, last, primary, *_ in answer:
            host, port = primary[0], primary[1]
            address = (host.decode() if host else asked[0], int(port))
            self._at(address)
            slots.append((int(first), int(last), address))
        changed, self._slots = slots != self._slots, slots
        live = {address for _, _, address in slots}
        for address in [a for a in self._nodes if a not in live]:
            await self._nodes.pop(address).close()
        return changed
