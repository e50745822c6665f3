"""Sends the messages of an outbox, at the sidecar with the lease, in order per key and partition.

Two messages of a topic with the same key, or for the same explicit partition, are never in flight
together: the later one waits until the broker has stored the earlier one or refused it for good.
Messages without a key are sent in batches. A message is removed from the outbox only after the
broker has it (I1). A message that may have been sent without an answer is sent again and marked
`in_doubt`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from ackd.api.outbox import OutboxView
from ackd.config.schema import PublishSettings
from ackd.core.backoff import Backoff
from ackd.core.outbox import ResultRetention, SendResult, TakenMessage, TakeRequest, TakeResult
from ackd.engine.base.context import Context
from ackd.engine.base.tasks import Tasks
from ackd.engine.publishing.outbox_codec import read_message, write_failed, write_stored
from ackd.engine.publishing.outbox_name import OutboxPlace
from ackd.errors import AckdError, PublishRefusedError, StoreError, StoreUnknownError
from ackd.ports import Broker, Failure, NotStored, Outgoing, PublishResult, Stored

LOG = logging.getLogger("ackd.engine")

LEASE_MS = 3_000
POLL_MS = 100
TURN_MS = 10
"""Least time between two calls to the store: messages that come meanwhile go together."""
IDLE_POLL_MS = 1_000
"""A sidecar without the lease tries this often to get it; a dead holder is replaced after
`LEASE_MS` + this.
"""
IDLE_RELEASE_MS = 30_000
HELD_MAX = 1_000
HELD_BYTES_MAX = 16 * 1024 * 1024
TAKE_BYTES_MAX = 4 * 1024 * 1024
BATCH_MAX = 500
PUBLISHES_MAX = 4
AGAIN = Backoff(200, 5_000, factor=1.6)
"""After a message was certainly or perhaps not stored."""
STOP_MS = 2_000
IN_A_TURN = 1 << 62
"""Not asleep: the running call to the store may miss what is accepted now, so wake it."""
_DRAIN_POLL_S = 0.02

Lane = tuple[str, bytes | int]


class _Held:
    """A message that this sidecar has taken from the outbox."""

    __slots__ = ("again_ms", "due_ms", "flying", "in_doubt", "lanes", "message", "size", "tries")

    def __init__(self, taken: TakenMessage, message: Outgoing) -> None:
        self.message = message
        self.size = len(taken.body)
        self.due_ms = taken.due_ms
        self.in_doubt = taken.in_doubt
        self.lanes: tuple[Lane, ...] = ()
        if message.key is not None:
            self.lanes += ((message.topic, message.key),)
        if message.partition is not None:
            self.lanes += ((message.topic, message.partition),)
        self.tries = 0
        self.again_ms = 0
        self.flying = False


# tidy: long-class attributes=23 -- one loop with its queues and counters
class OutboxSender:
    """Sends for one broker. `away` tells whether the broker is unreachable now."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        settings: PublishSettings,
        context: Context,
        place: OutboxPlace,
        away: Callable[[], bool],
    ) -> None:
        self._name = name
        self._place = place
        self._broker = broker
        self._context = context
        self._away = away
        self._keep = ResultRetention(
            settings.outbox_result_ms, settings.outbox_results_max, settings.outbox_failed_ms
        )
        self._me = f"{context.identity}#{context.random_bits(64):016x}"
        self._tasks = Tasks(f"outbox.{name}.send", context.vitals)
        self._wake = asyncio.Event()
        self._held: dict[int, _Held] = {}
        self._unconfirmed: dict[int, SendResult] = {}
        self._publishes = 0
        self._term = self._questions = 0
        self._valid_until_ms = 0
        self._resync = False
        self._stopping = False
        self._asked_for = 0
        self._last_take = TakeResult(0, "", 0, 0, 0, 0, 0, 0)
        self._last_take_ms = 0
        self._busy_at_ms = 0
        self._sleeps_until_ms = IN_A_TURN
        self._detail = ""

    # --- what others ask

    def accepted(self, delay_ms: int) -> None:
        """This sidecar accepted a message that is due in `delay_ms`."""
        if self._now_ms() + delay_ms < self._sleeps_until_ms:
            self._wake.set()
        if not delay_ms:
            self._last_take = self._last_take._replace(due=self._last_take.due + 1)

    @property
    def backlog(self) -> bool:
        """Whether something is due and not sent, as far as this sidecar knows."""
        return bool(self._held or self._last_take.due)

    def view(self) -> OutboxView:
        """The values that the API shows."""
        answer = self._last_take
        holder = answer.holder.partition("#")[0]
        counts = (
            answer.waiting,
            answer.due,
            len(self._held),
            answer.failed,
            answer.size,
        )
        return OutboxView(self._name, holder, *counts, answer.next_due_ms or None, self._detail)

    # --- life

    async def run(self) -> None:
        self._detail = "the broker was never reached"
        await self._place.known.wait()
        while True:
            self._wake.clear()
            pause_ms, begin_ms = IDLE_POLL_MS, self._now_ms()
            try:
                pause_ms = await self._turn()
                self._detail = "the broker is away" if self._away() else ""
            except StoreUnknownError as error:
                self._resync, self._detail = True, error.detail
            except StoreError as error:
                self._detail = error.detail
            self._gauges()
            self._sleeps_until_ms = self._now_ms() + pause_ms
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self._wake.wait()
            self._sleeps_until_ms = IN_A_TURN
            early_ms = TURN_MS + begin_ms - self._now_ms()
            if early_ms > 0:
                await asyncio.sleep(early_ms / 1000)

    async def drain(self) -> None:
        """Wait until all due messages are sent, as long as sending succeeds."""
        while self._term and self._going_well():  # noqa: ASYNC110 - ends in `run`, which is awaited by nobody
            await asyncio.sleep(_DRAIN_POLL_S)

    def _going_well(self) -> bool:
        return self.backlog and not self._away() and not any(h.tries for h in self._held.values())

    async def stop(self) -> None:
        """Take nothing more, wait for sends under way (bounded), give the lease back."""
        self._stopping = True
        try:
            async with asyncio.timeout(STOP_MS / 1000):
                while self._publishes:  # noqa: ASYNC110 - bounded, and over soon
                    await asyncio.sleep(_DRAIN_POLL_S)
        except TimeoutError:
            LOG.warning(
                "outbox of %s: stopped before all sends were confirmed; these may come twice",
                self._name,
            )
        await self._tasks.stop()
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(STOP_MS / 1000):
                await self._confirm()
                await self._release()

    async def _release(self) -> None:
        if not self._term:
            return
        unsent = [n for n, held in self._held.items() if not (held.flying or held.in_doubt)]
        term, self._term = self._term, 0
        self._held.clear()
        await self._context.store.outboxes.release(self._place.name, self._me, term, unsent)

    # --- a turn

    async def _turn(self) -> int:
        """Confirm, take, send; returns for how long there is nothing to do, in ms."""
        await self._confirm()
        if self._stopping:
            return IDLE_POLL_MS
        away = self._away()
        if away and self._term and not (self._publishes or self._unconfirmed):
            await self._release()  # another sidecar may reach it
        room = 0 if away else self._room()
        await self._take(room)
        self._send()
        now_ms = self._now_ms()
        if self._held or self._last_take.due or self._publishes:
            self._busy_at_ms = now_ms
        idle = not (self._held or self._last_take.waiting or self._unconfirmed)
        if self._term and idle and now_ms - self._busy_at_ms > IDLE_RELEASE_MS:
            await self._release()
        return self._pause_ms(now_ms)

    def _room(self) -> int:
        size = sum(held.size for held in self._held.values())
        return HELD_MAX - len(self._held) if size < HELD_BYTES_MAX else 0

    def _pause_ms(self, now_ms: int) -> int:
        if not self._term:
            return IDLE_POLL_MS
        times = [POLL_MS]
        answer = self._last_take
        if answer.due and self._asked_for:
            times.append(0)
        elif answer.next_due_ms and not answer.due:
            times.append(max(answer.next_due_ms - answer.now_ms + self._last_take_ms - now_ms, 1))
        times += [h.again_ms - now_ms for h in self._held.values() if h.again_ms > now_ms]
        return min(times)

    async def _take(self, room: int) -> None:
        begin_ms = self._now_ms()
        have = [*self._held, *self._unconfirmed] if self._resync else None
        most = self._asked_for = min(room, BATCH_MAX)
        self._questions += 1
        request = TakeRequest(self._me, self._term, self._questions, LEASE_MS)
        answer = await self._context.store.outboxes.take(
            self._place.name, request, most, TAKE_BYTES_MAX, have
        )
        self._resync = False
        self._last_take, self._last_take_ms = answer._replace(messages=()), self._now_ms()
        if answer.term != self._term:
            self._fenced()
            self._term = answer.term
            if answer.term:
                LOG.info(
                    "outbox of %s: this sidecar sends its messages now (term %d)",
                    self._name,
                    answer.term,
                )
        self._valid_until_ms = begin_ms + LEASE_MS
        for taken in answer.messages:
            if taken.number in self._held or taken.number in self._unconfirmed:
                continue  # a failover of the store lost that it was taken
            try:
                self._held[taken.number] = _Held(taken, read_message(taken.body))
            except msgspec.DecodeError as error:
                refused = PublishRefusedError(f"unreadable in the outbox: {error}")
                self._unconfirmed[taken.number] = self._failed(taken.number, refused)

    def _fenced(self) -> None:
        """Another sidecar has the lease: drop what was taken under the last term."""
        if self._held or self._unconfirmed:
            LOG.warning(
                "outbox of %s: another sidecar sends now; what this one had taken may come twice",
                self._name,
            )
        self._held.clear()
        self._unconfirmed.clear()
        self._term = 0

    async def _confirm(self) -> None:
        """Report what was sent to the store; repeated until it answers or the lease is lost."""
        if not self._unconfirmed or not self._term:
            return
        begin_ms, confirmed = self._now_ms(), list(self._unconfirmed.values())
        outboxes = self._context.store.outboxes
        if not await outboxes.done(
            self._place.name, self._me, self._term, LEASE_MS, confirmed, self._keep
        ):
            self._fenced()
            return
        self._valid_until_ms = begin_ms + LEASE_MS
        for each in confirmed:
            self._unconfirmed.pop(each.number, None)

    # --- publishing

    def _send(self) -> None:
        """Start publishing the messages that may go now."""
        while self._publishes < PUBLISHES_MAX and not self._stopping:
            now_ms = self._now_ms()
            if not self._term or now_ms >= self._valid_until_ms or self._away():
                return  # the lease is over: a sidecar that was frozen must not send
            chosen = self._choose(now_ms)
            if not chosen:
                return
            self._publishes += 1
            for held in chosen.values():
                held.flying = True
            self._tasks.start(self._publish(self._term, chosen), "publish", ends=True)

    def _choose(self, now_ms: int) -> dict[int, _Held]:
        """Pick messages in order, and only the first one of each lane."""
        busy: set[Lane] = {
            lane for held in self._held.values() if held.flying for lane in held.lanes
        }
        chosen: dict[int, _Held] = {}
        for number, held in self._held.items():
            if held.flying:
                continue
            free = busy.isdisjoint(held.lanes) and held.again_ms <= now_ms
            busy.update(held.lanes)
            if free:
                chosen[number] = held
                if len(chosen) >= BATCH_MAX:
                    break
        return chosen

    async def _publish(self, term: int, chosen: Mapping[int, _Held]) -> None:
        results: Sequence[PublishResult]
        try:
            results = await self._broker.publish([held.message for held in chosen.values()])
        except AckdError as error:
            results = [NotStored(Failure.UNKNOWN, error.type, error.detail)] * len(chosen)
        finally:
            self._publishes -= 1
            self._wake.set()
        if term != self._term:
            return  # fenced meanwhile: the successor sends these again
        for (number, held), result in zip(chosen.items(), results, strict=True):
            self._answered(number, held, result)
        self._send()  # later messages of these lanes need not wait for the store

    def _answered(self, number: int, held: _Held, result: PublishResult) -> None:
        metrics = self._context.metrics
        if self._held.get(number) is not held:
            return  # the lease was lost meanwhile: another sidecar has it
        held.flying = False
        if isinstance(result, Stored):
            del self._held[number]
            written = write_stored(result, in_doubt=held.in_doubt)
            self._unconfirmed[number] = SendResult(number, written)
            now_ms = self._last_take.now_ms + self._now_ms() - self._last_take_ms
            metrics.publishing.outbox_lateness.at(self._name).observe(
                max(now_ms - held.due_ms, 0) / 1000
            )
            metrics.publishing.outbox_sent.at(self._name, "sent").inc()
        elif result.failure is Failure.REFUSED:
            del self._held[number]
            refused = PublishRefusedError(f"{result.code}: {result.detail}")
            self._unconfirmed[number] = self._failed(number, refused)
        else:
            held.tries += 1
            held.again_ms = self._now_ms() + AGAIN.delay_ms(held.tries)
            held.in_doubt |= result.failure is Failure.UNKNOWN
            metrics.publishing.outbox_sent.at(self._name, result.failure.value).inc()

    def _failed(self, number: int, error: AckdError) -> SendResult:
        LOG.error("outbox of %s: message %d failed for good: %s", self._name, number, error.detail)
        self._context.metrics.publishing.outbox_sent.at(self._name, "refused").inc()
        return SendResult(number, write_failed(error), failed=True)

    def _gauges(self) -> None:
        metrics, answer = self._context.metrics, self._last_take
        metrics.publishing.outbox_waiting.at(self._name).set(answer.waiting + len(self._held))
        metrics.publishing.outbox_due.at(self._name).set(answer.due + len(self._held))
        metrics.publishing.outbox_bytes.at(self._name).set(answer.size)
        metrics.publishing.outbox_failed.at(self._name).set(answer.failed)

    def _now_ms(self) -> int:
        return self._context.clock.monotonic_ms()
