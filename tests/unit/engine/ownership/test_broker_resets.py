"""A broker goes back in a queue: by itself after a crash (I2), or because somebody reset the group
(R8). Which of them it was, and what follows.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from ackd.core.ids import TopicPartition
from ackd.core.record.operations import Gap
from ackd.engine.ownership.broker_resets import (
    LOCKED,
    NOTE_MS,
    PAUSE_MS,
    SHOWN_MS,
    BrokerResets,
)
from ackd.engine.ownership.expected import Expectation, Expected
from ackd.engine.ownership.gaps import BROKEN_MS, Gaps
from ackd.engine.ownership.records import Records
from ackd.engine.ownership.undo import kept
from ackd.engine.partition.partition import Partition, Policy
from ackd.ports import Drew, Record
from tests.unit.engine.world import TOPIC, World

if TYPE_CHECKING:
    from ackd.engine.cluster.membership import Membership

UNORDERED = Policy(None, 0, retry_copies=False, unordered=True)
TP = TopicPartition(TOPIC, 0)
COUNT = 300
STEP_S = 0.5


class Positions:
    """`ackd.ports.BrokerPositions` of a broker that tells its boot."""

    def __init__(self) -> None:
        self.on = True
        self.boot_ms = 7
        self.moved: list[dict[TopicPartition, int]] = []
        self.given = 0

    async def booted_ms(self, partition: TopicPartition) -> int:
        assert partition == TP
        return self.boot_ms

    async def group_offset(self, partition: TopicPartition) -> int:
        assert partition == TP
        return self.given

    async def move(self, positions: dict[TopicPartition, int]) -> None:
        self.moved.append(positions)


class Queue:
    """One queue, whose broker hands messages out in their order, and what an application acks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.settled: list[int] = []
        self.delivered: list[int] = []
        self.retakes = 0
        self.broken_ms = 0
        self.owned: Partition | None = None
        self.fresh()

    def fresh(self) -> None:
        """A sidecar that has just been started."""
        world = self.world
        self.gaps = Gaps(world.context, world.partitions)
        self.resets = BrokerResets(
            world.state,
            self,  # type: ignore[arg-type]  # the one method that is called
            world.context,
            Records(world.context, world.partitions, cast("Membership", self)),
            self.gaps,
            self._drop,
            self._take,
        )

    async def jump_ms(self) -> int:
        """Of the store's clock: none."""
        return 0

    def finished(self, partition: TopicPartition, offsets: list[int]) -> None:
        assert partition == TP
        self.settled += offsets

    def _drop(self, partition: Partition) -> None:
        partition.close()
        self.owned = None

    def _take(self, tp: TopicPartition) -> None:
        assert tp == TP
        self.retakes += 1

    async def partition(self) -> Partition:
        """Taken, if it is not owned."""
        if self.owned is None:
            self.owned = await self.world.owns(0, policy=UNORDERED)
        return self.owned

    async def gives(self, start: int, end: int, *, by: int = 32) -> None:
        """The broker hands these out; what is delivered is acked at once."""
        for first in range(start, end, by):
            partition = await self.partition()
            offsets = list(range(first, min(first + by, end)))
            ledger, top = partition.ledger, self.gaps.next_of(partition)
            self.gaps.came(partition, offsets)
            records = [Record(each, None, b"v", (), 1) for each in offsets]
            again = ledger.arrived(records)  # type: ignore[attr-defined]
            new = [each for each in offsets if each not in {*again}]
            if again:
                self.settled += self.resets.again(partition, again, top)
            self.delivered += new
            if new:
                await self.world.flusher.submit(
                    partition.handle, [Gap(each, each + 1) for each in new]
                )
                ledger.acked(new)
            self.drew()

    async def copies(self, end: int) -> None:
        """What was given back comes as copies, at the places that it had."""
        partition = await self.partition()
        ledger = partition.ledger
        offsets = [each for each in range(end) if not ledger.over(each)]
        self.delivered += offsets
        gaps = [Gap(each, each + 1) for each in offsets]
        await self.world.flusher.submit(partition.handle, gaps)
        ledger.acked(offsets)

    def drew(self) -> None:
        """All that was given has come."""
        now_ms = self.world.context.clock.monotonic_ms()
        self.gaps.drew(Drew(TOPIC, now_ms, self.broken_ms))

    async def passes(self, ms: int = 2_000) -> None:
        """Time, with questions answered."""
        for _ in range(round(ms / 1000 / STEP_S)):
            await asyncio.sleep(STEP_S)
            self.drew()
            await self.resets.look([await self.partition()])

    def breaks(self) -> None:
        """A question failed."""
        self.broken_ms = self.world.context.clock.monotonic_ms()
        self.drew()

    async def all_acked(self, count: int = COUNT) -> None:
        """So many have come and were acked, a while ago."""
        await self.passes()
        await self.gives(0, count)
        await self.passes(BROKEN_MS + 2 * NOTE_MS)
        self.delivered.clear()

    def told(self, kind: str) -> str:
        """What readiness says."""
        told = self.world.state.conditions.get(f"{kind}/{TP}")
        assert told is None or told.warning
        return "" if told is None else told.detail

    def counted(self, decision: str) -> float:
        labels = {"subscription": "work", "decision": decision}
        return self.world.count("ackd_external_commits_total", **labels)


