"""Shows a whole group at any of its sidecars: each owner is asked for its partitions.

Implements `ackd.api.messages.GroupView`. An owner that does not answer in time is named in the
answer, with the reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import Protocol, TypeVar

import msgspec

from ackd.api.messages import (
    Explanation,
    GroupExplanation,
    GroupInFlight,
    GroupLag,
    GroupMessages,
    InFlight,
    MessagesServed,
    MessageView,
    PartitionLag,
    SidecarShare,
)
from ackd.core.ids import message_id, message_place
from ackd.engine.cluster.membership import Membership
from ackd.engine.control.inspect import KEYS_MAX, Inspector, Listed, Place, SeenMessage
from ackd.engine.control.lag import Lag
from ackd.engine.control.message_lookup import Answers, MessageLookup
from ackd.errors import BadParameterError
from ackd.unreadable import UNREADABLE

ASK_MS = 2_000
ASKED_MAX = 30
"""With more other sidecars, those that own nothing are not asked what they have handed out."""
LAG, IN_FLIGHT, EXPLAIN = "lag", "in-flight", "explain"
MESSAGES, MESSAGE = "messages", "message"
"""The kinds of questions."""
NOT_TAKEN = "it is gone, and no sidecar has taken over its partitions yet"
GIVEN_AWAY = "it gave partitions away that no sidecar has taken yet: "
NAMED_MAX = 10
"""So many partitions are named in one sentence."""
NO_LINKS = "links between sidecars are off (`peers.on`)"
_ENCODER = msgspec.msgpack.Encoder()
_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class LagAnswer:
    """What one sidecar says of the progress of its partitions, and of itself."""

    rows: list[PartitionLag]
    served: MessagesServed


class GroupQuestions(Protocol):
    """What is asked of `ackd.engine.peers.questions.PeerQuestions`."""

    def on(self, kind: str, answer: Callable[[bytes], Awaitable[bytes]]) -> None: ...

    async def ask_all(
        self, names: Iterable[str], kind: str, body: bytes, timeout_ms: int
    ) -> tuple[dict[str, bytes], dict[str, str]]: ...


class GroupViews:
    """Asks and answers for one subscription. `questions` None: there are no links."""

    def __init__(
        self,
        lag: Lag,
        inspector: Inspector,
        membership: Membership,
        questions: GroupQuestions | None,
        lookup: MessageLookup,
    ) -> None:
        self._lag = lag
        self._inspector = inspector
        self._membership = membership
        self._questions = questions
        self._lookup = lookup
        if questions is not None:
            questions.on(LAG, self._answer_lag)
            questions.on(IN_FLIGHT, self._answer_in_flight)
            questions.on(EXPLAIN, self._answer_explain)
            questions.on(MESSAGES, self._answer_messages)
            questions.on(MESSAGE, self._answer_message)

    async def lag(self, *, others: bool = True) -> GroupLag:
        rows = {(row.topic, row.partition): row for row in await self._lag.rows()}
        alive = self._membership.alive if others else []
        few = len(alive) <= ASKED_MAX
        names = [each.name for each in alive if each.owned or few]
        answers, missing = await self._ask_these(names, LAG, b"", LagAnswer, others=others)
        me = self._lag.me
        served = {name: answered.served for name, answered in answers.items()}
        served[me] = self._lag.served()
        for name, answered in answers.items():
            for row in answered.rows:
                known = rows.get((row.topic, row.partition))
                if row.owner == name and (known is None or known.watermark < 0):
                    rows[row.topic, row.partition] = row
        found = [rows[each] for each in sorted(rows)]
        sidecars = [me, *(each.name for each in alive)]
        shares = {name: SidecarShare(name, served=served.get(name)) for name in sorted(sidecars)}
        for row in found:
            if row.owner in shares:
                shares[row.owner].add(row)
        return GroupLag(found, missing, list(shares.values()))

    async def in_flight(self, older_ms: int, limit: int, *, others: bool = True) -> GroupInFlight:
        body = _ENCODER.encode((older_ms, limit))
        answers, missing = await self._ask(IN_FLIGHT, body, list[InFlight], others=others)
        found = await self._inspector.in_flight(older_ms, limit)
        found += [each for messages in answers.values() for each in messages]
        oldest = nsmallest(limit, found, key=lambda each: (each.since_ms, each.id))
        return GroupInFlight(oldest, missing)

    async def explain(self, *, others: bool = True) -> GroupExplanation:
        answers, missing = await self._ask(EXPLAIN, b"", Explanation, others=others)
        own = await self._inspector.explain()
        found = GroupExplanation(
            own.subscription, own.partitions, own.limits, own.repeats, own.ordered, missing=missing
        )
        for name, other in sorted(answers.items()):
            found.partitions += other.partitions
            found.ordered += other.ordered
            found.repeats += other.repeats
            found.elsewhere[name] = other.limits
        found.partitions.sort(key=lambda each: (each.topic, each.partition))
        found.ordered = nlargest(KEYS_MAX, found.ordered, key=lambda each: each.waiting)
        return found

    async def messages(
        self, states: frozenset[str], cursor: str | None, limit: int, *, others: bool = True
    ) -> GroupMessages:
        after = None if cursor is None else read_cursor(cursor)
        body = _ENCODER.encode((sorted(states), after, limit))
        answers, missing = await self._ask(MESSAGES, body, list[Listed], others=others)
        found = await self._inspector.listed(states, after, limit)
        found += [each for listed in answers.values() for each in listed]
        page = nsmallest(limit, found, key=lambda each: each.place)
        next_page = write_cursor(page[-1].place) if len(page) == limit else None
        return GroupMessages([each.view for each in page], next_page, missing)

    async def message(self, name: str, *, others: bool = True) -> MessageView:
        async def ask() -> Answers:
            return await self._ask(MESSAGE, name.encode(), list[SeenMessage], others=others)

        return await self._lookup.of(name, ask)

    async def _ask(
        self, kind: str, body: bytes, answer: type[_Answer], *, others: bool
    ) -> tuple[dict[str, _Answer], dict[str, str]]:
        """Ask every other sidecar that owns partitions. Returns the answers by sidecar, and why
        others gave none.
        """
        names = [each.name for each in self._membership.alive if each.owned] if others else []
        return await self._ask_these(names, kind, body, answer, others=others)

    async def _not_taken(self) -> dict[str, str]:
        """Sidecars that had partitions of which nobody can tell anything now: they have died, or
        gave them away.
        """
        gone, given = self._membership.not_taken(self._lag.owned())
        missing: dict[str, str] = {}
        for name, texts in given.items():
            names = await self._lag.names(texts)
            if names:
                more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
                missing[name] = f"{GIVEN_AWAY}{', '.join(names[:NAMED_MAX])}{more}"
        return missing | dict.fromkeys(gone, NOT_TAKEN)

    async def _ask_these(
        self, names: Sequence[str], kind: str, body: bytes, answer: type[_Answer], *, others: bool
    ) -> tuple[dict[str, _Answer], dict[str, str]]:
        not_taken = await self._not_taken() if others else {}
        if self._questions is None or not names:
            return {}, not_taken | dict.fromkeys(names, NO_LINKS)
        replies, missing = await self._questions.ask_all(names, kind, body, ASK_MS)
        missing = not_taken | missing
        answers: dict[str, _Answer] = {}
        for name, reply in replies.items():
            try:
                answers[name] = msgspec.msgpack.decode(reply, type=answer)
            except UNREADABLE as error:
                missing[name] = f"its answer can't be read: {error}"
        return answers, missing

    # --- questions of others

    async def _answer_lag(self, _: bytes) -> bytes:
        return _ENCODER.encode(LagAnswer(await self._lag.rows(), self._lag.served()))

    async def _answer_in_flight(self, body: bytes) -> bytes:
        older_ms, limit = msgspec.msgpack.decode(body, type=tuple[int, int])
        return _ENCODER.encode(await self._inspector.in_flight(older_ms, limit))

    async def _answer_explain(self, _: bytes) -> bytes:
        return _ENCODER.encode(await self._inspector.explain())

    async def _answer_messages(self, body: bytes) -> bytes:
        kinds = tuple[frozenset[str], Place | None, int]
        states, after, limit = msgspec.msgpack.decode(body, type=kinds)
        return _ENCODER.encode(await self._inspector.listed(states, after, limit))

    async def _answer_message(self, body: bytes) -> bytes:
        return _ENCODER.encode(await self._inspector.held(body.decode()))


def write_cursor(place: Place) -> str:
    """Write where the next page begins."""
    return f"{place.first_s}/{message_id(*place[1:])}"


def read_cursor(text: str) -> Place:
    """Read what `write_cursor` wrote. Raises BadParameterError."""
    first_s, _, name = text.partition("/")
    try:
        tp, offset = message_place(name)
        return Place(int(first_s), *tp, offset)
    except ValueError:
        raise BadParameterError("cursor: not one of this list") from None
