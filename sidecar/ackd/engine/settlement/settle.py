"""Settle leases: tokens in, results out, in order. Any sidecar settles any lease of its
subscriptions.

A settle is answered only when the store's decision is durable (I7, R11); otherwise its result is
`unavailable`. A lease of a partition that another sidecar owns is settled in the same record, and
that owner reads the settle in the record's journal (R16).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ackd.api.messages import ACKED, LeaseView, SettleItem, SettleResult, SettleVerb, Status
from ackd.core.lease_token import BadTokenError, UnknownKeyError, subscription_hash
from ackd.core.record.operations import LookUp, Settle
from ackd.core.record.protocol import (
    CallStatus,
    OpResult,
    RecordReply,
)
from ackd.core.record.transitions import Outcome
from ackd.core.record.transitions import Verb as CoreVerb
from ackd.engine.base.context import Context
from ackd.engine.settlement.results import (
    found_at,
    left_its_record,
    lost,
    settle_result,
    unavailable,
    view_at,
    view_of,
)
from ackd.engine.settlement.subscription_settles import SettleCall, SubscriptionSettles
from ackd.errors import (
    BadLeaseTokenError,
    BadParameterError,
    StoreError,
    StoreLayoutError,
    UnknownSubscriptionError,
)

RETRY_MS = 50
"""Constant: an application waits for the answer, and gives up soon."""
TRIES = 40
"""Calls to a record that is being re-read or taken over: for about two seconds, then 503."""


@dataclass(slots=True)
class _Group(SettleCall):
    """Items of one partition, which one call settles. `of`: their subscription; `indexes`: their
    positions in the request, one for each item.
    """

    of: SubscriptionSettles = field(kw_only=True)
    indexes: list[int] = field(default_factory=list)

    def some(self, places: Sequence[int]) -> _Group:
        """Return the group of these entries only."""
        indexes, tokens, ops = self.indexes, self.tokens, self.ops
        part = _Group(self.topic_id, self.partition, plain=self.plain, of=self.of)
        for each in places:
            part.indexes.append(indexes[each])
            part.tokens.append(tokens[each])
            part.ops.append(ops[each])
        if self.texts:
            new = {each: place for place, each in enumerate(places)}
            part.texts = [t._replace(item=new[t.item]) for t in self.texts if t.item in new]
        return part


LeaseLook = Callable[[str], Awaitable[LeaseView]]
"""Looks a lease up by its token, as `Settler.look`."""
_Call = tuple[_Group, asyncio.Future[RecordReply]]
_Ask = Callable[[_Group], asyncio.Future[RecordReply]]
_Answered = Callable[[_Group, RecordReply | StoreError | None], None]


class Settler:
    """Settles leases of all subscriptions of this sidecar."""

    def __init__(self, subscriptions: Mapping[str, SubscriptionSettles], context: Context) -> None:
        self._names = {subscription_hash(name): name for name in subscriptions}
        self._subscriptions = subscriptions
        self._context = context

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
        pending = [(group, _settle(group)) for group in groups]
        submitted()
        dead: list[int] = []
        left: dict[int, int] = {}
        if pending:
            await self._ask_all(pending, _settle, partial(self._note, results, dead, left))
        for group in groups:
            group.of.count(group, [results[index] for index in group.indexes])
        for index in dead:  # after the counting: metrics and the breaker go by what was asked
            results[index] = SettleResult(Status.DEAD)
        if left:
            await self._find(groups, results, left)
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
                group = _Group(token.topic_id, token.partition, of=self._subscriptions[name])
                groups[whose] = group
            if item.do is SettleVerb.ACK and item.note is None and item.count:
                op = make(Settle, (ack, *token[3:], 0, False, True))
            else:
                found = group.of.op(item, token)
                if isinstance(found, BadParameterError):
                    results[index] = SettleResult(Status.INVALID, error=found)
                    continue
                op, group.plain = found, False
                text = group.of.text(group, item, token)
                if text is not None:
                    group.texts.append(text)
            group.indexes.append(index)
            group.tokens.append(token)
            group.ops.append(op)
        return [group for group in groups.values() if group.ops]

    async def _ask_all(self, pending: Sequence[_Call], ask: _Ask, answered: _Answered) -> None:
        """Wait for the store's answers, one per partition; `ask` again what the store refused.

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
                    waits, group, results = _split(group, reply.results)  # noqa: PLW2901
                    reply = replace(reply, results=results)
                    again.append(waits)
                if group.ops:
                    answered(group, reply)
            if not again:
                return
            await asyncio.sleep(RETRY_MS / 1000)
            pending = [(group, ask(group)) for group in again]
        for group, future in pending:
            future.cancel()
            gone = await group.of.is_gone(group.topic_id)
            answered(group, None if gone else StoreError("a sidecar is taking the record over"))

    def _note(
        self,
        results: list[SettleResult | None],
        dead: list[int],
        left: dict[int, int],
        group: _Group,
        answer: RecordReply | StoreError | None,
    ) -> None:
        """Fill in the results of one partition's items, and pass them on. `dead` gets the places of
        retries after which the message is dead-lettered; `left` places and offsets of messages that
        another record may know more of.
        """
        if not isinstance(answer, RecordReply):
            for index in group.indexes:
                results[index] = lost("deleted") if answer is None else unavailable(answer)
            return
        acked = Outcome.ACKED
        for index, token, result in zip(group.indexes, group.tokens, answer.results, strict=True):
            if result[0] is acked and not result.late:
                results[index] = ACKED
                continue
            results[index] = shown = settle_result(result)
            if shown.status is Status.LOST:
                shown.cancelled = group.of.cancelled(token)
                if left_its_record(result):
                    left[index] = token.offset
            elif group.of.dead_lettered(result, answer.now_ms):
                dead.append(index)
        group.of.decided(group, answer)

    @staticmethod
    async def _find(
        groups: Sequence[_Group], results: list[SettleResult | None], left: Mapping[int, int]
    ) -> None:
        """Say of these lost leases where their messages are, as far as the store tells."""
        for group in groups:
            places = [index for index in group.indexes if index in left]
            found = await group.of.find(group, [left[index] for index in places]) if places else []
            for index, each in zip(places, found, strict=True):
                before = results[index]
                if each is not None and before is not None:
                    results[index] = replace(found_at(*each), cancelled=before.cancelled)

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
        answers: list[RecordReply | StoreError | None] = []

        def ask(call: _Group) -> asyncio.Future[RecordReply]:
            return call.of.ask(call, [look])

        await self._ask_all([(group, ask(group))], ask, lambda _, each: answers.append(each))
        (answer,) = answers
        if isinstance(answer, StoreError):
            raise answer
        if answer is None:
            return LeaseView("lost", 0)
        result = answer.results[0]
        [there] = await group.of.find(group, [token.offset]) if left_its_record(result) else [None]
        return view_of(result) if there is None else view_at(result, *there)


def _settle(group: _Group) -> asyncio.Future[RecordReply]:
    return group.of.ask(group, group.ops)


def _split(group: _Group, results: Sequence[OpResult]) -> tuple[_Group, _Group, list[OpResult]]:
    """Split off the items that must wait for a repair (R10); return the rest with its results."""
    waits: list[int] = []
    decided: list[int] = []
    for place, result in enumerate(results):
        (waits if result.outcome is Outcome.UNREPAIRED else decided).append(place)
    return group.some(waits), group.some(decided), [results[place] for place in decided]
