"""How many messages lie ready here and elsewhere, as heartbeats say it.

These numbers change with each message, and are no part of a member's entry, which all others read.
They lie beside the entries; who has a receive that waits asks for a few of them (ADR 28).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ackd.engine.cluster.members import ReportedReady, coarse, read_note
from ackd.ports import READY_MAX, Clock, Member, ReadyReport

WANT_MS = 60_000
"""Among many, a sidecar asks where messages lie ready for so long after a receive found none here.
"""
PAUSE_MS = 900
"""Among many it says another number, and asks, with each second heartbeat at most."""
VERY_MANY = 500
LONG_PAUSE_MS = 1_400
"""With so many other sidecars, with each third one."""


def pause_ms(others: int) -> int:
    """How long a sidecar neither asks again nor says another number."""
    return PAUSE_MS if others < VERY_MANY else LONG_PAUSE_MS


class ReadyCounts:
    """What this sidecar says of its ready messages, and hears of those of others.

    `elsewhere`: how many lie ready at whom; another object when a heartbeat has said that anew.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_notes = ReportedReady()
        self._older = False
        self._wanted_ms = self._ask_ms = self._say_ms = 0
        self._count = 0
        self.elsewhere: Mapping[str, int] = {}

    def want(self) -> None:
        """A receive has found nothing here: hear where messages lie ready."""
        self._wanted_ms = self._clock.monotonic_ms() + WANT_MS

    def report(self, ready: int, others: int) -> ReadyReport:
        """Say what others hear, and whether to hear of theirs. The number is rounded, so that it is
        written seldom. Few others are cheap to hear of, and may be asked at once.
        """
        now_ms, few = self._clock.monotonic_ms(), others <= READY_MAX
        wants = few or (now_ms < self._wanted_ms and now_ms >= self._ask_ms)
        if wants:
            self._ask_ms = now_ms + pause_ms(others)
        count = coarse(ready)
        if count != self._count and (few or now_ms >= self._say_ms):
            self._count, self._say_ms = count, now_ms + pause_ms(others)
        return ReadyReport(self._count, wants)

    def in_note(self, ready: int, others: int) -> int:
        """Say what a note tells sidecars of older builds: nothing where none is left."""
        return self._in_notes.count(ready, others, self._clock.monotonic_ms()) if self._older else 0

    def received(self, ready: Mapping[str, int] | None) -> None:
        """Take in what a heartbeat says of others; None: it was not asked."""
        if ready is not None:
            self.elsewhere = ready
        elif self.elsewhere and self._clock.monotonic_ms() >= self._wanted_ms:
            self.elsewhere = {}

    def others(self, alive: Iterable[Member]) -> None:
        """Look whether one of the living sidecars knows ready messages from notes only."""
        self._older = not all(read_note(each.note).counts for each in alive)
