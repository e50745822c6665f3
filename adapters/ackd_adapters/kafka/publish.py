"""Publishing: one idempotent producer, and the thread that takes its answers to the loop in
batches.

One `publish` is one try for the engine. What the producer repeats by itself within
`publish_timeout_ms` has a sequence number, so the broker stores nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as Client

from ackd.ports import Condition, Failure, NotStored, Outgoing, PublishResult, Stored
from ackd_adapters.kafka import errors
from ackd_adapters.kafka.admin import AdminQuestions
from ackd_adapters.kafka.config import KafkaOptions, producer_properties
from ackd_adapters.kafka.health import ClientHealth, Conditions
from ackd_adapters.kafka.mailbox import call_loop
from ackd_adapters.kafka.worker import Worker

POLL_S = 0.1
FLUSH_BOUND_S = 5.0
_PURGED_S = 1.0
NO_OFFSET = "NO_OFFSET"


class _PublishCall:
    """One `publish`: its results, and how many are missing. Touched by the loop only."""

    __slots__ = ("done", "left", "results")

    def __init__(self, count: int, done: asyncio.Future[None]) -> None:
        self.results: list[PublishResult | None] = [None] * count
        self.left = count
        self.done = done

    def settle(self, index: int, result: PublishResult) -> None:
        """Record the result of message `index`; the last one ends the call."""
        self.results[index] = result
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)


class _DeliveryReport:
    """Called by the producer with the outcome of one message, in the polling thread."""

    __slots__ = ("answers", "call", "index")

    def __init__(self, answers: list[_Answer], call: _PublishCall, index: int) -> None:
        self.answers = answers
        self.call = call
        self.index = index

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Keep the answer until the current poll is over."""
        result = _outcome(message) if error is None else _not_stored(error)
        self.answers.append((self.call, self.index, result))


_Answer = tuple[_PublishCall, int, PublishResult]


class _Producer(Worker):
    """One producer and its thread."""

    def __init__(
        self,
        options: KafkaOptions,
        conditions: Conditions,
        admin: AdminQuestions,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__("ackd-publish")
        self._options = options
        self._admin = admin
        self._loop = loop
        self._conditions = conditions
        self.health = ClientHealth(conditions, "publish")
        self.client: Client
        self.answers: list[_Answer] = []

    def open_client(self) -> None:
        """Make the producer; it connects in the background."""
        self.client = Client(
            producer_properties(self._options) | {"error_cb": self.health.on_error}
        )

    def step(self) -> None:
        """Take the answers of one poll to the loop, all at once."""
        self.client.poll(POLL_S)
        self._hand_over()
        self._admin.poll()
        self.health.probe(self.client, None)

    def close_client(self) -> None:
        """Send what was accepted, for a bounded time; what is left then fails."""
        bound_s = 0 if self.health.fatal else FLUSH_BOUND_S - _PURGED_S
        if self.client.flush(bound_s):
            self.client.purge()
            self.client.flush(_PURGED_S)
        self._hand_over()

    def on_crash(self, error: BaseException) -> None:
        """Nothing answers any more: the next publish makes a new producer."""
        self.health.fatal = True
        self._conditions.report("publish/crash", repr(error), fatal=True)

    def _hand_over(self) -> None:
        if self.answers:
            answers, self.answers[:] = list(self.answers), []
            call_loop(self._loop, _settle_all, answers)


class Publisher:
    """Holds the producer, and replaces it after a fatal error."""

    def __init__(
        self, options: KafkaOptions, conditions: Conditions, admin: AdminQuestions
    ) -> None:
        self._options = options
        self._admin = admin
        self._conditions = conditions
        self._producer: _Producer | None = None
        self._making = asyncio.Lock()

    async def start(self) -> None:
        """Make the producer. Raises `ConfigError` or `BrokerError` for wrong properties."""
        self._producer = await self._make()

    async def _make(self) -> _Producer:
        loop = asyncio.get_running_loop()
        made = _Producer(self._options, self._conditions, self._admin, loop)
        await made.start()
        return made

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Publish as `ackd.ports.Broker.publish` promises. Cancelling it recalls nothing."""
        producer = self._producer
        if producer is None:
            closed = NotStored(Failure.NOT_STORED, "CLOSED", "the connection is closed")
            return [closed for _ in messages]
        if producer.health.fatal:
            producer = await self._replace(producer)
        if not messages:
            return []
        call = _PublishCall(len(messages), asyncio.get_running_loop().create_future())
        for index, message in enumerate(messages):
            refused = _produce(producer, message, _DeliveryReport(producer.answers, call, index))
            if refused is not None:
                call.settle(index, refused)
        await call.done
        return [each for each in call.results if each is not None]

    async def _replace(self, broken: _Producer) -> _Producer:
        """A producer with a fatal error accepts nothing more: end it, make another."""
        async with self._making:
            if self._producer is not broken and self._producer is not None:
                return self._producer
            await broken.close(_PURGED_S)
            made = await self._make()
            self._producer = made
        ended = [each.code for each in self._conditions.now() if each.code.startswith("publish/")]
        self._conditions.clear(*ended)
        return made

    async def close(self) -> None:
        """Flush for a bounded time. Never raises."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(FLUSH_BOUND_S + _PURGED_S)

    def conditions(self) -> list[Condition]:
        """What is wrong with the connection now."""
        return self._conditions.now()


def _produce(producer: _Producer, message: Outgoing, delivery: _DeliveryReport) -> NotStored | None:
    """Put one message into the producer's queue; returns a result when the producer refuses it."""
    if message.delay_ms:
        return NotStored(Failure.REFUSED, "NOT_SUPPORTED", "Kafka has no delayed messages")
    try:
        producer.client.produce(
            message.topic,
            message.value,
            message.key,
            -1 if message.partition is None else message.partition,
            on_delivery=delivery,
            headers=list(message.headers) or None,
        )
    except BufferError as error:
        return NotStored(Failure.PRESSURE, "QUEUE_FULL", str(error))
    except KafkaException as error:
        inner = errors.kafka_error(error)
        if inner is None:
            return NotStored(Failure.REFUSED, "INVALID", str(error))
        known = errors.failure(inner.code())
        # It was not even queued, so it is certainly not stored.
        sure = Failure.NOT_STORED if known is Failure.UNKNOWN else known
        return NotStored(sure, errors.code_name(inner), inner.str())
    except (TypeError, ValueError) as error:
        return NotStored(Failure.REFUSED, "INVALID", str(error))
    return None


def _outcome(message: Message) -> PublishResult:
    """The result of a message that the client calls delivered.

    Without an offset the broker never confirmed it: the client concludes it from a later batch that
    was stored. That is wrong where the broker has no sequence of this producer yet, as in the first
    batches of a partition (`rd_kafka_dr_implicit_ack` in librdkafka 2.16).
    """
    offset = message.offset()
    if offset is None:
        detail = "the broker took a later message and gave this one no offset"
        return NotStored(Failure.UNKNOWN, NO_OFFSET, detail)
    return Stored(message.topic() or "", message.partition() or 0, offset)


def _not_stored(error: KafkaError) -> NotStored:
    return NotStored(errors.failure(error.code()), errors.code_name(error), error.str())


def _settle_all(answers: list[_Answer]) -> None:
    for call, index, result in answers:
        call.settle(index, result)
