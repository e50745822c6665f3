"""Publishing: attempts, pauses under pressure, the outbox, and repeats under an idempotency key.

Follows RocketMQ's documented client rules. A message that was certainly not stored gets a first
attempt and two more at once, on another partition only where the application chose none (R20).
Under pressure the pauses grow exponentially, as gRPC's do, with jitter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from tenacity import AsyncRetrying, RetryCallState, retry_if_result

from ackd.api.messages import Accepted, Published, PublishRequest
from ackd.api.quotas import Quota
from ackd.config.schema import PublishSettings
from ackd.core.backoff import Backoff
from ackd.engine.base.context import Context
from ackd.engine.publishing.allowed_topics import AllowedTopics
from ackd.engine.publishing.idempotency import Answers
from ackd.engine.publishing.outbox import OutboxService
from ackd.engine.retry.own_topic import ReservedTopics
from ackd.errors import (
    AckdError,
    BodyTooLargeError,
    BrokerError,
    NotSupportedError,
    OutcomeUnknownError,
    PressureError,
    PublishRefusedError,
    ReservedTopicError,
    TopicNotAllowedError,
)
from ackd.ports import Broker, Failure, NotStored, Outgoing, PublishResult, Stored
from ackd.retries import waits
from ackd.telemetry.spans import number, text

if TYPE_CHECKING:
    from ackd.telemetry.traces import Traces

WAIT_FACTOR = 1.6
JITTER = 0.2
RANDOM_BITS = 32
OUTBOX_KEY_BYTES = 16


class Publisher:
    """Publishes to one broker, within bounds of messages and bytes under way (I8)."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        settings: PublishSettings,
        context: Context,
        reserved: ReservedTopics,
        outbox: OutboxService | None = None,
    ) -> None:
        self._name = name
        self._broker = broker
        self._settings = settings
        self._context = context
        self._reserved = reserved
        self._allowed = AllowedTopics(settings.topics)
        self._outbox = outbox
        self._when_away = outbox is not None and settings.outbox == "when_away"
        self._answers = Answers(name, settings, context)
        self._messages = 0
        self._bytes = 0

    async def publish(self, request: PublishRequest) -> Published:
        """Publish all messages; one result for each. Raises PressureError and the idempotency
        errors. The answer, or the PressureError, has what is left of the bounds.
        """
        keyed = request.idempotency_key is not None
        try:
            published = await self._once(request)
        except PressureError as error:
            error.tell(quotas=self._quotas(keyed=keyed))
            raise
        quotas = self._quotas(keyed=keyed)
        for each in published.results:
            if isinstance(each, PressureError):
                each.tell(quotas=quotas)
        return replace(published, quotas=quotas)

    def count_keys(self) -> None:
        """Show how many idempotency keys this sidecar keeps of those that it may."""
        part = self._answers.kept() / self._settings.idempotency_max
        self._context.metrics.publishing.idempotency_keys_ratio.at(self._name).set(part)

    def _quotas(self, *, keyed: bool) -> list[Quota]:
        """What is left of the bounds now, of that for idempotency keys if one was sent."""
        settings = self._settings
        most, size_max = settings.in_flight_max, settings.in_flight_bytes_max
        found = [
            Quota("messages", "concurrent-requests", most, max(most - self._messages, 0)),
            Quota("bytes", "content-bytes", size_max, max(size_max - self._bytes, 0)),
        ]
        return [*found, self._answers.quota()] if keyed else found

    async def _once(self, request: PublishRequest) -> Published:
        """Publish, or find the answer of an earlier request with the same idempotency key."""
        nothing: list[Stored | Accepted | None] = [None] * len(request.messages)
        if request.idempotency_key is None:
            return await self._bounded(request, nothing)
        boxed = all(self._boxed(each, request) for each in request.messages)
        claim = await self._answers.begin(request, boxed=boxed)
        if isinstance(claim, Published):
            return claim
        if claim.boxed:  # whatever the broker does now: the outbox may have it since the first try
            request = replace(request, respond_async=True)
        try:
            published = await self._bounded(request, claim.known)
        except (PressureError, BodyTooLargeError):
            await self._answers.undo(claim)
            raise
        await self._answers.end(claim, published.results)
        return published

    async def _bounded(
        self, request: PublishRequest, known: Sequence[Stored | Accepted | None]
    ) -> Published:
        """Refuse at once a request that would exceed the bounds (I8)."""
        messages = request.messages
        size = sum(len(m.value or b"") + len(m.key or b"") for m in messages)
        if (
            self._messages + len(messages) > self._settings.in_flight_max
            or self._bytes + size > self._settings.in_flight_bytes_max
        ):
            raise PressureError("too many messages are being published at once")
        self._messages += len(messages)
        self._bytes += size
        start_ms = self._context.clock.wall_ms()
        try:
            with self._context.metrics.publishing.publish_seconds.at(self._name).time():
                published = await self._publish(request, known)
            if self._context.traces is not None and messages:
                self._trace(self._context.traces, published, start_ms, messages[0].topic)
            return published
        finally:
            self._messages -= len(messages)
            self._bytes -= size

    def _trace(self, traces: Traces, published: Published, start_ms: int, topic: str) -> None:
        """Write one span for each request; successful ones are sampled."""
        failed = sum(isinstance(each, AckdError) for each in published.results)
        more = (
            f",{text('messaging.destination.name', topic)},{text('ackd.broker', self._name)}"
            f",{number('messaging.batch.message_count', len(published.results))}"
        )
        if failed:
            more += f",{number('ackd.failed', failed)},{text('error.type', 'publish')}"
        traces.published(more, start_ms, topic, failed=bool(failed))

    async def _publish(
        self, request: PublishRequest, known: Sequence[Stored | Accepted | None]
    ) -> Published:
        messages = request.messages
        boxed = [self._boxed(message, request) for message in messages]
        results: list[Stored | Accepted | AckdError | None] = [
            before or self._check(message, in_box)
            for before, message, in_box in zip(known, messages, boxed, strict=True)
        ]
        left = [index for index, result in enumerate(results) if result is None]
        later, now = [i for i in left if boxed[i]], [i for i in left if not boxed[i]]
        if now:
            tried = await self._tries([messages[i] for i in now])
            for index, result in zip(now, tried, strict=True):
                if self._when_away and _not_stored(result):
                    later.append(index)
                else:
                    results[index] = result if isinstance(result, Stored) else _error(result)
        replayed = await self._accept(request, sorted(later), results) if later else False
        for before, each in zip(known, results, strict=True):
            if before is None:
                self._count(each)
        return Published([each or BrokerError() for each in results], replayed=replayed)

    # --- the outbox

    def _boxed(self, message: Outgoing, request: PublishRequest) -> bool:
        """Whether the message goes into the outbox instead of to the broker now."""
        outbox = self._outbox
        if outbox is None:
            return False
        if request.respond_async:
            return True
        if message.delay_ms and not self._broker.capabilities.delayed_publish:
            return True
        # The outbox accepted its messages earlier: nothing may overtake them.
        return self._when_away and (outbox.away() or outbox.backlog)

    async def _accept(
        self,
        request: PublishRequest,
        which: Sequence[int],
        results: list[Stored | Accepted | AckdError | None],
    ) -> bool:
        """Put these into the outbox together; returns whether it is a repeat."""
        if self._outbox is None:
            return False
        try:
            accepted, replayed = await self._outbox.accept(
                [request.messages[index] for index in which], _outbox_key(request, which)
            )
        except AckdError as error:
            if len(which) == len(results):
                raise
            for index in which:
                results[index] = error
            return False
        for index, each in zip(which, accepted, strict=True):
            results[index] = each
        return replayed and len(which) == len(results)

    def _check(self, message: Outgoing, in_box: bool) -> AckdError | None:  # noqa: FBT001
        able = self._broker.capabilities
        if self._reserved.refuses(message.topic):
            return ReservedTopicError(f"{message.topic!r} is kept for ackd or the broker")
        if message.topic not in self._allowed:
            return TopicNotAllowedError(f"{message.topic!r} is not one of publish.topics")
        if message.delay_ms and not (able.delayed_publish or in_box):
            return NotSupportedError(
                f"{able.name} can't delay a message by itself, and publish.outbox is off"
            )
        if message.delay_ms > able.delay_max_ms and not in_box:
            return NotSupportedError(f"{able.name} delays by at most {able.delay_max_ms} ms")
        if message.partition is not None and not able.explicit_partition:
            return NotSupportedError(f"{able.name} takes no explicit partition")
        if len(message.value or b"") > able.value_bytes_max:
            return PublishRefusedError(f"the value is larger than {able.value_bytes_max} bytes")
        return None

    async def _tries(self, messages: list[Outgoing]) -> list[PublishResult]:
        """Publish, try again at once what was certainly not stored, then pause under pressure."""
        clock, settings = self._context.clock, self._settings
        end_ms = clock.monotonic_ms() + settings.timeout_ms

        def late(state: RetryCallState) -> bool:
            return clock.monotonic_ms() + state.upcoming_sleep * 1000 >= end_ms

        results = await self._again(messages, [], _first)
        for _ in range(settings.retries_max):
            results = await self._again(messages, results, _not_stored)
        if not any(map(_pressure, results)):
            return results
        pauses = Backoff(settings.backoff_ms, settings.backoff_ms_max, WAIT_FACTOR, JITTER)
        retrying = AsyncRetrying(
            retry=retry_if_result(lambda each: any(map(_pressure, each))),
            wait=waits(pauses, self._random),
            stop=late,
            retry_error_callback=lambda _: None,  # the last results are known below
            sleep=asyncio.sleep,
        )
        async for attempt in retrying:
            with attempt:
                if attempt.retry_state.attempt_number > 1:
                    results = await self._again(messages, results, _pressure)
            if attempt.retry_state.outcome is not None and not attempt.retry_state.outcome.failed:
                attempt.retry_state.set_result(results)
        return results

    def _random(self) -> float:
        return self._context.random_bits(RANDOM_BITS) / (1 << RANDOM_BITS)

    async def _again(
        self,
        messages: list[Outgoing],
        before: list[PublishResult],
        wanted: Callable[[PublishResult], bool],
    ) -> list[PublishResult]:
        """Publish again the messages whose result `wanted` selects, in the old order; the broker
        chooses partitions anew.
        """
        if not before:
            return await self._broker.publish(messages)
        which = [index for index, result in enumerate(before) if wanted(result)]
        if not which:
            return before
        self._context.metrics.publishing.publish_retries.at(self._name).inc(len(which))
        after = list(before)
        fresh = await self._broker.publish([messages[index] for index in which])
        for index, result in zip(which, fresh, strict=True):
            after[index] = result
        return after

    def _count(self, result: Stored | Accepted | AckdError | None) -> None:
        if isinstance(result, Stored | Accepted):
            outcome = "stored" if isinstance(result, Stored) else "accepted"
        else:
            outcome = result.type if result else "bug"
        self._context.metrics.publishing.published.at(self._name, outcome).inc()


def _outbox_key(request: PublishRequest, which: Sequence[int]) -> bytes:
    """Identifies these messages of a request with an idempotency key, the same for each repeat.

    A repeat with other messages of the request is no repeat for the outbox.
    """
    if request.idempotency_key is None:
        return b""
    name = request.idempotency_key.encode() + b"\0" + request.fingerprint
    if len(which) != len(request.messages):
        name += b"\0" + b",".join(b"%d" % index for index in which)
    return blake2b(name, digest_size=OUTBOX_KEY_BYTES).digest()


def _first(_: PublishResult) -> bool:
    return True


def _not_stored(result: PublishResult) -> bool:
    return isinstance(result, NotStored) and result.failure is Failure.NOT_STORED


def _pressure(result: PublishResult) -> bool:
    return isinstance(result, NotStored) and result.failure is Failure.PRESSURE


def _error(result: NotStored) -> AckdError:
    detail = f"{result.code}: {result.detail}"
    match result.failure:
        case Failure.UNKNOWN:
            return OutcomeUnknownError(detail)
        case Failure.REFUSED:
            return PublishRefusedError(detail)
        case Failure.PRESSURE:
            return PressureError(detail)
        case Failure.NOT_STORED:
            return BrokerError(detail)
