"""Wait for a condition with a bound, instead of sleeping and hoping."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
Ignored = tuple[type[Exception], ...]
BEAT_S = 0.25
TOLD_S = 1.0


class WaitTimeoutError(AssertionError):
    """The condition did not come true in time; the message says which and what was seen last."""


def wait_until(
    condition: Callable[[], T],
    what: str,
    *,
    timeout_s: float = 60.0,
    interval_s: float = 0.02,
    ignoring: Ignored = (),
) -> T:
    """Call `condition` until its answer is true and return that answer.

    Errors named in `ignoring` count as "not yet". After `timeout_s` a WaitTimeoutError tells
    `what`.
    """
    end = time.monotonic() + timeout_s
    seen: object = None
    while True:
        try:
            answer = condition()
        except ignoring as error:
            seen = error
        else:
            if answer:
                return answer
            seen = answer
        if time.monotonic() >= end:
            raise WaitTimeoutError(f"not within {timeout_s} s: {what}; last seen: {seen!r}")
        time.sleep(interval_s)


class _Beat:
    """Sees for how long the event loop stood still: then nothing was waited for, nothing ran."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._next_s = self._loop.time()
        self._beat()

    def _beat(self) -> None:
        now_s = self._loop.time()
        self.longest_s = max(self.longest_s, now_s - self._next_s)
        self._next_s = now_s + BEAT_S
        self._timer = self._loop.call_at(self._next_s, self._beat)

    def end(self) -> str:
        """What is to be told of it."""
        self._timer.cancel()
        late_s = max(self.longest_s, self._loop.time() - self._next_s)
        return f"; the event loop stood still for {late_s:.1f} s" if late_s > TOLD_S else ""


async def wait_until_async(
    condition: Callable[[], Awaitable[T]],
    what: str,
    *,
    timeout_s: float = 60.0,
    interval_s: float = 0.02,
    ignoring: Ignored = (),
) -> T:
    """As `wait_until` for a coroutine function; a single call is bounded by the same time-out."""
    beat = _Beat()
    try:
        return await _wait(condition, what, timeout_s, interval_s, ignoring)
    except WaitTimeoutError as error:
        raise WaitTimeoutError(f"{error}{beat.end()}") from None
    finally:
        beat.end()


async def _wait(
    condition: Callable[[], Awaitable[T]],
    what: str,
    timeout_s: float,
    interval_s: float,
    ignoring: Ignored,
) -> T:
    end = time.monotonic() + timeout_s
    seen: object = None
    cut = ""
    while True:
        try:
            async with asyncio.timeout(max(end - time.monotonic(), 0.001)):
                answer = await condition()
        except TimeoutError:
            cut = ", and a call that had no end"
        except ignoring as error:
            seen = error
        else:
            if answer:
                return answer
            seen = answer
        if time.monotonic() >= end:
            raise WaitTimeoutError(f"not within {timeout_s} s: {what}; last seen: {seen!r}{cut}")
        await asyncio.sleep(interval_s)
