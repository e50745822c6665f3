"""Publishing: one producer for each partition, made on first use, without batches.

Without batches an entry is one message. So a topic that only ackd writes to has offsets without
gaps, and the broker's answer names the position of each message.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pulsar

from ackd.core.ids import TopicPartition
from ackd.errors import AckdError
from ackd.ports import Failure, NotStored, Outgoing, PublishResult, Stored
from ackd_adapters.pulsar import errors
from ackd_adapters.pulsar.box import call_loop
from ackd_adapters.pulsar.connection import Connection
from ackd_adapters.pulsar.logs import Logs
from ackd_adapters.pulsar.message import java_hash, partition_key, properties
from ackd_adapters.pulsar.names import TopicNameError
from ackd_adapters.pulsar.numbering import Position
from ackd_adapters.pulsar.tables import Tables

THREADS: Final = 1
"""One: two would change the order of calls."""
CLOSE_S: Final = 5.0


class Publisher:
    """Sends and waits for the broker's answers."""

    def __init__(self, connection: Connection, logs: Logs, tables: Tables) -> None:
        self._connection = connection
        self._logs = logs
        self._tables = tables
        self._options = connection.options
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="ackd-pulsar-publish")
        self._producers: dict[TopicPartition, Any] = {}
        self._counts: dict[str, int] = {}
        self._making = threading.Lock()
        self._turn = itertools.count()
        self._bytes = 0
        self._open = False

    def start(self) -> None:
        """Accept messages from now on."""
        self._open = True

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Send each once; results in the same order."""
        if not messages:
            return []
        if not self._open:
            return [_closed() for _ in messages]
        size = sum(_size(each) for each in messages)
        if self._bytes and self._bytes + size > self._options.publish_bytes_max:
            full = NotStored(Failure.PRESSURE, "buffer-full", "too much is on its way")
            return [full for _ in messages]
        loop = asyncio.get_running_loop()
        call = _PendingPublish(len(messages), loop)
        self._bytes += size
        call.answer.add_done_callback(lambda _: self._arrived(size))
        self._pool.submit(self._send, list(messages), call)
        found = await asyncio.shield(call.answer)
        places = [each for each in found if not isinstance(each, NotStored)]
        if not places:
            return [each for each in found if isinstance(each, NotStored)]
        return await asyncio.to_thread(lambda: [self._stored(each) for each in found])

    async def close(self) -> None:
        """Wait a bounded time for pending messages."""
        self._open = False

        def end() -> None:
            for producer in list(self._producers.values()):
                with contextlib.suppress(pulsar.PulsarException, RuntimeError):
                    producer.flush()
                    producer.close()
            self._producers.clear()

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.get_running_loop().run_in_executor(None, end)
        self._pool.shutdown(wait=False, cancel_futures=False)

    def forget(self, topic: str) -> None:
        """Topics that were made again need new producers."""
        with self._making:
            self._counts.pop(topic, None)
            for partition in [each for each in self._producers if each.topic == topic]:
                del self._producers[partition]

    def _arrived(self, size: int) -> None:
        self._bytes -= size

    def _send(self, messages: list[Outgoing], call: _PendingPublish) -> None:
        """Send, in a thread: the order of calls is the order in the log."""
        for index, message in enumerate(messages):
            try:
                self._send_one(message, index, call)
            except TopicNameError as error:
                call.settle(index, NotStored(Failure.REFUSED, "topic-name", error.detail))
            except AckdError as error:
                call.settle(index, NotStored(Failure.NOT_STORED, "no-producer", error.detail))
            except pulsar.PulsarException as error:
                code = errors.code_of(error)
                call.settle(index, NotStored(errors.opening_failure(code), code, str(error)))
            except Exception as error:  # noqa: BLE001 -- a caller must not wait for ever
                call.settle(index, NotStored(Failure.NOT_STORED, "client", str(error)))

    def _send_one(self, message: Outgoing, index: int, call: _PendingPublish) -> None:
        refused = self._refused(message)
        if refused is not None:
            call.settle(index, refused)
            return
        partition = self._partition(message)
        if partition is None:
            call.settle(
                index, NotStored(Failure.REFUSED, "no-topic", f"there is no {message.topic}")
            )
            return

        def sent(result: Any, place: Any) -> None:
            if result == pulsar.Result.Ok:
                at = Position(place.ledger_id(), place.entry_id(), 0)
                call.settle(index, (partition, at))
            else:
                code = errors.code_of(result)
                call.settle(index, NotStored(errors.failure(code), code, str(result)))

        self._producer(partition).send_async(
            message.value,
            sent,
            properties=properties(message.key, message.headers),
            partition_key=partition_key(message.key),
        )

    def _refused(self, message: Outgoing) -> NotStored | None:
        if message.delay_ms:
            return NotStored(Failure.REFUSED, "no-delay", "delays are not the broker's business")
        if _size(message) > self._options.message_bytes_max:
            return NotStored(Failure.REFUSED, "too-large", "more than message_bytes_max")
        return None

    def _partition(self, message: Outgoing) -> TopicPartition | None:
        count = self._counts.get(message.topic)
        if count is None:
            found = self._logs.partitions(message.topic)
            if found is None:
                return None
            count = self._counts[message.topic] = max(found, 1)
        if message.partition is not None:
            if not 0 <= message.partition < count:
                return None
            return TopicPartition(message.topic, message.partition)
        key = partition_key(message.key)
        chosen = next(self._turn) if key is None else java_hash(key)
        return TopicPartition(message.topic, chosen % count)

    def _producer(self, partition: TopicPartition) -> Any:
        with self._making:
            found = self._producers.get(partition)
            if found is None:
                found = self._producers[partition] = self._connection.client.create_producer(
                    "persistent://" + self._logs.full_name(partition),
                    batching_enabled=False,
                    send_timeout_millis=self._options.publish_timeout_ms,
                    max_pending_messages=self._options.publish_records_max,
                    block_if_queue_full=False,
                )
            return found

    def _stored(self, place: _Answer) -> PublishResult:
        if isinstance(place, NotStored):
            return place
        partition, at = place
        try:
            offset = self._tables.offset(partition, at)
        except AckdError:
            # The message is stored; only the table can't be read now.
            offset = -1
        return Stored(partition.topic, partition.partition, offset)


_Answer = NotStored | tuple[TopicPartition, Position]


class _PendingPublish:
    """The answers of one call, collected from the client's threads."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[list[_Answer]] = loop.create_future()
        self._loop = loop
        self._found: list[_Answer | None] = [None] * count
        self._left = count
        self._lock = threading.Lock()

    def settle(self, index: int, answer: _Answer) -> None:
        """Record one answer; from any thread."""
        with self._lock:
            if self._found[index] is not None:
                return
            self._found[index] = answer
            self._left -= 1
            if self._left:
                return
        call_loop(self._loop, self._done)

    def _done(self) -> None:
        if not self.answer.done():
            self.answer.set_result([each for each in self._found if each is not None])


def _closed() -> NotStored:
    return NotStored(Failure.NOT_STORED, "closed", "the connection is closed")


def _size(message: Outgoing) -> int:
    size = len(message.value or b"") + len(message.key or b"")
    return size + sum(len(name) + len(value or b"") for name, value in message.headers)
