"""How many seeds of the general world each planted mistake needs, without a hint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import GENERAL
from tests.simulation.run import simulate


def needed(mutant: Mutant, most: int) -> int | None:
    """The number of seeds from 0 on until one finds it that finds nothing without it."""
    hidden = replace(mutant, story=GENERAL)
    for seed in range(most):
        if hidden.run(seed).violation is not None and simulate(seed, GENERAL).violation is None:
            return seed + 1
    return None


def table(most: int) -> Iterator[str]:
    """A line for each."""
    for mutant in MUTANTS:
        found = needed(mutant, most)
        seeds = f"not in {most}" if found is None else str(found)
        yield f"{seeds:>12}  {mutant.rule:<4} {mutant.name}"
