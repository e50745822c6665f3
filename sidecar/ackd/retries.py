"""Repeat one call until it succeeds: tenacity's loop with the waits of a `Backoff` (ADR 15).

For calls to a store, a broker or a collector that nobody on the way of a message waits for. A loop
that decides anew after each failure whether and what to try stays a loop of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_delay, stop_never

from ackd.core.backoff import Backoff, middle

E = TypeVar("E", bound=Exception)


def waits(
    backoff: Backoff, random: Callable[[], float] = middle
) -> Callable[[RetryCallState], float]:
    """`backoff` as tenacity's `wait`, in seconds."""

    def wait_s(state: RetryCallState) -> float:
        return backoff.delay_ms(state.attempt_number, random) / 1000

    return wait_s


def repeating(
    errors: type[E] | tuple[type[E], ...],
    backoff: Backoff,
    *,
    only: Callable[[E], bool] | None = None,
    failed: Callable[[E], None] | None = None,
    within_s: float | None = None,
) -> AsyncRetrying:
    """Call the result with an async function: it is called again after each of `errors` (that
    `only` selects). Other errors are raised, and these too after `within_s` seconds.

    `failed` learns of each error that is followed by another try.
    """

    def again(error: BaseException) -> bool:
        return isinstance(error, errors) and (only is None or only(error))

    def report(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if failed is not None and isinstance(error, errors):
            failed(error)

    return AsyncRetrying(
        retry=retry_if_exception(again),
        wait=waits(backoff),
        stop=stop_never if within_s is None else stop_after_delay(within_s),
        before_sleep=report,
        sleep=asyncio.sleep,
        reraise=True,
    )
