"""The one transition table: what each verb does to a message in each phase.

`decide` and `copies` use it, the Lua script gets it as generated text, and the diagram in the docs
is drawn from it. Rules R15 and R17 are rows of this table, not code.

The phase is the stored state at the store's time: a lease past its deadline is EXPIRED, a finished
offset is ACKED (or GONE, if anything but an ack finished it). The holder of a lease whose grant a
rollback erased sees FORGOTTEN until the record is repaired (R9, R10).
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple


class State(IntEnum):
    """What a slot stores. FINISHED is never stored: the bit in the bitmap stands for it."""

    READY = 0
    LEASED = 1
    WAITING = 2
    RELEASED = 3
    DEAD = 4
    MOVING = 5
    FINISHED = 9


class Phase(IntEnum):
    """A state at a given time of the store's clock."""

    READY = 0
    LEASED = 1
    WAITING = 2
    RELEASED = 3
    DEAD = 4
    MOVING = 5
    EXPIRED = 6
    ACKED = 7
    GONE = 8
    FORGOTTEN = 9


class Verb(IntEnum):
    """An operation on one offset, or on a range. Those before LOOK_UP go through the table;
    the settles stand together (`settles` has more about them). Numbers are free to change: the
    script gets them from here, and nothing keeps them.

    MOVE_TO_RETRY moves a message into an origin record, MARK_DEAD dead-letters it, PLACE_COPY gives
    a claimed retry copy its slot. LOOK_UP reads. CLAIM and CLOSE concern an origin record
    (`copies`): a copy asks for it, and the copy's owner closes it. NAME_COPY tells the origin
    record where the copy is stored, and VOUCH asks it whether a copy without a valid signature is
    that one. ASK_BLOCKER asks which message blocks a key. GAP finishes a range that the log does
    not have, ADVANCE moves the watermark, DROP frees chunks below it, REPLAY repeats a confirmed
    finish after a rollback, RESET starts a new epoch, SETTLED ends the wait for replays, RESTORE
    makes an origin record again that a rollback erased.
    """

    GRANT = auto()
    ACK = auto()
    RETRY = auto()
    EXTEND = auto()
    DEAD = auto()
    RELEASE = auto()
    FINISH = auto()
    MOVE_TO_RETRY = auto()
    MARK_DEAD = auto()
    PLACE_COPY = auto()
    LOOK_UP = auto()
    CLAIM = auto()
    CLOSE = auto()
    NAME_COPY = auto()
    VOUCH = auto()
    ASK_BLOCKER = auto()
    GAP = auto()
    ADVANCE = auto()
    DROP = auto()
    REPLAY = auto()
    RESET = auto()
    SETTLED = auto()
    RESTORE = auto()


class Outcome(IntEnum):
    """The record's answer to one operation."""

    GRANTED = 1
    ACKED = 2
    ALREADY_ACKED = 3
    RETRYING = 4
    EXTENDED = 5
    DEAD = 6
    RELEASED = 7
    LOST = 8
    HELD = 9
    FINISHED = 10
    DONE = 11
    REFUSED = 12
    SENT = 13
    CLAIMED = 14
    UNREPAIRED = 15
    """Not decided: ask again when the record is repaired."""
    BLOCKED = 16
    """An earlier message of the same key must finish first: `OpResult.blocked_by`."""


class TransitionStep(NamedTuple):
    """A row's right side: the answer, the state after it, and whether anything is written."""

    outcome: Outcome
    state: State
    changes: bool = True


def _same(outcome: Outcome, state: State) -> TransitionStep:
    return TransitionStep(outcome, state, changes=False)


