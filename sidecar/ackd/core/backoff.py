"""How long to wait before the next try: waits grow with each failure, up to a ceiling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def middle() -> float:
    """A source of no randomness: waits as long as they would be without jitter."""
    return 0.5


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits of one kind of try. Holds no state: callers count their failures."""

    base_ms: int
    ceiling_ms: int
    factor: float = 2.0
    jitter: float = 0.0
    """The share by which a wait may be shorter or longer, the ceiling included. It keeps clients
    that failed together from trying again together.
    """

    @classmethod
    def constant(cls, wait_ms: int) -> Backoff:
        """Waits that do not grow."""
        return cls(wait_ms, wait_ms)

    def delay_ms(self, failures: int, random: Callable[[], float] = middle) -> int:
        """The wait after this many failures in a row (1 = the first). `random` returns 0 to 1."""
        try:
            full_ms = self.base_ms * self.factor ** max(failures - 1, 0)
        except OverflowError:
            full_ms = self.ceiling_ms
        spread = 1 + self.jitter * (2 * random() - 1)
        return int(min(full_ms, self.ceiling_ms) * spread)
