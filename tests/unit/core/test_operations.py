"""Each operation on a record unpacks into the numbers that the store's script reads."""

import pytest

from ackd.core.ledger.grants import grants
from ackd.core.record.operations import (
    Advance,
    AskBlocker,
    ClaimOrigin,
    CloseOrigin,
    CopyRef,
    Drop,
    EndRepair,
    FinishOrigin,
    ForgetOriginRecords,
    Gap,
    Grant,
    LookUp,
    MarkDead,
    MoveToRetry,
    NameCopy,
    Op,
    PlaceCopy,
    RemakeChunk,
    ReplayAck,
    ReplayFinished,
    Reset,
    RestoreClaimed,
    RestoreMoved,
    Settle,
    Truncate,
    VouchCopy,
)
from ackd.core.record.protocol import BlockedBy, Finish, OpResult
from ackd.core.record.settles import OF_VERB
from ackd.core.record.transitions import Verb

COPY = CopyRef(2, 70)
ITEMS: list[tuple[Op, tuple[int, ...]]] = [
    (Grant.of(5, 30_000, 9), (Verb.GRANT, 5, 0, 0, 0, 30_000, 9, 1)),
    (Settle(Verb.ACK, 5, 8, 3, 1, duplicate=True), (Verb.ACK, 5, 8, 3, 1, 0, 1, 1)),
    (Settle(Verb.RETRY, 5, 8, 3, 1, 250, counted=False), (Verb.RETRY, 5, 8, 3, 1, 250, 0, 0)),
    (Settle(Verb.EXTEND, 5, 8, 3, 1, 250), (Verb.EXTEND, 5, 8, 3, 1, 250, 0, 1)),
    *((Settle(verb, 5, 8, 3, 1), (verb, 5, 8, 3, 1, 0, 0, 1)) for verb in OF_VERB),
    (FinishOrigin(5, 8, 3, Finish.SENT), (Verb.FINISH, 5, 8, 3, 0, 4, 0, 1)),
    (MoveToRetry(5, 9, key=77), (Verb.MOVE_TO_RETRY, 5, 0, 0, 0, 77, 9, 1)),
    (MarkDead(5, 8, deliveries_max=3), (Verb.MARK_DEAD, 5, 8, 0, 3, 0, 0, 1)),
    (MarkDead(5, 8, claimed=True), (Verb.MARK_DEAD, 5, 8, 0, 0, 1, 0, 1)),
    (PlaceCopy(70, 8, 4, due_ms=90, first_s=17), (Verb.PLACE_COPY, 70, 8, 0, 4, 90, 17, 1)),
    (PlaceCopy(70, 8, 4, then_dead=True), (Verb.PLACE_COPY, 70, 8, 0, 4, 0, 0, 0)),
    (LookUp(5, 8, 3), (Verb.LOOK_UP, 5, 8, 3, 0, 0, 0, 1)),
    (LookUp(5, message=True), (Verb.LOOK_UP, 5, 0, 0, 0, 1, 0, 1)),
    (ClaimOrigin(5, 8, 3, COPY, attempt=6), (Verb.CLAIM, 5, 8, 3, 6, 70, 2, 1)),
    (ClaimOrigin(5, 8, 3, COPY), (Verb.CLAIM, 5, 8, 3, 0, 70, 2, 1)),
    (ClaimOrigin(5, 8, 3, COPY, must_deliver=True), (Verb.CLAIM, 5, 8, 3, 0, 70, 2, 0)),
    (NameCopy(5, 8, COPY), (Verb.NAME_COPY, 5, 8, 0, 0, 70, 2, 1)),
    (VouchCopy(5, 8, COPY), (Verb.VOUCH, 5, 8, 0, 0, 70, 2, 1)),
    (CloseOrigin(5, 8), (Verb.CLOSE, 5, 8, 0, 0, 0, 0, 1)),
    (CloseOrigin(5, 8, finished=COPY), (Verb.CLOSE, 5, 8, 0, 0, 71, 2, 1)),
    (AskBlocker(77), (Verb.ASK_BLOCKER, 0, 0, 0, 0, 77, 0, 1)),
    (Gap(5, 9, Finish.SKIPPED), (Verb.GAP, 5, 0, 0, 0, 9, 5, 1)),
    (Gap(5, 9, repair=True), (Verb.GAP, 5, 0, 0, 0, 9, 0, 0)),
    (Advance(5, repair=True), (Verb.ADVANCE, 5, 0, 0, 0, 0, 0, 0)),
    (Advance(5), (Verb.ADVANCE, 5, 0, 0, 0, 0, 0, 1)),
    (Drop(5), (Verb.DROP, 5, 0, 0, 0, 0, 0, 1)),
    (ReplayAck(5, generation=8, mark=4), (Verb.REPLAY, 5, 8, 0, 0, 0, 4, 1)),
    (ReplayFinished(5, mark=4), (Verb.REPLAY, 5, 0, 0, 0, 0, 4, 0)),
    (RemakeChunk(2), (Verb.REPLAY, 65_536, 0, 0, 0, 1, 0, 1)),
    (ForgetOriginRecords(3), (Verb.REPLAY, 0, 0, 3, 0, 2, 0, 1)),
    (Reset(5), (Verb.RESET, 5, 0, 0, 0, 0, 0, 1)),
    (Truncate(5, 3), (Verb.RESET, 5, 0, 0, 0, 4, 0, 1)),
    (EndRepair(), (Verb.SETTLED, 0, 0, 0, 0, 0, 0, 1)),
    (RestoreMoved(5, 8, 3, 1, key=77), (Verb.RESTORE, 5, 8, 3, 1, 77, 0, 1)),
    (RestoreMoved(5, 8, 3, 1, stored=True), (Verb.RESTORE, 5, 8, 3, 1, 0, 1, 1)),
    (RestoreMoved(5, 8, 3, 1, released=True), (Verb.RESTORE, 5, 8, 3, 1, 0, 2, 1)),
    (RestoreClaimed(5, 8, 3, 1, COPY), (Verb.RESTORE, 5, 8, 3, 1, 71, 2, 0)),
]


@pytest.mark.parametrize(("op", "item"), ITEMS, ids=lambda each: type(each).__name__)
def test_an_operation_is_these_numbers(op: Op, item: tuple[int, ...]) -> None:
    assert tuple(op) == item
    assert (op.verb, op.offset) == item[:2]


def test_every_verb_has_an_operation() -> None:
    assert {op.verb for op, _ in ITEMS} == set(Verb)


def test_the_grants_of_a_receive_share_its_number() -> None:
    assert grants([5, 6], 30_000, 9) == [Grant.of(5, 30_000, 9), Grant.of(6, 30_000, 9)]


@pytest.mark.parametrize("copy", [None, CopyRef(0, 0), CopyRef(3, 70)])
def test_what_blocks_a_key_is_read_as_it_was_answered(copy: CopyRef | None) -> None:
    first = BlockedBy(5, copy)
    assert OpResult.blocked(first).blocked_by == first
