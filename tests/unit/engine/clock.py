"""Test time: an event loop on which nothing waits. It jumps to the next timer when all is done."""

import asyncio
import selectors
from math import ceil

US_PER_S = 1_000_000
STUCK_S = 10


class TestClock:
    """Implements `ackd.ports.Clock`. Both of its times begin at an hour."""

    __test__ = False

    def __init__(self) -> None:
        self.now_us = 3_600 * US_PER_S

    def monotonic_ms(self) -> int:
        return self.now_us // 1_000

    def wall_ms(self) -> int:
        return self.now_us // 1_000

    def pass_ms(self, ms: int) -> None:
        """Let so much time pass, without a turn of the loop."""
        self.now_us += ms * 1_000


class _JumpingSelector(selectors.SelectSelector):
    """Lets time pass instead of waiting."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            found = super().select(STUCK_S)
            assert found, "everything waits, and no timer is set"
            return found
        self._clock.now_us += ceil(timeout * US_PER_S - 0.01)
        return super().select(0)


class TestTimeLoop(asyncio.SelectorEventLoop):
    """Its `time` is that of `clock`."""

    __test__ = False

    def __init__(self) -> None:
        self.clock = TestClock()
        super().__init__(_JumpingSelector(self.clock))

    def time(self) -> float:
        return self.clock.now_us / US_PER_S
