"""Sends the messages of an outbox, at the sidecar with the lease, in order per key and partition.

One loop: report what was sent, take what is due, start sending it. A message is removed from the
outbox only after the broker has it (I1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ackd.api.outbox import OutboxView
from ackd.config.schema import PublishSettings
from ackd.core.outbox import ResultRetention
from ackd.engine.base.context import Context
from ackd.engine.base.tasks import Tasks
from ackd.engine.publishing.outbox_codec import read_message
from ackd.engine.publishing.outbox_lease import OutboxLease
from ackd.engine.publishing.outbox_name import OutboxName
from ackd.engine.publishing.outbox_publisher import POLL_S, STOP_MS, OutboxPublisher
from ackd.engine.publishing.outbox_queue import OutboxQueue
from ackd.engine.publishing.turn_timer import TurnTimer
from ackd.errors import PublishRefusedError, StoreError, StoreUnknownError
from ackd.ports import Broker
from ackd.unreadable import UNREADABLE

POLL_MS = 100
IDLE_POLL_MS = 1_000
"""A sidecar without the lease tries this often to get it; a dead holder is replaced after
`LEASE_MS` + this.
"""
IDLE_RELEASE_MS = 30_000


class OutboxSender:
    """Sends for one broker. `away` tells whether the broker is unreachable now."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        settings: PublishSettings,
        context: Context,
        outbox_name: OutboxName,
        away: Callable[[], bool],
    ) -> None:
        self._name = name
        self._outbox_name = outbox_name
        self._away = away
        self._clock = clock = context.clock
        self._metrics = metrics = context.metrics.publishing
        self._timer = TurnTimer(clock)
        self._queue = queue = OutboxQueue()
        owner = f"{context.identity}#{context.random_bits(64):016x}"
        keep = ResultRetention(
            settings.outbox_result_ms, settings.outbox_results_max, settings.outbox_failed_ms
        )
        self._lease = lease = OutboxLease(
            name, owner, outbox_name, context.store, clock, keep, queue
        )
        tasks = Tasks(f"outbox.{name}.send", context.vitals)
        self._publisher = OutboxPublisher(
            name, broker, clock, metrics, tasks, queue, lease, away, self._timer.wake
        )
        self._resync = False
        self._busy_at_ms = 0
        self._detail = ""

    # --- what others ask

    def accepted(self, delay_ms: int) -> None:
        """This sidecar accepted a message that is due in `delay_ms`."""
        self._timer.due_in(delay_ms)
        if not delay_ms:
            self._lease.one_more_due()

    @property
    def backlog(self) -> bool:
        """Whether something is due and not sent, as far as this sidecar knows."""
        return bool(self._queue or self._lease.last.due)

    def view(self) -> OutboxView:
        """The values that the API shows."""
        last = self._lease.last
        holder = last.holder.partition("#")[0]
        counts = (last.waiting, last.due, len(self._queue), last.failed, last.size)
        return OutboxView(self._name, holder, *counts, last.next_due_ms or None, self._detail)

    # --- life

    async def run(self) -> None:
        self._detail = "the broker was never reached"
        await self._outbox_name.known.wait()
        while True:
            self._timer.begin()
            pause_ms = IDLE_POLL_MS
            try:
                pause_ms = await self._turn()
                self._detail = "the broker is away" if self._away() else ""
            except StoreUnknownError as error:
                self._resync, self._detail = True, error.detail
            except StoreError as error:
                self._detail = error.detail
            self._gauges()
            await self._timer.sleep(pause_ms)

    async def drain(self) -> None:
        """Wait until all due messages are sent, as long as sending succeeds."""
        while self._lease.term and self._going_well():  # noqa: ASYNC110 - ends in `run`, which is awaited by nobody
            await asyncio.sleep(POLL_S)

    def _going_well(self) -> bool:
        return self.backlog and not self._away() and not self._queue.failing()

    async def stop(self) -> None:
        """Take nothing more, wait for sends under way (bounded), give the lease back."""
        await self._publisher.stop()
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(STOP_MS / 1000):
                await self._lease.confirm()
                await self._lease.release()

    # --- a turn

    async def _turn(self) -> int:
        """Confirm, take, send; returns for how long there is nothing to do, in ms."""
        lease, queue = self._lease, self._queue
        await lease.confirm()
        if self._publisher.stopping:
            return IDLE_POLL_MS
        away = self._away()
        if away and lease.term and not (self._publisher.busy or queue.results):
            await lease.release()  # another sidecar may reach it
        room = 0 if away else queue.room()
        await self._take(room)
        self._publisher.send()
        now_ms = self._clock.monotonic_ms()
        if queue or lease.last.due or self._publisher.busy:
            self._busy_at_ms = now_ms
        idle = not (queue or lease.last.waiting or queue.results)
        if lease.term and idle and now_ms - self._busy_at_ms > IDLE_RELEASE_MS:
            await lease.release()
        return self._pause_ms(now_ms, room)

    async def _take(self, room: int) -> None:
        taken = await self._lease.take(room, resync=self._resync)
        self._resync = False
        for each in taken:
            if each.number in self._queue:
                continue  # a failover of the store lost that it was taken
            try:
                self._queue.add(each, read_message(each.body))
            except UNREADABLE as error:
                refused = PublishRefusedError(f"unreadable in the outbox: {error}")
                self._publisher.refuse(each.number, refused)

    def _pause_ms(self, now_ms: int, room: int) -> int:
        if not self._lease.term:
            return IDLE_POLL_MS
        times = [POLL_MS]
        last = self._lease.last
        if last.due and room:
            times.append(0)
        elif last.next_due_ms and not last.due:
            times.append(max(last.next_due_ms - self._lease.store_now_ms(), 1))
        return min(times + self._queue.pauses_ms(now_ms))

    def _gauges(self) -> None:
        metrics, last = self._metrics, self._lease.last
        metrics.outbox_waiting.at(self._name).set(last.waiting + len(self._queue))
        metrics.outbox_due.at(self._name).set(last.due + len(self._queue))
        metrics.outbox_bytes.at(self._name).set(last.size)
        metrics.outbox_failed.at(self._name).set(last.failed)
