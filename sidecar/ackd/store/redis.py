"""The store on Redis or Valkey: one server, a primary behind Sentinel, a cluster, or embedded.

This file repeats only what a server certainly did not execute: a script that it does not know
(NOSCRIPT), and a call that went to the wrong node of a cluster. While a hash slot moves, a call is
refused and does not follow its keys (ASK), because half of a record's keys may be on either side.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol, cast

from ackd.core.ids import LedgerKey
from ackd.core.rate_bucket import TokensTaken
from ackd.core.record.protocol import (
    CallStatus,
    MessageTexts,
    Open,
    RecordCall,
    RecordReply,
    Snapshot,
)
from ackd.errors import StoreCallError, StoreDataError, StoreError
from ackd.ports import NOTHING_READY, Condition, Members, ReadyReport
from ackd.store import codec
from ackd.store.answers import moving, replies
from ackd.store.connect import RUN_BYTES, Link
from ackd.store.durable import Barrier, look
from ackd.store.exchange import Answer, Command
from ackd.store.flusher import PartlyError
from ackd.store.heartbeats import Heartbeats
from ackd.store.keys import Keys
from ackd.store.nodes import ElsewhereError, Node, Topology
from ackd.store.outbox import RedisDedupKeys, RedisOutboxes
from ackd.store.places import RedisPlaces
from ackd.store.scripts import APPLY, OPEN
from ackd.store.server_calls import TRIES, ServerCalls
from ackd.store.small_values import SmallValues

LOG = logging.getLogger("ackd.store")
LOOK_EVERY_S = 10.0
CALLS_MAX = 100
"""Most calls of one script, so that other clients of the server get their turn."""


class Supervisor(Protocol):
    """Who runs an embedded server."""

    def conditions(self) -> list[Condition]:
        """What is wrong with the embedded server."""

    async def stop(self) -> None:
        """Stop the embedded server cleanly, within a bounded time. Never raises."""


class RedisStore:
    """`ackd.ports.Store` on servers. Made by `ackd.store.build`."""

    def __init__(
        self,
        topology: Topology,
        keys: Keys,
        barrier: Barrier,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.topology = topology
        self.keys = keys
        self._barrier = barrier
        self._calls = calls = ServerCalls(topology, barrier)
        self._values = SmallValues(keys, calls)
        self.outboxes = RedisOutboxes(keys, calls.run_script)
        self.dedup_keys = RedisDedupKeys(keys, calls.run_script)
        self.places = RedisPlaces(keys, calls.run_script)
        self._supervisor = supervisor
        self._conditions: list[Condition] = []
        self._heartbeats = Heartbeats(keys, topology, calls)
        self._looked_s = 0.0

    @property
    def run(self) -> str:
        """The runs of all servers as one text; empty while none is connected."""
        nodes = self.topology.nodes()
        if not any(node.connected for node in nodes):
            return ""
        runs = [node.run for node in nodes]
        if len(runs) == 1:
            return runs[0]
        return blake2b(" ".join(runs).encode(), digest_size=RUN_BYTES).hexdigest()

    async def start(self) -> None:
        """Connect to every server, and check its configuration."""
        try:
            await self.topology.start()
            for node in self.topology.nodes():
                await node.flush_link()
            await self._look()
        except StoreError as error:
            self._calls.note(error)
            raise

    # --- calls

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Send one flush. Raises PartlyError if only some of its calls succeeded."""
        names = [self.keys.ledger(call.key) for call in calls]
        if self.topology.together:
            try:
                answers = await self._flush(self.topology.node(""), names, calls)
            except StoreCallError:
                raise  # nothing was sent, so it says nothing about the server
            except StoreError as error:
                self._calls.note(error)
                raise
        else:
            answers = await self._by_node(calls, names)
        failed = [answer for answer in answers if isinstance(answer, StoreError)]
        lost = [error for error in failed if not isinstance(error, StoreCallError)]
        if lost or (self._calls.away and not failed):
            wrote = any(isinstance(a, RecordReply) and a.verdict is CallStatus.OK for a in answers)
            self._calls.note(lost[0] if lost else None, wrote=wrote)
        if not failed:
            return cast("list[RecordReply]", answers)
        if len(failed) == len(calls) and len({type(error) for error in failed}) == 1:
            raise failed[0]
        raise PartlyError(answers)

    async def _by_node(
        self, calls: Sequence[RecordCall], names: Sequence[str]
    ) -> list[RecordReply | StoreError]:
        """Send each call to the node of its key, and again if the key turns out to be elsewhere."""
        answers: list[RecordReply | StoreError] = [ElsewhereError()] * len(calls)
        pending = list(range(len(calls)))
        for _ in range(TRIES):
            await self._spread(calls, names, pending, answers)
            pending = [i for i in pending if isinstance(answers[i], ElsewhereError)]
            if not pending or not await self._calls.map_moved():
                break
        return answers

    async def _spread(
        self,
        calls: Sequence[RecordCall],
        names: Sequence[str],
        pending: Sequence[int],
        answers: list[RecordReply | StoreError],
    ) -> None:
        """Send each call to its node, to all nodes at the same time."""
        groups: dict[Node, list[int]] = {}
        for index in pending:
            try:
                groups.setdefault(self.topology.node(names[index]), []).append(index)
            except StoreError as error:
                answers[index] = ElsewhereError(error.detail)

        async def send(node: Node, indices: list[int]) -> None:
            try:
                got = await self._flush(
                    node, [names[i] for i in indices], [calls[i] for i in indices]
                )
            except StoreError as error:
                for index in indices:
                    answers[index] = error
            else:
                for index, answer in zip(indices, got, strict=True):
                    answers[index] = answer

        if len(groups) == 1:
            for node, indices in groups.items():
                await send(node, indices)
            return
        async with asyncio.TaskGroup() as tasks:
            for node, indices in groups.items():
                tasks.create_task(send(node, indices))

    async def _flush(
        self, node: Node, names: Sequence[str], calls: Sequence[RecordCall]
    ) -> list[RecordReply | StoreError]:
        """Send all calls as one script call, unless their keys may be in different hash slots."""
        link = await node.flush_link()
        run = node.run.encode()
        most = CALLS_MAX if self.topology.together else 1
        sizes: list[int] = []
        commands: list[Command] = []
        for start in range(0, len(calls), most):
            keys = names[start : start + most]
            some = calls[start : start + most]
            args = [codec.encode_call(call, run) for call in some]
            args += [
                codec.encode_texts(n, each.texts)
                for n, each in enumerate(some, 1)
                if each.texts.items
            ]
            commands.append(("EVALSHA", APPLY.sha, len(keys), *keys, *args))
            sizes.append(len(keys))
        answers = await self._calls.ask(link, commands, [APPLY] * len(commands), by_replica=False)
        got: list[RecordReply | StoreError] = []
        for answer, size in zip(answers, sizes, strict=True):
            got += replies(answer, size)
        if any(isinstance(reply, StoreError) and moving(reply) for reply in got):
            await link.close()
        return got

    async def open(self, request: Open) -> Snapshot:
        """Take or re-read a record, on the connection that flushes do not use."""
        name = self.keys.ledger(request.key)

        async def ask(node: Node, link: Link) -> Answer:
            packed = codec.encode_open(request, node.run.encode())
            command = ("EVALSHA", OPEN.sha, 1, name, packed)
            return await self._calls.ask_one(node, link, command, OPEN, ownership=True)

        snapshot, rest = codec.decode_head(await self._calls.ask_node_of(name, ask))
        for slots in rest:
            snapshot.slots += slots
            await asyncio.sleep(0)
        return snapshot

    async def texts(self, key: LedgerKey, offsets: Sequence[int]) -> list[MessageTexts | None]:
        name = self.keys.texts(key)

        async def ask(node: Node, link: Link) -> Answer:
            return await self._calls.ask_one(node, link, ("HMGET", name, *offsets), APPLY)

        answer = await self._calls.ask_node_of(name, ask)
        if not isinstance(answer, list):
            raise StoreDataError("the texts of a partition can't be read")
        return [None if each is None else codec.decode_texts(each) for each in answer]

    # --- members

    async def register(self, subscription: str, name: str) -> int:
        """Give a boot number, at least the store's time, so that a rollback gives none twice."""
        return await self._heartbeats.register(subscription, name)

    async def heartbeat(
        self,
        subscription: str,
        name: str,
        boot: int,
        owned: Sequence[str],
        note: str,
        ready: ReadyReport = NOTHING_READY,
    ) -> Members:
        """Write this sidecar's heartbeat; sometimes also check the servers' configuration."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._looked_s > LOOK_EVERY_S:
            await self._look()
        entry = codec.encode_member(self.run, owned, note)
        return await self._heartbeats.beat(subscription, name, boot, entry, ready)

    async def forget(self, subscription: str, name: str, boot: int) -> None:
        await self._heartbeats.forget(subscription, name, boot)

    # --- small values

    async def set_live(self, subscription: str, expected: bytes, value: bytes) -> bytes:
        return await self._values.set_live(subscription, expected, value)

    async def take(
        self, subscription: str, wanted: int, rate_per_s: float, burst: int
    ) -> TokensTaken:
        """Take tokens by the server's clock. If the answer is lost, so are the tokens."""
        return await self._values.take(subscription, wanted, rate_per_s, burst)

    async def get(self, name: str) -> bytes | None:
        return await self._values.get(name)

    async def put(self, name: str, value: bytes, ttl_ms: int | None = None) -> None:
        await self._values.put(name, value, ttl_ms)

    async def put_new(self, name: str, value: bytes, ttl_ms: int | None = None) -> bytes | None:
        return await self._values.put_new(name, value, ttl_ms)

    async def swap(self, name: str, expected: bytes | None, value: bytes) -> bytes | None:
        return await self._values.swap(name, expected, value)

    async def delete(self, name: str) -> None:
        await self._values.delete(name)

    # --- health

    def conditions(self) -> list[Condition]:
        """Return what the last look found: connection, configuration, embedded server."""
        found = [] if self._calls.away.condition is None else [self._calls.away.condition]
        if self._supervisor is not None:
            found += self._supervisor.conditions()
        return found + self._conditions

    async def _look(self) -> None:
        """Ask each server which promises its configuration breaks, and whether it restarted."""
        found: dict[str, Condition] = {}
        for node in self.topology.nodes():
            async with node.aux_link() as link:
                run = node.run
                for condition in await look(link, self._barrier):
                    found.setdefault(condition.code, condition)
                if await link.identify() != run:
                    await link.close()
        self._conditions = list(found.values())
        self._looked_s = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Disconnect and stop an embedded server."""
        for node in self.topology.nodes():
            await node.close()
        if self._supervisor is not None:
            await self._supervisor.stop()
