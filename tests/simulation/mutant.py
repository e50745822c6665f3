"""What a planted mistake is; the list of them is in `mutants`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from unittest.mock import patch

from ackd.core.record import transitions as states
from ackd.core.record.transitions import Phase, TransitionStep, Verb
from tests.simulation import inside
from tests.simulation.parts import PARTS, Parts
from tests.simulation.plan import ANY, Story
from tests.simulation.run import Outcome, simulate

Rows = Mapping[tuple[Phase, Verb], TransitionStep]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake: `parts` of the simulator, `rows` of the transition table, or a name in `inside`.

    `story`: what it needs to matter. `first`: the seed to begin with, if it is seldom seen.
    """

    name: str
    rule: str
    parts: Parts = PARTS
    story: Story = ANY
    first: int = 0
    rows: Rows = field(default_factory=dict)

    def run(self, seed: int) -> Outcome:
        """One run with the mistake."""
        within = inside.TABLE.get(self.name)
        with ExitStack() as planted:
            planted.enter_context(patch.dict(states.TABLE, self.rows))
            if within is not None:
                planted.enter_context(within.planted())
            return simulate(seed, self.story, parts=self.parts)
