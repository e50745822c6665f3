"""What one subscription of this sidecar does with settles of its leases.

A settle is checked against its settings; then whoever counts, traces or waits for the end of a
lease is told what the store has decided.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Protocol

from ackd.api.control import Cancel
from ackd.api.messages import ACKED, SettleItem, SettleResult, SettleVerb, Status
from ackd.core.ids import LedgerKey
from ackd.core.lease_token import Token
from ackd.core.ledger.sent_back import Lease
from ackd.core.record.operations import Op, Settle
from ackd.core.record.protocol import NO_TEXTS, CallTexts, ItemTexts, OpResult, RecordReply
from ackd.core.record.settles import OF_VERB, SETTLES, Count, Due
from ackd.core.record.transitions import Outcome, State
from ackd.core.record.transitions import Verb as CoreVerb
from ackd.engine.base.context import Context
from ackd.engine.base.retry_delays import retry_delay_ms
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.copy_headers import bounded
from ackd.engine.partition.long_leases import held_by
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition
from ackd.engine.settlement.notes import NOTE_BYTES_MAX
from ackd.engine.settlement.results import STATUSES, dead_lettered
from ackd.engine.settlement.whereabouts import Whereabout, Whereabouts
from ackd.errors import BadParameterError
from ackd.store.flusher import LedgerHandle

HANDLES_MAX = 10_000
_ACKED = (Outcome.ACKED, Outcome.ALREADY_ACKED)
_API_VERBS: Mapping[CoreVerb, SettleVerb] = {verb: rule.do for verb, rule in OF_VERB.items()}


class Breaker(Protocol):
    """Counts successes and failures of the application."""

    @property
    def on(self) -> bool: ...
    def settled(self, verb: SettleVerb, status: Status, count: int) -> None: ...


class CancelLookup(Protocol):
    """Knows which messages an operator has cancelled."""

    def of(self, token: Token) -> Cancel | None: ...


class ClaimLookup(Protocol):
    """Retry copies that wait for the end of a forwarded lease in their origin record."""

    @property
    def held(self) -> Sized: ...
    def settled(self, key: LedgerKey, offset: int, outcome: Outcome, when_ms: int) -> None: ...
    def failed_with(self, origin: tuple[bytes, int], offset: int, error: str) -> bool: ...


OnSettled = Callable[[Sequence[Token], Sequence[Settle], RecordReply], None]
"""Gets what the store decided of settles of one partition that this sidecar served."""


@dataclass(slots=True)
class SettleCall:
    """Settles of one partition, which one call asks of the store; each list has one entry for an
    item. `plain`: only counted acks.
    """

    topic_id: bytes
    partition: int
    tokens: list[Token] = field(default_factory=list)
    ops: list[Settle] = field(default_factory=list)
    plain: bool = True
    texts: list[ItemTexts] = field(default_factory=list)


class SubscriptionSettles:
    """Checks the settles of one subscription, asks the store, and tells who has to know."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        topics: Topics,
        breaker: Breaker,
        cancels: CancelLookup,
        claims: ClaimLookup,
        on_settled: OnSettled,
        retry_topic: str,
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._topics = topics
        self._breaker = breaker
        self._cancels = cancels
        self._claims = claims
        self._on_settled = on_settled
        self._whereabouts = Whereabouts(state, context, topics, retry_topic)
        self._handles: OrderedDict[LedgerKey, LedgerHandle] = OrderedDict()

    # --- checking

    def op(self, item: SettleItem, token: Token) -> Settle | BadParameterError:
        """Make the operation that an item asks of the store."""
        if item.note is not None and len(item.note.encode()) > NOTE_BYTES_MAX:
            return BadParameterError(f"note must be at most {NOTE_BYTES_MAX} bytes")
        arg = self._argument(item, token)
        if isinstance(arg, BadParameterError):
            return arg
        rule = SETTLES[item.do]
        counted = item.count and not (self._breaker.on and rule.count is Count.ASKED)
        return Settle(rule.verb, *token[3:], arg, counted=counted)

    def _argument(self, item: SettleItem, token: Token) -> int | BadParameterError:
        settings, due = self._state.settings, SETTLES[item.do].due
        if due is Due.LEASE:
            lease_ms = settings.lease_ms if item.lease_ms is None else item.lease_ms
            if not 0 < lease_ms <= settings.lease_ms_max:
                return BadParameterError(f"lease_ms must be 1 to {settings.lease_ms_max}")
            return lease_ms
        if due is Due.DELAY:
            if item.delay_ms is not None:
                return item.delay_ms
            return retry_delay_ms(settings, token.attempt)
        return 0

    def text(self, call: SettleCall, item: SettleItem, token: Token) -> ItemTexts | None:
        """Return what a settle tells of its message: a note, or how and why a delivery ended."""
        rule, place = SETTLES[item.do], len(call.ops)
        if rule.note:
            return None if item.note is None else ItemTexts(place, note=item.note.encode())
        if not rule.ends or rule.state is State.FINISHED:
            return None
        reason = item.reason if rule.reason else None
        if reason:
            self._keep_reason(call, token.offset, reason)
        partition = self._owned(call)
        entry = None if partition is None else partition.ledger.entry(token.offset)
        known = entry is not None and entry.fence == token.fence and entry.holder
        return held_by(place, known or item.holder, bounded(reason or ""))

    def _keep_reason(self, call: SettleCall, offset: int, reason: str) -> None:
        """Keep a failure reason for traces, and for headers of copies in case the store loses
        it.
        """
        origin, partition = (call.topic_id, call.partition), self._owned(call)
        forwarded = self._claims.failed_with(origin, offset, reason)
        if partition is not None and not forwarded:
            partition.copies.failed_with(offset, reason)

    # --- asking the store

    def ask(self, call: SettleCall, ops: Sequence[Op]) -> asyncio.Future[RecordReply]:
        """Send operations to the record of the call's partition, with the call's texts."""
        texts = NO_TEXTS
        if call.texts:
            texts = CallTexts(call.texts, self._state.settings.notes_bytes_max)
        return self._context.flusher.submit(self._handle(call), ops, texts)

    def _handle(self, call: SettleCall) -> LedgerHandle:
        """Return the owner's handle if this sidecar owns the partition, else one for settles
        only.
        """
        partition = self._owned(call)
        if partition is not None:
            return partition.handle
        key = LedgerKey(self._state.cluster, self._state.name, call.topic_id, call.partition)
        handle = self._handles.get(key)
        if handle is None:
            handle = self._handles[key] = LedgerHandle(key)
            if len(self._handles) > HANDLES_MAX:
                self._handles.popitem(last=False)
        return handle

    def _owned(self, call: SettleCall) -> Partition | None:
        return self._partitions.by_ledger.get((call.topic_id, call.partition))

    async def is_gone(self, topic_id: bytes) -> bool:
        """Whether the broker has no topic of this identity any more."""
        return await self._topics.is_gone(topic_id)

    def cancelled(self, token: Token) -> Cancel | None:
        """The cancel of a message whose lease is lost."""
        return self._cancels.of(token)

    async def find(self, call: SettleCall, offsets: Sequence[int]) -> list[Whereabout | None]:
        """Say where messages of this call are whose leases are lost."""
        return await self._whereabouts.of(call.topic_id, call.partition, offsets)

    # --- what the store decided

    def dead_lettered(self, result: OpResult, now_ms: int) -> bool:
        """Whether the owner dead-letters the message at once, instead of delivering it again."""
        settings = self._state.settings
        return dead_lettered(result, now_ms, settings.attempts_max, settings.message_ttl_ms)

    def decided(self, call: SettleCall, reply: RecordReply) -> None:
        """Tell traces, the copies that wait for the end of a lease, and the replay log, which keeps
        confirmed acks in case the store forgets them (R10).

        Repeated acks too: the sidecar that served them first may not have got the store's answer.
        """
        self._on_settled(call.tokens, call.ops, reply)
        if call.texts:
            self._count_texts(call, reply)
        if self._claims.held:
            self._free(call, reply)
        if not call.plain:
            self._remember_extended(call, reply)
        acked = list(zip(call.tokens, reply.results, strict=True))
        outcomes = [result[0] for result in reply.results]
        if outcomes.count(Outcome.ACKED) != len(outcomes):
            acked = [(token, result) for token, result in acked if result[0] in _ACKED]
        if not acked:
            return
        handle, replay_log = self._handle(call), self._context.replay_log
        replay_log.acked(handle.key, reply.epoch, [token.offset for token, _ in acked])
        moved = [(t.offset, r.fence) for t, r in acked if r.fence > t.fence]
        if moved:
            replay_log.acked_in_origin(handle.key, handle.incarnation, reply.epoch, moved)

    def _count_texts(self, call: SettleCall, reply: RecordReply) -> None:
        name, metrics = self._state.name, self._context.metrics
        results = [reply.results[each.item].outcome for each in call.texts]
        metrics.notes.at(name).inc(results.count(Outcome.EXTENDED))
        if self._owned(call) is None:
            metrics.notes_dropped.at(name).inc(reply.dropped)  # else the owner counts them

    def _free(self, call: SettleCall, reply: RecordReply) -> None:
        """Report these settles to copies that may wait for the end of their leases."""
        key, claims = self._handle(call).key, self._claims
        for op, result in zip(call.ops, reply.results, strict=True):
            if result.outcome in STATUSES:
                claims.settled(key, op.offset, result.outcome, result.when_ms)

    def _remember_extended(self, call: SettleCall, reply: RecordReply) -> None:
        """Keep extensions that the record's owner may not learn of before the store forgets them:
        it knows the leases of its window, but only those origin records that it made.
        """
        known = self._owned(call) is not None
        later_ms = self._context.clock.monotonic_ms() - reply.now_ms
        leases = [
            Lease(t.offset, t.fence, t.rollback_epoch, t.attempt, r.when_ms + later_ms)
            for t, r in zip(call.tokens, reply.results, strict=True)
            if r.outcome is Outcome.EXTENDED and not (known and r.state is State.LEASED)
        ]
        if leases:
            self._context.replay_log.extended(self._handle(call).key, leases)

    def count(self, call: SettleCall, results: Sequence[SettleResult | None]) -> None:
        """Count the settles by verb and result; None: the store did not decide."""
        metrics, name, breaker = self._context.metrics, self._state.name, self._breaker
        counts: dict[tuple[SettleVerb, Status, bool], int] = {}
        if call.plain and results.count(ACKED) == len(results):
            counts[SettleVerb.ACK, Status.ACKED, True] = len(results)
        else:
            for op, result in zip(call.ops, results, strict=True):
                verb = _API_VERBS[op.verb]
                status = Status.UNAVAILABLE if result is None else result.status
                key = (verb, status, op.counted)
                counts[key] = counts.get(key, 0) + 1
                if result is not None and result.late and verb is SettleVerb.ACK:
                    metrics.late_acks.at(name).inc()
        for (verb, status, counted), count in counts.items():
            metrics.settles.at(name, verb.value, status.value).inc(count)
            if status is Status.LOST:
                metrics.lost_settles.at(name, verb.value).inc(count)
            if counted:
                breaker.settled(verb, status, count)
