"""Dispatcher: match waiting receives with partitions that have ready messages.

It serves receives in their order of arrival and partitions in turn. A lease starts when the store
grants it, which is after a receive has asked for it; so nothing that waits here can expire.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ackd.api.control import Pause
from ackd.api.messages import Delivery, Received, ReceiveRequest
from ackd.core.ledger.grants import grants
from ackd.core.record.operations import Settle
from ackd.core.record.protocol import CallStatus, RecordReply
from ackd.core.record.transitions import Verb
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.delivery.circuit_breaker import CircuitBreaker
from ackd.engine.delivery.dedup import Dedup
from ackd.engine.delivery.rate_limit import RateLimit
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.engine.settlement.notes import ProgressNotes
from ackd.errors import DrainingError, PressureError, StoreError, StoreUnknownError

RESUME_SHARE = 2
"""Fetching resumes when buffers have fallen to one part in this many (a pause drops a prefetch)."""
WAITERS_MAX = 10_000


class Waiter:
    """One receive call.

    `grants`: requests for leases that are under way. The call is not answered before the store has
    answered them, not even when its wait is over (`end_s`, on the event loop's clock). `asked`,
    `asked_bytes`: number and size of the messages that leases were asked for.
    """

    __slots__ = (
        "asked",
        "asked_bytes",
        "deliveries",
        "end_s",
        "future",
        "gone",
        "grants",
        "noted",
        "request",
        "start_s",
        "timer",
    )

    def __init__(
        self, request: ReceiveRequest, future: asyncio.Future[list[Delivery]], start_s: float
    ) -> None:
        self.request = request
        self.start_s = start_s
        self.end_s = start_s + request.wait_ms / 1000
        self.future = future
        self.deliveries: list[Delivery] = []
        self.grants = 0
        self.asked = 0
        self.asked_bytes = 0
        self.gone = False
        self.noted = False
        """A record of its messages has progress notes."""
        self.timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether the caller is still there and has no answer."""
        return not self.gone and not self.future.done()

    def size(self) -> int:
        """Return the bytes of its messages; they are summed again only if some were not granted."""
        if len(self.deliveries) == self.asked:
            return self.asked_bytes
        return sum(delivery.record.size() for delivery in self.deliveries)

    def answer(self) -> None:
        """Answer with the messages there are; does nothing when the caller has gone."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_result(self.deliveries)

    def fail(self, error: Exception) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # retrieve it: the caller may have left


class WaiterQueue:
    """The waiters of one subscription, in the order of their arrival."""

    def __init__(self) -> None:
        self._line: deque[Waiter] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def waiting(self) -> int:
        """Count the callers that wait now; those that have gone stay queued until their turn."""
        return sum(waiter.waits for waiter in self._line)

    @property
    def full(self) -> bool:
        """Whether the bound on waiting calls is reached (I8)."""
        return len(self._line) >= WAITERS_MAX

    def join(self, waiter: Waiter) -> None:
        self._line.append(waiter)

    def return_first(self, waiter: Waiter) -> None:
        """Put a waiter back at the front, because its grants gave nothing."""
        self._line.appendleft(waiter)

    def first(self) -> Waiter | None:
        """Return the next waiter to serve; drop those whose callers have gone."""
        while self._line:
            waiter = self._line[0]
            if waiter.waits:
                return waiter
            self._line.popleft()
        return None

    def served(self) -> None:
        self._line.popleft()

    def answer_impatient(self, now_s: float) -> None:
        """Answer those whose time is up and who wait for no grant (`now_s`: the loop's time)."""
        for waiter in self._line:
            if waiter.end_s <= now_s and not waiter.grants:
                waiter.answer()

    def end_all(self) -> None:
        """Answer every waiter with what it has, for example when the sidecar drains."""
        for waiter in self._line:
            if not waiter.grants:
                waiter.answer()
        self._line.clear()


# tidy: long-class lines=380 attributes=15 -- eight collaborators, on the hot path
class Dispatcher:
    """Asks the store for leases on behalf of the waiting receives of one subscription."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        membership: Membership,
        notes: ProgressNotes,
        breaker: CircuitBreaker,
        dedup: Dedup | None,
        pauses: Callable[[], Sequence[Pause]],
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._membership = membership
        self._notes = notes
        self._breaker = breaker
        self._dedup = dedup
        self._pauses = pauses
        self.line = WaiterQueue()
        self.rate = RateLimit(state, context, membership, self._tokens_came)
        self._turn: deque[Partition] = deque()
        self._paused: dict[Partition, int] = {}  # with the fetch session that is paused
        self._granting = 0
        self.stopped = False
        self.full = False

    # --- receiving

    async def receive(
        self, request: ReceiveRequest, started: Callable[[Waiter], None] | None = None
    ) -> Received:
        """Wait for messages; `started` gets the waiter. Raises DrainingError, StoreError,
        PressureError. May be cancelled.
        """
        waiter = self.enter(request, started)
        return await self.answer(waiter)

    def enter(
        self, request: ReceiveRequest, started: Callable[[Waiter], None] | None = None
    ) -> Waiter:
        """Join the queue, and ask for leases at once if messages are ready; `answer` waits for the
        result.

        Raises DrainingError, PressureError. A caller that does not await the waiter must call
        `leave`.
        """
        self._check_open()
        if self.line.full:
            raise PressureError("too many receive calls are waiting")
        loop = asyncio.get_running_loop()
        waiter = Waiter(request, loop.create_future(), loop.time())
        self.line.join(waiter)
        if started is not None:
            started(waiter)
        self.serve()
        if not waiter.grants and not self._waits(waiter) and not self.rate.asking:
            waiter.answer()
        return waiter

    def _waits(self, waiter: Waiter) -> bool:
        """Whether the receive has waiting time left; if so, make sure that a timer ends the
        wait.
        """
        if waiter.timer is None:
            loop = asyncio.get_running_loop()
            left_s = waiter.end_s - loop.time()
            if left_s <= 0:
                return False
            waiter.timer = loop.call_later(left_s, self._timed_out, waiter)
        return True

    def leave(self, waiter: Waiter) -> None:
        """The caller has gone: release the leases that the store granted or is about to grant
        it.
        """
        waiter.gone = True
        if waiter.timer is not None:
            waiter.timer.cancel()
        self.give_back(waiter.deliveries)

    async def answer(self, waiter: Waiter) -> Received:
        """Return the answer of a waiter that has entered. Raises DrainingError, StoreError."""
        try:
            messages = await waiter.future
        except asyncio.CancelledError:
            self.leave(waiter)
            raise
        if not messages:
            self._check_open()
            return Received([], limited_by=self.limit(), paused=self._paused_by())
        if waiter.noted:
            await self._annotate(waiter)
        metrics, name = self._context.metrics, self._state.name
        wait_s = asyncio.get_running_loop().time() - waiter.start_s
        metrics.receive_wait.at(name).observe(wait_s)
        metrics.delivered_bytes.at(name).inc(waiter.size())
        return Received(messages)

    async def _annotate(self, waiter: Waiter) -> None:
        """Attach progress notes; no message is delivered without its note. Raises StoreError."""
        try:
            await self._notes.attach(waiter.deliveries)
        except (asyncio.CancelledError, StoreError):
            self.leave(waiter)
            raise

    def _paused_by(self) -> Mapping[str, object] | None:
        """Return the pause that holds all deliveries back, for the answer."""
        pauses = self._pauses()
        if not pauses:
            return None
        first = pauses[0]
        return {"scope": first.scope, "reason": first.reason, "until_ms": first.until_ms}

    def _check_open(self) -> None:
        if self.stopped:
            raise DrainingError

    def _timed_out(self, waiter: Waiter) -> None:
        """The wait is over: answer now, or when the grants that are under way have come (the
        store's time-out bounds that).
        """
        waiter.timer, waiter.end_s = None, 0
        if not waiter.grants:
            waiter.answer()

    def ready(self, partition: Partition) -> None:
        """A partition has messages to deliver: give it its turn."""
        if not partition.queued and partition.ledger.ready:
            partition.queued = True
            self._turn.append(partition)
        if len(self.line):
            self.serve()

    def serve(self) -> None:
        """Ask for leases for as many waiting receives as there are ready messages."""
        while not self._state.paused and (waiter := self.line.first()) is not None:
            if not self._grant(waiter):
                return
            self.line.served()

    def _grant(self, waiter: Waiter) -> bool:
        """Ask for leases for one receive, from partitions in turn; False if nothing is ready."""
        request = waiter.request
        room = self._room()
        self.full = room <= 0
        breaker = self._breaker
        most = self._by_rate(breaker.room(min(request.max, room)))
        bytes_left = request.bytes_max if request.bytes_max is not None else 1 << 62
        before = waiter.grants
        for _ in range(len(self._turn)):
            if most <= 0 or (waiter.grants > before and bytes_left <= 0):
                break
            partition = self._turn.popleft()
            ledger, grantable = partition.ledger, partition.grantable
            offsets = ledger.grants.take(most, bytes_left) if grantable else []
            partition.queued = grantable and ledger.ready > 0
            if partition.queued:
                self._turn.append(partition)
            if offsets:
                most -= len(offsets)
                entries = ledger.entries
                size = sum([entries[offset].size for offset in offsets])
                bytes_left -= size
                self._ask(waiter, partition, offsets, size)
        if waiter.grants > before and breaker.on:
            breaker.tried()
        return waiter.grants > before

    def _room(self) -> int:
        """Return how many more leases this sidecar may open: its share of `in_flight_max`."""
        bound = self._state.settings.in_flight_max
        leased, owned = self._granting + self._partitions.leased(), len(self._partitions.owned)
        return self._membership.share.room(bound, owned, leased)

    def _by_rate(self, most: int) -> int:
        """Return how many of `most` the rate allows now; ask for tokens if more are ready."""
        if most <= 0 or not self.rate.limited:
            return most
        left = self.rate.left()
        if left < most:
            ready = sum(p.ledger.ready for p in self._turn if p.grantable)
            if left < ready:
                self.rate.want(min(most, ready) - left)
        return min(most, left)

    def _tokens_came(self) -> None:
        """Serve the waiting receives; answer those whose wait is over with what they have."""
        if self.stopped:
            return
        self.serve()
        if not self.rate.asking:
            self.line.answer_impatient(asyncio.get_running_loop().time())

    def _ask(self, waiter: Waiter, partition: Partition, offsets: list[int], size: int) -> None:
        lease_ms = waiter.request.lease_ms or self._state.settings.lease_ms
        group = partition.next_grant()
        ops = partition.upkeep()
        first = len(ops)
        ops += grants(offsets, lease_ms, group)
        waiter.grants += 1
        waiter.asked += len(offsets)
        waiter.asked_bytes += size
        self._granting += len(offsets)
        self.rate.spend(len(offsets))
        until_ms = self._context.clock.monotonic_ms() + lease_ms
        on_reply = partial(self._landed, waiter, partition, offsets, first, until_ms)
        self._context.flusher.tell(partition.handle, ops, on_reply)

    def _landed(
        self,
        waiter: Waiter,
        partition: Partition,
        offsets: Sequence[int],
        first: int,
        until_ms: int,
        answer: RecordReply | StoreError,
        start: int,
    ) -> None:
        """The store answered a request for leases; the last answer that a receive waits for answers
        it. The results of its grants begin at `start + first` of the reply.

        At `until_ms` the leases may have ended: a sidecar that was frozen meanwhile must not
        deliver what another sidecar may have granted since (R21).
        """
        error: StoreError | None = None
        waiter.grants -= 1
        self._granting -= len(offsets)
        missing = len(offsets) + len(waiter.deliveries)
        if isinstance(answer, StoreError):
            error = answer
        elif self._context.clock.monotonic_ms() < until_ms:
            self._collect(waiter, partition, offsets, start + first, answer)
            waiter.noted |= answer.has_notes
        missing -= len(waiter.deliveries)
        if missing and not isinstance(error, StoreUnknownError):
            self.rate.give_back(missing)
        dedup = self._dedup
        if dedup is not None and isinstance(answer, RecordReply) and missing < len(offsets):
            before = len(waiter.deliveries) - len(offsets) + missing
            granted = waiter.deliveries[before:]
            del waiter.deliveries[before:]
            waiter.grants += 1
            then = partial(self._checked, waiter, len(granted), until_ms)
            dedup.check(partition, answer.epoch, granted, then)
        self._answer_last(waiter, error)

    def _checked(
        self, waiter: Waiter, granted: int, until_ms: int, deliveries: list[Delivery]
    ) -> None:
        """Dedup answered: duplicates were dropped; return their rate-limit tokens."""
        waiter.grants -= 1
        if len(deliveries) < granted:
            self.rate.give_back(granted - len(deliveries))
        if self._context.clock.monotonic_ms() < until_ms:
            waiter.deliveries += deliveries
        self._answer_last(waiter, None)

    def _answer_last(self, waiter: Waiter, error: StoreError | None) -> None:
        """Answer a receive once no request for leases is under way for it."""
        if waiter.grants:
            return
        if waiter.gone:
            self.give_back(waiter.deliveries)
        elif waiter.deliveries:
            waiter.answer()
        elif error is not None:
            waiter.fail(error)
        elif self.stopped or not self._waits(waiter):
            waiter.answer()
        else:
            self.line.return_first(waiter)
            self.serve()

    def _collect(
        self,
        waiter: Waiter,
        partition: Partition,
        offsets: Sequence[int],
        first: int,
        reply: RecordReply,
    ) -> None:
        if reply.verdict is not CallStatus.OK:
            return
        attempts_max, holder = self._state.settings.attempts_max + 1, waiter.request.holder
        waiter.deliveries += partition.deliveries(offsets, reply, first, attempts_max, holder)

    # --- giving back

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Release leases that no caller holds, without counting an attempt (R21). If that fails,
        they expire.
        """
        for delivery in deliveries:
            token = self._context.keys.open(delivery.lease)
            ledger = (token.topic_id, token.partition)
            partition = self._partitions.by_ledger.get(ledger)
            if partition is not None:
                partition.tell(
                    Settle(
                        Verb.RELEASE, token.offset, token.fence, token.rollback_epoch, token.attempt
                    )
                )

    # --- bounds

    @property
    def paused(self) -> bool:
        """Whether fetching is paused until there is room again."""
        return bool(self._paused)

    def throttle(self) -> None:
        """Pause fetching when the buffers are full, resume when half of that is gone (I8)."""
        owned = self._partitions.owned.values()
        size = sum(each.ledger.bytes for each in owned)
        ready = sum(each.ledger.buffered for each in owned)
        settings = self._state.settings
        ready_max, bytes_max = settings.buffer_max, settings.window_bytes_max
        if any(each.ledger.must_fetch for each in owned):
            ready = size = 0  # only fetching can make room
        room = ready <= ready_max // RESUME_SHARE and size <= bytes_max - bytes_max // 10
        if self._paused and room:
            self._resume()
        elif self._paused or ready >= ready_max or size >= bytes_max:
            self._pause(owned)

    def _pause(self, owned: Iterable[Partition]) -> None:
        """Pause every owned partition, including those that were taken, or began a new fetch
        session, since the last pause.
        """
        for partition in owned:
            session = partition.ledger.intake.session
            if self._paused.get(partition) != session:
                self._state.consumer.pause(partition.tp)
                self._paused[partition] = session
        for partition in [each for each in self._paused if each.closed]:
            del self._paused[partition]

    def _resume(self) -> None:
        for partition in self._paused:
            if not partition.closed:
                self._state.consumer.resume(partition.tp)
        self._paused.clear()

    def limit(self) -> str | None:
        """Return in one word why nothing was delivered; None without a reason."""
        if self.stopped:
            return "draining"
        if self._state.paused or self._breaker.on:
            return "paused" if self._state.paused else "circuit-breaker"
        owned = self._partitions.owned
        if not owned:
            return "no-partitions"
        if self.full:
            return "in-flight"
        if self.rate.exhausted and any(p.ledger.ready for p in self._turn):
            return "rate"
        if any(not partition.grantable for partition in owned.values()):
            return "store"
        if any(p.ledger.ready for p in owned.values()):
            return None
        behind = any(p.ledger.buffered for p in owned.values())
        return "ordering" if behind else "window-bytes" if self._paused else None

    def waiting(self) -> int:
        """Count the messages that wait for their retry."""
        return sum(each.ledger.waiting for each in self._partitions.owned.values())

    def stop(self) -> None:
        """Deliver nothing new, and answer every waiting receive."""
        self.stopped = True
        self.line.end_all()
        self._context.lease_events.tell(self._state.name)
