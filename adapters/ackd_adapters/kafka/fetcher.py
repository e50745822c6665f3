"""The fetching thread: a consumer that is a member of no group and reads what it is asked to.

Partitions are added and removed with `incremental_assign` and `incremental_unassign`, which need no
subscription and leave the other partitions alone (measured in ADR 3). One such fetch is an
*attempt*; the loop numbers them, so that it can recognise what an earlier one left in the mailbox.
`pause` is not a librdkafka pause but the end of an attempt: both discard what was prefetched, and
so there is one mechanism to trust.

An attempt reads the topic of one identity. When a topic was made again, the client goes on in the
new one as soon as its metadata show it; its log says so, in order with the messages (`client_log`).
The fetcher drops what then arrives from the other identity (rule R1).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from time import monotonic

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from ackd.core.ids import TopicPartition
from ackd.ports import EndReached, Fetched, Headers, Record
from ackd_adapters.kafka.client_log import NO_IDENTITY, ClientLog
from ackd_adapters.kafka.config import Properties
from ackd_adapters.kafka.errors import END_OF_PARTITION, OUT_OF_RANGE, code_name
from ackd_adapters.kafka.health import ClientHealth, Conditions
from ackd_adapters.kafka.mailbox import Mailbox, MailboxItem
from ackd_adapters.kafka.worker import Worker

POLL_S = 0.02
IDLE_S = 0.2
CONSUME_MAX = 500
ENDS_HELD_S = 0.05
LOOK_UPS_MAX = 20
LOOK_UP_S = 0.5
"""Nothing is consumed while the client asks for a topic's leaders, so it asks for few."""

# partition, attempt, position, detail
OutOfRangeHandler = Callable[[TopicPartition, int, int, str], None]
# topic, the identity that the client reads from now on
IdentityHandler = Callable[[str, bytes], None]


@dataclass(slots=True)
class _FetchAttempt:
    """One fetch attempt of one partition. `next`: the least offset that may come.

    `identity`: of the intended topic, None = not known. `mute`: the client reads another topic.
    `epoch`: the last leader epoch that was reported.
    """

    session: int
    number: int
    next: int
    identity: bytes | None = None
    mute: bool = False
    epoch: int = -1
    last: Message | None = None
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0