@pytest.fixture
async def queue(world: World) -> Queue:
    await world.topics.read()
    return Queue(world)


async def test_r8_what_comes_again_without_a_crash_is_a_reset(queue: Queue) -> None:
    """Accepted: all from there on comes again, once, and can be undone."""
    await queue.all_acked()
    before = await queue.partition()
    await queue.gives(10, COUNT)
    await queue.passes()
    assert (queue.retakes, queue.settled) == (1, [])
    assert "somebody reset the group at the broker, to offset 10 or before" in queue.told("reset")
    assert "accepted" in queue.told("reset")
    assert queue.counted("accepted") == 1
    undo = await kept(queue.world.context.store, before.key)
    assert undo is not None
    assert undo.offset == COUNT
    await queue.gives(10, COUNT)  # the broker brings what was given back
    assert queue.delivered == [*range(10, COUNT)]
    # And a second one of the same, too.
    await queue.passes()
    await queue.gives(10, COUNT)
    await queue.passes()
    assert (queue.retakes, queue.settled) == (2, [])
    await asyncio.sleep(SHOWN_MS / 1000)
    await queue.passes()
    assert queue.told("reset") == ""


async def test_r8_a_refused_reset_is_told_once_and_the_next_one_again(queue: Queue) -> None:
    queue.world.sets(external_commit="refuse")
    await queue.all_acked()
    for times in (1, 2):
        for first in range(0, COUNT, 50):
            await queue.gives(first, first + 50)
            await queue.passes(1_000)
        assert queue.settled == [*range(COUNT)] * times
        assert queue.counted("refused") == times
        assert "refused: what is finished stays finished" in queue.told("reset")
        await queue.passes(PAUSE_MS)
    assert (queue.delivered, queue.retakes) == ([], 0)


async def test_r8_answers_that_come_in_another_order_are_one_reset(queue: Queue) -> None:
    """What was acked again after the first of them does not come a third time."""
    await queue.all_acked()
    await queue.gives(64, 96)
    await queue.passes()
    await queue.gives(64, 96)
    assert queue.delivered == [*range(64, 96)]
    queue.delivered.clear()
    await queue.gives(32, 64)
    await queue.passes()
    assert queue.retakes == 2
    await queue.gives(32, 64)
    await queue.gives(96, COUNT)
    assert queue.delivered == [*range(32, 64), *range(96, COUNT)]
    partition = await queue.partition()
    assert partition.ledger.watermark == COUNT


