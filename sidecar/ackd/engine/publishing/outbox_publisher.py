"""Gives messages of an outbox to the broker, a few batches at a time, and decides what each answer
means: stored, refused for good, or to be sent again.

A message that may have been sent without an answer is sent again and marked `in_doubt`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from ackd.core.backoff import Backoff
from ackd.core.outbox import SendResult
from ackd.engine.base.tasks import Tasks
from ackd.engine.publishing.outbox_codec import write_failed, write_stored
from ackd.engine.publishing.outbox_lease import OutboxLease
from ackd.engine.publishing.outbox_queue import OutboxQueue, UnsentMessage
from ackd.errors import AckdError, PublishRefusedError
from ackd.ports import Broker, Clock, Failure, NotStored, PublishResult, Stored
from ackd.telemetry.metrics import PublishingMetrics

LOG = logging.getLogger("ackd.engine")

PUBLISHES_MAX = 4
AGAIN = Backoff(200, 5_000, factor=1.6)
"""After a message was certainly or perhaps not stored."""
STOP_MS = 2_000
POLL_S = 0.02


class OutboxPublisher:
    """`away` tells whether the broker is unreachable now; `answered` is called after each batch.

    `stopping`: it starts no batch any more.
    """

    def __init__(
        self,
        name: str,
        broker: Broker,
        clock: Clock,
        metrics: PublishingMetrics,
        tasks: Tasks,
        queue: OutboxQueue,
        lease: OutboxLease,
        away: Callable[[], bool],
        answered: Callable[[], None],
    ) -> None:
        self._name = name
        self._broker = broker
        self._clock = clock
        self._metrics = metrics
        self._tasks = tasks
        self._queue = queue
        self._lease = lease
        self._away = away
        self._answered = answered
        self._running = 0
        self.stopping = False

    @property
    def busy(self) -> bool:
        """Whether the broker has not answered a batch yet."""
        return bool(self._running)

    def send(self) -> None:
        """Start publishing the messages that may go now."""
        while self._running < PUBLISHES_MAX and not self.stopping:
            if not self._lease.valid or self._away():
                return
            chosen = self._queue.choose(self._clock.monotonic_ms())
            if not chosen:
                return
            self._running += 1
            for held in chosen.values():
                held.fly()
            self._tasks.start(self._publish(self._lease.term, chosen), "publish", ends=True)

    def refuse(self, number: int, error: AckdError) -> None:
        """The message will never be sent: it waits for somebody to look at it."""
        LOG.error("outbox of %s: message %d failed for good: %s", self._name, number, error.detail)
        self._metrics.outbox_sent.at(self._name, "refused").inc()
        self._queue.finish(SendResult(number, write_failed(error), failed=True))

    async def stop(self) -> None:
        """Start nothing more; wait for the batches under way, within a bound."""
        self.stopping = True
        try:
            async with asyncio.timeout(STOP_MS / 1000):
                while self._running:  # noqa: ASYNC110 - bounded, and over soon
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            LOG.warning(
                "outbox of %s: stopped before all sends were confirmed; these may come twice",
                self._name,
            )
        await self._tasks.stop()

    async def _publish(self, term: int, chosen: Mapping[int, UnsentMessage]) -> None:
        results: Sequence[PublishResult]
        try:
            results = await self._broker.publish([held.message for held in chosen.values()])
        except AckdError as error:
            results = [NotStored(Failure.UNKNOWN, error.type, error.detail)] * len(chosen)
        finally:
            self._running -= 1
            self._answered()
        if term != self._lease.term:
            return  # fenced meanwhile: the successor sends these again
        for (number, held), result in zip(chosen.items(), results, strict=True):
            if self._queue.has(number, held):
                self._decide(number, held, result)
        self.send()  # later messages of these lanes need not wait for the store

    def _decide(self, number: int, held: UnsentMessage, result: PublishResult) -> None:
        if isinstance(result, Stored):
            written = write_stored(result, in_doubt=held.in_doubt)
            self._queue.finish(SendResult(number, written))
            late_ms = max(self._lease.store_now_ms() - held.due_ms, 0)
            self._metrics.outbox_lateness.at(self._name).observe(late_ms / 1000)
            self._metrics.outbox_sent.at(self._name, "sent").inc()
        elif result.failure is Failure.REFUSED:
            self.refuse(number, PublishRefusedError(f"{result.code}: {result.detail}"))
        else:
            in_doubt = result.failure is Failure.UNKNOWN
            held.failed(AGAIN, self._clock.monotonic_ms(), in_doubt=in_doubt)
            self._metrics.outbox_sent.at(self._name, result.failure.value).inc()
