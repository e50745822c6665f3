"""How long a test's own process got no processor: what it measures is late by as much."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.limits import FIGURES

TICK_S = 0.005


@dataclass
class Starved:
    """For how long this process did not run though it wanted to: nobody can be served faster. Where
    figures are shown this is no excuse.
    """

    longest: list[tuple[float, float]] = field(default_factory=list)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """A thread watches meanwhile."""
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        before = time.monotonic()
        while not over.is_set():
            time.sleep(TICK_S)
            now = time.monotonic()
            if now - before > 4 * TICK_S and not FIGURES:
                self.longest.append((before, now))
            before = now

    def within(self, begin_s: float, end_s: float) -> float:
        """Seconds of an interval."""
        spans = ((max(a, begin_s), min(b, end_s)) for a, b in self.longest)
        return sum(max(b - a, 0.0) for a, b in spans)
