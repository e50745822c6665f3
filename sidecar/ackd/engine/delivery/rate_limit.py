"""Rate limit of a subscription: tokens that this sidecar has taken from the store, one for each
message.

All sidecars share the store's bucket, which runs on the store's clock, so together they never
deliver more than the burst plus what the elapsed time brought. A sidecar takes what its waiting
receives can use now, or a small slice more, so that not every receive costs a call. Tokens that a
sidecar holds are lost with it, and lapse when it does not use them: it may then deliver less, never
more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import ceil

from ackd.config.units import SECOND_MS
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.base.tasks import Tasks
from ackd.engine.cluster.membership import Membership
from ackd.errors import StoreError

SLICE_MS = 50
"""How many ms of the rate all sidecars together may hold unused."""
HOLD_MS = 250
PAUSE_MS = 10
"""Least time between two asks when the bucket is empty and only trickles."""
PAUSE_MS_MAX = 1_000


class RateLimit:
    """Calls `came` when tokens have come, or when the store has none."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        membership: Membership,
        came: Callable[[], None],
    ) -> None:
        self._state = state
        self._membership = membership
        self._context = context
        self._came = came
        self._tasks = Tasks(f"rate.{state.name}", context.vitals)
        self._tokens = 0
        self._until_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self.asking = False

    @property
    def limited(self) -> bool:
        """Whether the settings have a rate."""
        return self._state.settings.rate_per_s > 0

    @property
    def exhausted(self) -> bool:
        """Whether a receive waits for tokens. A sidecar without receives has no tokens either,
        but the rate does not limit it.
        """
        return self.limited and not self.left() and (self.asking or self._timer is not None)

    def left(self) -> int:
        """Return how many messages may be delivered now."""
        if self._tokens and self._context.clock.monotonic_ms() >= self._until_ms:
            self._tokens = 0
        return self._tokens

    def spend(self, count: int) -> None:
        """Use up tokens for `count` leases that are being asked for."""
        if self.limited:
            self._tokens -= count

    def give_back(self, count: int) -> None:
        """Return the tokens of `count` leases that the store certainly did not grant."""
        if self.limited and count:
            self._hold(count)

    def want(self, count: int) -> None:
        """Ask the store for tokens for `count` messages, unless a call is under way or it is too
        early.
        """
        if not self.asking and self._timer is None:
            self.asking = True
            self._tasks.start(self._ask(count), "take", ends=True)

    async def stop(self) -> None:
        """Cancel the timer and the call that is under way."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.stop()

    # --- asking

    async def _ask(self, count: int) -> None:
        settings, name = self._state.settings, self._state.name
        rate_per_s = settings.rate_per_s
        pause_ms = PAUSE_MS
        try:
            if rate_per_s > 0:
                burst = burst_of(rate_per_s, settings.rate_burst)
                wanted = max(count, self._slice(rate_per_s))
                taken = await self._context.store.take(name, wanted, rate_per_s, burst)
                if taken.granted:
                    self._hold(taken.granted)
                if taken.granted < wanted:
                    pause_ms = max(taken.wait_ms, PAUSE_MS)
                    self._context.metrics.rate_waits.at(name).inc()
                else:
                    pause_ms = 0
        except StoreError:
            pause_ms = PAUSE_MS_MAX
        finally:
            self.asking = False
        if pause_ms:
            pause_s = min(pause_ms, PAUSE_MS_MAX) / SECOND_MS
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._again)
        self._came()

    def _slice(self, rate_per_s: float) -> int:
        sidecars = len(self._membership.alive) + 1
        return max(int(rate_per_s * SLICE_MS / SECOND_MS / sidecars), 1)

    def _hold(self, count: int) -> None:
        self._tokens = self.left() + count
        self._until_ms = self._context.clock.monotonic_ms() + HOLD_MS

    def _again(self) -> None:
        self._timer = None
        self._came()


def burst_of(rate_per_s: float, burst: int) -> int:
    """Return the burst: as set (0: one second's rate), and at least what comes between two asks."""
    return max(burst or ceil(rate_per_s), ceil(rate_per_s * SLICE_MS / SECOND_MS), 1)