# tidy: long-class attributes=18 -- what one thread owns
class Fetcher(Worker):
    """Decodes records into the mailbox as long as it has room.

    It calls `on_out_of_range` and `on_identity` from this thread.
    """

    def __init__(
        self,
        name: str,
        properties: Callable[[], Properties],
        mailbox: Mailbox,
        conditions: Conditions,
        on_out_of_range: OutOfRangeHandler,
        on_identity: IdentityHandler,
    ) -> None:
        super().__init__(f"ackd-fetch-{name}")
        self._properties = properties
        self._mailbox = mailbox
        self._timestamp_ms = -1
        self._health = ClientHealth(conditions, "fetch")
        self._conditions = conditions
        self._on_out_of_range = on_out_of_range
        self._on_identity = on_identity
        # Which topic the client reads under a name. A broker without identities reports none.
        self._identities: dict[str, bytes] = {}
        self._looked_up: set[str] = set()
        self._client: Client
        self._attempts: dict[TopicPartition, _FetchAttempt] = {}
        self._polled: list[Message] = []
        self._record_bytes = 1024
        self._drained_s = 0.0
        # Collected from the commands of one turn, so that 1000 partitions need one call.
        self._to_start: dict[TopicPartition, _FetchAttempt] = {}
        self._to_stop: set[TopicPartition] = set()
        # Ends that were reached and not reported yet. Records that follow make them obsolete: at a
        # trickle each message is the end of its partition, and reporting that doubled the cost.
        self._ends: dict[TopicPartition, MailboxItem] = {}
        self._ends_since_s = 0.0
        mailbox.on_room = lambda: self.commands.put(lambda: None)

    def drained(self) -> float:
        """When the client last had nothing to pass on, in seconds of the monotonic clock."""
        return self._drained_s

    # --- commands, put by the loop ------------------------------------------------------------

    def begin(
        self,
        partition: TopicPartition,
        offset: int,
        session: int,
        attempt: int,
        identity: bytes | None,
    ) -> None:
        """Read from `offset`; ends the earlier fetch attempt of this partition.

        `identity`: the intended topic. Nothing comes as long as the client reads another.
        """
        made = _FetchAttempt(session, attempt, offset, identity)
        self.commands.put(lambda: self._begin(partition, made))

    def end(self, partition: TopicPartition) -> None:
        self.commands.put(lambda: self._end(partition))

    def _begin(self, partition: TopicPartition, made: _FetchAttempt) -> None:
        self._end(partition)
        self._to_start[partition] = made

    def _end(self, partition: TopicPartition) -> None:
        self._to_start.pop(partition, None)
        self._ends.pop(partition, None)
        if partition in self._attempts:
            self._to_stop.add(partition)

    # --- the thread ---------------------------------------------------------------------------

    def open_client(self) -> None:
        """Make the consumer; it connects in the background."""
        properties = self._properties()
        log = ClientLog(properties, self._adopted)
        self._client = Client(properties | log.properties | {"error_cb": self._health.on_error})

    def close_client(self) -> None:
        """Close without leaving a group: there is no membership."""
        self._client.close()

    def on_crash(self, error: BaseException) -> None:
        """Report the crash; a new consumer has to be made."""
        if not self.closing or self._attempts:
            self._conditions.report("fetch/crash", repr(error), fatal=True)

    def step(self) -> None:
        """Apply commands, consume what has come, pass it on."""
        self._apply()
        some = next(iter(self._attempts), None)
        self._health.probe(self._client, some.topic if some else None)
        if some is None:
            self._client.poll(0)
            self.wait_command(IDLE_S)
            return
        room_records, room_bytes = self._mailbox.room()
        if room_records <= 0 or room_bytes <= 0:
            # librdkafka's own queue is bounded, so not consuming is all the back pressure needed.
            self.wait_command(POLL_S)
            return
        fitting = max(room_bytes // self._record_bytes, 1)
        first = self._client.poll(POLL_S)
        if first is None:
            self._drained_s = monotonic()
        else:
            rest = self._client.consume(min(CONSUME_MAX, room_records, fitting), 0)
            self._deliver([first, *rest])
        if self._ends and (first is None or monotonic() - self._ends_since_s > ENDS_HELD_S):
            self._put([*self._ends.values()])
            self._ends.clear()

    def _apply(self) -> None:
        """Apply the net effect of this turn's commands."""
        self.serve_commands()
        if self._to_stop:
            self._client.incremental_unassign([ClientPartition(*each) for each in self._to_stop])
            for partition in self._to_stop:
                del self._attempts[partition]
            self._to_stop.clear()
        if self._to_start:
            for partition, made in self._to_start.items():
                made.mute = not self._reads(partition.topic, made)
            self._client.incremental_assign(
                [ClientPartition(*each, made.next) for each, made in self._to_start.items()]
            )
            self._attempts |= self._to_start
            topics = {each.topic for each in self._to_start}
            self._to_start.clear()
            self._look_up(topics)

    def _look_up(self, topics: set[str]) -> None:
        """Ask for the leaders of topics that are new to this client, so that it fetches at once.

        By itself it looks for unknown topics once a second (librdkafka 2.x, `rd_kafka_1s_tmr_cb`).
        """
        new = sorted(topics - self._looked_up)[:LOOK_UPS_MAX]
        self._looked_up |= topics
        with suppress(KafkaException):
            for topic in new:
                self._client.list_topics(topic, timeout=LOOK_UP_S)

    # --- which topic it is

    def _reads(self, topic: str, attempt: _FetchAttempt) -> bool:
        """Whether the client reads the topic that this fetch attempt means, as far as both are
        known.
        """
        known = self._identities.get(topic)
        return known is None or attempt.identity is None or known == attempt.identity

    def _adopted(self, topic: str, before: bytes, now: bytes) -> None:
        """The client moves to another topic of this name; called within a poll.

        What it fetched of the old topic was polled earlier or is in this poll. Dropping the latter
        loses nothing: that topic is gone. A fetch attempt that waited for the new topic begins
        again, and is mute until then.
        """
        if now == NO_IDENTITY:
            self._identities.pop(topic, None)
            return
        self._identities[topic] = now
        for partition, attempt in self._attempts.items():
            if partition.topic != topic:
                continue
            if attempt.identity is None:
                attempt.identity = now if before == NO_IDENTITY else before
            reads = self._reads(topic, attempt)
            if reads and attempt.mute and partition not in self._to_stop:
                self._end(partition)
                self._to_start[partition] = attempt
            attempt.mute = attempt.mute or not reads
        self._on_identity(topic, now)

    def _deliver(self, messages: list[Message]) -> None:
        """Sort by partition, keep the order within each, and put everything with one wake-up."""
        self._polled = messages
        items: list[MailboxItem] = []
        open_: dict[TopicPartition, _FetchAttempt] = {}
        for message in messages:
            partition = TopicPartition(message.topic() or "", _int(message.partition()))
            attempt = self._attempts.get(partition)
            error = message.error()
            if error is not None:
                self._on_message_error(partition, attempt, message, error, items)
            elif attempt is not None and not attempt.mute:
                offset = _int(message.offset())
                # A session never goes back, whatever the client does after a reconnect.
                if offset >= attempt.next:
                    self._add(attempt, offset, message)
                    open_[partition] = attempt
                    self._ends.pop(partition, None)
        total = size = 0
        for partition, attempt in open_.items():
            total += len(attempt.records)
            size += attempt.size_bytes
            self._flush(partition, attempt, items)
        if total:
            self._record_bytes = max(size // total, 1)
        if items:
            self._put(items)

    def _put(self, items: list[MailboxItem]) -> None:
        self._mailbox.put(items)
        if self._health.unhealthy_topics:
            for item in items:
                if isinstance(item.event, Fetched | EndReached):
                    self._health.topic_works(item.event.partition.topic)

    def _add(self, attempt: _FetchAttempt, offset: int, message: Message) -> None:
        key, value = message.key(), message.value()
        size = (len(value) if value else 0) + (len(key) if key else 0)
        found = message.headers()
        headers: Headers = ()
        if found:
            headers = tuple(found)  # type: ignore[arg-type]
            for name, content in headers:
                size += len(name) + (len(content) if content else 0)
        timestamp_ms = message.timestamp()[1]
        if timestamp_ms == self._timestamp_ms:
            timestamp_ms = self._timestamp_ms  # One number for all records of a millisecond.
        else:
            self._timestamp_ms = timestamp_ms
        attempt.records.append(Record(offset, key, value, headers, timestamp_ms))
        attempt.size_bytes += size
        attempt.next = offset + 1
        attempt.last = message

    def _flush(
        self, partition: TopicPartition, attempt: _FetchAttempt, items: list[MailboxItem]
    ) -> None:
        """Turn what is collected of a partition into one event for each leader epoch."""
        if not attempt.records or attempt.last is None:
            return
        # Epochs only grow: if the last equals the one before the batch, so do those between.
        epoch = _int(attempt.last.leader_epoch())
        parts = [(epoch, attempt.records)]
        if epoch != attempt.epoch:
            parts = self._by_epoch(partition, attempt.records)
        size_bytes = attempt.size_bytes // len(attempt.records)
        for epoch, records in parts:
            event = Fetched(partition, attempt.session, records, leader_epoch=epoch)
            size = attempt.size_bytes if len(parts) == 1 else size_bytes * len(records)
            items.append(MailboxItem(event, attempt.number, len(records), size))
        attempt.epoch = epoch
        attempt.records, attempt.size_bytes, attempt.last = [], 0, None

    def _by_epoch(
        self, partition: TopicPartition, records: list[Record]
    ) -> list[tuple[int, list[Record]]]:
        """The records of this poll, grouped by leader epoch."""
        epochs = {
            message.offset(): _int(message.leader_epoch())
            for message in self._polled
            if message.error() is None
            and message.partition() == partition.partition
            and message.topic() == partition.topic
        }
        found = groupby(records, lambda record: epochs[record.offset])
        return [(epoch, list(each)) for epoch, each in found]

    def _on_message_error(
        self,
        partition: TopicPartition,
        attempt: _FetchAttempt | None,
        message: Message,
        error: KafkaError,
        items: list[MailboxItem],
    ) -> None:
        code = error.code()
        if code == END_OF_PARTITION or code in OUT_OF_RANGE:
            if attempt is None or attempt.mute:
                return
            self._flush(partition, attempt, items)
            if code == END_OF_PARTITION:
                end = max(_int(message.offset()), attempt.next)
                attempt.next = end
                if not self._ends:
                    self._ends_since_s = monotonic()
                reached = EndReached(partition, attempt.session, end)
                self._ends[partition] = MailboxItem(reached, attempt.number)
            else:
                self._end(partition)
                self._on_out_of_range(partition, attempt.number, attempt.next, error.str())
        elif partition.topic:
            self._health.on_topic_error(partition.topic, error)
        else:
            self._conditions.report(f"fetch/client/{code_name(error)}", error.str())


def _int(value: int | None) -> int:
    return -1 if value is None else value
