"""Finished messages that a broker with individual acks gives again at their own offsets: settled
again, never delivered (I2), and reported (R8).

Such a broker gives the messages of a queue in the order of their offsets, and comes back to one
only when its own position went back. That is so after a crash, after a failover to a replica that
is behind, and when somebody resets the group there. Nothing that it answers tells these apart for
sure, so ackd never delivers what is acked because of it: readiness says what came again, and names
the seek that delivers it. What is unfinished is delivered in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ackd.core.ids import TopicPartition
from ackd.core.log_generations import GENERATION
from ackd.core.sources import COPIES
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.ownership.awaited_seeks import ASK_MS, AwaitedSeeks
from ackd.engine.ownership.gaps import BROKEN_MS, Gaps
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError, StoreError
from ackd.ports import Condition

LOG = logging.getLogger("ackd.engine")

GATHER_MS: Final = 1_000
"""What came again is reported after this, as more of it comes, and then so often."""
PAUSE_MS: Final = 600_000
"""What comes again later than this is reported apart."""
SHOWN_MS: Final = 3_600_000
"""Readiness names it for so long after the last of it came."""
LOCKED: Final = 64
"""With an order, the broker gives so many messages of a queue again when a hold of one ends."""
NOTE_KEEP_MS: Final = 30 * 86_400_000
CALM_MS: Final = 2 * BROKEN_MS
"""The run of the broker is noted once it gives new messages so long after a failure, as what a
crash brings again has come by then.
"""


@dataclass(slots=True)
class _CameAgain:
    """Finished messages of one partition. `away`: ackd or the broker may have been away before."""

    since_ms: int
    first: int
    last: int
    away: bool
    count: int = 0
    came_ms: int = 0
    reported: int = 0
    reported_ms: int = 0


@dataclass(slots=True)
class _Run:
    """Of a partition's broker, as one owner knows it. `noted_ms`: when that run began which gave
    the messages of before; 0: nobody knows.
    """

    term: int
    taken_ms: int
    noted_ms: int
    noted: bool = False
    asked_ms: int = 0


class BrokerResets:
    """Watches one subscription's partitions."""

    def __init__(
        self, state: SubscriptionState, context: Context, gaps: Gaps, awaited: AwaitedSeeks
    ) -> None:
        self._state = state
        self._context = context
        self._gaps = gaps
        self._awaited = awaited
        self._came: dict[TopicPartition, _CameAgain] = {}
        self._runs: dict[TopicPartition, _Run] = {}

    def again(self, partition: Partition, offsets: Sequence[int]) -> None:
        """These are finished, and came again at their own offsets."""
        found = [each for each in offsets if not self._awaited.settles(partition, each)]
        if self._state.configured.ordering != "none":
            bound = partition.ledger.position - LOCKED
            found = [each for each in found if each < bound]
        if not found:
            return
        tp, now_ms = partition.tp, self._context.clock.monotonic_ms()
        came = self._came.get(tp)
        if came is None or now_ms - came.came_ms >= PAUSE_MS:
            away = self._may_have_been_away(partition, now_ms)
            came = self._came[tp] = _CameAgain(now_ms, found[0], found[0], away)
        came.first, came.last = min(came.first, *found), max(came.last, *found)
        came.count, came.came_ms = came.count + len(found), now_ms

    def _may_have_been_away(self, partition: Partition, now_ms: int) -> bool:
        run, broken_ms = self._runs.get(partition.tp), self._gaps.broken_ms(partition.tp.topic)
        if run is None or run.term != partition.handle.term:
            return True
        since_ms = max(run.taken_ms, broken_ms)
        return now_ms - since_ms < PAUSE_MS

    async def look(self, partitions: Sequence[Partition]) -> None:
        """Tell what is news. Called about every half second."""
        now_ms = self._context.clock.monotonic_ms()
        for partition in partitions:
            try:
                run = await self._run(partition, now_ms)
                await self._tell(partition, run, now_ms)
                await self._note(partition, run, now_ms)
            except (StoreError, BrokerError) as error:
                LOG.info("%s: ackd tries again: %s", self._state.name, error.detail)
        for tp, came in list(self._came.items()):
            if now_ms - came.came_ms >= SHOWN_MS:
                del self._came[tp]
                self._state.clear(_code(tp))

    async def _run(self, partition: Partition, now_ms: int) -> _Run:
        run = self._runs.get(partition.tp)
        if run is None or run.term != partition.handle.term:
            noted_ms = 0
            if self._asks:
                raw = await self._context.store.get(_name(partition))
                noted_ms = int(raw or 0)
            run = self._runs[partition.tp] = _Run(partition.handle.term, now_ms, noted_ms)
        return run

    @property
    def _asks(self) -> bool:
        positions = self._state.broker_positions
        return positions is not None and positions.on

    async def _boot_ms(self, tp: TopicPartition) -> int:
        """When the broker's run began; 0: nobody knows, or tells."""
        positions = self._state.broker_positions
        if positions is None or not positions.on:
            return 0
        try:
            return await positions.booted_ms(tp)
        except BrokerError as error:
            if not positions.refused(error):
                raise
            return 0

    async def _note(self, partition: Partition, run: _Run, now_ms: int) -> None:
        """Note the broker's run for the next owner, once no crash of before brings anything."""
        broken_ms = self._gaps.broken_ms(partition.tp.topic)
        if broken_ms > run.taken_ms:
            run.taken_ms, run.noted = broken_ms, False
        copies = partition.tp.partition % GENERATION >= COPIES
        if run.noted or copies or not self._asks or now_ms - run.taken_ms < CALM_MS:
            return
        if now_ms - run.asked_ms < ASK_MS:
            return
        run.asked_ms = now_ms
        boot_ms = await self._boot_ms(partition.tp)
        if boot_ms != run.noted_ms:
            raw = b"%d" % boot_ms
            await self._context.store.put(_name(partition), raw, NOTE_KEEP_MS)
        run.noted_ms, run.noted = boot_ms, True

    async def _tell(self, partition: Partition, run: _Run, now_ms: int) -> None:
        tp, came = partition.tp, self._came.get(partition.tp)
        if came is None or came.reported == came.count or now_ms - came.since_ms < GATHER_MS:
            return
        if now_ms - came.reported_ms < GATHER_MS:
            return
        same = run.noted_ms > 0 and await self._boot_ms(tp) == run.noted_ms
        if same:
            why = "the broker was not started again since, so it looks like a reset of the group"
        elif came.away:
            why = (
                "the broker or ackd was away: either the broker forgot its last acks in a crash or "
                "a failover, or somebody reset the group there"
            )
        else:
            why = "nobody was away, so it looks like a reset of the group at the broker"
        detail = (
            f"{tp}: {came.count} finished messages came again from the broker, of offsets "
            f"{came.first} to {came.last}: {why}; they stay finished, and `ackd seek "
            f"{self._state.name} --position {tp.topic}/{tp.partition}={came.first}` delivers them "
            "again"
        )
        if not came.reported:
            LOG.warning("%s: %s", self._state.name, detail)
        self._state.report(Condition(_code(tp), detail, warning=True))
        came.reported, came.reported_ms = came.count, now_ms


def _code(tp: TopicPartition) -> str:
    return f"came-again/{tp}"


def _name(partition: Partition) -> str:
    return f"broker-run:{partition.key.text()}"
