"""Says where one message of the group is, whoever owns it: from its records in the store, from the
owners of partitions, and from the dead-letter topic. Changes nothing.

The records have the truth: state, lease, attempts, deliveries. Owners add what only they know, as
what a message waits for. If they do not answer, the rest is said.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ackd.api.dead_letters import DeadLetter
from ackd.api.messages import MessageView
from ackd.core.ids import LedgerKey, message_id, message_place
from ackd.core.record.protocol import MessageTexts
from ackd.core.record.transitions import Outcome, State
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.control.inspect import Inspector, SeenMessage
from ackd.engine.partition.histories import holder_of, past_deliveries
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.settlement.whereabouts import Step, Whereabouts
from ackd.errors import BrokerError, PressureError, UnknownMessageError

SEARCHES_MAX = 4
"""Searches of the dead-letter topic at the same time; each opens a reader at the broker (I8)."""
ACKED, DEAD, FINISHED, MOVING = "acked", "dead", "finished", "moving"
READY, REDRIVING = "ready", "redriving"
_STATE_NAMES: Mapping[State, str] = {
    State.READY: READY,
    State.LEASED: "leased",
    State.WAITING: "retrying",
    State.RELEASED: READY,
    State.DEAD: DEAD,
    State.MOVING: FINISHED,  # its origin record is gone, so its copy ended long ago
    State.FINISHED: FINISHED,
}
_LEASED = ("leased", "waiting_for_lease")
_OVER = frozenset({ACKED, DEAD, FINISHED})


Answers = tuple[dict[str, list[SeenMessage]], dict[str, str]]
"""What other owners say of a message, by sidecar, and why others gave no answer."""


class FoundLetter(Protocol):
    """`ackd.engine.operations.subscription_dead_letters.LetterSearch`."""

    @property
    def key(self) -> LedgerKey | None: ...
    @property
    def offset(self) -> int: ...
    @property
    def letter(self) -> DeadLetter | None: ...
    @property
    def complete(self) -> bool: ...


class MessageLookup:
    """Looks messages of one subscription up. `find_letter`: the dead letter of a message."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        topics: Topics,
        partitions: OwnedPartitions,
        membership: Membership,
        inspector: Inspector,
        retry_topic: str,
        find_letter: Callable[[str], Awaitable[FoundLetter]],
    ) -> None:
        self._state = state
        self._context = context
        self._topics = topics
        self._partitions = partitions
        self._membership = membership
        self._inspector = inspector
        self._retry_topic = retry_topic
        self._find_letter = find_letter
        self._whereabouts = Whereabouts(state, context, topics, retry_topic)
        self._searches = 0

    async def of(self, name: str, ask: Callable[[], Awaitable[Answers]]) -> MessageView:
        """Look a message up. `ask`: asks the owners. Raises UnknownMessageError, StoreError,
        BrokerError.
        """
        key, offset = await self._record(name)
        steps = await self._whereabouts.trail(key, offset)
        view = MessageView(name, _state(steps))
        if view.state in _OVER:
            view, steps = await self._with_letter(view, steps)
        if view.state not in _OVER or _may_go_on(view, steps):
            others, missing = await ask()
            held = {**others, self._context.identity: await self._inspector.held(name)}
            if view.state in _OVER:
                held = {owner: [e for e in seen if e.copy] for owner, seen in held.items()}
            elif not any(held.values()) and not _delivered(steps):
                await self._check_there(name)
            view = replace(_as_held(view, held), missing=missing)
            steps = await self._with_copy(steps, held)
        return await self._with_records(view, steps) if steps else view

    # --- which message

    async def _record(self, name: str) -> tuple[LedgerKey, int]:
        tp, offset = message_place(name)
        try:
            info = await self._topics.of(tp.topic)
        except BrokerError:
            if not self._topics.known:
                raise
            info = None
        # A log that was cut goes on in partitions beyond those that the broker tells of.
        beyond = self._state.broker_side_acks is not None
        if info is None or (tp.partition >= info.partitions and not beyond):
            raise UnknownMessageError(f"{self._state.name} has no partition {tp}")
        return LedgerKey(self._state.cluster, self._state.name, info.topic_id, tp.partition), offset

    async def _check_there(self, name: str) -> None:
        """Refuse a message that the log has not. Raises UnknownMessageError, BrokerError."""
        tp, offset = message_place(name)
        first, end = await self._state.consumer.log_range(tp)
        if not first <= offset < end:
            raise UnknownMessageError(f"{tp} has the messages {first} to {end - 1} now")

    # --- what is said of it

    async def _with_letter(
        self, view: MessageView, steps: list[Step]
    ) -> tuple[MessageView, list[Step]]:
        """Look for its dead letter, which may be delivered again. Returns the steps that count,
        too.
        """
        if self._searches >= SEARCHES_MAX:
            raise PressureError("too many look for dead letters at once")
        self._searches += 1
        try:
            found = await self._find_letter(view.id)
        finally:
            self._searches -= 1
        view = replace(view, letters_unread=not found.complete)
        if found.letter is None or found.key is None:
            return view, steps
        letter = found.letter.view
        view = replace(
            view,
            attempt=letter.attempts,
            since_ms=letter.first_seen_ms or None,
            published_ms=letter.published_ms or None,
            first_error=letter.first_error or None,
            error=letter.reason or letter.last_error or None,
            history=found.letter.history,
        )
        redrive = await self._whereabouts.trail(found.key, found.offset)
        if not redrive or redrive[0].lease.state is State.READY:
            return replace(view, state=DEAD, dead_letter=letter.id), steps
        return replace(view, state=_redriven(redrive), attempt=0), redrive

    async def _with_copy(
        self, steps: list[Step], held: Mapping[str, Sequence[SeenMessage]]
    ) -> list[Step]:
        """Follow a copy that only its owner still names: the message's own record has forgotten it.
        Raises StoreError.
        """
        if len(steps) != 1:
            return steps
        for seen in (each for answers in held.values() for each in answers):
            if seen.copy:
                key, offset = await self._record(seen.copy)
                return [*steps, *await self._whereabouts.trail(key, offset)]
        return steps

    async def _with_records(self, view: MessageView, steps: Sequence[Step]) -> MessageView:
        """Add what the records say."""
        last = steps[-1]
        first_s = next((each.lease.first_s for each in steps if each.lease.first_s), 0)
        view = replace(
            view,
            attempt=view.attempt or last.there.attempt,
            since_ms=view.since_ms or first_s * 1000 or None,
        )
        texts = await self._texts(steps)
        if texts is not None:
            leased = view.state in _LEASED
            view = replace(
                view,
                history=past_deliveries(texts.history, leased=leased),
                first_error=_text(texts.first) or view.first_error,
                error=view.error or _text(texts.last),
                holder=(view.holder or holder_of(texts)) if leased else "",
            )
        if view.state in _OVER:
            return view
        state, when_ms = last.there.state, last.lease.when_ms
        leased = state is State.LEASED and when_ms > last.now_ms
        return replace(
            view,
            deadline_ms=view.deadline_ms or (when_ms if leased else None),
            due_ms=view.due_ms or (when_ms if state is State.WAITING else None),
            owner=view.owner or self._owner(last.key),
            copy=self._copy(last) if len(steps) > 1 else None,
        )

    def _copy(self, step: Step) -> str:
        return message_id(self._retry_topic, step.key.partition, step.offset)

    async def _texts(self, steps: Sequence[Step]) -> MessageTexts | None:
        """The texts of the record that has the message now, else of the one before."""
        for step in reversed(steps):
            [texts] = await self._context.store.texts(step.key, [step.offset])
            if texts is not None:
                return texts
        return None

    def _owner(self, key: LedgerKey) -> str:
        if (key.topic_id, key.partition) in self._partitions.by_ledger:
            return self._context.identity
        name = key.text()
        return next((each.name for each in self._membership.alive if name in each.owned), "")


