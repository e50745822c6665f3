"""One queue of a broker with individual acks, what it gives to this sidecar, and what an
application acks: for tests of resets and seeks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ackd.core.ids import TopicPartition
from ackd.core.record.operations import Gap
from ackd.engine.ownership.awaited_seeks import AwaitedSeeks
from ackd.engine.ownership.broker_resets import BrokerResets
from ackd.engine.ownership.gaps import Gaps
from ackd.engine.partition.partition import Partition, Policy
from ackd.errors import BrokerError
from ackd.ports import Drew, Record
from tests.unit.engine.world import TOPIC, World

UNORDERED = Policy(None, 0, retry_copies=False, unordered=True)
TP = TopicPartition(TOPIC, 0)
HOLD_MS = 15_000
STEP_S = 0.5


class Positions:
    """`ackd.ports.BrokerPositions` of a broker that tells its boot. `may`: ackd may move it,
    `may_ask`: when it was started.
    """

    def __init__(self) -> None:
        self.on = True
        self.boot_ms = 7
        self.moved: list[dict[TopicPartition, int]] = []
        self.given = 0
        self.away = False
        self.may = self.may_ask = True

    async def booted_ms(self, partition: TopicPartition) -> int:
        self._answers(may=self.may_ask)
        assert partition == TP
        return self.boot_ms

    async def group_offset(self, partition: TopicPartition) -> int:
        assert partition == TP
        return self.given

    async def move(self, positions: Mapping[TopicPartition, int]) -> None:
        self._answers(may=self.may)
        self.moved.append({**positions})
        self.given = positions[TP]

    def refused(self, error: BrokerError) -> bool:
        return "may not" in error.detail

    def by_hand(self, partition: TopicPartition, offset: int) -> str:
        return f"mqadmin {partition.partition} {offset}"

    def _answers(self, *, may: bool) -> None:
        if self.away:
            raise BrokerError("away")
        if not may:
            raise BrokerError("ackd may not")


class GivenQueue:
    """The queue. `delivered`: what went to the application; `settled`: finished ones that came."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.settled: list[int] = []
        self.delivered: list[int] = []
        self.broken_ms = 0
        self.owned: Partition | None = None
        self.fresh()

    def asks(self) -> Positions:
        """The broker can be asked from now on."""
        positions = Positions()
        self.world.consumer.broker_positions = positions  # type: ignore[attr-defined]
        return positions

    def fresh(self) -> None:
        """A sidecar that has just been started."""
        world = self.world
        self.owned = None
        self.gaps = Gaps(world.context, world.partitions, HOLD_MS)
        self.awaited = AwaitedSeeks(world.state, world.context)
        self.resets = BrokerResets(world.state, world.context, self.gaps, self.awaited)

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
            ledger = partition.ledger
            self.gaps.came(partition, offsets)
            self.awaited.came(partition, offsets)
            records = [Record(each, None, b"v", (), 1) for each in offsets]
            again = ledger.arrived(records)  # type: ignore[attr-defined]
            self.settled += again
            self.resets.again(partition, again)
            new = [each for each in offsets if each not in {*again}]
            self.delivered += new
            if new:
                gaps = [Gap(each, each + 1) for each in new]
                await self.world.flusher.submit(partition.handle, gaps)
                ledger.acked(new)
            self.drew()

    def drew(self) -> None:
        """All that was given has come."""
        now_ms = self.world.context.clock.monotonic_ms()
        self.gaps.drew(Drew(TOPIC, now_ms, self.broken_ms))

    async def passes(self, ms: int = 2_000) -> None:
        """Time, with questions answered."""
        for _ in range(round(ms / 1000 / STEP_S)):
            await asyncio.sleep(STEP_S)
            self.drew()
            partitions = [await self.partition()]
            await self.awaited.look(partitions)
            await self.resets.look(partitions)

    def breaks(self) -> None:
        """A question failed."""
        self.broken_ms = self.world.context.clock.monotonic_ms()
        self.drew()

    async def all_acked(self, count: int, calm_ms: int) -> None:
        """So many have come and were acked, a while ago."""
        await self.passes()
        await self.gives(0, count)
        await self.passes(calm_ms)
        self.delivered.clear()

    def told(self, kind: str) -> str:
        """What readiness says."""
        told = self.world.state.conditions.get(f"{kind}/{TP}")
        assert told is None or told.warning
        return "" if told is None else told.detail
