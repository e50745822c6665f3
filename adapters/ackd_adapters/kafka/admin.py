"""Asks the cluster on behalf of the connection, without a group and without blocking the event
loop.

The admin client answers with futures from its own thread. `AdminQuestions` awaits them on the loop,
repeats within one bound what can succeed later (a leader has just moved), and maps errors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from ackd.core.backoff import Backoff
from ackd.core.ids import TopicPartition
from ackd.errors import AckdError, BrokerError
from ackd.ports import TopicInfo
from ackd.retries import repeating
from ackd_adapters.kafka import errors
from ackd_adapters.kafka.config import KafkaOptions, check_files, common
from ackd_adapters.kafka.log_check import Tail
from ackd_adapters.kafka.worker import settled

LOG = logging.getLogger("ackd.kafka")
T = TypeVar("T")
AGAIN = Backoff.constant(100)
"""A broker that chooses a leader is ready soon; the time of a question bounds the tries."""
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
VISIBLE_S = 10.0
ANSWER_S = 5.0
"""Longer than the client's own time-out: covers questions that the client forgets, and dead
threads.
"""
RENEW_S = 20.0
"""Minimum time between two replacements of a client that gets no answers."""
# Keys of `ensure_topic`'s settings that are not Kafka topic settings.
PARTITIONS_KEY = "partitions"
REPLICATION_KEY = "replication_factor"


@dataclass(slots=True)
class RangeQuestion:
    """A pending question for both ends of a partition's log. `used`: somebody has taken the
    answer.
    """

    first: Future[int]
    end: Future[int]
    used: bool = False

    def done(self) -> bool:
        """Whether both answers are there."""
        return self.first.done() and self.end.done()


class AdminQuestions:
    """One admin client, shared by all consumers of a connection."""

    def __init__(self, options: KafkaOptions) -> None:
        self._timeout_s = options.request_timeout_ms / 1000
        self._isolation = (
            IsolationLevel.READ_COMMITTED
            if options.isolation_level == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        self._options = options
        self._client: AdminClient | None = None
        self._before: AdminClient | None = None
        self._renewed_s = 0.0
        # For the one question that has no future: the list of all topics.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ackd-admin")

    async def start(self) -> None:
        """Make the client, in a thread because files are read. Raises `ConfigError`."""
        try:
            self._client = await settled(self._pool.submit(self._make))
        except (KafkaException, ValueError, TypeError) as error:
            raise errors.config_error(error) from error

    def _make(self) -> AdminClient:
        check_files(self._options)
        return AdminClient(dict(common(self._options)))  # type: ignore[arg-type]

    async def _renew(self) -> None:
        """Replace a client whose questions time out.

        A client whose broker froze during the connect was seen to wait for the controller's name
        for ever, although the broker had long been back (librdkafka 2.16). A new client asks again.
        """
        now_s = asyncio.get_running_loop().time()
        old = self._client
        # Twice the time-out of a question: the replaced client has none pending by then.
        if old is None or now_s - self._renewed_s < max(RENEW_S, 2 * self._timeout_s):
            return
        self._renewed_s = now_s
        try:
            async with asyncio.timeout(ANSWER_S):
                new = await settled(self._pool.submit(self._make))
        except (KafkaException, ValueError, TypeError, AckdError, RuntimeError, OSError) as error:
            LOG.warning("ackd can't make a new admin client, and keeps the old one: %r", error)
            return
        if self._client is old:  # The client was not closed meanwhile.
            # The client before the last has answered everything; closing it may take a while.
            gone, self._before, self._client = [self._before], old, new
            self._pool.submit(gone.clear)

    @property
    def client(self) -> AdminClient:
        """The client. Raises `BrokerError` before `start` and after `close`."""
        if self._client is None:
            raise BrokerError("not connected")
        return self._client

    def close(self) -> None:
        """Drop the client; pending questions may never be answered."""
        self._client = self._before = None
        self._pool.shutdown(wait=False, cancel_futures=True)

    def poll(self) -> None:
        """Let the client forward its log lines; a thread calls this now and then."""
        if self._client is not None:
            self._client.poll(0)

    async def cluster_id(self) -> str:
        """The cluster's own id. Raises `BrokerError`.

        Read from the metadata: `describe_cluster` of librdkafka 2.16 aborts the process when the
        broker that answers counts as dead at the controller, as after a restart or a long stop.
        """
        return str((await self._metadata("cluster id")).cluster_id)

    async def topic_names(self) -> list[str]:
        """Names of all topics of the cluster. Raises BrokerError."""
        return list((await self._metadata("topics")).topics)

    async def _metadata(self, what: str) -> ClusterMetadata:
        async def ask() -> ClusterMetadata:
            client = self.client
            return await settled(
                self._pool.submit(lambda: client.list_topics(timeout=self._timeout_s))
            )

        return await self.asked(what, ask)

    def describe(self, names: Sequence[str]) -> dict[str, Future[TopicInfo]]:
        """Start describing topics; the future of a missing topic fails with `KafkaException`."""
        if not names:
            return {}
        asked = self.client.describe_topics(
            TopicCollection(list(names)), request_timeout=self._timeout_s
        )
        return {name: _mapped(future, _topic_info) for name, future in asked.items()}

    async def topics(self, names: Sequence[str]) -> list[TopicInfo]:
        """Those of `names` that exist. Raises `BrokerError`."""

        async def ask() -> list[TopicInfo]:
            found = []
            for future in self.describe(names).values():
                try:
                    found.append(await settled(future))
                except KafkaException as error:
                    if not errors.is_code(error, errors.UNKNOWN_TOPIC):
                        raise
            return found

        return await self.asked("topics", ask)

    async def offset(
        self, partition: TopicPartition, spec: OffsetSpec, *, committed_only: bool = True
    ) -> int:
        """The offset that `spec` asks for; -1 when there is none. Raises `BrokerError`.

        `committed_only`: the end is where readers of this connection's isolation level stop.
        """

        async def ask() -> int:
            return await settled(self._ask_offset(partition, spec, committed_only=committed_only))

        return await self.asked(f"offset of {partition.topic}/{partition.partition}", ask)

    def ask_range(self, partition: TopicPartition) -> RangeQuestion:
        """Start asking for both ends of the log, open transactions included. Raises
        `BrokerError`.
        """
        return RangeQuestion(
            self._ask_offset(partition, EARLIEST, committed_only=False),
            self._ask_offset(partition, LATEST, committed_only=False),
        )

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Future[int]]:
        """Start asking where readers of this connection's isolation level stop. Raises
        `BrokerError`; a future fails with `KafkaException`.
        """
        return self._ask_ends(partitions, self._isolation, _offset)

    def log_ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Future[Tail]]:
        """Start asking where logs end, open transactions included, and for their leaders' epochs.
        Raises `BrokerError`; a future fails with `KafkaException`.
        """
        return self._ask_ends(partitions, IsolationLevel.READ_UNCOMMITTED, _tail)

    def _ask_ends(
        self,
        partitions: Sequence[TopicPartition],
        isolation: IsolationLevel,
        read: Callable[[object], T],
    ) -> dict[TopicPartition, Future[T]]:
        asked = self.client.list_offsets(
            {ClientPartition(*each): LATEST for each in partitions},
            isolation_level=isolation,
            request_timeout=self._timeout_s,
        )
        return {
            TopicPartition(each.topic, each.partition): _mapped(future, read)
            for each, future in asked.items()
        }

    def _ask_offset(
        self, partition: TopicPartition, spec: OffsetSpec, *, committed_only: bool
    ) -> Future[int]:
        asked = self.client.list_offsets(
            {ClientPartition(*partition): spec},
            isolation_level=(
                self._isolation if committed_only else IsolationLevel.READ_UNCOMMITTED
            ),
            request_timeout=self._timeout_s,
        )
        return _mapped(next(iter(asked.values())), _offset)

    async def log_range(
        self, partition: TopicPartition, *, committed_only: bool = True
    ) -> tuple[int, int]:
        """(first offset, end). Raises `BrokerError`."""
        first = await self.offset(partition, EARLIEST)
        end = await self.offset(partition, LATEST, committed_only=committed_only)
        return first, max(first, end)

    async def create(self, topic: str, settings: Mapping[str, str]) -> None:
        """Create the topic unless it exists; wait until the cluster shows it. Raises
        `BrokerError`.
        """
        config = dict(settings)
        partitions = int(config.pop(PARTITIONS_KEY, "-1"))
        replication = int(config.pop(REPLICATION_KEY, "-1"))
        new = NewTopic(topic, partitions, replication, config=config)

        async def ask() -> None:
            asked = self.client.create_topics([new], request_timeout=self._timeout_s)
            try:
                await settled(asked[topic])
            except KafkaException as error:
                if not errors.is_code(error, frozenset({KafkaError.TOPIC_ALREADY_EXISTS})):
                    raise

        await self.asked(f"create {topic}", ask)
        try:
            async with asyncio.timeout(VISIBLE_S):
                while not await self.topics([topic]):  # noqa: ASYNC110  the other side has no events
                    await asyncio.sleep(AGAIN.base_ms / 1000)
        except TimeoutError:
            raise BrokerError(f"create {topic}: made, but not seen in time") from None

    async def asked(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a question until it is answered, refused for good (`BrokerError`), or out of
        time.
        """

        async def once() -> T:
            try:
                async with asyncio.timeout(self._timeout_s + ANSWER_S):
                    return await ask()
            except TimeoutError:
                LOG.warning("%s: the admin client is silent, ackd replaces it", what)
                await self._renew()
                raise BrokerError(f"{what}: no answer in time") from None
            except KafkaException as error:
                if errors.is_code(error, errors.NO_ANSWER):
                    await self._renew()
                raise

        retrying = repeating(KafkaException, AGAIN, only=_retriable, within_s=self._timeout_s)
        try:
            return await retrying(once)
        except KafkaException as error:
            raise errors.broker_error(what, error) from error


def _retriable(error: KafkaException) -> bool:
    return errors.is_code(error, errors.RETRIABLE)


def _offset(found: object) -> int:
    return int(found.offset)  # type: ignore[attr-defined]


def _tail(found: object) -> Tail:
    epoch = found.leader_epoch  # type: ignore[attr-defined]
    return Tail(_offset(found), -1 if epoch is None else int(epoch))


def _topic_info(found: object) -> TopicInfo:
    identity = found.topic_id  # type: ignore[attr-defined]
    parts = (identity.get_most_significant_bits(), identity.get_least_significant_bits())
    raw = b"".join((part & (2**64 - 1)).to_bytes(8, "big") for part in parts)
    return TopicInfo(found.name, raw, len(found.partitions))  # type: ignore[attr-defined]


def _mapped(source: Future[object], change: Callable[[object], T]) -> Future[T]:
    """A future with the result of `future`, converted."""
    target: Future[T] = Future()

    def relay(done: Future[object]) -> None:
        error = done.exception()
        if error is not None:
            target.set_exception(error)
            return
        try:
            target.set_result(change(done.result()))
        except Exception as wrong:  # noqa: BLE001  must not vanish in the client's thread
            target.set_exception(wrong)

    source.add_done_callback(relay)
    return target
