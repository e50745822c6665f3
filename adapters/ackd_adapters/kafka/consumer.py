"""One subscription's side of Kafka, on the event loop: two clients in two threads, one event
stream.

The *member* belongs to the group; it only receives assignments and commits. The *fetcher* reads
what the engine asks for, assigned or not. So a rebalance never disturbs fetching, and a takeover
does not wait for the group (rule R5). See ADR 3.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import OffsetSpec

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError, BugError, OutcomeUnknownError
from ackd.ports import (
    Committed,
    Condition,
    ConsumerEvent,
    ConsumerSpec,
    EndReached,
    Fetched,
    OutOfRange,
    TopicInfo,
    TopicReplaced,
)
from ackd_adapters.kafka import errors
from ackd_adapters.kafka.admin import LATEST, AdminQuestions, RangeQuestion
from ackd_adapters.kafka.config import (
    KafkaOptions,
    fetch_properties,
    member_properties,
    position_properties,
)
from ackd_adapters.kafka.fetcher import Fetcher
from ackd_adapters.kafka.health import Conditions
from ackd_adapters.kafka.idle_positions import IdlePositions
from ackd_adapters.kafka.log_check import LogCheck, Tail
from ackd_adapters.kafka.mailbox import Mailbox, MailboxItem, call_loop
from ackd_adapters.kafka.member import Member
from ackd_adapters.kafka.names import is_pattern, matching
from ackd_adapters.kafka.positions import Found, PositionReader
from ackd_adapters.kafka.standstill import FetchWatch, PartitionFetch
from ackd_adapters.kafka.worker import settled

RANGE_RETRY_S = 0.5
IDENTITY_RETRY_S = 0.5
CUT = re.compile(r"broker end offset is (\d+)")
"""Where a truncated log differs from what was read; only the client's error text says it."""


