"""What the owner of a partition does until a broker with individual acks has brought what ackd's
own seek lets come again (R8).

- Nothing of it lapses: it is yet to come, however long the operator takes.
- Where ackd can't move the broker, readiness names the command that does.
- A broker that was away during the seek is moved as soon as it can be reached.
- A broker that was started again, or another one that took over, may have forgotten where it had to
  begin. It is moved again, to the first message that has not come.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from ackd.core.ids import TopicPartition
from ackd.core.log_generations import split
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.ownership.expected import NOT_MOVED, Expectation, Expected
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError, StoreError
from ackd.ports import BrokerPositions, Condition

LOG = logging.getLogger("ackd.engine")

ASK_MS: Final = 5_000
PAUSE_MS: Final = 30_000
"""After the broker has given all of a seek, it is over when so much has passed: by then it has
written that down, and what was given has come.
"""


@dataclass(slots=True)
class _Awaited:
    """Of one ownership term. `given_ms`: since when all has been given; 0: it has not. `changed`:
    the store does not know it yet.
    """

    term: int
    expectation: Expectation | None
    asked_ms: int = 0
    given_ms: int = 0
    changed: bool = False


class _Move(NamedTuple):
    """A partition whose broker has to be moved anew. `boot_ms`: its run that will know of it."""

    partition: Partition
    awaited: _Awaited
    boot_ms: int

    @property
    def by_hand(self) -> bool:
        """Whether ackd may not even ask the broker."""
        return self.boot_ms == NOT_MOVED


class AwaitedSeeks:
    """Watches the owned partitions of one subscription."""

    def __init__(self, state: SubscriptionState, context: Context) -> None:
        self._state = state
        self._context = context
        self._expected = Expected(context.store)
        self._awaited: dict[TopicPartition, _Awaited] = {}

    def waits(self, partition: Partition) -> bool:
        """Whether messages of a seek may be yet to come."""
        awaited = self._of(partition)
        if awaited is None:
            return True  # not known yet
        return awaited.expectation is not None and awaited.expectation.brings

    def settles(self, partition: Partition, offset: int) -> bool:
        """Whether a seek lets this finished message come."""
        awaited = self._of(partition)
        found = None if awaited is None else awaited.expectation
        if found is None:
            return False
        return found.settles(offset) or (found.brings and found.start <= offset)

    def came(self, partition: Partition, offsets: Iterable[int]) -> None:
        """The broker gave these messages at their own offsets."""
        awaited, offsets = self._of(partition), sorted(offsets)
        if awaited is None or awaited.expectation is None or not offsets:
            return
        expected = awaited.expectation
        if offsets[0] < expected.until:
            awaited.given_ms = 0
            if expected.by_hand:  # the operator has run it
                expected = awaited.expectation = replace(expected, by_hand="")
                awaited.changed, awaited.asked_ms = True, 0
        asked_for = expected.by_hand or expected.boot_ms
        if offsets[-1] + 1 >= expected.until and not asked_for and not awaited.given_ms:
            awaited.given_ms = self._context.clock.monotonic_ms()

    async def look(self, partitions: Sequence[Partition]) -> None:
        """Go on with what is due. Called about every half second."""
        owned = {each.tp for each in partitions}
        for tp in [each for each in self._awaited if each not in owned]:
            del self._awaited[tp]
            self._state.clear(_code(tp))
        moves: dict[TopicPartition, list[_Move]] = {}
        for partition in partitions:
            try:
                boot_ms, awaited = await self._look(partition)
            except (StoreError, BrokerError) as error:
                self._again(error)
                continue
            if boot_ms and awaited.expectation is not None:
                queue = TopicPartition(partition.tp.topic, split(partition.tp.partition)[0])
                moves.setdefault(queue, []).append(_Move(partition, awaited, boot_ms))
        for queue, found in moves.items():
            try:
                await self._move(queue, found)
            except (StoreError, BrokerError) as error:
                self._again(error)

    async def _look(self, partition: Partition) -> tuple[int, _Awaited]:
        """Returns the run of the broker that has to be moved anew; 0: it has not."""
        now_ms = self._context.clock.monotonic_ms()
        awaited = await self._read(partition)
        if awaited.expectation is None or now_ms - awaited.asked_ms < ASK_MS:
            return 0, awaited
        awaited.asked_ms = now_ms
        return await self._go_on(partition, awaited, awaited.expectation, now_ms), awaited

    async def _move(self, queue: TopicPartition, moves: Sequence[_Move]) -> None:
        """Move a queue anew, which several partitions may be of."""
        positions = self._state.broker_positions
        if positions is None:
            return
        wanted = [(each, each.awaited.expectation) for each in moves]
        offset = min(_lacking(each.partition, found) for each, found in wanted if found is not None)
        how: dict[str, int | str] = {"by_hand": positions.by_hand(queue, offset), "boot_ms": 0}
        if not any(each.by_hand for each in moves):
            try:
                await positions.move({queue: offset})
            except BrokerError as error:
                if not positions.refused(error):
                    raise
            else:
                how = {}
                text = "%s: the broker did not know of a seek, and begins with %s at offset %d now"
                LOG.warning(text, self._state.name, queue, offset)
        for each, found in wanted:
            if found is not None:
                changed = replace(found, **(how or {"boot_ms": each.boot_ms}))
                await self._expected.note(each.partition.key, changed)
                each.awaited.expectation = changed
                self._tell(each.partition, changed)

    def _tell(self, partition: Partition, expected: Expectation) -> None:
        """Let readiness say what the broker does not know of yet."""
        code, detail = _code(partition.tp), _waits(partition, expected)
        if not detail:
            self._state.clear(code)
        elif self._state.report(Condition(code, detail, warning=True)):
            LOG.warning("%s: %s", self._state.name, detail)

    def _again(self, error: StoreError | BrokerError) -> None:
        LOG.info("%s: ackd tries again: %s", self._state.name, error.detail)

    def _of(self, partition: Partition) -> _Awaited | None:
        awaited = self._awaited.get(partition.tp)
        return None if awaited is None or awaited.term != partition.handle.term else awaited

    async def _read(self, partition: Partition) -> _Awaited:
        awaited = self._of(partition)
        if awaited is None:
            expectation = await self._expected.of(partition.key)
            awaited = _Awaited(partition.handle.term, expectation)
            self._awaited[partition.tp] = awaited
            if expectation is None:
                self._state.clear(_code(partition.tp))
        return awaited

    async def _go_on(
        self, partition: Partition, awaited: _Awaited, expected: Expectation, now_ms: int
    ) -> int:
        """Returns the run of the broker that has to be moved anew; 0: it has not."""
        positions = self._state.broker_positions
        self._tell(partition, expected)
        if expected.by_hand:
            return 0
        if expected.boot_ms and positions is not None and positions.on:
            boot_ms = await self._ask(partition, awaited, expected, positions, now_ms)
            if boot_ms:
                return boot_ms
        elif awaited.changed:
            await self._expected.note(partition.key, expected)
            awaited.changed = False
        if awaited.given_ms and now_ms - awaited.given_ms >= PAUSE_MS:
            await self._expected.over(partition.key)
            awaited.expectation = None
        return 0

    async def _ask(
        self,
        partition: Partition,
        awaited: _Awaited,
        expected: Expectation,
        positions: BrokerPositions,
        now_ms: int,
    ) -> int:
        """Ask the broker that was moved how far it is."""
        try:
            boot_ms = await positions.booted_ms(partition.tp)
        except BrokerError as error:
            if not positions.refused(error):
                raise
            return NOT_MOVED
        if boot_ms != expected.boot_ms and _lacking(partition, expected) < expected.until:
            return boot_ms
        if await positions.group_offset(partition.tp) < expected.until:
            awaited.given_ms = 0
        elif not awaited.given_ms:
            awaited.given_ms = now_ms
        return 0


def _waits(partition: Partition, expected: Expectation) -> str:
    """What readiness says of a seek that the broker does not know of yet. Nothing once all of it
    is finished: a broker that forgot its last acks in a crash may have brought it by itself.
    """
    if _lacking(partition, expected) >= expected.until:
        return ""
    waits = f"{partition.tp}: the seek waits for the broker, which has to go back to offset "
    if expected.by_hand:
        return f"{waits}{expected.start}, too: run {expected.by_hand}"
    if expected.boot_ms == NOT_MOVED:
        return f"{waits}{expected.start}, too: it was away, and ackd moves it when it is back"
    return ""


def _lacking(partition: Partition, expected: Expectation) -> int:
    """The first message of a seek that is unfinished: what came and is in work may come again."""
    ledger = partition.ledger
    clear = ledger.finished.first_clear(max(expected.start, ledger.watermark))
    return min(clear, expected.until)


def _code(tp: TopicPartition) -> str:
    return f"seek/{tp}"