async def test_i2_after_a_crash_what_was_given_last_is_settled_and_told(queue: Queue) -> None:
    """Without a way to ask the broker; what was given long before is a reset for sure."""
    await queue.all_acked()
    await queue.gives(COUNT, COUNT + 20)
    queue.delivered.clear()
    queue.breaks()
    await queue.gives(COUNT - 0, COUNT + 20)
    await queue.passes()
    assert (queue.settled, queue.retakes) == ([*range(COUNT, COUNT + 20)], 0)
    assert "if somebody reset the group, `ackd seek` brings them" in queue.told("came-again")
    assert queue.told("reset") == ""
    queue.breaks()
    await queue.gives(COUNT - 1, COUNT)
    await queue.passes()
    assert queue.retakes == 1


async def test_r8_once_all_has_come_again_a_crash_explains_nothing_more(queue: Queue) -> None:
    await queue.all_acked()
    await queue.gives(COUNT, COUNT + 20)
    queue.breaks()
    await queue.gives(COUNT, COUNT + 21)
    await queue.passes()
    assert queue.retakes == 0
    await queue.gives(COUNT, COUNT + 21)
    await queue.passes()
    assert queue.retakes == 1


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("wait_s", [0.01, 0.1, 0.2, 0.3, 0.4, 0.49])
async def test_i2_what_a_crash_brought_is_judged_by_when_it_came(
    queue: Queue, wait_s: float, *, asks: bool
) -> None:
    """Not by when it is judged: all has come again by then, so a crash would explain no more."""
    positions = Positions()
    positions.on = asks
    queue.world.consumer.broker_positions = positions  # type: ignore[attr-defined]
    await queue.all_acked()
    await queue.gives(COUNT, COUNT + 20)
    await queue.passes(500)
    await queue.passes(NOTE_MS - 500)  # a note is due
    queue.breaks()
    positions.boot_ms += 1
    await queue.gives(COUNT, COUNT + 40)
    for _ in range(4):
        await asyncio.sleep(wait_s)
        queue.drew()
        await queue.resets.look([await queue.partition()])
    await queue.passes()
    assert (queue.retakes, queue.settled) == (0, [*range(COUNT, COUNT + 20)])


async def test_i2_two_crashes_may_take_back_what_the_first_one_did(queue: Queue) -> None:
    """The broker had not written down what it gave since: however long ago it was given first."""
    await queue.passes()
    await queue.gives(0, 40)
    await queue.passes(NOTE_MS)
    queue.breaks()
    await queue.passes(BROKEN_MS)
    await queue.gives(0, 60)
    await queue.passes(NOTE_MS)
    queue.breaks()
    await queue.gives(0, 60)
    await queue.passes()
    assert queue.retakes == 0


@pytest.mark.parametrize("crashed", [True, False])
async def test_a_broker_that_tells_since_when_it_runs_leaves_no_doubt(
    queue: Queue, *, crashed: bool
) -> None:
    """Also of what was given just before."""
    positions = queue.world.consumer.broker_positions = Positions()  # type: ignore[attr-defined]
    await queue.all_acked()
    await queue.gives(COUNT, COUNT + 20)
    queue.breaks()
    positions.boot_ms += crashed
    await queue.gives(COUNT, COUNT + 20)
    await queue.passes()
    assert queue.retakes == (not crashed)
    assert queue.told("came-again") == ""
    assert bool(queue.told("reset")) != crashed


async def test_r8_a_reset_while_no_sidecar_ran_is_noticed(queue: Queue) -> None:
    """By what the one before noted."""
    await queue.all_acked()
    queue.owned = None
    queue.fresh()
    await queue.passes(1_000)
    await queue.gives(5, 37)
    await queue.passes()
    assert queue.retakes == 1


async def test_with_an_order_what_is_locked_together_may_come_again(queue: Queue) -> None:
    """When the hold of one ends, all that were given with it come."""
    queue.world.state.configured = replace(queue.world.state.configured, ordering="key")
    await queue.all_acked()
    await queue.gives(COUNT - LOCKED, COUNT)
    assert queue.settled == [*range(COUNT - LOCKED, COUNT)]
    await queue.gives(COUNT - LOCKED - 1, COUNT - LOCKED)
    await queue.passes()
    assert queue.retakes == 1


