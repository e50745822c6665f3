"""Start background tasks outside a task group: held, named, and with no error lost. No other file
does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ackd.errors import BugError

LOG = logging.getLogger("ackd.engine")


class Vitals:
    """Whether every task that a sidecar needs still runs; `failure` names the first that does not.

    A task that ended by an unforeseen error, or a loop that returned, can't be restarted, because
    nobody knows the state that it left. Everything that matters is in the store, so a new process
    is the cure, and `ackd serve` ends with a failure at the first such end. It does not wait for a
    liveness probe: ending works under every supervisor, takes no probe's period, and the other
    sidecars notice at once.
    """

    def __init__(self) -> None:
        self.failure = ""
        self._failed = asyncio.Event()

    def failed(self, name: str, why: str) -> None:
        """Report a task that has ended; the first one counts."""
        if not self.failure:
            self.failure = f"{name} has ended ({why})"
        self._failed.set()

    async def wait(self) -> None:
        """Wait until a task has failed."""
        await self._failed.wait()


async def endless(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do one loop of a task group: the group ends if the loop returns, and not only if it fails.
    Raises BugError.
    """
    await run()
    raise BugError(f"{getattr(run, '__qualname__', run)} has returned")


class Tasks:
    """Background tasks of one owner, held until they end; a failure is logged and kept.

    With `vitals` it is reported there, too.
    """

    def __init__(self, name: str, vitals: Vitals | None = None) -> None:
        self._name = name
        self._vitals = vitals
        self._tasks: dict[asyncio.Task[None], bool] = {}
        self._may_return: set[asyncio.Task[None]] = set()
        self._ending = False

    def start(
        self,
        work: Coroutine[None, None, None],
        name: str,
        *,
        vital: bool = True,
        ends: bool = False,
    ) -> None:
        """Run `work` in the background of the current loop.

        Not `vital`: the sidecar works as well without it. `ends`: it returns when it is done, and
        is no loop that runs until somebody cancels it.
        """
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}.{name}")
        self._tasks[task] = vital
        if ends:
            self._may_return.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        vital = self._tasks.pop(task, False)
        may_return = task in self._may_return
        self._may_return.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            LOG.error("%s failed", task.get_name(), exc_info=error)
            why = f"{type(error).__name__}: {error}"
        elif self._ending or (may_return and not task.cancelled()):
            return
        else:
            why = "cancelled" if task.cancelled() else "it has returned"
        if vital and self._vitals is not None:
            self._vitals.failed(task.get_name(), why)

    def let_end(self) -> None:
        """Let loops return from now on, without a complaint: their owner has ended them."""
        self._ending = True

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self.let_end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