# tidy: long-class lines=371 attributes=21 -- implements a port of 17 methods over two clients
class KafkaConsumer:
    """Implements `ackd.ports.Consumer`. `read_ids`: identity of each topic that the fetcher reads,
    by name.
    """

    def __init__(self, options: KafkaOptions, spec: ConsumerSpec, admin: AdminQuestions) -> None:
        self._options = options
        self._spec = spec
        self._admin = admin
        self._lanes: dict[TopicPartition, PartitionFetch] = {}
        self._expected: dict[TopicPartition, Tail] = {}
        fetching = partial(fetch_properties, options, spec)
        self._log_check = LogCheck(spec.group, fetching, admin.log_ends)
        self._session = 0
        self._attempt = 0
        self._idle = IdlePositions(spec.topics)
        self._topic_ids: dict[str, bytes] = {}
        self.read_ids: dict[str, bytes] = {}
        self._closed = False
        self._positions: PositionReader | None = None
        self._opening = asyncio.Lock()
        self._check_timer: asyncio.TimerHandle | None = None
        self._conditions = Conditions(self._post)
        self._loop = asyncio.get_running_loop()
        self._mailbox = Mailbox(self._loop, options.fetch_records_max, options.fetch_bytes_max)
        self._fetcher = Fetcher(
            spec.group,
            fetching,
            self._mailbox,
            self._conditions,
            lambda *facts: call_loop(self._loop, self._ask_range, *facts),
            lambda *facts: call_loop(self._loop, self._on_identity, *facts),
        )
        self._watch = FetchWatch(self._lanes, admin.ends, self._fetcher.drained, self._begin)
        self._member = Member(
            spec.group,
            lambda: member_properties(options, spec),
            spec.topics,
            options.topics_refresh_ms,
            self._conditions,
            self._post,
        )

    async def start(self) -> None:
        await self._fetcher.start()
        if self._spec.joins:
            await self._member.start()
        self._schedule_check()
        self._watch.start()

    async def also(self, topic: str) -> None:
        if self._idle.also(topic):
            self._member.also(topic)

    def conditions(self) -> list[Condition]:
        """What is wrong with this consumer now."""
        return self._conditions.now()

    def room(self) -> tuple[int, int]:
        """Records and bytes that still fit into the buffer; 0 or less when it is full."""
        return self._mailbox.room()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._watch.close()
        self._mailbox.close()
        self._log_check.close()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fetcher.close())
            group.create_task(self._member.close())
            if self._positions is not None:
                group.create_task(self._positions.close())

    # --- events -------------------------------------------------------------------------------

    async def events(self) -> list[ConsumerEvent]:
        """Raises `BrokerError` once the consumer is closed."""
        while await self._mailbox.wait():
            found = [item.event for item in self._mailbox.take() if self._is_due(item)]
            if found:
                return found
        raise BrokerError("the consumer is closed")

    def _post(self, event: ConsumerEvent) -> None:
        self._mailbox.put([MailboxItem(event)])

    def _is_due(self, item: MailboxItem) -> bool:
        """Whether the engine may get this event; events of an ended `attempt` are dropped."""
        event = item.event
        if item.attempt is None or not isinstance(event, Fetched | EndReached | OutOfRange):
            return True
        lane = self._lanes.get(event.partition)
        if lane is None or lane.attempt != item.attempt or lane.paused:
            return False
        if isinstance(event, Fetched):
            lane.next = event.records[-1].offset + 1
        elif isinstance(event, EndReached):
            lane.next = max(lane.next, event.offset)
        return True

    # --- fetching -----------------------------------------------------------------------------

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        self._session += 1
        lane = PartitionFetch(self._session, 0, offset)
        before = self._lanes.get(partition)
        lane.unchecked = self._expected.pop(partition, before.unchecked if before else None)
        self._lanes[partition] = lane
        self._conditions.clear(_truncated(partition))  # whoever fetches anew knows where from
        if lane.unchecked is None:
            self._begin(partition, lane)
        else:
            self._fetcher.end(partition)
            self._loop.call_soon(self._check_logs)
        return lane.session

    def _check_logs(self) -> None:
        """Check the logs of all lanes that wait for it, with one client."""
        todo = {each: lane.unchecked for each, lane in self._lanes.items() if lane.unchecked}
        if self._closed or self._log_check.busy or not todo:
            return
        self._log_check.ask(todo, lambda found: call_loop(self._loop, self._checked, todo, found))

    def _checked(self, asked: Mapping[TopicPartition, Tail], found: Mapping[object, str]) -> None:
        """Begin fetching where the log still has what was read. Without an answer, ask again."""
        for partition, tail in asked.items():
            lane = self._lanes.get(partition)
            if lane is None or lane.unchecked != tail or partition not in found:
                continue
            lane.unchecked = None
            if found[partition]:
                self._attempt += 1
                lane.attempt = self._attempt
                self._ask_range(partition, lane.attempt, tail.end, found[partition])
            elif not lane.paused:
                self._begin(partition, lane)
        if any(lane.unchecked for lane in self._lanes.values()):
            self._loop.call_later(0 if found else RANGE_RETRY_S, self._check_logs)

    def expect(self, partition: TopicPartition, end: int, leader_epoch: int) -> None:
        if end > 0 and leader_epoch >= 0:
            self._expected[partition] = Tail(end, leader_epoch)
        else:
            self._expected.pop(partition, None)

    def stop_fetch(self, partition: TopicPartition) -> None:
        if self._lanes.pop(partition, None) is not None:
            self._fetcher.end(partition)
            self._conditions.clear(_truncated(partition))

    def pause(self, partition: TopicPartition) -> None:
        """Drops what is buffered of it; `resume` reads it again."""
        lane = self._lanes.get(partition)
        if lane is not None and not lane.paused:
            lane.paused = True
            self._fetcher.end(partition)

    def resume(self, partition: TopicPartition) -> None:
        lane = self._lanes.get(partition)
        if lane is not None and lane.paused:
            lane.paused = False
            if lane.unchecked is None:
                self._begin(partition, lane)

    def _begin(self, partition: TopicPartition, lane: PartitionFetch) -> None:
        self._attempt += 1
        lane.attempt = self._attempt
        identity = self._topic_ids.get(partition.topic)
        self._fetcher.begin(partition, lane.next, lane.session, lane.attempt, identity)

    def _ask_range(
        self, partition: TopicPartition, attempt: int, position: int, detail: str
    ) -> None:
        """The fetcher stopped at `position`: find out whether that is really outside the log."""
        lane = self._lanes.get(partition)
        if self._closed or lane is None or lane.attempt != attempt:
            return
        try:
            question = self._admin.ask_range(partition)
        except BrokerError:
            return

        def answered(_: Future[int]) -> None:
            if question.done():
                call_loop(
                    self._loop, self._on_range, partition, attempt, position, detail, question
                )

        question.first.add_done_callback(answered)
        question.end.add_done_callback(answered)

    def _on_range(
        self,
        partition: TopicPartition,
        attempt: int,
        position: int,
        detail: str,
        question: RangeQuestion,
    ) -> None:
        lane = self._lanes.get(partition)
        if self._closed or lane is None or lane.attempt != attempt or question.used:
            return
        question.used = True
        try:
            first, end = question.first.result(), question.end.result()
        except KafkaException:
            self._loop.call_later(
                RANGE_RETRY_S, self._ask_range, partition, attempt, position, detail
            )
            return
        # If retention has removed a whole epoch, nobody can tell; then nothing of it is left.
        truncated = "truncat" in detail.lower() and position > first
        cut = None
        if truncated:
            match = CUT.search(detail)
            cut = max(int(match[1]), first) if match else first
            self._conditions.report(_truncated(partition), detail)
        if first <= position <= end and not truncated:
            # For example a leader that had not caught up. Nothing was skipped: go on where it
            # stopped.
            identity = self._topic_ids.get(partition.topic)
            self._fetcher.begin(partition, position, lane.session, attempt, identity)
            return
        event = OutOfRange(partition, lane.session, first, end, cut)
        self._mailbox.put([MailboxItem(event, attempt)])

    # --- topics and their identity --------------------------------------------------------------

    async def topics(self) -> list[TopicInfo]:
        names = self._idle.all_topics
        if any(is_pattern(topic) for topic in names):
            names = tuple(matching(names, await self._admin.topic_names()))
        found = await self._admin.topics(names)
        for each in found:
            self._identify(each)
        return found

    def _on_identity(self, topic: str, identity: bytes) -> None:
        """The fetching client now reads this topic. If it is not the one that the engine knows, ask
        the cluster until its answer agrees; until then the engine gets nothing of the topic.
        """
        self.read_ids[topic] = identity
        self._compare(topic, identity)

    def _compare(self, topic: str, identity: bytes) -> None:
        known = self._topic_ids.get(topic, identity)
        if self._closed or known == identity or self.read_ids[topic] != identity:
            return
        if any(each.topic == topic for each in self._lanes):
            self._ask_topics([topic])
            self._loop.call_later(IDENTITY_RETRY_S, self._compare, topic, identity)

    def _schedule_check(self) -> None:
        self._check_timer = self._loop.call_later(
            self._options.topics_refresh_ms / 1000, self._check_topics
        )

    def _check_topics(self) -> None:
        """Ask now and then for the identities of the topics that are fetched."""
        if not self._closed:
            self._schedule_check()
            self._ask_topics(sorted({each.topic for each in self._lanes}))
            if idle := self._idle.due():
                self._member.keep(idle)

    def _ask_topics(self, names: Sequence[str]) -> None:
        try:
            asked = self._admin.describe(names)
        except (BrokerError, KafkaException):
            return
        for name, future in asked.items():

            def relay(done: Future[TopicInfo], name: str = name) -> None:
                call_loop(self._loop, self._on_checked, name, done)

            future.add_done_callback(relay)

    def _on_checked(self, name: str, answer: Future[TopicInfo]) -> None:
        error = answer.exception()
        if self._closed:
            return
        codes = {
            f"topics/unknown/{name}": errors.UNKNOWN_TOPIC,
            f"topics/not-authorized/{name}": errors.TOPIC_REFUSED,
        }
        if error is None:
            self._conditions.clear(*codes)
            self._identify(answer.result())
            return
        # The fetching client says nothing about a topic that it can't see.
        for code, meant in codes.items():
            if errors.is_code(error, meant):
                self._conditions.report(code, errors.broker_error(name, error).detail)

    def _identify(self, found: TopicInfo) -> None:
        known = self._topic_ids.get(found.topic)
        self._topic_ids[found.topic] = found.topic_id
        if known is None or known == found.topic_id:
            return
        for partition in [each for each in self._lanes if each.topic == found.topic]:
            self.stop_fetch(partition)
        for partition in [each for each in self._expected if each.topic == found.topic]:
            del self._expected[partition]
        self._post(TopicReplaced(found.topic, found.topic_id))

    # --- positions ------------------------------------------------------------------------------

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        if not partitions:
            return {}

        async def ask() -> Found:
            reader = await self._reader()
            return await settled(reader.ask(partitions))

        found = await self._admin.asked("committed positions", ask)
        self._idle.committed(found)
        return found

    async def _reader(self) -> PositionReader:
        """The running position reader, or a new one."""
        if self._closed:
            raise BrokerError("the consumer is closed")
        async with self._opening:
            if self._positions is None or self._positions.closing:
                options, spec = self._options, self._spec
                reader = PositionReader(
                    spec.group,
                    lambda: position_properties(options, spec),
                    options.request_timeout_ms / 1000,
                )
                await reader.start()
                self._positions = reader
            return self._positions

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Raises `OutcomeUnknownError` when there is no answer in time."""
        if self._closed:
            raise BrokerError("the consumer is closed")
        if not positions:
            return
        wanted = []
        for partition, position in positions.items():
            if "\0" in position.metadata:
                raise BugError("commit metadata with a NUL would be cut there")
            wanted.append(ClientPartition(*partition, position.offset, position.metadata))
        self._idle.doubt(positions)
        answer = self._member.commit(wanted)
        try:
            async with asyncio.timeout(self._options.request_timeout_ms / 1000):
                await settled(answer)
        except TimeoutError:
            raise OutcomeUnknownError("commit: the broker did not answer in time") from None
        self._idle.committed(positions)

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """With `read_committed` the end is where open transactions begin."""
        return await self._admin.log_range(partition)

    async def log_end(self, partition: TopicPartition) -> int:
        return await self._admin.offset(partition, LATEST, committed_only=False)

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        found = await self._admin.offset(partition, OffsetSpec.for_timestamp(timestamp_ms))
        return found if found >= 0 else (await self.log_range(partition))[1]


def _truncated(partition: TopicPartition) -> str:
    """The condition that the log lost messages which were read, until fetching begins anew or the
    partition is let go.
    """
    return f"fetch/truncated/{partition.topic}/{partition.partition}"
