"""Makes a failing run small: the fewest faults, features and messages that still break the rule.

What is left out is said in the story (`--keep`, `--set`), so the small run is repeated by its
command, as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.simulation.draw import draw
from tests.simulation.mutant import Mutant
from tests.simulation.parts import PARTS, Parts
from tests.simulation.plan import Plan, Story
from tests.simulation.run import Outcome, simulate
from tests.simulation.world import World

FEATURES = (
    "push", "outbox", "forgers", "foreign_delays", "replays", "rate", "in_flight", "breaker",
    "keys", "ordered", "attempts", "stuck_ms", "wait_ms", "peers", "before",
)  # fmt: skip
"""What may be off, the least likely to matter first."""
SIZES = (("messages", 1), ("apps", 1), ("partitions", 1), ("sidecars", 1))
"""What may be less, with the least that there must be."""
RUNS_MAX = 400

Simulate = Callable[[int, Story], Outcome]


def ddmin(items: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """A part of `items` that fails, and of which no one can be left out (Zeller's)."""
    items, pieces = list(items), 2
    while items:
        size = max(len(items) // pieces, 1)
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            if fails(rest):
                items, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(pieces * 2, len(items))
    return items


def rule_of(violation: str | None) -> str:
    """I1, R2, ...: two violations of one rule are one mistake."""
    return "" if violation is None else violation.partition(":")[0]


class Shrinker:
    """Tries smaller stories of one seed. `runs`: how many it has tried."""

    def __init__(self, failed: Outcome, run: Simulate) -> None:
        self._seed = failed.seed
        self._rule = rule_of(failed.violation)
        self._run = run
        self.story = failed.story
        self.smallest = failed
        self.runs = 0

    def _fails(self, story: Story) -> bool:
        """And if so, it is the smallest."""
        if self.runs >= RUNS_MAX:
            return False
        self.runs += 1
        outcome = self._run(self._seed, story)
        if rule_of(outcome.violation) != self._rule:
            return False
        self.story, self.smallest = story, outcome
        return True

    def _plan(self) -> Plan:
        return draw(World(self._seed), self.story)

    def _set(self, name: str, value: int) -> Story:
        settings = tuple(each for each in self.story.settings if each[0] != name)
        return replace(self.story, settings=(*settings, (name, value)))

    def shrink(self) -> Outcome:
        """The smallest that was found."""
        self._faults()
        for name in FEATURES:
            if getattr(self._plan(), name):
                self._fails(self._set(name, 0))
        for name, least in SIZES:
            self._less(name, least)
        self._faults()
        return self.smallest

    def _faults(self) -> None:
        numbers = [act.number for act in self._plan().acts]
        ddmin(numbers, lambda kept: self._fails(replace(self.story, keep=tuple(kept))))

    def _less(self, name: str, least: int) -> None:
        """Halve it while that fails, then go down by smaller steps."""
        step = getattr(self._plan(), name) // 2
        while step:
            now: int = getattr(self._plan(), name)
            if now - step < least or not self._fails(self._set(name, now - step)):
                step //= 2


def shrink(failed: Outcome, parts: Parts = PARTS) -> Outcome:
    """The smallest run like this one, of production code or of wrong parts."""
    return Shrinker(failed, lambda seed, story: simulate(seed, story, parts=parts)).shrink()


def shrink_mutant(failed: Outcome, mutant: Mutant) -> Outcome:
    """The same with a planted mistake."""
    return Shrinker(failed, lambda seed, story: replace(mutant, story=story).run(seed)).shrink()
