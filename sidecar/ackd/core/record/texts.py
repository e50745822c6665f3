"""Texts about unfinished messages: the progress note and the failure reasons that workers reported,
and the history of its deliveries.

A part of a `PartitionRecord`; `store/texts.lua` decides the same. Texts decide nothing about a
message. One rule holds for all of them. The call that settles (or grants) stores them under the
message's own offset, and only if that counts; so a lost lease changes nothing. The call that
finishes the message deletes them, and so does a reset of the partition. Beyond a bound on messages
or bytes the record drops the texts that were written first; a delivery alone drops none, it is not
kept then. A message that moves to the retry topic leaves its texts in the record of its origin; its
copy takes them into its own record when it has claimed (PLACE_COPY).
"""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.record.delivery_events import EVENTS, DeliveryEvent, with_event
from ackd.core.record.operations import Op
from ackd.core.record.protocol import ItemTexts, MessageTexts, OpResult, RecordCall
from ackd.core.record.settles import OF_OUTCOME
from ackd.core.record.transitions import Outcome, Verb

ERROR_BYTES_MAX = 1_024
"""Bound on one failure reason; each message has two."""
TEXTS_MAX = 4_096
"""Messages of one partition with texts."""
DELIVERIES_MAX = TEXTS_MAX // 2
"""A delivery is not kept of a message without texts if so many have some: notes and reasons need
the room.
"""
REASONED = frozenset(outcome for outcome, rule in OF_OUTCOME.items() if rule.reason)
"""Outcomes with which a failure reason is stored."""
NOTED = frozenset(outcome for outcome, rule in OF_OUTCOME.items() if rule.note)
"""Outcomes with which a progress note is stored."""
NOTHING = MessageTexts()


class Texts:
    """By offset, in the order of writing. `bytes`: of all texts, `notes`: messages with a note."""

    def __init__(self) -> None:
        self._of: dict[int, MessageTexts] = {}
        self._over: set[int] = set()
        self.bytes = self.notes = 0

    def __bool__(self) -> bool:
        return bool(self._of)

    def over(self, offset: int) -> None:
        """The current call finishes this message here."""
        self._over.add(offset)

    def clear(self) -> None:
        """The current call deletes all texts."""
        self._of.clear()
        self.bytes = self.notes = 0

    def decided(self, call: RecordCall, results: Sequence[OpResult], now_ms: int) -> int:
        """End a call: delete the texts of finished messages, store those of the others.

        Returns how many messages lost their texts to a bound.
        """
        dropped = 0
        for offset in self._over:
            self._drop(offset)
        for reported in call.texts.items:
            op, result = call.ops[reported.item], results[reported.item]
            offset, bytes_max = op.offset, call.texts.bytes_max
            if offset in self._over:
                continue
            known = self._of.get(offset, NOTHING)
            texts = _joined(known, reported, result.outcome)
            event = _event(op, result, reported, now_ms)
            if event is not None:
                history = with_event((texts or known).history, event)
                texts = (texts or known)._replace(history=history)
                if event.outcome is Outcome.GRANTED and not self._room(known, texts, bytes_max):
                    continue
            if texts is not None:
                dropped += self._put(offset, texts, bytes_max)
        self._over.clear()
        return dropped

    def _room(self, known: MessageTexts, texts: MessageTexts, bytes_max: int) -> bool:
        enough = known is not NOTHING or len(self._of) < DELIVERIES_MAX
        return enough and self.bytes - _size(known) + _size(texts) <= bytes_max

    def _put(self, offset: int, texts: MessageTexts, bytes_max: int) -> int:
        self._drop(offset)
        if texts == NOTHING:
            return 0
        self._of[offset] = texts
        self.bytes += _size(texts)
        self.notes += bool(texts.note)
        dropped = 0
        while len(self._of) > 1 and (len(self._of) > TEXTS_MAX or self.bytes > bytes_max):
            self._drop(next(iter(self._of)))
            dropped += 1
        return dropped

    def _drop(self, offset: int) -> None:
        texts = self._of.pop(offset, None)
        if texts is not None:
            self.bytes -= _size(texts)
            self.notes -= bool(texts.note)

    def get(self, offsets: Sequence[int]) -> list[MessageTexts | None]:
        """The texts of these messages, None for those without."""
        return [self._of.get(offset) for offset in offsets]


def _size(texts: MessageTexts) -> int:
    return sum(map(len, texts))


def _joined(known: MessageTexts, reported: ItemTexts, outcome: Outcome) -> MessageTexts | None:
    """The texts of a message after a settle that reported some; None if the settle did not count.

    A copy that got its slot (DONE) brings older texts: they only fill in what is missing.
    """
    first = known.first or reported.first or reported.last
    if outcome in NOTED:
        return known._replace(note=reported.note)
    if outcome in REASONED:
        return known._replace(first=first, last=reported.last or known.last)
    if outcome is Outcome.DONE:
        last, note = known.last or reported.last, known.note or reported.note
        return MessageTexts(first, last, note, known.history or reported.history)
    return None


def _event(op: Op, result: OpResult, reported: ItemTexts, now_ms: int) -> DeliveryEvent | None:
    """What an operation adds to the history. A lease that an owner looks up is a delivery of which
    the record did not know who has it.
    """
    outcome = result.outcome
    if op.verb is Verb.LOOK_UP:
        outcome = Outcome.GRANTED if outcome is Outcome.HELD else Outcome.LOST
    if outcome not in EVENTS:
        return None
    _, _, fence, _, attempt, *_ = op
    fence, attempt = fence or result.fence, attempt or result.attempt
    return DeliveryEvent(outcome, attempt, now_ms, fence, reported.holder, reported.last)
