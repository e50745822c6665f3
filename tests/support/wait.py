"""Wait for a condition with a bound, instead of sleeping and hoping."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
Ignored = tuple[type[Exception], ...]


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


async def wait_until_async(
    condition: Callable[[], Awaitable[T]],
    what: str,
    *,
    timeout_s: float = 60.0,
    interval_s: float = 0.02,
    ignoring: Ignored = (),
) -> T:
    """As `wait_until` for a coroutine function; a single call is bounded by the same time-out."""
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
