"""What a planted mistake is; the list of them is in `mutants`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation.plan import ANY, Story


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake. `story`: what it needs to matter. `first`: the seed to begin with, if it is
    seldom seen.
    """

    name: str
    rule: str
    plant: Callable[[], Any]
    story: Story = ANY
    first: int = 0
