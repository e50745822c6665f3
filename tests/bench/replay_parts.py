"""What stands around a sidecar in `replay`: a log without end, a store's server, HTTP clients.

All of it lives in the sidecar's own loop and costs as little as it can, so that what is counted is
the sidecar. The order of everything is fixed; nothing waits for a socket.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import cast

from ackd.core.ids import TopicPartition
from ackd.core.record.protocol import RecordCall, RecordReply
from ackd.core.record.transitions import Outcome, State, Verb
from ackd.http.server.server import Connection
from ackd.ports import (
    Assigned,
    Capabilities,
    Committed,
    Condition,
    ConsumerEvent,
    ConsumerSpec,
    Fetched,
    Outgoing,
    PublishResult,
    Record,
    StartPolicy,
    Stored,
    TopicInfo,
)
from ackd.store.connect import Dial, Link, StoreAccess, StoreServer
from ackd.store.durable import Barrier
from ackd.store.exchange import Exchange
from ackd.store.keys import Keys
from ackd.store.memory import MemoryStore
from ackd.store.nodes import Node, Single
from ackd.store.redis import RedisStore

TOPIC = "bench"
FETCHED = 250
VALUE = b'{"at_us":1700000000,"pad":"%s"}' % (b"x" * 150)
LEASE = re.compile(rb'"lease":"([^"]+)"')
_CALL = Struct(">QQQQB")
_OP = Struct(">BQQHHQI?")
_REPLY = Struct(">BQQHIQQQBI")
_RESULT = Struct(">BBHQQI?")


class Log:
    """`ackd.ports.Broker` and its only consumer: partitions that never end."""

    def __init__(self, partitions: int) -> None:
        self.capabilities = Capabilities(
            name="replay",
            order_within_partition=True,
            explicit_partition=True,
            delayed_publish=False,
            delay_max_ms=0,
            start_policies=frozenset(StartPolicy),
            seek_by_time=False,
            commit_metadata_chars=4095,
            value_bytes_max=1 << 20,
        )
        self._partitions = partitions
        self._next: dict[TopicPartition, int] = {}
        self._sessions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._session = 0
        self._told = False
        self._more = asyncio.Event()

    async def start(self) -> None:
        """Nothing to connect."""

    async def cluster_id(self) -> str:
        """Of no cluster."""
        return "replay"

    def consumer(self, spec: ConsumerSpec) -> Log:
        """There is one."""
        return self

    async def also(self, topic: str) -> None:
        """There is one topic."""

    async def events(self) -> list[ConsumerEvent]:
        """All partitions, then a batch of each that is read."""
        if not self._told:
            self._told = True
            return [Assigned(tuple(TopicPartition(TOPIC, n) for n in range(self._partitions)))]
        while True:
            await asyncio.sleep(0)
            ready = [tp for tp in self._next if tp not in self._paused]
            if ready:
                return [self._batch(tp) for tp in ready]
            self._more.clear()
            await self._more.wait()

    def _batch(self, tp: TopicPartition) -> Fetched:
        start = self._next[tp]
        self._next[tp] = start + FETCHED
        records = [Record(n, None, VALUE, (), 1_700_000) for n in range(start, start + FETCHED)]
        return Fetched(tp, self._sessions[tp], records)

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        """Read it from here."""
        self._session += 1
        self._next[partition], self._sessions[partition] = offset, self._session
        self._more.set()
        return self._session

    def stop_fetch(self, partition: TopicPartition) -> None:
        """Read it no more."""
        self._next.pop(partition, None)

    def pause(self, partition: TopicPartition) -> None:
        """Rest."""
        self._paused.add(partition)

    def resume(self, partition: TopicPartition) -> None:
        """Go on."""
        self._paused.discard(partition)
        self._more.set()

    async def topics(self) -> list[TopicInfo]:
        """The one topic."""
        return [TopicInfo(TOPIC, bytes(16), self._partitions)]

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Nothing yet."""
        return {each: Committed(-1, "") for each in partitions}

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Fine."""

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """From 0 on."""
        return 0, 1 << 40

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """From 0 on."""
        return 0

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Kept nowhere."""
        return [Stored(each.topic, 0, 0) for each in messages]

    async def partitions(self, topic: str) -> int | None:
        """Of any topic."""
        return self._partitions

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """It is there."""

    def dead_letter_topic(self, group: str) -> str:
        """A name."""
        return f"dead-{group}"

    def retry_topic(self, group: str) -> str:
        """A name."""
        return f"retry-{group}"

    def conditions(self) -> list[Condition]:
        """None."""
        return []

    async def close(self) -> None:
        """Nothing to free."""


