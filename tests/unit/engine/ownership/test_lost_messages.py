"""What the broker gave and lost is delivered (I1), what came in another way is not delivered twice
(I2), and what nobody can tell is named.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from ackd.core.ids import TopicPartition
from ackd.core.known_ids import STEP_MS
from ackd.core.ledger.unordered import UnorderedLedger
from ackd.core.record.operations import Gap
from ackd.core.sources import COPIES
from ackd.engine.ownership.lost_messages import LOOK_MS, LOST_MS, LostMessages
from ackd.engine.partition.partition import Partition, Policy
from ackd.errors import BrokerError
from ackd.ports import Arrival, AssignedPlace, LogPart, Record, StoredAt
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World

UNORDERED = Policy(None, 0, retry_copies=False, unordered=True)
TP = TopicPartition(TOPIC, 0)
HOLD_MS = 15_000
KEEP_MS = 180_000 + 2 * HOLD_MS
PART = 5
FOUND_MS = HOLD_MS + LOST_MS + 2 * LOOK_MS


class Log:
    """`ackd.ports.BrokerPositions` of a broker whose log can be read."""

    def __init__(self) -> None:
        self.on = True
        self.away = False
        self.given = -1
        self.end = 0
        self.first = 0
        self.reads = 0

    async def group_offset(self, partition: TopicPartition) -> int:
        assert partition == TP
        if self.away:
            raise BrokerError("away")
        return self.given

    async def range(self, partition: TopicPartition) -> tuple[int, int]:
        assert partition == TP
        return self.first, self.end

    async def read(self, partition: TopicPartition, offset: int) -> LogPart:
        assert partition == TP
        if self.away:
            raise BrokerError("away")
        self.reads += 1
        start = max(offset, self.first)
        offsets = range(start, min(start + PART, self.end))
        return LogPart([arrival(each) for each in offsets], offsets.stop, self.first)


def arrival(offset: int) -> Arrival:
    place = AssignedPlace(0, offset)
    return Arrival(b"m%d" % offset, place, Record(offset, None, b"v", (), 1), 1_000 + offset)


class LossyQueue:
    """A queue of a broker that loses messages. `delivered`: by what they are in the log."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = Log()
        world.consumer.broker_positions = self.log  # type: ignore[attr-defined]
        self.delivered: Counter[int] = Counter()
        self.ids: dict[AssignedPlace, int] = {}
        self.owned: dict[int, Partition] = {}
        self.copies = 0
        self.seeks = False

    async def owns(self, *, created: bool = False) -> None:
        """A sidecar that has just been started owns it from now on."""
        world = self.world
        await world.topics.read()
        self.lost = LostMessages(
            world.state,
            world.context,
            world.partitions,
            world.topics,
            lambda _: self.seeks,
            self._take,
            lambda _: 0,
            KEEP_MS,
            HOLD_MS,
        )
        await self.lost.begins([TP])
        for number in (0, COPIES):
            partition = await world.owns(number, policy=UNORDERED)
            partition.created = created
            self.owned[number] = partition

    @property
    def ledger(self) -> UnorderedLedger[Record]:
        found = self.owned[0].ledger
        assert isinstance(found, UnorderedLedger)
        return found

    def stores(self, count: int) -> None:
        """So many new messages; the broker gives them all."""
        self.log.end += count
        self.log.given = self.log.end

    async def come(self, *offsets: int, copies: bool = False) -> None:
        """The broker brings these; `copies`: its own copies of them."""
        asked = []
        for each in offsets:
            made = arrival(each)
            place = made.place
            if copies:
                place = AssignedPlace(COPIES, self.copies)
                self.copies += 1
            asked.append(StoredAt(made.id, place, made.stored_ms))
        places = self.world.context.store.places
        found = await places.assign(NAME, TOPIC_ID, KEEP_MS, asked)
        if not copies:
            self.lost.came(self.owned[0], offsets)
        for offset, place in zip(offsets, found.places, strict=True):
            self.ids[place] = offset
            record = Record(place.offset, None, b"v", (), 1)
            self._take(self.owned[place.partition], [record])

    def _take(self, partition: Partition, records: list[Record]) -> None:
        ledger = partition.ledger
        assert isinstance(ledger, UnorderedLedger)
        for each in records:
            place = AssignedPlace(partition.tp.partition, each.offset)
            self.delivered[self.ids.get(place, each.offset)] += ledger.lacks(each.offset)
        ledger.arrived(records)

    async def acks(self, offsets: Sequence[int] | None = None) -> None:
        """The application acks these, else all that it has."""
        for partition in self.owned.values():
            ledger = partition.ledger
            found = [each for each, entry in ledger.entries.items() if entry.body is not None]
            if offsets is not None:
                place = partition.tp.partition
                found = [e for e in found if self.ids.get(AssignedPlace(place, e), e) in offsets]
            if found:
                gaps = [Gap(each, each + 1) for each in found]
                await self.world.flusher.submit(partition.handle, gaps)
                ledger.acked(found)

    async def passes(self, ms: int, *, traffic: bool = False) -> None:
        """Time. `traffic`: other messages come, so that ids are forgotten."""
        for _ in range(ms // STEP_MS):
            await asyncio.sleep(STEP_MS / 1000)
            if traffic:
                self.stores(1)
                await self.come(self.log.end - 1)
                await self.acks()
            await self.lost.look(list(self.owned.values()))

    @property
    def told(self) -> str:
        found = self.world.state.conditions.get(f"missing/{TP}")
        assert found is None or found.warning
        return "" if found is None else found.detail

    @property
    def recovered(self) -> float:
        return self.world.count("ackd_recovered_from_log_total", subscription=NAME)


@pytest.fixture
async def queue(world: World) -> LossyQueue:
    return LossyQueue(world)


async def begun(queue: LossyQueue) -> None:
    """It is watched, and has given nothing."""
    await queue.owns(created=True)
    await queue.passes(STEP_MS)


async def test_i1_what_does_not_come_for_a_hold_and_a_while_is_read_and_delivered(
    queue: LossyQueue,
) -> None:
    """Also what is the last one of the queue."""
    await begun(queue)
    queue.stores(20)
    await queue.come(*(each for each in range(20) if each not in {3, 4, 19}))
    await queue.acks()
    await queue.passes(HOLD_MS + LOST_MS - LOOK_MS)
    assert queue.log.reads == 0
    await queue.passes(3 * LOOK_MS)
    await queue.acks()
    assert queue.delivered == dict.fromkeys(range(20), 1)
    assert queue.recovered == 3
    assert queue.ledger.watermark == 20
    reads = queue.log.reads
    await queue.passes(10 * LOOK_MS)
    assert queue.log.reads == reads


async def test_i1_the_very_first_messages_of_a_group_are_found(queue: LossyQueue) -> None:
    """They came before the first look."""
    await queue.owns(created=True)
    queue.stores(3)
    await queue.come(2)
    await queue.passes(FOUND_MS)
    assert queue.delivered == {0: 1, 1: 1, 2: 1}


async def test_i1_the_next_owner_delivers_it(queue: LossyQueue) -> None:
    await begun(queue)
    queue.stores(20)
    await queue.passes(LOOK_MS)
    await queue.owns()
    queue.stores(5)
    await queue.come(*range(20, 25))
    await queue.passes(FOUND_MS)
    assert queue.delivered == dict.fromkeys(range(25), 1)


@pytest.mark.parametrize("record", [True, False], ids=["with a record", "without one"])
async def test_i1_the_next_owner_delivers_what_one_drew_that_never_looked(
    queue: LossyQueue, *, record: bool
) -> None:
    """It was killed in its first moments."""
    await queue.owns(created=True)
    queue.stores(20)
    await queue.owns(created=not record)
    await queue.passes(FOUND_MS)
    assert queue.delivered == dict.fromkeys(range(20), 1)


async def test_i2_below_a_record_that_was_lost_nothing_is_delivered(queue: LossyQueue) -> None:
    """It knew what was finished."""
    await begun(queue)
    queue.stores(20)
    await queue.passes(LOOK_MS)
    await queue.owns(created=True)
    await queue.passes(FOUND_MS)
    assert queue.delivered == {}


async def test_i1_what_is_leased_and_was_not_brought_to_the_next_owner_is_read(
    queue: LossyQueue,
) -> None:
    await begun(queue)
    queue.stores(1)
    await queue.come(0)
    await queue.passes(LOOK_MS)
    await queue.world.leases(queue.owned[0])
    await queue.owns()
    entry = queue.ledger.entries[0]
    assert entry.body is None
    await queue.passes(FOUND_MS)
    assert entry.body is not None


async def test_i2_what_was_before_ackd_is_nobodys(queue: LossyQueue) -> None:
    """The group existed, and the broker goes on with it."""
    queue.stores(1_000)
    await queue.owns(created=True)
    await queue.passes(STEP_MS)
    queue.stores(10)
    await queue.come(*range(1_000, 1_008))
    await queue.passes(FOUND_MS)
    assert queue.delivered == dict.fromkeys(range(1_000, 1_010), 1)


async def test_i2_what_an_earlier_version_left_behind_is_not_touched(queue: LossyQueue) -> None:
    """Nobody can tell any more whether it came as a copy."""
    queue.stores(10)
    await queue.owns()
    await queue.come(9)
    await queue.passes(10 * FOUND_MS)
    assert queue.delivered == {9: 1}


async def test_i2_what_came_as_a_copy_is_over_with_it(queue: LossyQueue) -> None:
    await begun(queue)
    queue.stores(10)
    await queue.come(*range(5))
    await queue.passes(HOLD_MS)
    await queue.come(*range(5, 10), copies=True)
    await queue.acks([5, 6, 7])
    await queue.passes(FOUND_MS)
    assert [queue.ledger.over(each) for each in range(5, 10)] == [True] * 3 + [False] * 2
    await queue.acks()
    await queue.passes(2 * LOOK_MS)
    assert queue.delivered == dict.fromkeys(range(10), 1)
    assert queue.ledger.watermark == 10
    assert queue.recovered == 0


async def test_i2_a_copy_that_comes_later_is_the_same_message(queue: LossyQueue) -> None:
    await begun(queue)
    queue.stores(2)
    await queue.passes(FOUND_MS)
    assert queue.recovered == 2
    await queue.acks([0])
    await queue.come(0, 1, copies=True)
    assert queue.delivered == {0: 1, 1: 1}
    assert [each for each, _ in queue.lost.kept(TOPIC)] == [b"m1"]
    await queue.acks()
    assert queue.lost.kept(TOPIC) == []


async def test_i2_what_was_missing_for_longer_than_ids_are_known_is_named(
    queue: LossyQueue,
) -> None:
    """The copy came and was acked while the broker could not be asked."""
    await begun(queue)
    queue.stores(3)
    await queue.come(0, 2)
    await queue.acks()
    queue.log.away = True
    await queue.passes(HOLD_MS)
    await queue.come(1, copies=True)
    await queue.acks()
    await queue.passes(3 * KEEP_MS, traffic=True)
    assert "can't be asked for them now: away" in queue.told
    assert queue.lost.owes(queue.owned[0])
    queue.log.away = False
    await queue.passes(FOUND_MS)
    assert not queue.lost.owes(queue.owned[0])
    assert queue.delivered[1] == 1
    assert queue.recovered == 0
    assert "gave 1 messages that did not come, of offsets 1 to 1" in queue.told
    assert f"`ackd seek {NAME} --position {TOPIC}/0=1`" in queue.told
    await queue.owns()
    await queue.passes(2 * LOOK_MS)
    assert "of offsets 1 to 1" in queue.told
    queue.ledger.pass_over(1, 2)
    await queue.passes(LOOK_MS)
    assert queue.told == ""


async def test_i1_however_long_nobody_ran_it_is_delivered(queue: LossyQueue) -> None:
    """Ids are kept for so long, too."""
    await begun(queue)
    queue.stores(3)
    await queue.come(0, 2)
    await queue.acks()
    await queue.passes(LOOK_MS)
    await asyncio.sleep(86_400)
    await queue.owns()
    await queue.passes(FOUND_MS)
    assert queue.delivered == {0: 1, 1: 1, 2: 1}


async def test_i1_owners_that_die_young_keep_ids_known(queue: LossyQueue) -> None:
    """None of ten in a row lives until what is missing counts as lost."""
    await begun(queue)
    queue.stores(3)
    await queue.come(0, 2)
    for _ in range(10):
        await queue.passes(HOLD_MS + LOST_MS - LOOK_MS, traffic=True)
        await queue.owns()
    await queue.passes(FOUND_MS)
    assert queue.delivered[1] == 1
    assert queue.told == ""


async def test_without_a_way_to_ask_it_is_named(queue: LossyQueue) -> None:
    queue.log.on = False
    await queue.owns(created=True)
    queue.stores(1_010)
    await queue.come(*(each for each in range(1_000, 1_010) if each not in {1_003, 1_007}))
    await queue.passes(HOLD_MS + LOST_MS - LOOK_MS)
    assert queue.told == ""
    await queue.passes(3 * LOOK_MS)
    assert "gave 2 messages that did not come, of offsets 1003 to 1007" in queue.told
    assert "set `name_servers`" in queue.told
    await queue.come(1_003, 1_007)
    await queue.passes(LOOK_MS)
    assert queue.told == ""


async def test_behind_a_filter_it_is_named_only_while_the_broker_can_not_be_asked(
    queue: LossyQueue,
) -> None:
    queue.world.sets(filter="paid")
    queue.world.state.configured = queue.world.state.settings
    await begun(queue)
    queue.stores(10)
    await queue.come(0, 9)
    queue.log.away = True
    await queue.passes(3 * FOUND_MS)
    assert "do not pass the filter, or it lost them, and it can't be asked" in queue.told
    queue.log.away = False
    await queue.passes(FOUND_MS)
    assert queue.told == ""
    assert queue.delivered == dict.fromkeys(range(10), 1)


async def test_what_retention_took_holds_nothing_up(queue: LossyQueue) -> None:
    await begun(queue)
    queue.stores(10)
    await queue.come(0, 9)
    await queue.acks()
    queue.log.first = 8
    await queue.passes(FOUND_MS)
    await queue.acks()
    assert queue.delivered == {0: 1, 8: 1, 9: 1}
    assert queue.ledger.watermark == 10


async def test_i6_where_an_order_is_kept_nothing_is_read(queue: LossyQueue) -> None:
    queue.world.sets(ordering="key")
    queue.world.state.configured = queue.world.state.settings
    await begun(queue)
    queue.stores(10)
    await queue.come(9)
    await queue.passes(2 * FOUND_MS)
    assert queue.log.reads == 0


async def test_while_a_seek_waits_nothing_is_read(queue: LossyQueue) -> None:
    await begun(queue)
    queue.seeks = True
    queue.stores(10)
    await queue.passes(2 * FOUND_MS)
    assert queue.log.reads == 0


class Bringing:
    """What a broker brings when: late, as copies, again, and some of it never."""

    def __init__(self, rng: random.Random, queue: LossyQueue) -> None:
        self.rng = rng
        self.queue = queue
        self.to_come: list[tuple[int, int, bool]] = []  # due step, offset, as a copy

    def stores(self, step: int) -> None:
        rng, first = self.rng, self.queue.log.end
        self.queue.stores(rng.randrange(1, 9))
        for offset in range(first, self.queue.log.end):
            kind = rng.random()
            if kind < 0.6:
                self.to_come.append((step + rng.randrange(3), offset, False))
            elif kind < 0.8:
                self.to_come.append((step + 15 + rng.randrange(25), offset, True))
            if kind < 0.1:  # and again, as its hold was lost
                self.to_come.append((step + 15 + rng.randrange(60), offset, True))

    async def brings(self, step: int) -> None:
        for each in [one for one in self.to_come if one[0] <= step]:
            self.to_come.remove(each)
            await self.queue.come(each[1], copies=each[2])

    async def dies(self) -> None:
        """The owner; what it had may come to the next one."""
        queue = self.queue
        for partition in queue.owned.values():
            for offset, entry in partition.ledger.entries.items():
                place = AssignedPlace(partition.tp.partition, offset)
                if entry.body is not None:
                    queue.delivered[queue.ids.get(place, offset)] = 0
        await queue.owns()


@pytest.mark.parametrize("seed", range(30))
async def test_i1_i2_each_message_is_delivered_and_none_again_after_its_ack(
    queue: LossyQueue, seed: int
) -> None:
    """A broker that loses, brings late, as copies, and again; owners that die; acks at any time;
    and a broker that can't be asked for a while.
    """
    rng = random.Random(seed)
    bringing = Bringing(rng, queue)
    await begun(queue)
    away_until = 0
    for step in range(400):
        if step < 300 and rng.random() < 0.4:
            bringing.stores(step)
        await bringing.brings(step)
        if rng.random() < 0.5:
            await queue.acks(rng.sample(range(queue.log.end), queue.log.end // 2))
        if rng.random() < 0.03:
            away_until = step + rng.randrange(40)
        queue.log.away = step < away_until
        if rng.random() < 0.03:
            await bringing.dies()
        await queue.passes(STEP_MS)
    queue.log.away = False
    for _ in range(3):
        await queue.passes(FOUND_MS)
        await queue.acks()
    assert queue.delivered == dict.fromkeys(range(queue.log.end), 1), seed
    assert queue.told == "", seed
    assert queue.ledger.watermark == queue.log.end, seed
