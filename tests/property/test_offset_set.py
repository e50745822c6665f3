"""Offsets in order are a set of numbers, whatever is done to them."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ackd.core.ledger.offset_set import Offsets

NUMBER = st.integers(0, 30)


class OffsetsMachine(RuleBasedStateMachine):
    """Against Python's set."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = Offsets()
        self.model: set[int] = set()

    @rule(offset=NUMBER)
    def add(self, offset: int) -> None:
        self.offsets.add(offset)
        self.model.add(offset)

    @rule(offset=NUMBER)
    def discard(self, offset: int) -> None:
        self.offsets.discard(offset)
        self.model.discard(offset)

    @rule(start=NUMBER, end=NUMBER)
    def between(self, start: int, end: int) -> None:
        expected = [each for each in range(start, end) if each in self.model]
        assert self.offsets.between(start, end) == expected

    @invariant()
    def same_members(self) -> None:
        assert len(self.offsets) == len(self.model)
        assert all(each in self.offsets for each in self.model)


TestOffsets = OffsetsMachine.TestCase
