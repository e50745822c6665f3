"""An ordered owner never hands out a message before an earlier one of its key is over (I6).

The machine of `test_owner_and_record` (a log with holes, lost answers, foreign settles, owners that
die) with a ledger that keeps the order of three keys, or of the whole partition.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from ackd.core.ledger.entry import EntryStatus
from ackd.core.ledger.order import OrderPosition
from tests.property.test_owner_and_record import END, LEASE_MS, OwnerMachine
from tests.unit.core.playbook import Letter, PositionOf, forgets, leases, opens

KEYS = 3


class OrderedMachine(OwnerMachine):
    """`keys`: how many there are; offsets that 4 divides have none if there are several."""

    keys = KEYS
    rounds = END

    def order(self) -> PositionOf:
        return self.place

    def place(self, letter: Letter) -> OrderPosition | None:
        return self.position_of(letter.offset)

    def position_of(self, offset: int) -> OrderPosition | None:
        loose = self.keys > 1 and offset % 4 == 0
        return None if loose else OrderPosition(offset % self.keys, offset)

    @rule(most=st.integers(1, 6))
    @precondition(lambda self: not self.blind)
    def lease(self, most: int) -> None:
        before = {o for o in self.log if not self.play.record.over(o)}
        self.play >> leases(most, lease_ms=LEASE_MS)
        given = self.play.last
        assert isinstance(given, list)
        keys = [at[0] for offset in given if (at := self.position_of(offset)) is not None]
        assert len(keys) == len(set(keys)), "two of one key in one answer"
        for offset in given:
            earlier = {o for o in before if o < offset and self.same_key(o, offset)}
            assert not earlier, f"{offset} was handed out before {earlier}"

    def same_key(self, one: int, other: int) -> bool:
        first, second = self.position_of(one), self.position_of(other)
        return first is not None and second is not None and first[0] == second[0]

    @rule()
    def killed(self) -> None:
        """A new process knows the record only; it fetches from the watermark."""
        self.play.dead.clear()
        self.play >> forgets("a")
        self.play >> opens("a")
        fresh = self.play.owner
        fresh.session += 1
        fresh.ledger.intake.fetching(fresh.session, fresh.ledger.watermark)
        self.blind = False

    @invariant()
    def only_who_may_go_is_ready(self) -> None:
        """Whatever is first of its key, here and ready can be handed out: nothing starves."""
        ledger = self.play.owner.ledger
        order = ledger.order
        if self.blind or order is None or ledger.position < END:
            return
        free = [
            offset
            for offset, entry in ledger.entries.items()
            if entry.status is EntryStatus.READY and entry.body is not None and order.first(offset)
        ]
        assert ledger.ready >= len(free)


class PartitionMachine(OrderedMachine):
    """One key for all."""

    keys = 1


OrderedMachine.TestCase.settings = settings(max_examples=80)
PartitionMachine.TestCase.settings = settings(max_examples=50)
TestKeys = OrderedMachine.TestCase
TestPartition = PartitionMachine.TestCase
