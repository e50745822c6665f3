"""What operators change while a subscription runs: pause, resume, settings.

All sidecars share the live value through the store; each sidecar applies it as soon as a heartbeat
reply brings it. A pause of this sidecar alone (`pod`) is kept in memory and ends with the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ackd.api.control import Pause, Scope
from ackd.config.live_settings import overlaid, usable
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.base.context import Context
from ackd.engine.base.live import Halt, Live, read_live, write_live
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.errors import StoreError

LOG = logging.getLogger("ackd.engine")

TRIES = 5
_NEVER_THERE = b"?"


LiveObserver = Callable[[Live, Live], None]
"""Called with the live value before and after a change."""


class InForce(NamedTuple):
    """What is in force of a subscription. `sources`: `live` for each setting that differs from the
    configuration.
    """

    settings: SubscriptionSettings
    sources: Mapping[str, str] = {}
    live_version: int = 0
    pauses: Sequence[Pause] = ()


class Control:
    """The live value as this sidecar knows it; applies it and writes new versions."""

    def __init__(self, state: SubscriptionState, context: Context) -> None:
        self._state = state
        self._context = context
        self._there = b""
        self._pod: Pause | None = None
        self._unhealthy: Pause | None = None
        self._ahead_ms = context.clock.wall_ms() - context.clock.monotonic_ms()
        self._observers: tuple[LiveObserver, ...] = ()
        self._writers: tuple[LiveObserver, ...] = ()

    def connect(self, *observers: LiveObserver) -> None:
        """Call these observers with each new version of the live value, in this order."""
        self._observers += observers

    def connect_writer(self, *observers: LiveObserver) -> None:
        """Call these observers with each version that this sidecar itself has written."""
        self._writers += observers

    def inherit(self, before: Control) -> None:
        """Take over the state of the previous run of the subscription."""
        self._pod, self._ahead_ms = before._pod, before._ahead_ms
        self._unhealthy = before._unhealthy
        self._adopt(before._state.live)

    # --- receiving

    def received(self, there: bytes, now_ms: int) -> None:
        """A heartbeat's reply brought the live value and the store's time."""
        self._ahead_ms = now_ms - self._context.clock.monotonic_ms()
        self._see(there)
        self.look()

    def _see(self, there: bytes) -> None:
        if there == self._there:
            return
        self._there = there
        live = read_live(there)
        if live is None:
            LOG.warning(
                "%s: ackd can't read the live settings in the store, and keeps the last ones",
                self._state.name,
            )
        elif live.version >= self._state.live.version and live != self._state.live:
            self._adopt(live)

    async def ask(self) -> None:
        """Read the newest value now instead of with the next heartbeat. Raises StoreError."""
        name, store = self._state.name, self._context.store
        self._see(await store.set_live(name, _NEVER_THERE, b""))

    async def repair(self) -> None:
        """Write the live value back if the store forgot it. Raises StoreError."""
        there = read_live(self._there)
        if there is not None and there.version < self._state.live.version:
            LOG.warning(
                "%s: the store lost the live settings: this sidecar writes them again",
                self._state.name,
            )
            await self._write(self._state.live)

    def _adopt(self, live: Live) -> None:
        state, before = self._state, self._state.live
        kept = usable(state.configured, live.settings)
        if left_out := sorted(live.settings.keys() - kept.keys()):
            LOG.warning("%s: this sidecar can't use these live settings: %s", state.name, left_out)
        state.go_by(live, overlaid(state.configured, kept))
        if kept:
            LOG.info("%s: settings changed live now: %s", state.name, ", ".join(sorted(kept)))
        for observer in self._observers:
            observer(before, live)
        self.look()
        state.signals.timers()
        state.signals.deliver()

    def in_force(self) -> InForce:
        """Settings, where they come from, and pauses, as of now."""
        state = self._state
        sources = dict.fromkeys(usable(state.configured, state.live.settings), "live")
        return InForce(state.settings, sources, state.live.version, self.pauses())

    # --- pausing

    def pauses(self) -> list[Pause]:
        """Pauses in force now, the group's first."""
        now_ms = self.now_ms()
        all_of_them = (self._state.live.pause, self._pod, self._unhealthy, self._halted())
        return [
            p for p in all_of_them if p is not None and (p.until_ms is None or p.until_ms > now_ms)
        ]

    def look(self) -> None:
        """Take in which pauses are in force. When one has ended, serve the waiting requests."""
        state, pauses = self._state, self.pauses()
        here, everywhere = state.paused, state.paused_everywhere
        state.hold_deliveries(
            here=bool(pauses), everywhere=any(pause.scope == "group" for pause in pauses)
        )
        if here and not pauses:
            LOG.info("%s: delivery goes on: no pause is left", state.name)
        elif pauses and not here:
            LOG.warning("%s: delivery is paused: %s", state.name, pauses[0].reason)
        if (here and not state.paused) or (everywhere and not state.paused_everywhere):
            state.signals.deliver()

    async def pause(self, scope: Scope, reason: str, for_ms: int | None) -> None:
        """Deliver nothing. Replaces a pause of the same scope. Raises StoreError (`group`)."""
        now_ms = self.now_ms()
        until_ms = None if for_ms is None else now_ms + for_ms
        pause = Pause(scope, reason, now_ms, until_ms)
        if scope == "pod":
            self._pod = pause
        else:
            await self.change(lambda live: replace(live, pause=pause))
        self.look()

    def pause_unhealthy(self, why: str | None) -> None:
        """Deliver nothing at this sidecar because its application is unhealthy; None: it is
        healthy.
        """
        self._unhealthy = None if why is None else Pause("pod", why, self.now_ms())
        self.look()

    async def resume(self, scope: Scope) -> None:
        """End the pause of this scope, if there is one. Raises StoreError (`group`).

        Asks the store first: another sidecar may have paused a moment ago.
        """
        if scope == "pod":
            self._pod = None
        else:
            await self.ask()
            if self._state.live.pause is not None:
                await self.change(lambda live: replace(live, pause=None))
        self.look()

    @property
    def halted_for(self) -> str:
        """The operation for which this sidecar has let all its partitions go."""
        return self._state.live.halt.operation if self._state.live.halt is not None else ""

    def _halted(self) -> Pause | None:
        halt = self._state.live.halt
        if halt is None:
            return None
        return Pause("group", f"operation {halt.operation} is running", halt.since_ms)

    @property
    def group_paused(self) -> bool:
        """Whether a pause of the group is in force."""
        return any(p is self._state.live.pause for p in self.pauses())

    async def halt(self, operation: str) -> None:
        """Make every sidecar let its partitions go until `end_halt`. Raises StoreError."""
        await self.change(lambda live: replace(live, halt=Halt(operation, self.now_ms())))

    async def end_halt(self, operation: str) -> None:
        """End that halt, unless another operation made it. Raises StoreError."""

        def edit(live: Live) -> Live:
            mine = live.halt is not None and live.halt.operation == operation
            return replace(live, halt=None) if mine else live

        await self.change(edit)

    def now_ms(self) -> int:
        """The store's time: that of the last heartbeat plus the time since by the local clock."""
        return self._context.clock.monotonic_ms() + self._ahead_ms

    def skew_ms(self) -> int:
        """How far the store's clock is ahead of this machine's; negative when it is behind."""
        return self.now_ms() - self._context.clock.wall_ms()

    # --- settings

    async def configure(self, changes: Mapping[str, object]) -> None:
        """Change settings; None takes a change back. An open lease keeps its deadline (R30).

        Raises MistakesError, StoreError.
        """

        def edit(live: Live) -> Live:
            known = usable(self._state.configured, live.settings)
            overlaid(self._state.configured, {**known, **changes})
            merged = {**live.settings, **changes}
            settings = {name: value for name, value in merged.items() if value is not None}
            return replace(live, settings=settings)

        await self.change(edit)

    async def change(self, edit: Callable[[Live], Live]) -> None:
        """Write a new version on top of the newest known one, and apply it.

        Raises StoreError.
        """
        for _ in range(TRIES):
            new = replace(edit(self._state.live), version=self._state.live.version + 1)
            before = self._state.live
            if await self._write(new):
                for observer in self._writers:
                    observer(before, new)
                self._adopt(new)
                return
        raise StoreError("the live settings are being changed by others all the time")

    async def _write(self, live: Live) -> bool:
        """Write a version. False: another sidecar wrote first, and this one took that version."""
        data, store = write_live(live), self._context.store
        there = await store.set_live(self._state.name, self._there, data)
        if there == data:
            self._there = data
            return True
        self._see(there)
        return False
