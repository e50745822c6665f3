"""Dispatcher: match waiting receives with partitions that have ready messages.

It serves receives in their order of arrival and partitions in turn. A lease starts when the store
grants it, which is after a receive has asked for it; so nothing that waits here can expire.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ackd.api.control import Pause
from ackd.api.messages import Delivery, Received, ReceiveRequest
from ackd.core.ledger.grants import grants
from ackd.core.record.protocol import CallStatus, RecordReply
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import InFlightShare, Membership
from ackd.engine.delivery.circuit_breaker import CircuitBreaker
from ackd.engine.delivery.dedup import Dedup
from ackd.engine.delivery.fetch_throttle import FetchThrottle
from ackd.engine.delivery.rate_limit import RateLimit
from ackd.engine.delivery.relay import Relay
from ackd.engine.delivery.untaken_leases import UntakenLeases
from ackd.engine.delivery.waiters import Waiter, WaiterQueue
from ackd.engine.delivery.waits_elsewhere import WaitsElsewhere
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.engine.settlement.notes import ProgressNotes
from ackd.errors import DrainingError, PressureError, StoreError, StoreUnknownError
from ackd.telemetry.metrics import OWN, THROUGH_PEERS


# tidy: long-class lines=375 attributes=18 -- eleven collaborators: each receive asks most of them
class Dispatcher:
    """Asks the store for leases on behalf of the waiting receives of one subscription."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        membership: Membership,
        share: InFlightShare,
        notes: ProgressNotes,
        breaker: CircuitBreaker,
        dedup: Dedup | None,
        pauses: Callable[[], Sequence[Pause]],
        throttle: FetchThrottle,
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._share = share
        self._notes = notes
        self._breaker = breaker
        self._dedup = dedup
        self._pauses = pauses
        self._throttle = throttle
        self._line = WaiterQueue()
        self.rate = RateLimit(state, context, membership, self._tokens_came)
        self.elsewhere = WaitsElsewhere(state, breaker, self._line, self.rate)
        self._untaken = UntakenLeases(state, context, partitions, self.elsewhere)
        self._turn: deque[Partition] = deque()
        self._granting = 0
        self.stopped = False
        self.full = False
        self._passed_over = False

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
        self,
        request: ReceiveRequest,
        started: Callable[[Waiter], None] | None = None,
        relay: Relay | None = None,
    ) -> Waiter:
        """Join the queue, and ask for leases at once if messages are ready; `answer` waits for the
        result. `relay`: another sidecar asks, on behalf of an application beside it.

        Raises DrainingError, PressureError. A caller that does not await the waiter must call
        `leave`.
        """
        self._check_open()
        if relay is not None and self.elsewhere.only:
            raise DrainingError
        if self._line.full:
            raise PressureError("too many receive calls are waiting")
        loop = asyncio.get_running_loop()
        waiter = Waiter(request, loop.create_future(), loop.time(), relay)
        self._line.join(waiter)
        if started is not None:
            started(waiter)
        self.serve()
        if not waiter.grants:
            waits, elsewhere = waiter.has_time(self._timed_out), self.elsewhere.wait(waiter)
            if not waits and not elsewhere and not self.rate.asking:
                self._line.end(waiter)
        return waiter

    def ready_count(self) -> int:
        """Count the messages that could be granted now, to an application here or elsewhere."""
        if self.stopped or self.elsewhere.only or self._state.paused_everywhere:
            return 0
        return sum(each.ledger.ready for each in self._turn if each.grantable)

    def leave(self, waiter: Waiter) -> None:
        """The caller has gone: release the leases that the store granted or is about to grant
        it.
        """
        waiter.leave()
        self.elsewhere.leave(waiter)
        self.give_back(waiter.deliveries)
        self._line.ended()

    def end(self, waiter: Waiter) -> None:
        """Another call takes the place of this one: answer it with what it has; leases that come
        for it are released.
        """
        waiter.leave()
        self.elsewhere.leave(waiter)
        self._line.end(waiter)

    async def answer(self, waiter: Waiter) -> Received:
        """Return the answer of a waiter that has entered. Raises DrainingError, StoreError."""
        try:
            messages = await waiter.future
        except asyncio.CancelledError:
            self.leave(waiter)
            raise
        if not messages:
            self._check_open()
            pause = next((each.brief() for each in self._pauses()), None)
            return Received([], limited_by=self.limit(), paused=pause)
        if waiter.noted:
            await self._annotate(waiter)
        metrics, name = self._context.metrics, self._state.name
        metrics.receive_wait.at(name).observe(asyncio.get_running_loop().time() - waiter.start_s)
        metrics.delivered_bytes.at(name).inc(waiter.size())
        metrics.served.at(name, THROUGH_PEERS if waiter.brought else OWN).inc(len(messages))
        return Received(messages)

    async def _annotate(self, waiter: Waiter) -> None:
        """Attach progress notes; no message is delivered without its note. Raises StoreError."""
        try:
            await self._notes.attach(waiter.deliveries)
        except (asyncio.CancelledError, StoreError):
            self.leave(waiter)
            raise

    def _check_open(self) -> None:
        if self.stopped:
            raise DrainingError

    def _timed_out(self, waiter: Waiter) -> None:
        """The wait is over: answer now, or when the grants that are under way have come (the
        store's time-out bounds that).
        """
        waiter.timed_out()
        if not waiter.grants:
            self.elsewhere.leave(waiter)
            self._line.end(waiter)

    def ready(self, partition: Partition) -> None:
        """Give a partition that has messages to deliver its turn."""
        if not partition.queued and partition.ledger.ready:
            partition.has_turn(queued=True)
            self._turn.append(partition)
        if len(self._line) or self.elsewhere.connected:
            self.serve()

    def has_room(self, link: object) -> None:
        """Receives that are answered there had to wait for that (`Relay.left`)."""
        if self._line.has_room(link):
            self.serve()

    def closed(self, link: object) -> None:
        """No receive is answered there any more."""
        self._line.forget(link)

    def serve(self) -> None:
        """Ask for leases for as many waiting receives as there are ready messages."""
        if self.elsewhere.only:
            return
        while not self._state.paused_everywhere and (waiter := self._next()) is not None:
            if not self._grant(waiter):
                here = self._line.first_here() if self._passed_over and not self._held() else None
                if here is None or not self._grant(here):
                    return
                waiter = here
            self._line.served(waiter)
        if self.elsewhere.connected and self._turn and not self._state.paused_everywhere:
            self.elsewhere.surplus()

    def _next(self) -> Waiter | None:
        """Return whom to serve next: while the application here is paused or fails, those of
        others.
        """
        return self._line.first_relayed() if self._held() else self._line.first()

    def _held(self) -> bool:
        """Whether the application here gets nothing now."""
        breaker = self._breaker
        return self._state.paused or (breaker.on and not breaker.room(1))

    def _grant(self, waiter: Waiter) -> bool:
        """Ask for leases for one receive, from partitions in turn; False if nothing is ready."""
        request = waiter.request
        room = self._room()
        self.full = room <= 0
        breaker, most = self._breaker, min(request.max, room)
        if breaker.on and not waiter.relayed:
            most = breaker.room(most)
        most = self._by_rate(most)
        bytes_left = request.bytes_max if request.bytes_max is not None else 1 << 62
        each_max, relay = 1 << 62, waiter.relay
        if relay is not None:
            each_max, bytes_left = relay.message_bytes_max, min(bytes_left, relay.left())
        before = waiter.grants
        self._passed_over = False
        for _ in range(len(self._turn)):
            if most <= 0 or (waiter.grants > before and bytes_left <= 0):
                break
            partition = self._turn.popleft()
            ledger, grantable = partition.ledger, partition.grantable
            offsets = ledger.grants.take(most, bytes_left, each_max) if grantable else []
            if grantable and ledger.ready:
                self._turn.append(partition)
            else:
                partition.has_turn(queued=False)
            if relay is not None and grantable and ledger.ready and not offsets:
                self._passed_over = True  # it may be too long for a link
            if offsets:
                most -= len(offsets)
                entries = ledger.entries
                size = sum([entries[offset].size for offset in offsets])
                bytes_left -= size
                self._ask(waiter, partition, offsets, size)
        if waiter.grants == before:
            return False
        if breaker.on and not waiter.relayed:
            breaker.tried()
        self.elsewhere.leave(waiter)
        return True

    def _room(self) -> int:
        """Return how many more leases this sidecar may open: its share of `in_flight_max`."""
        leased, owned = self._granting + self._partitions.leased(), len(self._partitions.owned)
        return self._share.room(self._state.settings.in_flight_max, owned, leased)

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
            self._line.answer_impatient(asyncio.get_running_loop().time())

    def _ask(self, waiter: Waiter, partition: Partition, offsets: list[int], size: int) -> None:
        request, bytes_max = waiter.request, self._state.settings.notes_bytes_max
        lease_ms = request.lease_ms or self._state.settings.lease_ms
        group = partition.next_grant()
        ops = partition.upkeep()
        first = len(ops)
        ops += grants(offsets, lease_ms, group)
        texts = partition.ledger.grants.regranted(offsets, first, request.holder, bytes_max)
        waiter.ask(len(offsets), size)
        self._granting += len(offsets)
        self.rate.spend(len(offsets))
        until_ms = self._context.clock.monotonic_ms() + lease_ms
        on_reply = partial(self._on_grant_reply, waiter, partition, offsets, first, until_ms)
        self._context.flusher.tell(partition.handle, ops, on_reply, texts)

    def _on_grant_reply(
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
        waiter.asked_for()
        self._granting -= len(offsets)
        missing = len(offsets) + len(waiter.deliveries)
        if isinstance(answer, StoreError):
            error = answer
        elif self._context.clock.monotonic_ms() < until_ms:
            self._collect(waiter, partition, offsets, start + first, answer)
        missing -= len(waiter.deliveries)
        if missing and not isinstance(error, StoreUnknownError):
            self.rate.give_back(missing)
        dedup = self._dedup
        if dedup is not None and isinstance(answer, RecordReply) and missing < len(offsets):
            granted = waiter.hold_back(len(waiter.deliveries) - len(offsets) + missing)
            then = partial(self._checked, waiter, len(granted), until_ms)
            dedup.check(partition, answer.epoch, granted, then)
        self._answer_last(waiter, error)

    def _checked(
        self, waiter: Waiter, granted: int, until_ms: int, deliveries: list[Delivery]
    ) -> None:
        """Dedup answered: duplicates were dropped; return their rate-limit tokens."""
        waiter.asked_for()
        self.rate.give_back(granted - len(deliveries))
        if not (deliveries or waiter.relayed):
            self._breaker.not_tried()
        if self._context.clock.monotonic_ms() < until_ms:
            waiter.add(deliveries)
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
        elif self.stopped or not waiter.has_time(self._timed_out):
            waiter.answer()
        else:
            self._line.return_first(waiter)
            self.serve()
            if not waiter.grants:
                self.elsewhere.wait(waiter)

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
        attempts_max, holder = self._state.settings.attempts_max, waiter.request.holder
        found = partition.deliveries(offsets, reply, first, attempts_max, holder)
        waiter.add(found, noted=reply.has_notes)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Release leases that no caller holds, without counting an attempt (R21)."""
        self._untaken.give_back([each.lease for each in deliveries])

    def give_back_leases(self, leases: Sequence[str]) -> None:
        """Release these leases in the same way."""
        self._untaken.give_back(leases)

    def limit(self) -> str | None:
        """Return in one word why nothing was delivered; None without a reason."""
        if self.stopped:
            return "draining"
        if self._state.paused or self._breaker.on:
            return "paused" if self._state.paused else "circuit-breaker"
        owned = self._partitions.owned
        if not owned:
            return None if self.elsewhere.reached() else "no-partitions"
        if self.full:
            return "in-flight"
        if self.rate.exhausted and any(p.ledger.ready for p in self._turn):
            return "rate"
        if any(not partition.grantable for partition in owned.values()):
            return "store"
        if any(p.ledger.ready for p in owned.values()):
            return None
        waiting = any(p.ledger.buffered for p in owned.values())
        return "ordering" if waiting else "window-bytes" if self._throttle.paused else None

    def waiters(self) -> int:
        """Count the receives that wait."""
        return self._line.waiting()

    def stop(self) -> None:
        """Deliver nothing new, and answer every waiting receive."""
        self.stopped = True
        self.elsewhere.stop()
        self._line.end_all()
        self._context.lease_events.tell(self._state.name)
