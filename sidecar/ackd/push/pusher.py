"""Push delivery of one subscription: lease messages, call the application, settle, and pause while
the application can't take messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ackd.api.messages import Delivery, Engine, Received, ReceiveRequest
from ackd.config.subscription import SubscriptionSettings
from ackd.errors import AckdError, DrainingError
from ackd.push.answer import PushVerdict
from ackd.push.call import Failed, PushClient, PushFailure
from ackd.push.call_limit import CallLimit
from ackd.push.pressure import SOURCE, Pressure
from ackd.push.push_delivery import PushDelivery
from ackd.telemetry.metrics import Metrics

LOG = logging.getLogger("ackd.push")

WAIT_MS = 20_000
PAUSE_S = 0.5
"""Constant: after a refusal of the engine in this process, which costs nobody anything."""
BATCH_BYTES = 4 << 20
HOLDER_CHARS_MAX = 100


# tidy: long-class attributes=14 -- the state of one receiver
class Pusher:
    """Pushes the messages of one subscription, until it is cancelled or its calls have ended after
    `drain`.
    """

    def __init__(
        self,
        name: str,
        settings: SubscriptionSettings,
        engine: Engine,
        metrics: Metrics,
        client: PushClient,
        secrets: Sequence[bytes],
    ) -> None:
        self._name = name
        self._push = settings.push
        self._engine = engine
        self._metrics = metrics
        self._client = client
        self._delivery = PushDelivery(name, settings, engine, metrics, client, secrets)
        self._calls = CallLimit(self._push.concurrency, self._push.trial_ms / 1000)
        self._pressure = Pressure(name, settings.push, engine, self._delivery, self._calls, metrics)
        self._now = asyncio.get_running_loop().time
        self._running = 0
        self._changed = asyncio.Event()
        self._draining = False
        self._reported: str | None = None
        self._out = False

    # --- the loop

    async def run(self) -> None:
        """Deliver until drained or cancelled; waits for running calls."""
        await self._client.start()
        self._metrics.push_breaker_open.at(self._name).set(0)
        try:
            async with asyncio.TaskGroup() as group:
                while not self._draining:
                    for messages in await self._next():
                        self._count(1)
                        group.create_task(self._deliver(messages))
        finally:
            self._metrics.push_running.at(self._name).set(0)
            await self._client.close()
            self._delivery.kept.close()

    def drain(self) -> None:
        """Take nothing new; `run` ends when the last call has ended."""
        self._draining = True
        self._pressure.stop()
        self._changed.set()

    async def _next(self) -> list[list[Delivery]]:
        """Lease messages for the next calls; empty if there are none now."""
        await self._until_back()
        room = self._room()
        if room <= 0:
            await self._until_room()
            return []
        if not self._out:
            self._tell(None)  # a pause is over; its end may have passed in the receive before
        received = await self._receive(room)
        if received.messages and (self._calls.broken or self._calls.wait_s(self._now())):
            await self._give_up(received)
            return []
        if self._push.mode == "batch":
            return [received.messages] if received.messages else []
        return [[message] for message in received.messages]

    def _room(self) -> int:
        """Return how many messages to ask for now."""
        calls = 0 if self._calls.wait_s(self._now()) else self._calls.limit - self._running
        batch = self._push.batch_max if self._push.mode == "batch" else 1
        kept = self._push.kept_max - self._delivery.kept.count() - self._running * batch
        if calls <= 0:
            return 0
        return min(batch if self._push.mode == "batch" else calls, kept)

    async def _until_room(self) -> None:
        """Wait until a call or a kept lease ends, or a pause is over."""
        wait_s = self._calls.wait_s(self._now())
        if not wait_s and self._calls.limit > self._running:
            await self._delivery.kept.wait(PAUSE_S)
            return
        self._changed.clear()
        try:
            async with asyncio.timeout(wait_s or None):
                await self._changed.wait()
        except TimeoutError:
            self._tell(None)

    async def _receive(self, most: int) -> Received:
        holder = f"push {self._push.url}"[:HOLDER_CHARS_MAX]
        request = ReceiveRequest(max=most, wait_ms=WAIT_MS, bytes_max=BATCH_BYTES, holder=holder)
        try:
            return await self._engine.receive(self._name, request)
        except AckdError as error:
            if not (isinstance(error, DrainingError) and self._draining):
                LOG.debug("%s: push gets no messages now, and tries again: %s", self._name, error)
                await asyncio.sleep(PAUSE_S)
            return Received([])

    async def _give_up(self, received: Received) -> None:
        """Release messages that ackd may no longer send; their attempts do not count."""
        try:
            await self._engine.abandon(received)
        except AckdError as error:
            LOG.info(
                "%s: ackd could not release leases, they end at their deadlines: %s",
                self._name,
                error,
            )

    def _count(self, change: int) -> None:
        self._running += change
        self._metrics.push_running.at(self._name).set(self._running)
        self._changed.set()

    # --- what comes of a call

    async def _deliver(self, messages: Sequence[Delivery]) -> None:
        try:
            while messages:
                result = await self._delivery.deliver(messages, self._learn)
                if not (isinstance(result, PushVerdict) and result.pause_ms):
                    break
                messages = await self._pressure.wait(messages, result)
        except Exception:
            # The leases expire by themselves; the other calls go on.
            LOG.exception("%s: a push call failed on a bug of ackd's, please report it", self._name)
        finally:
            self._count(-1)

    def _learn(self, result: PushVerdict | PushFailure) -> None:
        """Report the result to the gate, the metrics and the log."""
        call_limit, now_s = self._calls, self._now()
        if isinstance(result, PushFailure) and result.how is Failed.UNREACHABLE:
            self._nobody_there(result.detail)
            return
        self._somebody_there()
        if isinstance(result, PushFailure):
            return
        if result.pause_ms:
            call_limit.slow_down(now_s, result.pause_ms / 1000)
            self._tell(self._pressure.asked(result))
        else:
            self._pressure.over()
            call_limit.worked()

    def _tell(self, why: str | None) -> None:
        if why != self._reported:
            self._reported = why
            self._engine.hold_back(self._name, SOURCE, why)

    # --- the circuit breaker

    async def _until_back(self) -> None:
        """While the application is unreachable, try a connection from time to time; then make one
        call.
        """
        while self._calls.broken and not self._draining:
            await self._sleep(self._calls.next_trial_s())
            if await self._client.there():
                self._calls.reachable()

    async def _sleep(self, seconds: float) -> None:
        """Sleep; a drain ends it early."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                while not self._draining:
                    await self._changed.wait()
                    self._changed.clear()
        except TimeoutError:
            pass

    def _nobody_there(self, detail: str) -> None:
        if self._calls.unreachable(self._now()) and not self._out:
            self._out = True
            LOG.warning("%s: push stops, the application can't be reached: %s", self._name, detail)
            self._metrics.push_breaker_open.at(self._name).set(1)
        self._tell(f"{self._push.url} can't be reached; ackd tries again from time to time")

    def _somebody_there(self) -> None:
        if self._out:
            self._out = False
            LOG.info("%s: push goes on, the application answers again", self._name)
            self._metrics.push_breaker_open.at(self._name).set(0)
            self._tell(None)
