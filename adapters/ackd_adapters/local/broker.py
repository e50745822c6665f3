"""The local queue as a broker: two threads on one file, and what the event loop sees of them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from ackd.errors import BrokerError, BugError
from ackd.ports import (
    Capabilities,
    Condition,
    ConsumerSpec,
    Failure,
    NotStored,
    Outgoing,
    PublishResult,
    StartPolicy,
    own_topics,
)
from ackd_adapters.local import questions, topics
from ackd_adapters.local.config import MIB, LocalOptions
from ackd_adapters.local.consumer import METADATA_CHARS_MAX, LocalConsumer
from ackd_adapters.local.group import Groups
from ackd_adapters.local.jobs import Call
from ackd_adapters.local.log import Transaction
from ackd_adapters.local.publish import DELAY_MS_MAX, PublishJob
from ackd_adapters.local.reader import QueueReader, ReaderSignals
from ackd_adapters.local.writer import Signals, Writer

T = TypeVar("T")

CLOSE_S: Final = 5.0
"""How long `close` waits for what was accepted to reach the disk."""

CAPABILITIES: Final = Capabilities(
    name="local",
    order_within_partition=True,
    explicit_partition=True,
    delayed_publish=True,
    delay_max_ms=DELAY_MS_MAX,
    start_policies=frozenset(StartPolicy),
    seek_by_time=True,
    commit_metadata_chars=METADATA_CHARS_MAX,
    value_bytes_max=16 * MIB,
)


# tidy: long-class attributes=13 -- implements a port of 15 methods
class LocalBroker:
    """Implements `ackd.ports.Broker`. Started and used in one event loop."""

    def __init__(self, name: str, options: LocalOptions) -> None:
        self.name = name
        self.capabilities = dataclasses.replace(
            CAPABILITIES, value_bytes_max=options.value_bytes_max
        )
        self._options = options
        self._cluster = ""
        self._pending_bytes = 0
        self._consumers: set[LocalConsumer] = set()
        self._conditions: dict[str, Condition] = {}
        self._running = False
        self._calls: deque[Callable[[], None]] = deque()
        self._calls_due = False
        signals = Signals(self._committed, self._broke, self._died)
        self._writer = Writer(options.path, options, signals)
        self.reader = QueueReader(
            options.path,
            options.fetch_buffer_bytes,
            ReaderSignals(self._writer.poke, self._reader_broke, self._died),
        )

    @property
    def options(self) -> LocalOptions:
        return self._options

    @property
    def groups(self) -> Groups:
        """The groups of this process, for jobs of consumers in the writer's thread."""
        return self._writer.groups

    async def start(self) -> None:
        """Open the queue, or make it. Raises BrokerError; then it may be tried again."""
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[str | BrokerError] = self._loop.create_future()
        self._writer.start(lambda found: self.call_loop(_set(opened, found)))
        found = await opened
        if isinstance(found, BrokerError):
            raise found
        self._cluster = found
        self.reader.start()
        self._running = True

    async def cluster_id(self) -> str:
        """The random name in the queue's file."""
        self._check_running()
        return self._cluster

    def consumer(self, spec: ConsumerSpec) -> LocalConsumer:
        """A consumer of this queue; it may be made before the queue is open."""
        consumer = LocalConsumer(self, spec)
        self._consumers.add(consumer)
        return consumer

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Store messages, in one transaction with what others publish at the same time.

        A delayed message is answered with the offset -1: it gets its offset when it is due.
        """
        if not messages:
            return []
        if not self._running:
            closed = NotStored(Failure.NOT_STORED, "closed", "the queue is not open")
            return [closed for _ in messages]
        answer: asyncio.Future[list[PublishResult]] = self._loop.create_future()
        job = PublishJob(
            messages, self._options, lambda results: self.call_loop(_set(answer, results))
        )
        if self._pending_bytes and (
            self._pending_bytes + job.weight > self._options.publish_buffer_bytes
        ):
            full = NotStored(Failure.PRESSURE, "buffer-full", "too much is on its way to the disk")
            return [full for _ in messages]
        self._pending_bytes += job.weight
        answer.add_done_callback(lambda _: self._arrived(job.weight))
        self._writer.submit(job)
        # A caller that gives up must not give the room back before the disk has the messages.
        return await asyncio.shield(answer)

    async def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has."""
        return await self.ask(questions.Partitions(topic))

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Make a topic unless it is there.

        Settings have Kafka's names: `partitions`, `retention.ms`, `retention.bytes` (-1 = no bound)
        and `cleanup.policy`, which can only be `delete`; what else Kafka knows means nothing here.
        """
        if settings.get("cleanup.policy", "delete") != "delete":
            raise BrokerError(f"{topic}: the local queue can't compact, only delete")
        partitions = _number("partitions", settings) or self._options.partitions
        age_ms = _number("retention.ms", settings)
        size = _number("retention.bytes", settings)

        def make(tx: Transaction) -> None:
            if tx.topic(topic) is None:
                tx.cache[topic] = topics.create(tx.db, topic, partitions, age_ms, size)

        await self.call(make)

    def dead_letter_topic(self, group: str) -> str:
        """Named as on Kafka, so that a subscription can move there."""
        return own_topics.dead_letter_topic(group)

    def retry_topic(self, group: str) -> str:
        return own_topics.retry_topic(group)

    async def delete_topic(self, topic: str) -> None:
        """Remove a topic with all its messages and positions (not part of the port)."""

        def remove(tx: Transaction) -> None:
            found = tx.topic(topic)
            if found is None:
                raise BrokerError(f"there is no topic {topic!r}")
            tx.flush()
            tx.cache[topic] = None
            for log in found.logs:
                tx.heads.pop(log, None)
            topics.remove(tx.db, found)

        await self.call(remove)

    def conditions(self) -> list[Condition]:
        """What is wrong with the file now."""
        return list(self._conditions.values())

    async def close(self) -> None:
        """Leave all groups, write what was accepted, end the threads."""
        if not self._running:
            return
        for consumer in list(self._consumers):
            await consumer.close()
        self._running = False
        writer_end: asyncio.Future[None] = self._loop.create_future()
        reader_end: asyncio.Future[None] = self._loop.create_future()
        self._writer.stop(lambda: self.call_loop(_set(writer_end, None)))
        self.reader.stop(lambda: self.call_loop(_set(reader_end, None)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await writer_end
                await reader_end

    def forget(self, consumer: LocalConsumer) -> None:
        """A consumer has been closed."""
        self._consumers.discard(consumer)

    def call_loop(self, call: Callable[[], None]) -> None:
        """Run something in the event loop; from any thread, and harmless when the loop is gone.

        The answers of one transaction wake the loop up once: each wake-up is a system call.
        """
        self._calls.append(call)
        if not self._calls_due:
            self._calls_due = True
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._run_calls)

    async def call(self, work: Callable[[Transaction], None]) -> None:
        """Run `work` in the writer's next transaction. Raises BrokerError."""
        self._check_running()
        answer: asyncio.Future[BrokerError | BugError | None] = self._loop.create_future()
        self._writer.submit(Call(work, lambda error: self.call_loop(_set(answer, error))))
        error = await answer
        if error is not None:
            raise error

    async def ask(self, question: questions.Question[T]) -> T:
        """Ask the reader. Raises BrokerError."""
        self._check_running()
        answer: asyncio.Future[T | Exception] = self._loop.create_future()
        self.reader.ask(question, lambda found: self.call_loop(_set(answer, found)))
        found = await answer
        if isinstance(found, Exception):
            raise found
        return found

    def _check_running(self) -> None:
        if not self._running:
            raise BrokerError("the queue is not open")

    def _run_calls(self) -> None:
        # First the flag: what another thread appends from here on gets a wake-up of its own.
        self._calls_due = False
        while self._calls:
            self._calls.popleft()()

    def _arrived(self, weight: int) -> None:
        self._pending_bytes -= weight

    def _committed(self) -> None:
        self.reader.wake()

    def _broke(self, error: BrokerError | None) -> None:
        self._note("queue", error.detail if error else "")

    def _reader_broke(self, detail: str) -> None:
        self._note("queue-reader", detail)

    def _died(self, detail: str) -> None:
        self._note("queue-thread", detail, fatal=True)

    def _note(self, code: str, detail: str, *, fatal: bool = False) -> None:
        """Keep a condition until it is over (no detail); from any thread."""

        def note() -> None:
            if detail:
                self._conditions[code] = Condition(code, detail, fatal=fatal, away=not fatal)
            else:
                self._conditions.pop(code, None)

        self.call_loop(note)


def _number(name: str, settings: Mapping[str, str]) -> int | None:
    """A topic's setting; Kafka's -1 (no bound) is 0 here. None when it is absent."""
    text = settings.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        raise BrokerError(f"{name} of a topic is a number, not {text!r}") from None
    return max(number, 0)


def _set(answer: asyncio.Future[T], found: T) -> Callable[[], None]:
    def arrive() -> None:
        if not answer.done():
            answer.set_result(found)

    return arrive
