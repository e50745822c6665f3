"""A simulated process: a loop that can be killed, frozen and thawed; what arrives from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.simulation.loop import SimLoop
from tests.simulation.world import MS, World


class Process:
    """One process. `name` names it and `boot` its incarnation, so that a restart is another one."""

    def __init__(self, world: World, name: str, boot: int = 0) -> None:
        self.world = world
        self.name = name
        self.boot = boot
        random = world.random(f"process/{name}/{boot}")
        self.loop = SimLoop(  # type: ignore[abstract]  # only what tasks, futures and timeouts need
            world, self, offset_us=random.randrange(1, 10**12)
        )
        self.loop.on_fuse = self.kill
        self.disturbed_us: list[int] = []
        self.on_kill: list[Callable[[], None]] = []

    @property
    def alive(self) -> bool:
        """Not killed. It may be frozen."""
        return not self.loop.dead

    @property
    def running(self) -> bool:
        """Neither killed nor frozen."""
        return not (self.loop.dead or self.loop.frozen)

    def unhandled(self, message: str, error: BaseException | None) -> None:
        """An exception that nobody took is a bug of the engine."""
        self.world.fail(f"bug: unhandled in {self.name}: {message}: {error!r}")

    def kill(self) -> None:
        """The signal KILL."""
        if self.alive:
            self.world.note(self.name, "killed")
            self.disturbed_us.append(self.world.now_us)
            self.loop.kill()
            for tell in self.on_kill:
                tell()

    def freeze(self) -> None:
        """The signal STOP."""
        if self.running:
            self.world.note(self.name, "frozen")
            self.disturbed_us.append(self.world.now_us)
            self.loop.frozen = True

    def thaw(self) -> None:
        """The signal CONT: a zombie wakes."""
        if self.alive and self.loop.frozen:
            self.world.note(self.name, "thawed")
            self.disturbed_us.append(self.world.now_us)
            self.loop.thaw()

    def disturb(self) -> None:
        """Something keeps it from acting for a while."""
        self.disturbed_us.append(self.world.now_us)

    def undisturbed_since(self, since_us: int) -> bool:
        """It could remember and act all the time."""
        return self.running and all(at_us < since_us for at_us in self.disturbed_us)

    # --- what `ackd.ports.Clock` asks

    def monotonic_ms(self) -> int:
        """As the loop's time."""
        return int(self.loop.time() * 1000)

    def wall_ms(self) -> int:
        """Everybody's wall clock is right in here; the store's may step."""
        return self.world.now_us // MS

    # --- from outside

    def post(self, action: Callable[..., None], *args: object) -> None:
        """Something arrives. A killed process does not hear it, a frozen one when it is thawed."""
        self.loop.call_soon(action, *args)

    def resolve(
        self, future: asyncio.Future[object], value: object, error: Exception | None
    ) -> None:
        """An answer arrives, unless it came too late."""
        self.post(_resolve, future, value, error)


def _resolve(future: asyncio.Future[object], value: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
