"""What stands around a run: it hears of bugs, and leaves nothing behind."""

from __future__ import annotations

import gc
import logging

import pytest

from tests.simulation.guard import WRONG_LEDGER, guarded
from tests.simulation.world import World

LOG = logging.getLogger("ackd.engine")


class Small:
    """A run that logs something, and something more while it is taken apart."""

    def __init__(self) -> None:
        self.world = World(1)
        self.cleaned = 0

    def log(self, text: str, error: Exception | None = None) -> None:
        """As the engine does, in an event of its own."""
        self.world.after(1, lambda: LOG.error(text, exc_info=error))
        self.world.run(self.world.now_us + 1)

    def clean_up(self) -> None:
        """Tasks that are closed may log that they did not end well."""
        self.cleaned += 1
        LOG.error("cancelled", exc_info=OSError())


def state() -> object:
    """What all runs of a process share."""
    logger = logging.getLogger("ackd")
    return gc.isenabled(), logger.level, logger.propagate, [*logger.handlers]


@pytest.mark.parametrize(
    ("text", "error", "found"),
    [
        ("left", OSError("gone"), "bug: left: OSError('gone')"),
        (f"0: {WRONG_LEDGER}", None, f"I8: 0: {WRONG_LEDGER}"),
        ("the store is away", None, None),
    ],
)
def test_what_a_run_logs_is_judged(text: str, error: Exception | None, found: str | None) -> None:
    before = state()
    with guarded(Small) as guard:
        assert not gc.isenabled()
        guard.run.log(text, error)
    assert guard.violation == found
    assert guard.run.cleaned == 1
    assert guard.run.world.failure is None or found
    assert state() == before


def test_a_violation_ends_the_run_and_is_noted() -> None:
    before, after = state(), list[str]()
    with guarded(Small) as guard:
        guard.run.world.after(1, guard.run.world.fail, "I1: lost")
        guard.run.world.run(guard.run.world.now_us + 1)
        after.append("the run goes on")
    assert (guard.violation, guard.run.cleaned, after) == ("I1: lost", 1, [])
    assert state() == before


def test_an_error_of_the_simulator_itself_is_none_of_its_findings() -> None:
    before = state()
    with pytest.raises(ZeroDivisionError), guarded(Small) as guard:
        guard.run.log(str(1 // 0))
    assert guard.run.cleaned == 1
    assert state() == before


def test_a_run_that_can_not_be_made_leaves_nothing_behind() -> None:
    def make() -> Small:
        raise KeyError("unknown setting")

    before = state()
    with pytest.raises(KeyError), guarded(make):
        pass
    assert state() == before
