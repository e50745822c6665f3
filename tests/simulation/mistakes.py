"""How many seeds of the general world each planted mistake needs, without a hint.

A seed whose plan has nothing of what the mistake is about is counted and not run: the mistake is
never reached there. So a budget of 300 seeds takes the time of some tens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tests.simulation.draw import draw
from tests.simulation.general import FORGETS, OPERATOR, SELDOM
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import GENERAL, Plan
from tests.simulation.run import simulate
from tests.simulation.world import World

ABOUT: Final = (
    "push", "outbox", "forgers", "foreign_delays", "replays", "rate", "in_flight", "breaker",
    "keys", "ordered", "stuck_ms",
)  # fmt: skip
"""What a run has or has not."""
SPECIAL: Final = frozenset((*FORGETS, *OPERATOR, *SELDOM))
"""Faults for which no other one can stand in."""


def concerns(mutant: Mutant, plan: Plan) -> bool:
    """The plan has each feature that its story turns on, and a fault that its story is about."""
    settings = dict(mutant.story.settings)
    if any(settings.get(name) and not getattr(plan, name) for name in ABOUT):
        return False
    if plan.peers < settings.get("peers", 0):
        return False
    wanted = SPECIAL & set(mutant.story.faults)
    return not wanted or any(act.kind in wanted for act in plan.acts)


def needed(mutant: Mutant, most: int) -> int | None:
    """The number of seeds from 0 on until one finds it that finds nothing without it."""
    hidden = replace(mutant, story=GENERAL)
    for seed in range(most):
        if not concerns(mutant, draw(World(seed), GENERAL)):
            continue
        if hidden.run(seed).violation is not None and simulate(seed, GENERAL).violation is None:
            return seed + 1
    return None


def table(most: int) -> Iterator[str]:
    """A line for each."""
    for mutant in MUTANTS:
        found = needed(mutant, most)
        seeds = f"not in {most}" if found is None else str(found)
        yield f"{seeds:>12}  {mutant.rule:<4} {mutant.name}"
