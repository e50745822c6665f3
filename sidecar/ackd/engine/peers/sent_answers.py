"""Answers to other sidecars of which nobody has said yet whether they were taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

LEASES_MAX = 100_000
"""Most leases that are kept, of one subscription (I8), some 200 bytes each. Beyond, the answer that
was sent first is forgotten: is it lost, its leases end at their deadlines.
"""
STALE_MIN = 64
"""With fewer entries of the heap than this for answers that were confirmed, it stays as it is."""


class AnswerKey(NamedTuple):
    """A request: the process that asks, and its number."""

    instance: str
    number: int


@dataclass(frozen=True, slots=True)
class SentAnswer:
    """What an answer held, and when the leases end on this process's clock."""

    name: str
    leases: Sequence[str]
    until_ms: int


class SentAnswers:
    """Each until it is confirmed, its leases have ended, or the other process is gone."""

    def __init__(self) -> None:
        self._answers: dict[AnswerKey, SentAnswer] = {}
        self._ends: list[tuple[int, AnswerKey]] = []
        self._leases = 0

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, key: AnswerKey) -> bool:
        return key in self._answers

    def add(self, key: AnswerKey, answer: SentAnswer) -> None:
        """An answer is on its way."""
        self._answers[key] = answer
        self._leases += len(answer.leases)
        heappush(self._ends, (answer.until_ms, key))
        while self._leases > LEASES_MAX:
            self.take(next(iter(self._answers)))

    def take(self, key: AnswerKey) -> SentAnswer | None:
        """Forget an answer; None if it is not known (any more)."""
        found = self._answers.pop(key, None)
        if found is not None:
            self._leases -= len(found.leases)
            if len(self._ends) > 2 * len(self._answers) + STALE_MIN:
                self._ends = [(each.until_ms, key) for key, each in self._answers.items()]
                heapify(self._ends)
        return found

    def forget_ended(self, now_ms: int) -> None:
        """Forget those whose leases have ended."""
        while self._ends and self._ends[0][0] <= now_ms:
            _, key = heappop(self._ends)
            self.take(key)

    def forget_others(self, name: str, instance: str) -> None:
        """A sidecar has begun again as this process: whatever an earlier one was sent is lost with
        it, and ends by itself.
        """
        before = [
            key
            for key, each in self._answers.items()
            if each.name == name and key.instance != instance
        ]
        for key in before:
            self.take(key)
