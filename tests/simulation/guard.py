"""What stands around every run: ackd's log is listened to, and nothing of a run outlives it."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tests.simulation.world import Violation, World

WRONG_LEDGER = "the ledger is wrong"
"""The engine says so in its log, and reads the record again."""


class Runs(Protocol):
    """A run that can be taken apart."""

    world: World

    def clean_up(self) -> None:
        """Take everything apart, so that the next run starts clean."""


R = TypeVar("R", bound=Runs)


@dataclass(slots=True)
class Guarded(Generic[R]):
    """A run, and what it was found to break."""

    run: R
    violation: str | None = None


class _Alarm(logging.Handler):
    """A bug that the engine survived: an error that it logs with a traceback, or a ledger whose
    own invariants do not hold.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Break the run off."""
        if record.exc_info:
            self._world.fail(f"bug: {record.getMessage()}: {record.exc_info[1]!r}")
        elif WRONG_LEDGER in record.getMessage():
            self._world.fail(f"I8: {record.getMessage()}")


@contextmanager
def guarded(make: Callable[[], R]) -> Iterator[Guarded[R]]:
    """Make a run, hold the collector meanwhile, note its violation and take it apart again.

    What its tasks log while they are closed counts no more.
    """
    collecting = gc.isenabled()
    gc.disable()
    logger = logging.getLogger("ackd")
    before, propagates = logger.level, logger.propagate
    try:
        guard = Guarded(make())
        alarm = _Alarm(guard.run.world)
        logger.setLevel(logging.ERROR)
        logger.addHandler(alarm)
        logger.propagate = False
        try:
            yield guard
        except Violation as found:
            guard.violation = str(found)
        finally:
            logger.removeHandler(alarm)
            logger.setLevel(logging.CRITICAL + 1)
            guard.run.clean_up()
    finally:
        logger.setLevel(before)
        logger.propagate = propagates
        if collecting:
            gc.enable()
