"""What parts of the engine are given: real leaf objects, a store in memory, a clock of the test's.

Ports that have no small real implementation are stood in for: a consumer that remembers what it was
told, and a broker that only has a name. Nothing here decides anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ackd.api.control import Cancel, Pause
from ackd.api.messages import Delivery
from ackd.config.subscription import SubscriptionSettings
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.lease_token import LeaseKeys, Token
from ackd.core.ledger.effects import Effect
from ackd.core.ledger.grants import grants
from ackd.core.record.protocol import (
    CallStatus,
    MessageTexts,
    Open,
    RecordCall,
    RecordReply,
    Snapshot,
)
from ackd.core.record.transitions import Outcome
from ackd.engine.base.context import Context
from ackd.engine.base.replay_log import ReplayLog
from ackd.engine.base.spill_file import Spill
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.members import MemberNote
from ackd.engine.cluster.membership import Membership
from ackd.engine.delivery.circuit_breaker import CircuitBreaker
from ackd.engine.delivery.dedup import Dedup
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.fetch_throttle import FetchThrottle
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition, Policy, Wiring
from ackd.engine.settlement.notes import ProgressNotes
from ackd.engine.settlement.subscription_settles import SubscriptionSettles
from ackd.errors import BrokerError, StoreError, StoreUnknownError
from ackd.ports import (
    NOTHING_READY,
    BrokerSideAcks,
    Capabilities,
    Committed,
    Condition,
    Consumer,
    ConsumerEvent,
    ConsumerSpec,
    Members,
    Outgoing,
    ReadyReport,
    Record,
    StartPolicy,
    TopicInfo,
)
from ackd.ports.broker import PublishResult
from ackd.store.flusher import Flusher, LedgerHandle
from ackd.store.memory import Data, MemoryStore
from ackd.telemetry.metrics import Metrics
from tests.unit.engine.clock import TestClock

NAME = "work"
TOPIC = "orders"
TOPIC_ID = bytes(range(16))
ME = "pod-1"
LEASE_MS = 30_000
PLAIN = Policy(None, 0, retry_copies=False)
CAPABILITIES = Capabilities(
    name="log",
    order_within_partition=True,
    explicit_partition=True,
    delayed_publish=False,
    delay_max_ms=0,
    start_policies=frozenset(StartPolicy),
    seek_by_time=True,
    commit_metadata_chars=4096,
    value_bytes_max=1 << 20,
)


def record(offset: int, *, size: int = 10, key: bytes | None = b"k") -> Record:
    """A message whose key and value take `size` bytes."""
    return Record(offset, key, bytes(size - len(key or b"")), (), 1_000)


class TestStore(MemoryStore):
    """The store in memory. `away`: each call fails, and nothing is decided. `lost`: nobody knows
    whether calls on records were decided. `full`: it takes no values. `runs_as`: its server run.
    `asked`: calls on records.
    """

    __test__ = False

    def __init__(self, clock: TestClock, data: Data | None = None) -> None:
        super().__init__(data, now_us=lambda: clock.now_us)
        self.away = False
        self.lost = False
        self.full = False
        self.runs_as = "run-1"
        self.asked: list[RecordCall] = []
        self.open_conditions: list[Condition] = []

    @property
    def run(self) -> str:
        return self.runs_as

    def _check(self) -> None:
        if self.away:
            raise StoreError("the store is away")

    async def open(self, request: Open) -> Snapshot:
        self._check()
        return await super().open(request)

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        if self.lost:
            raise StoreUnknownError("no answer")
        self._check()
        self.asked += calls
        return await super().apply(calls)

    async def heartbeat(
        self,
        subscription: str,
        name: str,
        boot: int,
        owned: Sequence[str],
        note: str,
        ready: ReadyReport = NOTHING_READY,
    ) -> Members:
        self._check()
        return await super().heartbeat(subscription, name, boot, owned, note, ready)

    async def texts(self, key: LedgerKey, offsets: Sequence[int]) -> list[MessageTexts | None]:
        self._check()
        return await super().texts(key, offsets)

    async def get(self, name: str) -> bytes | None:
        self._check()
        return await super().get(name)

    async def put(self, name: str, value: bytes, ttl_ms: int | None = None) -> None:
        self._check()
        if self.full:
            raise StoreError(f"no room for {name}")
        await super().put(name, value, ttl_ms)

    def conditions(self) -> list[Condition]:
        return self.open_conditions


class TestConsumer:
    """Implements `ackd.ports.Consumer`: remembers what it was told, and reads nothing."""

    __test__ = False

    def __init__(self) -> None:
        self.told: list[tuple[str, TopicPartition]] = []
        self.fetched_from: list[tuple[TopicPartition, int]] = []
        self.known = [TopicInfo(TOPIC, TOPIC_ID, 4)]
        self.logs: dict[TopicPartition, tuple[int, int]] = {}
        self.positions: dict[TopicPartition, Committed] = {}
        self.away = False

    async def start(self) -> None:
        self._check()

    async def also(self, topic: str) -> None:
        self._check()

    async def events(self) -> list[ConsumerEvent]:
        raise BrokerError("closed")

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        self.fetched_from.append((partition, offset))
        return len(self.fetched_from)

    def stop_fetch(self, partition: TopicPartition) -> None:
        self.told.append(("stop", partition))

    def pause(self, partition: TopicPartition) -> None:
        self.told.append(("pause", partition))

    def resume(self, partition: TopicPartition) -> None:
        self.told.append(("resume", partition))

    def _check(self) -> None:
        if self.away:
            raise BrokerError("the broker is away")

    async def topics(self) -> list[TopicInfo]:
        self._check()
        return self.known

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        self._check()
        return {each: self.positions.get(each, Committed(-1, "")) for each in partitions}

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        self._check()
        self.positions.update(positions)

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        self._check()
        return self.logs.get(partition, (0, 0))

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        self._check()
        return timestamp_ms

    async def close(self) -> None:
        self.told.clear()


class TestBroker:
    """Implements `ackd.ports.Broker`: it has names for topics and stores nothing."""

    __test__ = False

    def __init__(self, consumer: Consumer, capabilities: Capabilities = CAPABILITIES) -> None:
        self.capabilities = capabilities
        self.made: list[tuple[str, dict[str, str]]] = []
        self.open_conditions: list[Condition] = []
        self._consumer = consumer

    async def start(self) -> None:
        """Nothing to connect."""

    async def cluster_id(self) -> str:
        return "cluster"

    def consumer(self, spec: ConsumerSpec) -> Consumer:
        del spec
        return self._consumer

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        raise NotImplementedError(messages)

    async def partitions(self, topic: str) -> int | None:
        return None if topic != TOPIC else 4

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        self.made.append((topic, dict(settings)))

    def dead_letter_topic(self, group: str) -> str:
        return f"ackd.dead.{group}"

    def retry_topic(self, group: str) -> str:
        return f"ackd.retry.{group}"

    def conditions(self) -> list[Condition]:
        return self.open_conditions

    async def close(self) -> None:
        """Nothing to close."""


class Events:
    """A wiring that remembers what a partition told, by the name of the event, and its effects."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.effects: list[Effect] = []

    def note(self, partition: Partition, effect: Effect) -> None:
        """Handle an effect."""
        del partition
        self.effects.append(effect)

    def wiring(self, *, confirmed: bool = True) -> Wiring:
        def event(name: str) -> Any:
            return lambda *_: self.seen.append(name)

        return Wiring(
            observers=(Partition.apply,),
            effects=defaultdict(lambda: self.note),
            performed=(),
            ready=event("ready"),
            reload=event("reload"),
            lost=event("lost"),
            due=event("due"),
            blocked=event("blocked"),
            confirmed=lambda: confirmed,
        )