async def test_what_the_own_seek_keeps_finished_is_settled_when_it_comes(queue: Queue) -> None:
    """And the next one that comes again is somebody else's reset."""
    await queue.all_acked()
    partition = await queue.partition()
    expected = Expected(queue.world.context.store)
    await expected.note(partition.key, Expectation(0, COUNT, [(0, COUNT)]))
    queue.owned = None
    await queue.passes(1_000)
    await queue.gives(0, COUNT)
    await queue.passes()
    assert (queue.retakes, queue.settled) == (0, [*range(COUNT)])
    await queue.passes(PAUSE_MS + 1_000)
    assert await expected.of(partition.key) is None
    await queue.gives(0, COUNT)
    await queue.passes()
    assert queue.retakes == 1


async def test_a_seek_that_the_operator_has_to_complete_is_named_until_it_is(queue: Queue) -> None:
    await queue.all_acked()
    partition = await queue.partition()
    expected = Expected(queue.world.context.store)
    await expected.note(partition.key, Expectation(0, COUNT, by_hand="mqadmin this"))
    queue.owned = None
    await queue.passes()
    assert "has to go back to offset 0, too: run mqadmin this" in queue.told("seek")
    await queue.gives(COUNT, COUNT + 5)  # a new message does not complete it
    await queue.passes()
    assert queue.told("seek")
    await queue.gives(0, 32)
    await queue.passes()
    assert queue.told("seek") == ""


async def test_a_broker_that_forgot_the_seek_in_a_crash_is_moved_again(queue: Queue) -> None:
    positions = queue.world.consumer.broker_positions = Positions()  # type: ignore[attr-defined]
    await queue.all_acked()
    partition = await queue.partition()
    expected = Expected(queue.world.context.store)
    await expected.note(partition.key, Expectation(0, COUNT, boot_ms=positions.boot_ms))
    queue.owned = None
    await queue.passes()
    await queue.gives(0, 32)
    positions.boot_ms += 1
    await queue.passes(2 * NOTE_MS)
    assert positions.moved == [{TP: 32}]
    positions.given = COUNT
    await queue.passes(PAUSE_MS + 2 * NOTE_MS)
    assert await expected.of(partition.key) is None
    assert len(positions.moved) == 1


@pytest.mark.parametrize("seed", range(10))
async def test_i2_r8_no_reset_is_swallowed_and_no_crash_replayed(queue: Queue, seed: int) -> None:
    """A broker that can be asked; it forgets at most what it gave in its last five seconds."""
    rng = random.Random(seed)
    positions = queue.world.consumer.broker_positions = Positions()  # type: ignore[attr-defined]
    clock = queue.world.context.clock
    given = end = 0
    written = [(clock.monotonic_ms(), 0)]
    await queue.passes()
    for _ in range(100):
        queue.delivered.clear()
        due = set[int]()
        what = rng.random()
        if what < 0.1:
            queue.breaks()
            positions.boot_ms += 1
            before_ms = clock.monotonic_ms() - 5_000
            given = max((at for at in written if at[0] <= before_ms), default=(0, 0))[1]
            await queue.passes(rng.choice((1_000, 20_000, 100_000)))
        elif what < 0.2 and end:
            given = rng.randrange(end)
            due = {*range(given, end)}
        if rng.random() < 0.7:
            new = end + rng.randrange(1, 80)
            due |= {*range(end, new)}
            end = new
        retakes = queue.retakes
        await queue.gives(given, end)
        await queue.passes(rng.choice((2_000, NOTE_MS)))
        if queue.retakes > retakes:  # what was given back comes as copies
            await queue.copies(end)
        assert sorted(queue.delivered) == sorted(due), seed
        given = end
        written.append((clock.monotonic_ms(), given))
    assert queue.told("came-again") == ""
