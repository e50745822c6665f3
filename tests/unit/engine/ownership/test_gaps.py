"""Which gaps are passed over, and when: those of a filter after seconds (I5), none of a message
that may still come (I1).
"""

from __future__ import annotations

import asyncio
import random

import pytest

from ackd.engine.ownership.gaps import BROKEN_MS, PASSED_MS, UNNOTICED_MS, Gaps
from ackd.engine.partition.partition import Partition, Policy
from ackd.ports import Drew, Record
from tests.unit.engine.world import TOPIC, World

UNORDERED = Policy(None, 0, retry_copies=False, unordered=True)
SECOND_MS = 1_000
HOLD_MS = 15_000


class Queue:
    """One queue whose messages come here."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.gaps = Gaps(world.context, world.partitions, HOLD_MS)
        self.partition: Partition
        self.seeks = False

    async def owns(self, *, created: bool = False) -> None:
        """This sidecar owns it from now on. `created`: nobody did before."""
        await self.world.topics.read()
        self.partition = await self.world.owns(0, policy=UNORDERED)
        self.partition.created = created

    def comes(self, *offsets: int, copies: bool = False) -> None:
        """Messages come; `copies`: as the broker's copies."""
        if not copies:
            self.gaps.came(self.partition, offsets)
        records = [Record(each, None, b"v", (), 1) for each in offsets]
        self.partition.ledger.arrived(records)  # type: ignore[attr-defined]
        self.partition.ledger.acked(offsets)

    def waits(self, partition: Partition) -> bool:
        """Whether a seek of it is yet to bring messages."""
        assert partition is self.partition
        return self.seeks

    def drew(self, *, ago_ms: int = 0, broken_ms: int = 0) -> None:
        """All has come that was given until then."""
        now_ms = self.world.context.clock.monotonic_ms()
        self.gaps.drew(Drew(TOPIC, now_ms - ago_ms, broken_ms))

    async def passes(self, ms: int) -> None:
        """Time, with a question answered every second."""
        broken = self.gaps._drew[TOPIC].broken_ms if TOPIC in self.gaps._drew else 0
        for _ in range(ms // SECOND_MS):
            await asyncio.sleep(1)
            self.drew(broken_ms=broken)
            self.gaps.look(self.waits)

    @property
    def watermark(self) -> int:
        return self.partition.ledger.watermark


@pytest.fixture
async def queue(world: World) -> Queue:
    return Queue(world)


async def test_i5_what_a_filter_left_out_is_over_after_seconds(queue: Queue) -> None:
    await queue.owns(created=True)
    queue.comes(3, 7)
    await queue.passes(PASSED_MS - SECOND_MS)
    assert queue.watermark == 0
    await queue.passes(3 * SECOND_MS)
    assert queue.watermark == 8


async def test_i1_nothing_below_the_first_own_message_is_passed_over_after_a_takeover(
    queue: Queue,
) -> None:
    """Another sidecar may have had it, and the store may know its place. Nor for a while: the one
    of before may not have noticed yet, and give places to what it drew.
    """
    await queue.owns()
    queue.comes(3, 7)
    await queue.passes(UNNOTICED_MS - SECOND_MS)
    queue.comes(10)
    await queue.passes(2 * SECOND_MS)
    queue.comes(13, 17)
    await queue.passes(10 * PASSED_MS)
    assert queue.watermark == 0
    clear = queue.partition.ledger.finished.first_clear
    assert [clear(start) for start in (3, 7, 10, 13)] == [4, 8, 11, 18]


async def test_i1_while_an_older_question_is_pending_nothing_is_passed_over(queue: Queue) -> None:
    """What was given to it may lie in the gap."""
    await queue.owns(created=True)
    asked_ms = queue.world.context.clock.monotonic_ms()
    queue.comes(3)
    for _ in range(60):
        await asyncio.sleep(1)
        queue.drew(ago_ms=queue.world.context.clock.monotonic_ms() - asked_ms)
        queue.gaps.look(queue.waits)
    assert queue.watermark == 0
    queue.comes(0, 1)
    await queue.passes(PASSED_MS)
    assert queue.watermark == 4


async def test_i1_after_a_question_failed_a_minute_and_the_hold_pass_first(queue: Queue) -> None:
    """The broker may go back to what it had given shortly before, and what was lost comes as a
    copy.
    """
    await queue.owns(created=True)
    queue.comes(3)
    await queue.passes(PASSED_MS // 2)
    queue.drew(broken_ms=queue.world.context.clock.monotonic_ms())
    await queue.passes(SECOND_MS)
    queue.comes(5)
    await queue.passes(BROKEN_MS + HOLD_MS - 2 * SECOND_MS)
    assert queue.watermark == 0
    await queue.passes(PASSED_MS + 4 * SECOND_MS)
    assert queue.watermark == 6


async def test_i1_a_broker_that_went_back_gives_all_again_before_anything_is_passed_over(
    queue: Queue,
) -> None:
    """However long that takes, as where the application is slow and nothing is asked for."""
    await queue.owns(created=True)
    queue.comes(0, 1, 9)
    queue.drew(broken_ms=queue.world.context.clock.monotonic_ms())
    queue.comes(0, 1)
    await queue.passes(10 * BROKEN_MS)
    assert queue.watermark == 2
    queue.comes(4, 9)
    await queue.passes(PASSED_MS + 2 * SECOND_MS)
    assert queue.watermark == 10


async def test_i1_a_broker_that_goes_back_after_a_takeover_brings_what_others_had(
    queue: Queue,
) -> None:
    """Also what others got a place for and never delivered: it comes again as a known copy."""
    await queue.owns()
    queue.comes(48)
    await queue.passes(UNNOTICED_MS)
    queue.comes(50)
    queue.comes(20)
    queue.comes(51)
    await queue.passes(10 * PASSED_MS)
    assert not queue.partition.ledger.over(21)
    assert not queue.partition.ledger.over(49)


async def test_i1_what_the_record_knew_at_a_takeover_is_no_sign_of_what_is_missing(
    queue: Queue,
) -> None:
    await queue.owns()
    queue.comes(50, copies=True)
    queue.comes(20, 30)
    await queue.passes(UNNOTICED_MS)
    queue.comes(32, 40)
    await queue.passes(10 * PASSED_MS)
    assert not queue.partition.ledger.over(25)
    assert not queue.partition.ledger.over(35)
    queue.comes(60, 65)
    await queue.passes(10 * PASSED_MS)
    assert not queue.partition.ledger.over(55)
    assert queue.partition.ledger.finished.first_clear(60) == 66


async def test_i1_while_a_seek_waits_for_the_broker_nothing_is_passed_over(queue: Queue) -> None:
    await queue.owns(created=True)
    queue.seeks = True
    queue.comes(3)
    await queue.passes(10 * PASSED_MS)
    assert queue.watermark == 0
    queue.seeks = False
    await queue.passes(PASSED_MS + 2 * SECOND_MS)
    assert queue.watermark == 4


async def test_a_copy_at_its_old_place_says_nothing_of_what_is_missing(queue: Queue) -> None:
    await queue.owns(created=True)
    queue.comes(9, copies=True)
    await queue.passes(10 * PASSED_MS)
    assert queue.watermark == 0


@pytest.mark.parametrize("seed", range(20))
async def test_i1_i5_whatever_comes_late_is_never_passed_over_before_it_came(
    queue: Queue, seed: int
) -> None:
    """A broker that gives in order, to questions whose answers take their time; some are lost, and
    come again at their old places after the broker went back.
    """
    rng = random.Random(seed)
    await queue.owns(created=True)
    wanted = [each for each in range(400) if rng.random() < 0.4]
    came: set[int] = set()
    given = 0
    pending: list[tuple[int, int, list[int]]] = []  # due, asked, offsets
    broken_ms = 0
    clock = queue.world.context.clock
    for _ in range(600):
        await asyncio.sleep(0.5)
        now_ms = clock.monotonic_ms()
        while len(pending) < 4 and given < len(wanted):
            count = rng.randrange(1, 9)
            due_ms = now_ms + rng.randrange(0, 20_000)
            pending.append((due_ms, now_ms, wanted[given : given + count]))
            given += count
        if pending and rng.random() < 0.01:  # the broker dies: it goes back to before all pending
            broken_ms = now_ms
            given = wanted.index(min(offsets[0] for _, _, offsets in pending))
            pending.clear()
        for each in [one for one in pending if one[0] <= now_ms]:
            pending.remove(each)
            queue.comes(*each[2])
            came.update(each[2])
            through_ms = min((asked for _, asked, _ in pending), default=now_ms)
            queue.gaps.drew(Drew(TOPIC, through_ms, broken_ms))
        queue.gaps.look(queue.waits)
        ledger = queue.partition.ledger
        assert not [each for each in wanted if each not in came and ledger.over(each)], seed
    assert came == {*wanted}, seed
    queue.drew(broken_ms=broken_ms)
    queue.comes(400)
    await queue.passes(BROKEN_MS + HOLD_MS + 2 * PASSED_MS)
    assert queue.watermark == 401, seed