class TestCancels:
    """Cancelled messages, by offset."""

    __test__ = False

    def __init__(self) -> None:
        self.done: dict[int, Cancel] = {}

    def of(self, token: Token) -> Cancel | None:
        return self.done.get(token.offset)


class TestClaims:
    """Copies that wait for forwarded leases, and what settles told them. `waits`: the offsets of
    their origins.
    """

    __test__ = False

    def __init__(self) -> None:
        self.waits: set[int] = set()
        self.told: list[tuple[int, Outcome]] = []
        self.reasons: list[str] = []

    @property
    def held(self) -> set[int]:
        return self.waits

    def settled(self, key: LedgerKey, offset: int, outcome: Outcome, when_ms: int) -> None:
        del key, when_ms
        self.told.append((offset, outcome))

    def failed_with(self, origin: tuple[bytes, int], offset: int, error: str) -> bool:
        del origin
        self.reasons.append(error)
        return offset in self.waits


def _no_spill(name: str, bytes_max: int) -> Spill:
    raise NotImplementedError(name, bytes_max)


class World:
    """One subscription, `work`, of the sidecar `pod-1`, on partitions of the topic `orders`."""

    def __init__(self, clock: TestClock) -> None:
        self.clock = clock
        self.data = Data()
        self.store = TestStore(clock, self.data)
        self.flusher = Flusher(self.store)
        self.metrics = Metrics()
        self.context = Context(
            self.store,
            self.flusher,
            clock,
            ME,
            LeaseKeys({1: b"k" * 16}, 1),
            self.metrics,
            ReplayLog(self.flusher, clock, lambda: self.store.run),
            grace_ms=5_000,
            spill=_no_spill,
            random_bits=lambda _: 7,
        )
        self.consumer = TestConsumer()
        self.broker = TestBroker(self.consumer)
        settings = SubscriptionSettings(topics=(TOPIC,), lease_ms=LEASE_MS)
        self.state = SubscriptionState(NAME, settings, self.broker, self.consumer, f"c:{NAME}")
        self.state.cluster = "cluster"
        self.state.health.store_ok = True
        self.partitions = OwnedPartitions(ME)
        self.topics = Topics(self.state)
        self.membership = Membership(self.state, self.context, MemberNote())
        self.events = Events()
        self.breaker = CircuitBreaker(self.state, self.context)
        self.notes = ProgressNotes(self.state, self.context, self.partitions)
        self.fetch_throttle = FetchThrottle(self.state, self.partitions)
        self.cancels = TestCancels()
        self.claims = TestClaims()
        self.settles = SubscriptionSettles(
            self.state,
            self.context,
            self.partitions,
            self.topics,
            self.breaker,
            self.cancels,
            self.claims,
            lambda *_: None,
            self.broker.retry_topic(NAME),
        )

    def with_broker_side_acks(self) -> None:
        """The consumer is one of a broker with individual acks from now on; it keeps none."""
        for name in ("placed", "unwanted", "finished", "kept", "source", "hold_ms"):
            setattr(self.consumer, name, lambda *_: None)
        assert isinstance(self.consumer, BrokerSideAcks)

    def sets(self, **settings: Any) -> None:
        """Settings in force from now on."""
        self.state.settings = replace(self.state.settings, **settings)

    def count(self, name: str, **labels: str) -> float:
        """A metric's value now; 0 if nothing was counted."""
        return self.metrics.registry.get_sample_value(name, labels) or 0

    def listens(self, signal: str) -> list[str]:
        """A list that gets the signal's name each time it is sent."""
        heard: list[str] = []
        getattr(self.state.signals, signal).connect(lambda: heard.append(signal))
        return heard

    def dispatcher(
        self, dedup: Dedup | None = None, pauses: Callable[[], Sequence[Pause]] = list
    ) -> Dispatcher:
        """A dispatcher of this subscription. What it serves, and when, the test connects."""
        return Dispatcher(
            self.state,
            self.context,
            self.partitions,
            self.membership,
            self.membership.share,
            self.notes,
            self.breaker,
            dedup,
            pauses,
            self.fetch_throttle,
        )

    # --- partitions

    async def owns(
        self,
        number: int = 0,
        offsets: Iterable[int] = (),
        *,
        policy: Policy = PLAIN,
        wiring: Wiring | None = None,
        size: int = 10,
        topic: tuple[str, bytes] = (TOPIC, TOPIC_ID),
    ) -> Partition:
        """A partition of `topic` that this sidecar owns, with these messages fetched."""
        name, topic_id = topic
        tp, key = TopicPartition(name, number), LedgerKey("cluster", NAME, topic_id, number)
        events = wiring or self.events.wiring()
        partition = Partition(tp, key, self.context, self.consumer, events, policy)
        asked = Open(key, self.partitions.me.text(), 1, 1, 0, create_at=0)
        snapshot = await self.flusher.open(asked, partition.handle)
        assert snapshot.verdict is CallStatus.OK
        partition.opened(snapshot)
        partition.start_fetching()
        self.partitions.add(partition)
        self.fetches(partition, offsets, size=size)
        return partition

    @staticmethod
    def fetches(partition: Partition, offsets: Iterable[int], *, size: int = 10) -> None:
        """These messages arrive."""
        intake = partition.ledger.intake
        intake.fetched(intake.session, [record(offset, size=size) for offset in offsets])
        partition.perform()

    async def leases(
        self, partition: Partition, count: int = 1, *, lease_ms: int = LEASE_MS, holder: str = "me"
    ) -> list[Delivery]:
        """Grant so many messages."""
        offsets = partition.ledger.grants.take(count, 1 << 62)
        assert len(offsets) == count
        ops = grants(offsets, lease_ms, partition.next_grant())
        reply = await self.flusher.submit(partition.handle, ops)
        assert reply.verdict is CallStatus.OK
        return partition.deliveries(offsets, reply, 0, 17, holder)

    def handle(self, number: int = 0) -> LedgerHandle:
        """A handle of somebody who does not own the partition."""
        return LedgerHandle(LedgerKey("cluster", NAME, TOPIC_ID, number))