class Wire(asyncio.Transport):
    """A transport whose bytes go to a function, in the next turn of the loop."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        super().__init__()
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        self.protocol: asyncio.BaseProtocol = asyncio.Protocol()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hand over."""
        self._loop.call_soon(self._heard, bytes(data))

    def writelines(self, list_of_data: Sequence[bytes]) -> None:  # type: ignore[override]
        """Hand over."""
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        """Never."""
        return False

    def get_protocol(self) -> asyncio.BaseProtocol:
        """What listens."""
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """What listens from here on."""
        self.protocol = protocol

    def close(self) -> None:
        """It stays."""

    def abort(self) -> None:
        """Only the end is reported, as every transport does."""
        self._loop.call_soon(cast("asyncio.Protocol", self.protocol).connection_lost, None)

    def pause_reading(self) -> None:
        """Its peer waits for answers anyway."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""


class ReadyNode(Node):
    """A node that is connected to this process."""

    link: Link

    async def flush_link(self) -> Link:
        """The link."""
        return self.link


class Decided(MemoryStore):
    """A store that says yes to everything; calls go through the client's real bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.ops = 0
        self._fence = time.time_ns() // 1000
        self._wire = Wire(self._heard)
        access = StoreAccess(timeout_ms=60_000)
        topology = Single(access, self._find, self._greet)
        node = ReadyNode(access, self._find, self._greet)
        link = node.link = Link(access, self._dial)
        link.server = StoreServer("0" * 16, (9, 0), valkey=True, replicas=0)
        link._exchange = exchange = Exchange()
        exchange.connection_made(self._wire)
        self._wire.set_protocol(exchange)
        node.run = link.server.run
        topology._node = node
        self._client = RedisStore(
            topology, Keys("bench"), Barrier("everysec", 0, 60_000, failover=False)
        )

    @staticmethod
    async def _find() -> Dial:
        raise NotImplementedError

    @staticmethod
    async def _greet(link: Link) -> None:
        raise NotImplementedError

    @staticmethod
    async def _dial() -> Exchange:
        raise NotImplementedError

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Through the client."""
        return await self._client.apply(calls)

    def _heard(self, data: bytes) -> None:
        """One script call: answer each of its arguments."""
        words: list[bytes] = []
        at = data.index(b"\n") + 1
        while at < len(data):
            end = data.index(b"\r", at)
            size = int(data[at + 1 : end])
            words.append(data[end + 2 : end + 2 + size])
            at = end + 4 + size
        calls = words[3 + int(words[2]) :]
        answers = [self._answer(call) for call in calls]
        parts = [b"$%d\r\n%b\r\n" % (len(each), each) for each in answers]
        self.calls += 1
        protocol = cast("asyncio.Protocol", self._wire.get_protocol())
        protocol.data_received(b"*%d\r\n%b" % (len(parts), b"".join(parts)))

    def _answer(self, call: bytes) -> bytes:
        term, version, _, journal_next, size = _CALL.unpack_from(call)
        now_ms = time.time_ns() // 1_000_000
        self._fence += 1
        watermark = 0
        results: list[bytes] = []
        pack = _RESULT.pack
        for verb, offset, fence, _, attempt, arg, _, _ in _OP.iter_unpack(call[33 + size :]):
            if verb == Verb.GRANT:
                row = (Outcome.GRANTED, State.LEASED, 1, self._fence, now_ms + arg, 1_700_000)
            elif verb == Verb.ACK:
                row = (Outcome.ACKED, State.FINISHED, attempt, fence, 0, 1_700_000)
            else:
                row = (Outcome.DONE, State.FINISHED, 0, 0, 0, 0)
                if verb == Verb.ADVANCE:
                    watermark = offset
            results.append(pack(*row, False))
        self.ops += len(results)
        head = (0, now_ms, version, 1, 0, term, watermark, journal_next, 1, len(results))
        return _REPLY.pack(*head) + b"".join(results)


class Client:
    """One connection that receives and settles until told to stop. Counts what was acked."""

    def __init__(self, connection: Connection, shape: str, batch: int) -> None:
        self._connection = connection
        self._joined = shape == "joined"
        self._ask = b'{"max":%d,"wait_ms":500' % batch
        self._held: list[bytes] = []
        self._settling = False
        self.goal = 0
        self.done = 0
        self.resting = asyncio.Event()
        connection.connection_made(Wire(self._heard))

    def go(self, count: int) -> None:
        """Work until so many more were acked."""
        self.goal = self.done + count
        self.resting.clear()
        self._receive()

    def _heard(self, data: bytes) -> None:
        if not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(data[:300])
        if self._settling:
            self.done += data.count(b'"acked"')
            self._settling = False
            self._receive()
            return
        if self._joined:
            self.done += data.count(b'"acked"')
        self._held = LEASE.findall(data)
        if self._joined or not self._held:
            self._receive()
        else:
            self._settling = True
            self._send(b"/v1/settle", b'{"items":' + self._items() + b"}")

    def _receive(self) -> None:
        if self.done >= self.goal:
            self.resting.set()
            return
        settle = b',"settle":' + self._items() if self._joined and self._held else b""
        self._send(b"/v1/subscriptions/bench/receive", self._ask + settle + b"}")

    def _items(self) -> bytes:
        return b"[" + b",".join([b'{"lease":"%b","do":"ack"}' % each for each in self._held]) + b"]"

    def _send(self, path: bytes, body: bytes) -> None:
        head = b"POST %b HTTP/1.1\r\nhost: b\r\ncontent-type: application/json\r\n" % path
        self._connection.data_received(head + b"content-length: %d\r\n\r\n" % len(body) + body)
