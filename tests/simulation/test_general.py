"""The general world: everything that a subscription can ask for, in any combination."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest

from ackd.core.record.transitions import TABLE
from tests.simulation.__main__ import rerun, story_of
from tests.simulation.coverage import SELDOM, Coverage
from tests.simulation.draw import draw
from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import GENERAL, Story
from tests.simulation.run import simulate
from tests.simulation.shrink import ddmin, rule_of, shrink_mutant
from tests.simulation.stories import arguments
from tests.simulation.world import World
from tests.support.paths import REPO

FROM = "ACKD_SIMULATE_FROM"
"""The first fresh seed, to repeat those of another run."""
FRESH_SEEDS = 0
"""None until 600 in a row were clean."""
SEEDS = 100
BESIDE_THEM = (215,)
"""Seeds of rows that the hundred do not reach: a message is given up while its lease lives."""
FOUND = (3797480076, 120036, 700076, 700111, 700175, 700218, 810171, 810133, 810402, 900178)
"""Seeds that showed a mistake of ackd or of its judge, as they are drawn today; see the test of
each mistake, too: what is drawn may change. In their order: a copy that was replaced is put aside
when its key is lost; the rate counted repeats, whose tokens are given back; what the log lost on
its way to the retry topic blocked its key (`test_blocked_keys.py`); and errors of the judge
(`test_judge.py`): about an ack while a seek runs, a lease that was made shorter, one that an
operator had ended, and those that a seek passes in a topic that was deleted. The last two: leases
that go on in the retry topic were not in flight (`test_send_back.py`), and a cancel ended the
message of that id in a topic that was made again (`test_cancel.py`)."""


def _fresh() -> int:
    return int(os.environ.get(FROM) or int.from_bytes(os.urandom(4)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fresh_seeds_break_nothing() -> None:
    """Other ones in each run, printed; more with `make simulate`."""
    first = _fresh()
    print(f"{FRESH_SEEDS} seeds: {FROM}={first}")  # noqa: T201 - to repeat it
    for seed in (*FOUND, *range(first, first + FRESH_SEEDS)):
        outcome = simulate(seed, GENERAL)
        assert outcome.violation is None, f"{FROM}={first}\n{rerun(outcome)}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_most_transitions_are_reached() -> None:
    """By the same seeds in each run, none of which breaks an invariant."""
    coverage = Coverage()
    for seed in (*range(SEEDS), *BESIDE_THEM):
        outcome = simulate(seed, GENERAL)
        coverage.add(outcome.coverage)
        assert outcome.violation is None, rerun(outcome)
    missing = [f"{p.name}+{v.name}" for p, v in coverage.missing() if (p, v) not in SELDOM]
    assert not missing, f"{SEEDS} seeds never reach {missing}"


def test_what_is_called_seldom_is_a_transition() -> None:
    """Else the list hides a name that is gone."""
    assert set(TABLE) >= SELDOM


# --- repeating and shrinking


def test_the_printed_command_repeats_a_small_run() -> None:
    """Some faults and a feature left out: the same trace in another process."""
    story = Story(settings=(*GENERAL.settings, ("keys", 0), ("messages", 12)), keep=(0, 2))
    failed = replace(simulate(3, story), violation="I1: as if")
    *_, again = rerun(failed).splitlines()
    command = shlex.split(again.partition(": ")[2])
    assert story_of(command[3:]) == story
    said = subprocess.run(
        [sys.executable, *command[1:]], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert failed.digest in said.stdout, said.stderr


@pytest.mark.parametrize("keep", [None, (), (1,), (0, 3)])
def test_a_story_of_the_general_world_can_be_told_again(keep: tuple[int, ...] | None) -> None:
    """With what is left out, and with nothing left in."""
    story = replace(GENERAL, keep=keep)
    assert story_of(arguments(story)) == story
    told = replace(story, settings=(*GENERAL.settings, ("peers", 0), ("apps", 1)))
    assert story_of(arguments(told)) == told


def test_a_fault_that_is_left_out_changes_no_other() -> None:
    """When they come and of which kinds they are; also where a feature is left out."""
    seed = next(each for each in range(100) if len(draw(World(each), GENERAL).acts) > 6)
    whole = draw(World(seed), GENERAL)
    kept = replace(GENERAL, keep=tuple(range(0, len(whole.acts), 2)))
    assert draw(World(seed), kept).acts == whole.acts[::2]
    off = replace(kept, settings=(*GENERAL.settings, ("messages", 5), ("stuck_ms", 0)))
    assert draw(World(seed), off).acts == whole.acts[::2]


@pytest.mark.parametrize("seed", range(5))
def test_ddmin_finds_what_is_needed(seed: int) -> None:
    """No more than that, wherever it stands among the others."""
    needed = set(Random(seed).sample(range(40), seed))
    found = ddmin(range(40), lambda kept: needed <= set(kept))
    assert set(found) == needed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_failing_run_is_made_small() -> None:
    """Of a planted mistake: the same rule is broken by fewer faults and messages."""
    mutant = next(each for each in MUTANTS if each.name == "any token of a message counts")
    wrong = replace(mutant, story=GENERAL)
    failed = next(o for o in map(wrong.run, range(80)) if o.violation is not None)
    small = shrink_mutant(failed, wrong)
    assert rule_of(small.violation) == rule_of(failed.violation)
    before, after = draw(World(failed.seed), GENERAL), draw(World(failed.seed), small.story)
    assert len(after.acts) <= 2, rerun(small)
    assert after.messages < before.messages, rerun(small)
    assert replace(wrong, story=story_of(arguments(small.story))).run(failed.seed) == small