TABLE: dict[tuple[Phase, Verb], TransitionStep] = {
    # Delivery. HELD: not now (the slot has the time).
    (Phase.READY, Verb.GRANT): TransitionStep(Outcome.GRANTED, State.LEASED),
    (Phase.RELEASED, Verb.GRANT): TransitionStep(Outcome.GRANTED, State.LEASED),
    (Phase.EXPIRED, Verb.GRANT): TransitionStep(Outcome.GRANTED, State.LEASED),
    (Phase.LEASED, Verb.GRANT): _same(Outcome.HELD, State.LEASED),
    # Only when it is due; the record checks the time first.
    (Phase.WAITING, Verb.GRANT): TransitionStep(Outcome.GRANTED, State.LEASED),
    (Phase.DEAD, Verb.GRANT): _same(Outcome.REFUSED, State.DEAD),
    (Phase.MOVING, Verb.GRANT): _same(Outcome.REFUSED, State.MOVING),
    (Phase.ACKED, Verb.GRANT): _same(Outcome.FINISHED, State.FINISHED),
    (Phase.GONE, Verb.GRANT): _same(Outcome.FINISHED, State.FINISHED),
    # A live lease: everything counts.
    (Phase.LEASED, Verb.ACK): TransitionStep(Outcome.ACKED, State.FINISHED),
    (Phase.LEASED, Verb.RETRY): TransitionStep(Outcome.RETRYING, State.WAITING),
    (Phase.LEASED, Verb.EXTEND): TransitionStep(Outcome.EXTENDED, State.LEASED),
    (Phase.LEASED, Verb.DEAD): TransitionStep(Outcome.DEAD, State.DEAD),
    (Phase.LEASED, Verb.RELEASE): TransitionStep(Outcome.RELEASED, State.RELEASED),
    # Past the deadline but not delivered again: a late ack counts, a late extend revives (R17).
    (Phase.EXPIRED, Verb.ACK): TransitionStep(Outcome.ACKED, State.FINISHED),
    (Phase.EXPIRED, Verb.EXTEND): TransitionStep(Outcome.EXTENDED, State.LEASED),
    # A rollback erased its grant, and perhaps its deadline has passed. An ack or an extend counts,
    # as any repair keeps it; the rest waits for the repair, which shows whether the lease lives.
    (Phase.FORGOTTEN, Verb.ACK): TransitionStep(Outcome.ACKED, State.FINISHED),
    (Phase.FORGOTTEN, Verb.EXTEND): TransitionStep(Outcome.EXTENDED, State.LEASED),
    (Phase.FORGOTTEN, Verb.RETRY): _same(Outcome.UNREPAIRED, State.READY),
    (Phase.FORGOTTEN, Verb.DEAD): _same(Outcome.UNREPAIRED, State.READY),
    (Phase.FORGOTTEN, Verb.RELEASE): _same(Outcome.UNREPAIRED, State.READY),
    # A repeat gets the same answer until the message is delivered again.
    (Phase.WAITING, Verb.RETRY): _same(Outcome.RETRYING, State.WAITING),
    (Phase.RELEASED, Verb.RELEASE): _same(Outcome.RELEASED, State.RELEASED),
    (Phase.DEAD, Verb.DEAD): _same(Outcome.DEAD, State.DEAD),
    (Phase.ACKED, Verb.ACK): _same(Outcome.ALREADY_ACKED, State.FINISHED),
    # Its lease or its delay moves into an origin record, which decides settles from then on.
    # A message that was never delivered moves only if its key is blocked; the record checks first.
    (Phase.READY, Verb.MOVE_TO_RETRY): TransitionStep(Outcome.SENT, State.MOVING),
    (Phase.LEASED, Verb.MOVE_TO_RETRY): TransitionStep(Outcome.SENT, State.MOVING),
    (Phase.EXPIRED, Verb.MOVE_TO_RETRY): TransitionStep(Outcome.SENT, State.MOVING),
    (Phase.WAITING, Verb.MOVE_TO_RETRY): TransitionStep(Outcome.SENT, State.MOVING),
    (Phase.RELEASED, Verb.MOVE_TO_RETRY): TransitionStep(Outcome.SENT, State.MOVING),
    (Phase.MOVING, Verb.MOVE_TO_RETRY): _same(Outcome.SENT, State.MOVING),
    (Phase.DEAD, Verb.MOVE_TO_RETRY): _same(Outcome.REFUSED, State.DEAD),
    (Phase.ACKED, Verb.MOVE_TO_RETRY): _same(Outcome.FINISHED, State.FINISHED),
    (Phase.GONE, Verb.MOVE_TO_RETRY): _same(Outcome.FINISHED, State.FINISHED),
    # The attempts are used up: dead-letter it, unless it is leased or was settled first.
    (Phase.EXPIRED, Verb.MARK_DEAD): TransitionStep(Outcome.DEAD, State.DEAD),
    (Phase.WAITING, Verb.MARK_DEAD): TransitionStep(Outcome.DEAD, State.DEAD),
    (Phase.RELEASED, Verb.MARK_DEAD): TransitionStep(Outcome.DEAD, State.DEAD),
    (Phase.LEASED, Verb.MARK_DEAD): _same(Outcome.HELD, State.LEASED),
    (Phase.DEAD, Verb.MARK_DEAD): _same(Outcome.DEAD, State.DEAD),
    (Phase.MOVING, Verb.MARK_DEAD): _same(Outcome.REFUSED, State.MOVING),
    (Phase.ACKED, Verb.MARK_DEAD): _same(Outcome.FINISHED, State.FINISHED),
    (Phase.GONE, Verb.MARK_DEAD): _same(Outcome.FINISHED, State.FINISHED),
    # A retry copy that has claimed its origin record gets a slot; one that has a slot keeps it.
    (Phase.READY, Verb.PLACE_COPY): TransitionStep(Outcome.DONE, State.WAITING),
    (Phase.LEASED, Verb.PLACE_COPY): _same(Outcome.DONE, State.LEASED),
    (Phase.EXPIRED, Verb.PLACE_COPY): _same(Outcome.DONE, State.LEASED),
    (Phase.WAITING, Verb.PLACE_COPY): _same(Outcome.DONE, State.WAITING),
    (Phase.RELEASED, Verb.PLACE_COPY): _same(Outcome.DONE, State.RELEASED),
    (Phase.DEAD, Verb.PLACE_COPY): _same(Outcome.DONE, State.DEAD),
    (Phase.ACKED, Verb.PLACE_COPY): _same(Outcome.FINISHED, State.FINISHED),
    (Phase.GONE, Verb.PLACE_COPY): _same(Outcome.FINISHED, State.FINISHED),
    # The copy in the dead-letter or retry topic is durable: the owner finishes the original.
    (Phase.DEAD, Verb.FINISH): TransitionStep(Outcome.DONE, State.FINISHED),
    (Phase.MOVING, Verb.FINISH): TransitionStep(Outcome.DONE, State.FINISHED),
    (Phase.ACKED, Verb.FINISH): _same(Outcome.FINISHED, State.FINISHED),
    (Phase.GONE, Verb.FINISH): _same(Outcome.FINISHED, State.FINISHED),
}
"""Every (phase, verb) that is not listed is `LOST` and changes nothing."""

LOST = TransitionStep(Outcome.LOST, State.READY, changes=False)

LATE_PHASE = Phase.EXPIRED
"""Settles that succeed in this phase are answered with `late`."""


def step(phase: Phase, verb: Verb) -> TransitionStep:
    """The row for a phase and a verb, `LOST` if the table has none."""
    return TABLE.get((phase, verb), LOST)


def lua_table() -> str:
    """The table as a Lua string, because every call would build a table of tables anew.

    Two bytes for each phase * 16 + verb: the outcome, and state * 2 + (1 if something changes).
    """
    cells = bytearray()
    for index in range(len(Phase) * 16):
        row = TABLE.get((Phase(index // 16), Verb(index % 16)), LOST) if _is_verb(index) else LOST
        cells += bytes((row.outcome, row.state * 2 + row.changes))
    return '"' + "".join(f"\\{cell:03d}" for cell in cells) + '"'


def _is_verb(index: int) -> bool:
    return index % 16 in set(Verb)
