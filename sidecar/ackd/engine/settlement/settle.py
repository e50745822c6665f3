"""Settle leases: tokens in, results out, in order. Any sidecar settles any lease of its
subscriptions.

A settle is answered only when the store's decision is durable (I7, R11); otherwise its result is
`unavailable`. A lease of a partition that another sidecar owns is settled in the same record, and
that owner reads the settle in the record's journal (R16).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ackd.api.control import Cancel
from ackd.api.messages import ACKED, LeaseView, SettleItem, SettleResult, SettleVerb, Status
from ackd.core.ids import LedgerKey
from ackd.core.lease import BadTokenError, Token, UnknownKeyError, subscription_hash
from ackd.core.ledger.sent_back import Lease
from ackd.core.record.operations import LookUp, Settle
from ackd.core.record.protocol import (
    NO_TEXTS,
    CallStatus,
    CallTexts,
    ItemTexts,
    OpResult,
    RecordReply,
)
from ackd.core.record.settles import OF_VERB, SETTLES, Count, Due
from ackd.core.record.transitions import Outcome, State
from ackd.core.record.transitions import Verb as CoreVerb
from ackd.engine.base.context import Context
from ackd.engine.base.retry_delays import retry_delay_ms
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.failure_reasons import reason_text
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition
from ackd.engine.settlement.notes import NOTE_BYTES_MAX
from ackd.engine.settlement.results import STATUSES, lost, settle_result, unavailable, view_of
from ackd.errors import (
    BadLeaseTokenError,
    BadParameterError,
    StoreError,
    StoreLayoutError,
    UnknownSubscriptionError,
)
from ackd.store.flusher import LedgerHandle

RETRY_MS = 50
"""Constant: an application waits for the answer, and gives up soon."""
TRIES = 40
"""Calls to a record that is being re-read or taken over: for about two seconds, then 503."""
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


class SettleSpans(Protocol):
    """Writes spans of settles."""

    def settled(
        self, tokens: Sequence[Token], ops: Sequence[Settle], reply: RecordReply, *, here: bool
    ) -> None: ...


class SettleParts(Protocol):
    """The parts of a subscription that a settle touches."""

    @property
    def state(self) -> SubscriptionState: ...
    @property
    def partitions(self) -> OwnedPartitions: ...
    @property
    def topics(self) -> Topics: ...
    @property
    def breaker(self) -> Breaker: ...
    @property
    def cancels(self) -> CancelLookup: ...
    @property
    def claims(self) -> ClaimLookup: ...
    @property
    def tracing(self) -> SettleSpans | None: ...


@dataclass(slots=True)
class _Group:
    """Items of one partition, which one call settles; each list has one entry for an item.

    `indexes`: their positions in the request. `plain`: only counted acks.
    """

    subscription: SettleParts
    topic_id: bytes
    partition: int
    indexes: list[int] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    ops: list[Settle] = field(default_factory=list)
    plain: bool = True
    texts: list[ItemTexts] = field(default_factory=list)

    def some(self, places: Sequence[int]) -> _Group:
        """Return the group of these entries only."""
        indexes, tokens, ops = self.indexes, self.tokens, self.ops
        part = _Group(self.subscription, self.topic_id, self.partition, plain=self.plain)
        for each in places:
            part.indexes.append(indexes[each])
            part.tokens.append(tokens[each])
            part.ops.append(ops[each])
        if self.texts:
            new = {each: place for place, each in enumerate(places)}
            part.texts = [t._replace(item=new[t.item]) for t in self.texts if t.item in new]
        return part


_Call = tuple[_Group, asyncio.Future[RecordReply]]
_Answered = Callable[[_Group, RecordReply | StoreError | None], None]


class Settler:
    """Settles leases of all subscriptions of this sidecar."""

    def __init__(self, subscriptions: Mapping[str, SettleParts], context: Context) -> None:
        self._names = {subscription_hash(name): name for name in subscriptions}
        self._subscriptions = subscriptions
        self._context = context
        self._handles: OrderedDict[LedgerKey, LedgerHandle] = OrderedDict()

    # --- settling

    async def settle(
        self, items: Sequence[SettleItem], submitted: Callable[[], None] = lambda: None
    ) -> list[SettleResult]:
        """Settle the items; results in their order. Never raises for an item.

        `submitted` is called after the store was asked and before anything is awaited: calls that
        it makes to the store join the same flush.
        """
        results: list[SettleResult | None] = [None] * len(items)
        groups = self._read(items, results)
        pending = [(group, self._submit(group)) for group in groups]
        submitted()
        if pending:
            await self._ask_all(pending, partial(self._note, results))
        for group in groups:
            self._count(group, [results[index] for index in group.indexes])
        return [each or unavailable(StoreError()) for each in results]

    def _read(
        self, items: Sequence[SettleItem], results: list[SettleResult | None]
    ) -> list[_Group]:
        """Check the items without the store; the result of an invalid item goes into `results`.

        Most items are plain acks in large batches: the loop reads those without a function call
        each.
        """
        groups: dict[tuple[bytes, bytes, int], _Group] = {}
        read, make, ack = self._context.keys.open, tuple.__new__, CoreVerb.ACK
        for index, item in enumerate(items):
            try:
                token = read(item.lease)
            except BadTokenError:
                results[index] = SettleResult(Status.INVALID, error=BadLeaseTokenError())
                continue
            except UnknownKeyError:
                results[index] = lost("unknown")
                continue
            whose = token[:3]
            group = groups.get(whose)
            if group is None:
                name = self._names.get(token.subscription)
                if name is None:
                    results[index] = SettleResult(Status.INVALID, error=UnknownSubscriptionError())
                    continue
                group = _Group(self._subscriptions[name], token.topic_id, token.partition)
                groups[whose] = group
            if item.do is SettleVerb.ACK and item.note is None and item.count:
                op = make(Settle, (ack, *token[3:], 0, False, True))
            else:
                found = self._op(group.subscription, item, token)
                if isinstance(found, BadParameterError):
                    results[index] = SettleResult(Status.INVALID, error=found)
                    continue
                op, group.plain = found, False
                if item.reason and SETTLES[item.do].reason:
                    self._keep_reason(group, token.offset, item.reason)
                    group.texts.append(reason_text(len(group.ops), item.reason))
                elif item.note is not None and SETTLES[item.do].note:
                    group.texts.append(ItemTexts(len(group.ops), note=item.note.encode()))
            group.indexes.append(index)
            group.tokens.append(token)
            group.ops.append(op)
        return [group for group in groups.values() if group.ops]

    def _op(self, of: SettleParts, item: SettleItem, token: Token) -> Settle | BadParameterError:
        """Make the operation that one item asks of the store."""
        if item.note is not None and len(item.note.encode()) > NOTE_BYTES_MAX:
            return BadParameterError(f"note must be at most {NOTE_BYTES_MAX} bytes")
        arg = self._argument(item, token, of)
        if isinstance(arg, BadParameterError):
            return arg
        rule = SETTLES[item.do]
        counted = item.count and not (of.breaker.on and rule.count is Count.ASKED)
        return Settle(rule.verb, *token[3:], arg, counted=counted)

    @staticmethod
    def _argument(item: SettleItem, token: Token, of: SettleParts) -> int | BadParameterError:
        settings, due = of.state.settings, SETTLES[item.do].due
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

    async def _ask_all(self, pending: Sequence[_Call], answered: _Answered) -> None:
        """Wait for the store's answers, one per partition; repeat a call that the store refused.

        `answered` gets each answer as it comes: a reply with a decision, an error, or None if the
        topic is gone.
        """
        for _ in range(TRIES):
            again: list[_Group] = []
            for group, future in pending:
                try:
                    reply = await future
                except StoreError as error:
                    answered(group, error)
                    continue
                if reply.verdict is CallStatus.LAYOUT:
                    answered(group, StoreLayoutError())
                    continue
                if reply.verdict is not CallStatus.OK:
                    again.append(group)
                    continue
                if Outcome.UNREPAIRED in [result[0] for result in reply.results]:
                    waits, group, reply.results = _split(group, reply.results)  # noqa: PLW2901
                    again.append(waits)
                if group.ops:
                    answered(group, reply)
            if not again:
                return
            await asyncio.sleep(RETRY_MS / 1000)
            pending = [(group, self._submit(group)) for group in again]
        for group, future in pending:
            future.cancel()
            gone = await group.subscription.topics.is_gone(group.topic_id)
            answered(group, None if gone else StoreError("a sidecar is taking the record over"))

    def _note(
        self,
        results: list[SettleResult | None],
        group: _Group,
        answer: RecordReply | StoreError | None,
    ) -> None:
        """Fill in the results of one partition's items, and pass them on."""
        if not isinstance(answer, RecordReply):
            for index in group.indexes:
                results[index] = lost("deleted") if answer is None else unavailable(answer)
            return
        acked = Outcome.ACKED
        tracing = group.subscription.tracing
        if tracing is not None:
            tracing.settled(group.tokens, group.ops, answer, here=self._owned(group) is not None)
        for index, token, result in zip(group.indexes, group.tokens, answer.results, strict=True):
            if result[0] is acked and not result.late:
                results[index] = ACKED
                continue
            results[index] = shown = settle_result(result)
            if shown.status is Status.LOST:
                shown.cancelled = group.subscription.cancels.of(token)
        if group.texts:
            self._count_texts(group, answer)
        if group.subscription.claims.held:
            self._free(group, answer)
        self._remember(group, answer)

    def _count_texts(self, group: _Group, reply: RecordReply) -> None:
        name, metrics = group.subscription.state.name, self._context.metrics
        results = [reply.results[each.item].outcome for each in group.texts]
        metrics.notes.at(name).inc(results.count(Outcome.EXTENDED))
        if self._owned(group) is None:
            metrics.notes_dropped.at(name).inc(reply.dropped)  # else the owner counts them

    def _free(self, group: _Group, reply: RecordReply) -> None:
        """Report these settles to copies that may wait for the end of their leases."""
        key, claims = self._handle(group).key, group.subscription.claims
        for op, result in zip(group.ops, reply.results, strict=True):
            if result.outcome in STATUSES:
                claims.settled(key, op.offset, result.outcome, result.when_ms)

    def _submit(self, group: _Group) -> asyncio.Future[RecordReply]:
        texts = NO_TEXTS
        if group.texts:
            texts = CallTexts(group.texts, group.subscription.state.settings.notes_bytes_max)
        return self._context.flusher.submit(self._handle(group), group.ops, texts)

    def _handle(self, group: _Group) -> LedgerHandle:
        """Return the owner's handle if this sidecar owns the partition, else one for settles
        only.
        """
        subscription, topic_id = group.subscription, group.topic_id
        partition = self._owned(group)
        if partition is not None:
            return partition.handle
        key = LedgerKey(
            subscription.state.cluster, subscription.state.name, topic_id, group.partition
        )
        handle = self._handles.get(key)
        if handle is None:
            handle = self._handles[key] = LedgerHandle(key)
            if len(self._handles) > HANDLES_MAX:
                self._handles.popitem(last=False)
        return handle

    @staticmethod
    def _owned(group: _Group) -> Partition | None:
        return group.subscription.partitions.by_ledger.get((group.topic_id, group.partition))

    def _keep_reason(self, group: _Group, offset: int, reason: str) -> None:
        """Keep a failure reason for traces, and for headers of copies in case the store loses
        it.
        """
        origin, partition = (group.topic_id, group.partition), self._owned(group)
        forwarded = group.subscription.claims.failed_with(origin, offset, reason)
        if partition is not None and not forwarded:
            partition.copies.failed_with(offset, reason)

    def _count(self, group: _Group, results: Sequence[SettleResult | None]) -> None:
        metrics, subscription = self._context.metrics, group.subscription
        name, breaker = subscription.state.name, subscription.breaker
        counts: dict[tuple[SettleVerb, Status, bool], int] = {}
        if group.plain and results.count(ACKED) == len(results):
            counts[SettleVerb.ACK, Status.ACKED, True] = len(results)
        else:
            for op, result in zip(group.ops, results, strict=True):
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

    # --- looking

    async def look(self, text: str) -> LeaseView:
        """Look a lease up. Raises BadLeaseTokenError, UnknownSubscriptionError, StoreError."""
        results: list[SettleResult | None] = [None]
        groups = self._read([SettleItem(text, SettleVerb.ACK)], results)
        for refused in filter(None, results):
            if refused.status is Status.LOST:
                return LeaseView("lost", 0)
            raise refused.error or BadLeaseTokenError()
        (group,) = groups
        (token,) = group.tokens
        look = LookUp(token.offset, token.fence, token.rollback_epoch)
        asked = self._context.flusher.submit(self._handle(group), [look])
        answers: list[RecordReply | StoreError | None] = []
        await self._ask_all([(group, asked)], lambda _, each: answers.append(each))
        (answer,) = answers
        if isinstance(answer, StoreError):
            raise answer
        return LeaseView("lost", 0) if answer is None else view_of(answer.results[0])

    # --- after a rollback (R10)

    def _remember(self, group: _Group, reply: RecordReply) -> None:
        """Keep confirmed acks for a replay, in case the store forgets them.

        Repeated acks too: the sidecar that served them first may not have got the store's answer.
        """
        if not group.plain:
            self._remember_extended(group, reply)
        acked = list(zip(group.tokens, reply.results, strict=True))
        outcomes = [result[0] for result in reply.results]
        if outcomes.count(Outcome.ACKED) != len(outcomes):
            acked = [(token, result) for token, result in acked if result[0] in _ACKED]
        if not acked:
            return
        handle, replay_log = self._handle(group), self._context.replay_log
        replay_log.acked(handle.key, reply.epoch, [token.offset for token, _ in acked])
        moved = [(t.offset, r.fence) for t, r in acked if r.fence > t.fence]
        if moved:
            replay_log.acked_in_origin(handle.key, handle.incarnation, reply.epoch, moved)

    def _remember_extended(self, group: _Group, reply: RecordReply) -> None:
        """Keep extensions that the record's owner may not learn of before the store forgets them:
        it knows the leases of its window, but only those origin records that it made.
        """
        known = self._owned(group) is not None
        later_ms = self._context.clock.monotonic_ms() - reply.now_ms
        leases = [
            Lease(t.offset, t.fence, t.rollback_epoch, t.attempt, r.when_ms + later_ms)
            for t, r in zip(group.tokens, reply.results, strict=True)
            if r.outcome is Outcome.EXTENDED and not (known and r.state is State.LEASED)
        ]
        if leases:
            self._context.replay_log.extended(self._handle(group).key, leases)


def _split(group: _Group, results: Sequence[OpResult]) -> tuple[_Group, _Group, list[OpResult]]:
    """Split off the items that must wait for a repair (R10); return the rest with its results."""
    waits: list[int] = []
    decided: list[int] = []
    for place, result in enumerate(results):
        (waits if result.outcome is Outcome.UNREPAIRED else decided).append(place)
    return group.some(waits), group.some(decided), [results[place] for place in decided]
