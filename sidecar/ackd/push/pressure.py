"""Keeps a message for an application that asks for pauses, so that they cost no attempt.

429 and 503 with `Retry-After` say something about the application, not about the message. One call
of a sidecar at a time keeps its messages under their leases, and sends them again after each pause:
nothing is spent, however short the pauses are. Other messages go back to the queue uncounted, of
which each has a hundred (rule R28).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ackd.api.messages import Delivery, Engine
from ackd.config.push import PushSettings
from ackd.push.answer import PushVerdict
from ackd.push.call_limit import CallLimit
from ackd.push.push_delivery import PushDelivery
from ackd.telemetry.metrics import Metrics

LOG = logging.getLogger("ackd.push")

SOURCE = "push"
WARN_AFTER_S = 60.0


class Pressure:
    """The pauses that one application asks for."""

    def __init__(
        self,
        name: str,
        settings: PushSettings,
        engine: Engine,
        delivery: PushDelivery,
        calls: CallLimit,
        metrics: Metrics,
    ) -> None:
        self._name = name
        self._throttled = metrics.push_throttled.at(name)
        self._throttled.set(0)
        self._hold_s = settings.pressure_hold_ms / 1000 if settings.auto_extend else 0.0
        self._engine = engine
        self._delivery = delivery
        self._calls = calls
        self._now = asyncio.get_running_loop().time
        self._stopped = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._keep_until_s = 0.0
        self._since_s: float | None = None
        self._warned = False

    def stop(self) -> None:
        """Keep nothing any more: what is kept goes back."""
        self._stopped.set()

    def over(self) -> None:
        """Note that the application answered without asking for a pause."""
        if self._warned:
            LOG.info("%s: the application asks for no more pauses, push goes on", self._name)
            self._throttled.set(0)
            self._engine.warn(self._name, SOURCE, None)
        self._since_s, self._warned = None, False

    def asked(self, verdict: PushVerdict) -> str:
        """Note that the application asked for a pause. Returns that in words, for `explain`."""
        if self._since_s is None:
            self._since_s = self._now()
        seconds = self._now() - self._since_s
        if seconds >= WARN_AFTER_S and not self._warned:
            self._warned = True
            LOG.warning(
                "%s: the application has answered every call for %.0f s by asking for a pause (%s);"
                " messages wait, and one that goes back a hundred times uses up its attempts then",
                self._name,
                seconds,
                verdict.reason,
            )
            self._throttled.set(1)
            self._engine.warn(
                self._name,
                SOURCE,
                f"the application answers every call by asking for a pause ({verdict.reason}), for "
                "more than a minute; messages wait, and use up their attempts in the end",
            )
        since = f", for {seconds:.0f} s now" if seconds >= 1 else ""
        return f"the application asked for a pause ({verdict.reason}){since}"

    async def wait(self, messages: Sequence[Delivery], verdict: PushVerdict) -> Sequence[Delivery]:
        """Keep the messages of this task for the pause, or put them back. Returns those to send
        again. A pause that another call was asked for meanwhile counts, too.
        """
        pause_s = verdict.pause_ms / 1000
        while messages and pause_s > 0:
            held = self._keeps(pause_s)
            if held:
                messages = await self._delivery.hold(messages, pause_s, self._stopped)
            if messages and (not held or self._is_held_back()):
                await self._delivery.put_back(messages, verdict)
                return []
            pause_s = self._calls.wait_s(self._now())
        return messages

    def _is_held_back(self) -> bool:
        """Whether nothing may be sent, though the pause is over."""
        paused = self._engine.subscription(self._name).pauses
        return self._stopped.is_set() or self._calls.broken or bool(paused)

    def _keeps(self, pause_s: float) -> bool:
        """Whether this task keeps its messages: no other does, and the time for it lasts."""
        now_s, task = self._now(), asyncio.current_task()
        if self._keeper is None or self._keeper.done():
            self._keeper, self._keep_until_s = task, now_s + self._hold_s
        return (
            self._keeper is task
            and not self._stopped.is_set()
            and now_s + pause_s <= self._keep_until_s
        )
