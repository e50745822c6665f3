"""Settling leases: tokens in, results out, in order. Any sidecar settles any lease of its
subscriptions.

An answer is given only when the store's decision is durable (I7, R11); what could not be decided is
`unavailable`. A lease of a partition that another sidecar owns is settled in the same record; that
owner reads it in the record's journal (R16).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ackd.core.ids import LedgerKey
from ackd.core.lease import BadTokenError, Token, UnknownKeyError, subscription_hash
from ackd.core.states import Outcome, State
from ackd.core.states import Verb as CoreVerb
from ackd.core.wire import Op, Reply, Result, Verdict
from ackd.engine.api import ACKED, LeaseView, SettleItem, SettleResult, Status, Verb
from ackd.engine.context import Context
from ackd.engine.delays import retry_delay_ms
from ackd.engine.notes import NOTE_BYTES_MAX
from ackd.engine.partition import Partition
from ackd.engine.subscription import Subscription
from ackd.errors import (
    BadLeaseTokenError,
    BadParameterError,
    LeaseLostError,
    StoreError,
    StoreLayoutError,
    UnknownSubscriptionError,
)
from ackd.store.flusher import LedgerHandle

RETRY_MS = 50
TRIES = 40
"""A record that is being re-read or taken over is asked again; about two seconds, then 503."""
HANDLES_MAX = 10_000

_VERBS: Mapping[Verb, CoreVerb] = {
    Verb.ACK: CoreVerb.ACK,
    Verb.RETRY: CoreVerb.RETRY,
    Verb.EXTEND: CoreVerb.EXTEND,
    Verb.DEAD: CoreVerb.DEAD,
    Verb.RELEASE: CoreVerb.RELEASE,
}
_STATUSES: Mapping[Outcome, Status] = {
    Outcome.ACKED: Status.ACKED,
    Outcome.ALREADY_ACKED: Status.ALREADY_ACKED,
    Outcome.RETRYING: Status.RETRYING,
    Outcome.EXTENDED: Status.EXTENDED,
    Outcome.DEAD: Status.DEAD,
    Outcome.RELEASED: Status.RELEASED,
}
_ACKED = (Outcome.ACKED, Outcome.ALREADY_ACKED)
_FAILURES = (Verb.DEAD, Verb.RETRY)
_STATE_NAMES: Mapping[State, str] = {
    State.READY: "ready",
    State.LEASED: "leased",
    State.WAITING: "retrying",
    State.RELEASED: "ready",
    State.DEAD: "dead",
    State.SENDING: "sent back",
    State.FINISHED: "finished",
}


@dataclass(slots=True)
class _Ask:
    """One item that goes to the store."""

    index: int
    subscription: Subscription
    token: Token
    op: Op
    verb: Verb


_Call = tuple[list[_Ask], asyncio.Future[Reply]]
_Answered = Callable[[list[_Ask], Reply | StoreError | None], None]


class Settler:
    """Settles for all subscriptions of this sidecar."""

    def __init__(self, subscriptions: Mapping[str, Subscription], context: Context) -> None:
        self._names = {subscription_hash(name): name for name in subscriptions}
        self._subscriptions = subscriptions
        self._context = context
        self._handles: OrderedDict[LedgerKey, LedgerHandle] = OrderedDict()

    # --- settling

    async def settle(
        self, items: Sequence[SettleItem], submitted: Callable[[], None] = lambda: None
    ) -> list[SettleResult]:
        """Settle; results in the order of the items. Never raises for an item.

        `submitted` is called when the store was asked, before anything is awaited: what it asks of
        the store travels in the same flush.
        """
        results: list[SettleResult | None] = [None] * len(items)
        asks: list[_Ask] = []
        notes: list[tuple[_Ask, bytes]] = []
        for index, item in enumerate(items):
            ask = self._read(index, item)
            if isinstance(ask, SettleResult):
                results[index] = ask
            else:
                asks.append(ask)
                if item.reason and item.do in _FAILURES:
                    self._told(ask, item.reason)
                if item.note is not None:
                    notes.append((ask, item.note.encode()))
        pending = [(group, self._submit(group)) for group in _grouped(asks).values()]
        submitted()
        if pending:
            await self._ask_all(pending, partial(self._note, results))
        if notes:
            await self._write(notes, results)
        self._count(asks, results)
        return [each or _unavailable(StoreError()) for each in results]

    def _read(self, index: int, item: SettleItem) -> _Ask | SettleResult:
        """Check one item without the store."""
        try:
            token = self._context.keys.open(item.lease)
        except BadTokenError:
            return SettleResult(Status.INVALID, error=BadLeaseTokenError())
        except UnknownKeyError:
            return SettleResult(Status.LOST, now_state="unknown", error=LeaseLostError())
        name = self._names.get(token.subscription)
        if name is None:
            return SettleResult(Status.INVALID, error=UnknownSubscriptionError())
        subscription = self._subscriptions[name]
        if item.note is not None and len(item.note.encode()) > NOTE_BYTES_MAX:
            why = BadParameterError(f"note must be at most {NOTE_BYTES_MAX} bytes")
            return SettleResult(Status.INVALID, error=why)
        arg = 0 if item.do is Verb.ACK else self._argument(item, token, subscription)
        if isinstance(arg, BadParameterError):
            return SettleResult(Status.INVALID, error=arg)
        op = Op(
            _VERBS[item.do],
            token.offset,
            token.fence,
            token.rterm,
            token.attempt,
            arg,
            counted=item.count and not (subscription.brake.on and item.do is Verb.RETRY),
        )
        return _Ask(index, subscription, token, op, item.do)

    @staticmethod
    def _argument(item: SettleItem, token: Token, of: Subscription) -> int | BadParameterError:
        settings = of.settings
        if item.do is Verb.EXTEND:
            lease_ms = settings.lease_ms if item.lease_ms is None else item.lease_ms
            if not 0 < lease_ms <= settings.lease_ms_max:
                return BadParameterError(f"lease_ms must be 1 to {settings.lease_ms_max}")
            return lease_ms
        if item.do is Verb.RETRY:
            if item.delay_ms is not None:
                return item.delay_ms
            return retry_delay_ms(settings, token.attempt)
        return 0

    async def _ask_all(self, pending: Sequence[_Call], answered: _Answered) -> None:
        """Wait for the store's answers, one per partition; a call that was refused is repeated.

        `answered` is told each as it comes: a reply with a decision, None if the topic is gone.
        """
        for _ in range(TRIES):
            again: list[_Ask] = []
            for group, future in pending:
                try:
                    reply = await future
                except StoreError as error:
                    answered(group, error)
                    continue
                if reply.verdict is Verdict.LAYOUT:
                    answered(group, StoreLayoutError())
                    continue
                if reply.verdict is not Verdict.OK:
                    again += group
                    continue
                waits, decided, reply.results = _split(group, reply.results)
                again += waits
                if decided:
                    answered(decided, reply)
            if not again:
                return
            await asyncio.sleep(RETRY_MS / 1000)
            pending = [(group, self._submit(group)) for group in _grouped(again).values()]
        for group, future in pending:
            future.cancel()
            gone = await group[0].subscription.ownership.topic_is_gone(group[0].token.topic_id)
            answered(group, None if gone else StoreError("the record is being taken over"))

    async def _write(
        self, notes: Sequence[tuple[_Ask, bytes]], results: list[SettleResult | None]
    ) -> None:
        """Keep the notes of leases that live; one that is not durable is no success (I7)."""
        by_name: dict[str, list[tuple[_Ask, bytes]]] = {}
        for ask, text in notes:
            result = results[ask.index]
            if result is not None and result.status is Status.EXTENDED:
                by_name.setdefault(ask.subscription.name, []).append((ask, text))
        for some in by_name.values():
            try:
                await some[0][0].subscription.notes.write([(a.token, text) for a, text in some])
            except StoreError as error:
                for ask, _ in some:
                    results[ask.index] = _unavailable(error)

    def _note(
        self,
        results: list[SettleResult | None],
        group: list[_Ask],
        answer: Reply | StoreError | None,
    ) -> None:
        """Keep what became of the items of one partition."""
        if isinstance(answer, Reply):
            for ask, result in zip(group, answer.results, strict=True):
                results[ask.index] = told = self._result(result)
                if told.status is Status.LOST:
                    told.cancelled = ask.subscription.cancels.of(ask.token)
            if group[0].subscription.claims.held:
                self._free(group, answer)
            self._remember(group, answer)
            return
        for ask in group:
            results[ask.index] = (
                SettleResult(Status.LOST, now_state="deleted", error=LeaseLostError())
                if answer is None
                else _unavailable(answer)
            )

    def _free(self, group: Sequence[_Ask], reply: Reply) -> None:
        """Copies may wait for the end of these leases."""
        key, claims = self._handle(group[0]).key, group[0].subscription.claims
        for ask, result in zip(group, reply.results, strict=True):
            if result.outcome in _STATUSES:
                claims.settled(key, ask.op.offset, result.outcome, result.when_ms)

    def _submit(self, group: list[_Ask]) -> asyncio.Future[Reply]:
        return self._context.flusher.submit(self._handle(group[0]), [ask.op for ask in group])

    def _handle(self, ask: _Ask) -> LedgerHandle:
        """The owner's handle if this sidecar owns the partition, else one for foreign settles."""
        token = ask.token
        partition = self._owned(ask)
        if partition is not None:
            return partition.handle
        key = LedgerKey(
            ask.subscription.cluster, ask.subscription.name, token.topic_id, token.partition
        )
        handle = self._handles.get(key)
        if handle is None:
            handle = self._handles[key] = LedgerHandle(key)
            if len(self._handles) > HANDLES_MAX:
                self._handles.popitem(last=False)
        return handle

    @staticmethod
    def _owned(ask: _Ask) -> Partition | None:
        token = ask.token
        return ask.subscription.ownership.by_ledger.get((token.topic_id, token.partition))

    def _told(self, ask: _Ask, reason: str) -> None:
        """For the headers of a copy, which may be made before the settle is answered."""
        partition = self._owned(ask)
        if partition is not None:
            partition.copies.failed_with(ask.token.offset, reason)

    @staticmethod
    def _result(result: Result) -> SettleResult:
        if result.outcome is Outcome.ACKED and not result.late:
            return ACKED
        status = _STATUSES.get(result.outcome)
        if status is None:
            return SettleResult(
                Status.LOST,
                now_state=_STATE_NAMES[result.state],
                now_attempt=result.attempt or None,
                error=LeaseLostError(),
            )
        return SettleResult(
            status,
            late=result.late,
            deadline_ms=result.when_ms if status is Status.EXTENDED else None,
            due_ms=result.when_ms if status is Status.RETRYING else None,
        )

    def _count(self, asks: Sequence[_Ask], results: Sequence[SettleResult | None]) -> None:
        metrics = self._context.metrics
        counts: dict[tuple[str, Verb, Status, bool], int] = {}
        for ask in asks:
            result = results[ask.index]
            status = Status.UNAVAILABLE if result is None else result.status
            key = (ask.subscription.name, ask.verb, status, ask.op.counted)
            counts[key] = counts.get(key, 0) + 1
            if result is not None and result.late and ask.verb is Verb.ACK:
                metrics.late_acks.at(ask.subscription.name).inc()
        for (name, verb, status, counted), count in counts.items():
            metrics.settles.at(name, verb.value, status.value).inc(count)
            if status is Status.LOST:
                metrics.lost_settles.at(name, verb.value).inc(count)
            if counted:
                self._subscriptions[name].brake.settled(verb, status, count)

    # --- looking

    async def look(self, text: str) -> LeaseView:
        """Where a lease is. Raises BadLeaseTokenError, UnknownSubscriptionError, StoreError."""
        ask = self._read(0, SettleItem(text, Verb.ACK))
        if isinstance(ask, SettleResult):
            if ask.status is Status.LOST:
                return LeaseView("lost", 0)
            raise ask.error or BadLeaseTokenError()
        ask.op = ask.op._replace(verb=CoreVerb.LOOK)
        answers: list[Reply | StoreError | None] = []
        await self._ask_all([([ask], self._submit([ask]))], lambda _, each: answers.append(each))
        (answer,) = answers
        if isinstance(answer, StoreError):
            raise answer
        return LeaseView("lost", 0) if answer is None else _view(answer.results[0])

    # --- after a rollback (R10)

    def _remember(self, group: Sequence[_Ask], reply: Reply) -> None:
        """Keep confirmed acks, in case the store forgets them; repeated ones too, because whoever
        served them first may not have heard of it.
        """
        acked = [
            (ask.token, result)
            for ask, result in zip(group, reply.results, strict=True)
            if result.outcome in _ACKED
        ]
        if acked:
            now = (token for token, result in acked if result.outcome is Outcome.ACKED)
            group[0].subscription.notes.acked(now)
            handle, memory = self._handle(group[0]), self._context.memory
            memory.acked(handle.key, reply.epoch, [token.offset for token, _ in acked])
            homes = [(t.offset, r.fence) for t, r in acked if r.fence > t.fence]
            if homes:
                memory.acked_at_home(handle.key, handle.incarnation, reply.epoch, homes)


