"""Operations of one sidecar on ackd's own topics, whose records a test writes down."""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.ids import TopicPartition
from ackd.engine.control.control import Control
from ackd.engine.operations.archive import Archive, NoRightError
from ackd.engine.operations.dead_letter_records import DeadLetterRecords
from ackd.engine.ownership.records import Records
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.retry.own_topic import retry_topic
from ackd.ports import (
    Consumer,
    ConsumerEvent,
    ConsumerSpec,
    EndReached,
    Fetched,
    Headers,
    Record,
    TopicInfo,
)
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC
from tests.unit.engine.scripted import ScriptedBroker
from tests.unit.engine.world import NAME, TestConsumer, World

DEAD_LETTER_TOPIC = "ackd.dead.work"
DEAD_ID = bytes(range(32, 48))
Logs = dict[TopicPartition, list[Record]]


class LogConsumer(TestConsumer):
    """Reads `logs` to their ends."""

    def __init__(self, logs: Logs, topics: Sequence[TopicInfo]) -> None:
        super().__init__()
        self.known = list(topics)
        self._logs = logs
        self._next: list[ConsumerEvent] = []

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        session = super().fetch_from(partition, offset)
        found = [each for each in self._logs.get(partition, []) if each.offset >= offset]
        end = 1 + max((each.offset for each in found), default=offset - 1)
        self._next = [Fetched(partition, session, found), EndReached(partition, session, end)]
        return session

    async def events(self) -> list[ConsumerEvent]:
        self._check()
        found, self._next = self._next, []
        return found

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        self._check()
        records = self._logs.get(partition, [])
        return (records[0].offset, records[-1].offset + 1) if records else (0, 0)


class LogBroker(ScriptedBroker):
    """It has a retry topic and a dead-letter topic of one partition each."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: Logs = {}
        self.topics = {
            DEAD_LETTER_TOPIC: TopicInfo(DEAD_LETTER_TOPIC, DEAD_ID, 1),
            RETRY_TOPIC: TopicInfo(RETRY_TOPIC, RETRY_ID, 1),
        }
        self.away = False

    def consumer(self, spec: ConsumerSpec) -> Consumer:
        found = [self.topics[each] for each in spec.topics if each in self.topics]
        consumer = LogConsumer(self.logs, found)
        consumer.away = self.away
        return consumer

    async def partitions(self, topic: str) -> int | None:
        return 1 if topic in self.topics else None

    def writes(
        self, topic: str, retry_copy: RetryCopy | None, *, value: bytes = b"v", own: Headers = ()
    ) -> int:
        """Append a copy to partition 0 of a topic; returns its offset. None: of a stranger."""
        log = self.logs.setdefault(TopicPartition(topic, 0), [])
        headers = own if retry_copy is None else retry_copy_headers(retry_copy, own)
        log.append(Record(len(log), b"k", value, headers, 5_000))
        return len(log) - 1


class OperationStage:
    """What jobs are given. `archive`: the documents. `rights`: how often a job may still go on,
    None = for ever.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker = world.state.broker = LogBroker()
        self.archive = Archive(world.store, world.clock)
        self.rights: int | None = None
        self.control = Control(world.state, world.context)
        self.records = Records(world.context, world.partitions, world.membership)
        self.marks = DeadLetterRecords(world.context)
        self.retry_topic = retry_topic(self.broker, NAME, world.state.settings)
        world.state.signals.beat.connect(self._beat)
        self._beat()

    async def keep_right(self) -> None:
        """Renew the right to run. Raises NoRightError."""
        if self.rights is not None:
            self.rights -= 1
            if self.rights < 0:
                raise NoRightError

    def _beat(self) -> None:
        """Each heartbeat is answered at once, and no other sidecar is there."""
        now_ms = self.world.clock.monotonic_ms()
        self.world.membership.clock.seen(self.world.store.run, now_ms, now_ms, now_ms)
        self.world.membership.confirmed_at(now_ms)
