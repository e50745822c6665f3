"""Virtual time, randomness and the trace of one run. All that happens is an event in here."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")
START_US = 1_700_000_000_000_000
MS = 1_000
S = 1_000_000
EVENTS_MAX = 3_000_000
TRACE_MAX = 100_000


class Violation(AssertionError):  # noqa: N818 - it is what was found, not what went wrong here
    """An invariant or rule was broken; the message starts with its name."""


class World:
    """The scheduler. Two runs with one seed do the same things in the same order."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = START_US
        self.events = 0
        self.failure: Violation | None = None
        self._heap: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._seq = 0
        self._trace: list[tuple[object, ...]] = []
        self._hash = blake2b(digest_size=16)

    # --- chance

    def random(self, name: str) -> Random:
        """A stream of its own for each part, so that one part's draws don't shift another's."""
        return Random(f"{self.seed}/{name}")

    # --- time

    @property
    def at_ms(self) -> int:
        """Milliseconds since the start of the run."""
        return (self.now_us - START_US) // MS

    def at(self, when_us: int, action: Callable[[Unpack[Ts]], None], *args: *Ts) -> None:
        """Do something at a moment (not before now)."""
        self._seq += 1
        heappush(self._heap, (max(when_us, self.now_us), self._seq, action, args))

    def after(self, delay_us: int, action: Callable[[Unpack[Ts]], None], *args: *Ts) -> None:
        """Do something after a delay."""
        self.at(self.now_us + delay_us, action, *args)

    def run(self, until_us: int, done: Callable[[], bool] | None = None) -> bool:
        """Let things happen until a moment, or until `done`. Raises Violation."""
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            when_us, _, action, args = heappop(heap)
            self.now_us = when_us
            self.events += 1
            action(*args)
            if self.failure is not None:
                raise self.failure
            if done is not None and done():
                return True
        if self.events > EVENTS_MAX:
            raise Violation("I8: the run does not come to rest")
        self.now_us = max(self.now_us, until_us)
        return done is not None and done()

    def clear(self) -> None:
        """The run is over: forget what was still to happen."""
        self._heap.clear()

    # --- what was seen

    def note(self, who: str, what: str, *facts: object) -> None:
        """A line of the trace."""
        line = (self.at_ms, who, what, *facts)
        self._hash.update(repr(line).encode())
        self._trace.append(line)
        if len(self._trace) > TRACE_MAX:
            del self._trace[: TRACE_MAX // 2]

    def fail(self, message: str) -> None:
        """Break off the run: an invariant is broken. Safe to call from inside production code."""
        if self.failure is None:
            self.note("checker", "violation", message)
            self.failure = Violation(message)

    def digest(self) -> str:
        """Equal for equal runs."""
        return self._hash.hexdigest()

    def tail(self, lines: int, about: str = "") -> str:
        """The end of the trace, only lines with `about` in them if that is given."""
        texts = [_text(line) for line in self._trace]
        found = [text for text in texts if about in text]
        return "\n".join(found[len(found) - min(lines, len(found)) :])


def _text(line: tuple[object, ...]) -> str:
    at_ms, who, what, *facts = line
    return f"{at_ms:>7} {who:<10} {what} " + " ".join(map(str, facts))
