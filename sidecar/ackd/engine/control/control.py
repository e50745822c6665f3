"""An operator's hand on a running subscription: pause, resume, change of settings.

The live value is shared through the store; each sidecar does what it says as soon as it hears it.
A pause of this sidecar alone (`pod`) is kept in memory: it ends with the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ackd.api.control import Pause, Scope
from ackd.config.live import overlaid, usable
from ackd.engine.base.context import Context
from ackd.engine.control.live import Halt, Lengthen, Live, read_live, write_live
from ackd.errors import StoreError

if TYPE_CHECKING:
    from ackd.engine.subscription import Subscription

LOG = logging.getLogger("ackd.engine")

TRIES = 5
_NEVER_THERE = b"?"


class Control:
    """The live value as this sidecar knows it, and what it does about it."""

    def __init__(self, subscription: Subscription, context: Context) -> None:
        self.configured = subscription.settings
        self.live = Live()
        self._subscription = subscription
        self._context = context
        self._there = b""
        self._pod: Pause | None = None
        self._gate: Pause | None = None
        self._ahead_ms = context.clock.wall_ms() - context.clock.monotonic_ms()
        self.held = False

    def inherit(self, before: Control) -> None:
        """Go on where the run of the subscription before this one was."""
        self._pod, self._ahead_ms = before._pod, before._ahead_ms
        self._gate = before._gate
        self._adopt(before.live)

    # --- hearing

    def heard(self, there: bytes, now_ms: int) -> None:
        """A heartbeat's answer: the live value, and the store's time."""
        self._ahead_ms = now_ms - self._context.clock.monotonic_ms()
        self._see(there)
        self.look()

    def _see(self, there: bytes) -> None:
        if there == self._there:
            return
        self._there = there
        live = read_live(there)
        if live is None:
            LOG.warning("%s: the live settings in the store can't be read", self._subscription.name)
        elif live.version >= self.live.version and live != self.live:
            self._adopt(live)

    async def ask(self) -> None:
        """Hear the newest value now, not with the next heartbeat. Raises StoreError."""
        name, store = self._subscription.name, self._context.store
        self._see(await store.set_live(name, _NEVER_THERE, b""))

    async def repair(self) -> None:
        """Write back what the store has forgotten. Raises StoreError."""
        there = read_live(self._there)
        if there is not None and there.version < self.live.version:
            LOG.warning("%s: the store forgot the live settings", self._subscription.name)
            await self._write(self.live)

    def _adopt(self, live: Live) -> None:
        """Do what the newest version says."""
        subscription, before = self._subscription, self.live
        kept = usable(self.configured, live.settings)
        if left_out := sorted(live.settings.keys() - kept.keys()):
            LOG.warning("%s: live settings not usable here: %s", subscription.name, left_out)
        self.live = live
        subscription.settings = overlaid(self.configured, kept)
        if kept:
            LOG.info("%s: live settings: %s", subscription.name, ", ".join(sorted(kept)))
        subscription.ownership.policies_changed()
        told = live.open_leases
        subscription.ownership.hold(held=live.halt is not None)
        if told is not None and before.version < told.version:
            for partition in subscription.owned.values():
                subscription.lengthening.all_of(partition, told)
        self.look()
        subscription.cancels.look()
        subscription.brake.changed_settings()
        subscription.sweeper.wake()
        subscription.hand_out.serve()

    def sources(self) -> dict[str, str]:
        """`live` for each setting that is not as configured."""
        return dict.fromkeys(usable(self.configured, self.live.settings), "live")

    # --- pausing

    def pauses(self) -> list[Pause]:
        """Those that hold now, the group's first."""
        now_ms = self.now_ms()
        all_of_them = (self.live.pause, self._pod, self._gate, self._halted())
        return [
            p for p in all_of_them if p is not None and (p.until_ms is None or p.until_ms > now_ms)
        ]

    def look(self) -> None:
        """Serve those who wait when a pause has ended."""
        held = bool(self.pauses())
        if self.held and not held:
            self.held = False
            LOG.info("%s: goes on", self._subscription.name)
            self._subscription.hand_out.serve()
        elif held and not self.held:
            self.held = True
            LOG.warning("%s: paused: %s", self._subscription.name, self.pauses()[0].reason)

    async def pause(self, scope: Scope, reason: str, for_ms: int | None) -> None:
        """Hand out nothing. A pause of the same scope is replaced. Raises StoreError (`group`)."""
        now_ms = self.now_ms()
        until_ms = None if for_ms is None else now_ms + for_ms
        pause = Pause(scope, reason, now_ms, until_ms)
        if scope == "pod":
            self._pod = pause
        else:
            await self.change(lambda live: replace(live, pause=pause))
        self.look()

    def gate(self, why: str | None) -> None:
        """Hand out nothing at this sidecar as its application is not well; None: it is."""
        self._gate = None if why is None else Pause("pod", why, self.now_ms())
        self.look()

    async def resume(self, scope: Scope) -> None:
        """End the pause of this scope; nothing to do without one. Raises StoreError (`group`).

        Another sidecar may have paused a moment ago: the store knows.
        """
        if scope == "pod":
            self._pod = None
        else:
            await self.ask()
            if self.live.pause is not None:
                await self.change(lambda live: replace(live, pause=None))
        self.look()

    @property
    def halted_for(self) -> str:
        """The operation that this sidecar has let go of everything for."""
        return self.live.halt.operation if self.live.halt is not None else ""

    def _halted(self) -> Pause | None:
        halt = self.live.halt
        if halt is None:
            return None
        return Pause("group", f"operation {halt.operation} is running", halt.since_ms)

    @property
    def group_paused(self) -> bool:
        """A pause of the group holds."""
        return any(p is self.live.pause for p in self.pauses())

    async def halt(self, operation: str) -> None:
        """Every sidecar lets its partitions go until `end_halt`. Raises StoreError."""
        await self.change(lambda live: replace(live, halt=Halt(operation, self.now_ms())))

    async def end_halt(self, operation: str) -> None:
        """End that halt, unless it is of another operation. Raises StoreError."""

        def edit(live: Live) -> Live:
            mine = live.halt is not None and live.halt.operation == operation
            return replace(live, halt=None) if mine else live

        await self.change(edit)

    def now_ms(self) -> int:
        """The store's time as of the last heartbeat, carried on by the own clock."""
        return self._context.clock.monotonic_ms() + self._ahead_ms

    def skew_ms(self) -> int:
        """How far the store's clock is ahead of this machine's; behind it: below 0."""
        return self.now_ms() - self._context.clock.wall_ms()

    # --- settings

    async def configure(
        self, changes: Mapping[str, object], *, open_leases: bool, force: bool
    ) -> None:
        """Change settings; None takes a change back. `open_leases`: leases that are open get the
        new lease time, counted from now, unless that would shorten them; `force`: even then.

        Raises MistakesError, StoreError.
        """

        def edit(live: Live) -> Live:
            known = usable(self.configured, live.settings)
            effective = overlaid(self.configured, {**known, **changes})
            merged = {**live.settings, **changes}
            settings = {name: value for name, value in merged.items() if value is not None}
            told = live.open_leases
            if open_leases:
                told = Lengthen(live.version + 1, self.now_ms(), effective.lease_ms, force)
            return replace(live, settings=settings, open_leases=told)

        await self.change(edit)

    async def use_notes(self) -> None:
        """Let every sidecar look for notes from here on. Raises StoreError."""
        await self.change(lambda live: replace(live, notes=True))

    async def change(self, edit: Callable[[Live], Live]) -> None:
        """Write a new version on top of the newest one that is known, and do what it says.

        Raises StoreError.
        """
        for _ in range(TRIES):
            new = replace(edit(self.live), version=self.live.version + 1)
            before = self.live
            if await self._write(new):
                if self._subscription.tracing is not None:
                    self._subscription.tracing.changed(before, new)
                self._adopt(new)
                return
        raise StoreError("the live settings are being changed by others all the time")

    async def _write(self, live: Live) -> bool:
        """Whether the store has taken it; else it has told what others wrote."""
        data, store = write_live(live), self._context.store
        there = await store.set_live(self._subscription.name, self._there, data)
        if there == data:
            self._there = data
            return True
        self._see(there)
        return False