def _state(steps: Sequence[Step]) -> str:
    """What the last record says of the message in a word."""
    if not steps:
        return READY
    last = steps[-1]
    if last.there.outcome is Outcome.ALREADY_ACKED:
        return ACKED
    if last.there.state is State.MOVING and last.there.copy is not None:
        return MOVING
    if last.there.state is State.LEASED and last.lease.when_ms <= last.now_ms:
        return READY  # its lease has run out
    return _STATE_NAMES[last.there.state]


def _may_go_on(view: MessageView, steps: Sequence[Step]) -> bool:
    """Whether a copy in the retry topic may be all that is left of a message whose record says that
    it is over: that forgets the copy's place ten minutes after the claim, and after 13 hours that
    no ack finished the message.
    """
    return view.state in (FINISHED, ACKED) and len(steps) == 1


def _delivered(steps: Sequence[Step]) -> bool:
    return any(each.there.attempt or each.lease.first_s for each in steps)


def _as_held(view: MessageView, held: Mapping[str, Sequence[SeenMessage]]) -> MessageView:
    """Take over what the owners say: of a message that moves, the one with the copy knows more, and
    one that is redriven was dead before.
    """
    redriving = view.state == REDRIVING
    for owner, answers in held.items():
        for seen, released_by, _ in answers:
            if (view.owner and seen.state == MOVING) or (redriving and seen.state == DEAD):
                continue
            view = replace(
                view,
                state=seen.state,
                attempt=seen.attempt,
                owner=owner,
                holder=seen.holder,
                since_ms=seen.since_ms or None,
                published_ms=seen.published_ms or view.published_ms,
                deadline_ms=seen.deadline_ms,
                due_ms=seen.due_ms,
                error=seen.error,
                released_by=released_by,
            )
    return view


def _redriven(steps: Sequence[Step]) -> str:
    """What a message is whose dead letter is not one any more: redriven, or purged."""
    if len(steps) > 1:
        return _state(steps)
    return FINISHED if steps[0].lease.state is State.FINISHED else REDRIVING


def _text(data: bytes) -> str | None:
    return data.decode("utf-8", "replace") or None
