"""What parts of the engine are given, for tests of a single part: no task runs on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import gettempdir

from ackd.core.lease import LeaseKeys
from ackd.engine.base.context import Context
from ackd.engine.base.replay_log import ReplayLog
from ackd.engine.base.spill_file import FileSpill
from ackd.errors import BrokerError
from ackd.ports import (
    Condition,
    Consumer,
    ConsumerSpec,
    Failure,
    NotStored,
    Outgoing,
    PublishResult,
    Store,
    Stored,
    own_topics,
)
from ackd.store.flusher import Flusher
from ackd.store.memory import MemoryStore
from ackd.telemetry.metrics import Metrics
from ackd_adapters.local import CAPABILITIES

START_MS = 1_000_000


@dataclass
class HandClock:
    """`ackd.ports.Clock` and a store's clock that stand still until a test moves them."""

    now_ms: int = START_MS

    def monotonic_ms(self) -> int:
        """The same as `wall_ms`."""
        return self.now_ms

    def wall_ms(self) -> int:
        """The same as `monotonic_ms`."""
        return self.now_ms

    def now_us(self) -> int:
        """For a store in memory."""
        return self.now_ms * 1_000


def make_context(clock: HandClock, store: Store | None = None, identity: str = "me") -> Context:
    """A context whose flusher does not run."""
    store = store or MemoryStore(now_us=clock.now_us)
    flusher = Flusher(store)

    def spill(name: str, bytes_max: int) -> FileSpill:
        return FileSpill(Path(gettempdir(), name), bytes_max)

    return Context(
        store=store,
        flusher=flusher,
        clock=clock,
        identity=identity,
        keys=LeaseKeys({1: b"k" * 32}, 1),
        metrics=Metrics(),
        memory=ReplayLog(flusher, clock, lambda: store.run),
        grace_ms=5_000,
        spill=spill,
    )


def metric(context: Context, name: str, **labels: str) -> float:
    """As a scrape shows it; 0 if it is not there."""
    context.metrics.render("")
    return context.metrics.registry.get_sample_value(name, labels) or 0.0


def failed(failure: Failure) -> NotStored:
    """A message that was not stored, or perhaps not."""
    return NotStored(failure, failure.value, "scripted")


@dataclass
class ScriptedBroker:
    """`ackd.ports.Broker` for publishing: each value fails as often as its script says.

    `sent`: the values of each call. Offsets count all that was stored.
    """

    script: Mapping[bytes, Sequence[Failure]] = field(default_factory=dict)
    sent: list[list[bytes]] = field(default_factory=list)
    stored: list[Outgoing] = field(default_factory=list)
    raises: BrokerError | None = None

    def __post_init__(self) -> None:
        self.capabilities = replace(CAPABILITIES, name="scripted")
        self._left = {value: list(failures) for value, failures in self.script.items()}

    async def start(self) -> None:
        """Nothing to connect."""

    async def close(self) -> None:
        """Nothing to disconnect."""

    async def cluster_id(self) -> str:
        """Always the same."""
        return "cluster"

    def consumer(self, spec: ConsumerSpec) -> Consumer:
        """There is none."""
        raise NotImplementedError(spec)

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """As the script says."""
        self.sent.append([message.value or b"" for message in messages])
        if self.raises is not None:
            raise self.raises
        return [self._answer(message) for message in messages]

    def _answer(self, message: Outgoing) -> PublishResult:
        if left := self._left.get(message.value or b""):
            return failed(left.pop(0))
        self.stored.append(message)
        return Stored(message.topic, message.partition or 0, len(self.stored) - 1)

    async def partitions(self, topic: str) -> int | None:
        """One of each."""
        del topic
        return 1

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Every topic is there."""

    def dead_topic(self, group: str) -> str:
        """As the local queue."""
        return own_topics.dead_topic(group)

    def retry_topic(self, group: str) -> str:
        """As the local queue."""
        return own_topics.retry_topic(group)

    def troubles(self) -> list[Condition]:
        """None."""
        return []
