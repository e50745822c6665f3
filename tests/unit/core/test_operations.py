"""Each operation on a record unpacks into the numbers that the store's script reads."""

import pytest

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
    grants,
)
from ackd.core.record.protocol import BlockedBy, Finish, OpResult
from ackd.core.record.transitions import Verb

COPY = CopyRef(2, 70)
ITEMS: list[tuple[Op, tuple[int, ...]]] = [
    (Grant.of(5, 30_000, 9), (1, 5, 0, 0, 0, 30_000, 9, 1)),
    (Settle(Verb.ACK, 5, 8, 3, 1), (2, 5, 8, 3, 1, 0, 0, 1)),
    (Settle(Verb.ACK, 5, 8, 3, 1, duplicate=True), (2, 5, 8, 3, 1, 0, 1, 1)),
    (Settle(Verb.RETRY, 5, 8, 3, 1, 250, counted=False), (3, 5, 8, 3, 1, 250, 0, 0)),
    (Settle(Verb.EXTEND, 5, 8, 3, 1, 250), (4, 5, 8, 3, 1, 250, 0, 1)),
    (Settle(Verb.DEAD, 5, 8, 3, 1), (5, 5, 8, 3, 1, 0, 0, 1)),
    (Settle(Verb.RELEASE, 5, 8, 3, 1), (6, 5, 8, 3, 1, 0, 0, 1)),
    (FinishOrigin(5, 8, 3, Finish.SENT), (7, 5, 8, 3, 0, 4, 0, 1)),
    (MoveToRetry(5, 9, key=77), (8, 5, 0, 0, 0, 77, 9, 1)),
    (MarkDead(5, 8, deliveries_max=3), (9, 5, 8, 0, 3, 0, 0, 1)),
    (MarkDead(5, 8, claimed=True), (9, 5, 8, 0, 0, 0, 0, 1)),
    (PlaceCopy(70, 8, 4, due_ms=90, first_s=17), (10, 70, 8, 0, 4, 90, 17, 1)),
    (PlaceCopy(70, 8, 4, then_dead=True), (10, 70, 8, 0, 4, 0, 0, 0)),
    (LookUp(5, 8, 3), (11, 5, 8, 3, 0, 0, 0, 1)),
    (ClaimOrigin(5, 8, 3, COPY, attempt=6), (12, 5, 8, 3, 6, 70, 2, 1)),
    (ClaimOrigin(5, 8, 3, COPY), (12, 5, 8, 3, 0, 70, 2, 1)),
    (ClaimOrigin(5, 8, 3, COPY, must_deliver=True), (12, 5, 8, 3, 0, 70, 2, 0)),
    (CloseOrigin(5, 8), (13, 5, 8, 0, 0, 0, 0, 1)),
    (CloseOrigin(5, 8, finished=COPY), (13, 5, 8, 0, 0, 71, 2, 1)),
    (AskBlocker(77), (14, 0, 0, 0, 0, 77, 0, 1)),
    (Gap(5, 9, Finish.SKIPPED), (15, 5, 0, 0, 0, 9, 5, 1)),
    (Gap(5, 9, repair=True), (15, 5, 0, 0, 0, 9, 0, 0)),
    (Advance(5, repair=True), (16, 5, 0, 0, 0, 0, 0, 0)),
    (Advance(5), (16, 5, 0, 0, 0, 0, 0, 1)),
    (Drop(5), (17, 5, 0, 0, 0, 0, 0, 1)),
    (ReplayAck(5, generation=8, mark=4), (18, 5, 8, 0, 0, 0, 4, 1)),
    (ReplayFinished(5, mark=4), (18, 5, 0, 0, 0, 0, 4, 0)),
    (RemakeChunk(2), (18, 65_536, 0, 0, 0, 1, 0, 1)),
    (ForgetOriginRecords(3), (18, 0, 0, 3, 0, 2, 0, 1)),
    (Reset(5), (19, 5, 0, 0, 0, 0, 0, 1)),
    (Truncate(5, 3), (19, 5, 0, 0, 0, 4, 0, 1)),
    (EndRepair(), (20, 0, 0, 0, 0, 0, 0, 1)),
    (RestoreMoved(5, 8, 3, 1, key=77), (21, 5, 8, 3, 1, 77, 0, 1)),
    (RestoreMoved(5, 8, 3, 1, stored=True), (21, 5, 8, 3, 1, 0, 1, 1)),
    (RestoreMoved(5, 8, 3, 1, released=True), (21, 5, 8, 3, 1, 0, 2, 1)),
    (RestoreClaimed(5, 8, 3, 1, COPY), (21, 5, 8, 3, 1, 71, 2, 0)),
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