def _grouped(asks: Sequence[_Ask]) -> dict[tuple[bytes, bytes, int], list[_Ask]]:
    groups: dict[tuple[bytes, bytes, int], list[_Ask]] = {}
    for ask in asks:
        token = ask.token
        groups.setdefault((token.subscription, token.topic_id, token.partition), []).append(ask)
    return groups


def _split(
    group: Sequence[_Ask], results: Sequence[Result]
) -> tuple[list[_Ask], list[_Ask], list[Result]]:
    """Items that have to wait for a repair (R10); those that are decided, with their results."""
    if Outcome.UNREPAIRED not in [result.outcome for result in results]:
        return [], list(group), list(results)
    waits, decided, known = [], [], []
    for ask, result in zip(group, results, strict=True):
        if result.outcome is Outcome.UNREPAIRED:
            waits.append(ask)
        else:
            decided.append(ask)
            known.append(result)
    return waits, decided, known


def _unavailable(error: StoreError) -> SettleResult:
    return SettleResult(Status.UNAVAILABLE, error=error)


_LOOKS: Mapping[Outcome, str] = {
    Outcome.ALREADY_ACKED: "acked",
    Outcome.HELD: "leased",
    Outcome.RETRYING: "retrying",
    Outcome.DEAD: "dead",
}


def _view(result: Result) -> LeaseView:
    state = _LOOKS.get(result.outcome, "lost")
    return LeaseView(
        state,
        result.attempt,
        deadline_ms=result.when_ms if state == "leased" else None,
        due_ms=result.when_ms if state == "retrying" else None,
        late=result.late,
    )
