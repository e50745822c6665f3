"""A deterministic event loop for one simulated process, on the world's virtual time.

It runs no thread, opens no file descriptor and sleeps never. A process can be *killed* (nothing of
it runs again, not even a `finally`) and *frozen* (what becomes ready waits until it is thawed).
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Handle, Task, TimerHandle, events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol, TypeVarTuple, Unpack

from tests.simulation.world import World

Ts = TypeVarTuple("Ts")
CLEAN_UP_TRIES = 50
US_PER_S = 1_000_000


class Watcher(Protocol):
    """Hears of what a loop can't deliver to anybody."""

    def unhandled(self, message: str, error: BaseException | None) -> None:
        """An exception that no task and no future took."""


class SimLoop(AbstractEventLoop):
    """The part of asyncio's contract that tasks, futures, timeouts and events need."""

    def __init__(self, world: World, watcher: Watcher, offset_us: int = 0) -> None:
        self.world = world
        self.frozen = False
        self.dead = False
        self.fuse: int | None = None
        self.on_fuse: Callable[[], None] = self.kill
        self._watcher = watcher
        self._offset_us = offset_us
        self._ready: deque[Handle] = deque()
        self._stepping = False
        self._planned = False
        self._tasks: list[Task[object]] = []

    # --- what asyncio calls

    def time(self) -> float:
        """Monotonic seconds of this process."""
        return (self.world.now_us + self._offset_us) / US_PER_S

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Handle:
        """Run it in the next step."""
        handle = Handle(callback, args, self, context)
        if not self.dead:
            self._ready.append(handle)
            self._plan()
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Run it after `delay` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Run it at `when` of `time()`."""
        handle = TimerHandle(when, callback, args, self, context)
        due_us = round(when * US_PER_S) - self._offset_us
        self.world.at(due_us, self._fire, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: object = None, context: Context | None = None
    ) -> Task[Any]:
        """A task of this loop; held until the end of the run, so that nothing is closed early."""
        if self.dead:
            coro.close()
            coro = _nothing()
        task: Task[Any] = Task(coro, loop=self, name=None if name is None else str(name))
        self._tasks.append(task)
        if len(self._tasks) > 256 and not len(self._tasks) & 63:
            self._tasks = [each for each in self._tasks if not each.done()]
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Something went wrong that nobody took."""
        if not self.dead:
            self._watcher.unhandled(str(context.get("message")), context.get("exception"))

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Inside a step."""
        return self._stepping

    def is_closed(self) -> bool:
        """A killed process takes nothing more; asyncio need not know."""
        return False

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """The world's heap forgets it when it is due."""

    # --- what the world does

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> Callable[[], object]:
        """Start a task from outside; returns what cancels it."""
        task: Task[None] = self.create_task(work, name=name)
        return task.cancel

    def thaw(self) -> None:
        """Go on after `frozen`."""
        self.frozen = False
        self._plan()

    def kill(self) -> None:
        """Nothing of this process runs any more."""
        self.dead = True
        self._ready.clear()

    def _fire(self, handle: TimerHandle) -> None:
        if not self.dead and not handle.cancelled():
            self._ready.append(handle)
            self._plan()

    def _plan(self) -> None:
        if self._ready and not self._planned and not self.frozen:
            self._planned = True
            self.world.at(self.world.now_us, self._step)

    def _step(self) -> None:
        """Run what is ready now; what becomes ready by it runs in the next step."""
        self._planned = False
        if self.dead or self.frozen:
            return
        events._set_running_loop(self)
        self._stepping = True
        try:
            for _ in range(len(self._ready)):
                if self._burnt():
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            self._stepping = False
            events._set_running_loop(None)
            self._plan()

    def _burnt(self) -> bool:
        """The fuse ends between two callbacks: the process dies in mid-action."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                self.on_fuse()
        return self.dead or self.frozen

    def clean_up(self) -> None:
        """Close what is left of the tasks at the end of a run; their clean-up reaches nothing."""
        self.dead = True
        events._set_running_loop(self)
        try:
            while self._tasks:  # their clean-up may start others
                tasks, self._tasks = self._tasks, []
                for task in tasks:
                    _close(task)
        finally:
            events._set_running_loop(None)


def _close(task: Task[object]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    if task.done():
        if not task.cancelled():
            task.exception()
        return
    coro: Any = task.get_coro()
    for _ in range(CLEAN_UP_TRIES):
        try:
            coro.close()
        except (RuntimeError, BaseExceptionGroup, asyncio.CancelledError):
            continue
        return


async def _nothing() -> None:
    """What a dead process does."""
