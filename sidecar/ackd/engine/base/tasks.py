"""The one place where a task is started outside a task group: held, named, and its error never
lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

LOG = logging.getLogger("ackd.engine")


class Vitals:
    """Whether all that a sidecar can't work without still runs; `failure` says what does not.

    A task that ended by an error that nobody foresaw can't be begun again: what it knew is in a
    state that nobody knows. Everything that matters is in the store, so a new process is the
    cure, and `ackd serve` ends with a failure as soon as one is heard of. It does not wait for a
    liveness probe to find out: ending works under every supervisor, takes no probe's period, and
    the other sidecars hear of it at once.
    """

    def __init__(self) -> None:
        self.failure = ""
        self._failed = asyncio.Event()

    def failed(self, name: str, error: BaseException | None) -> None:
        """A task has ended; the first one counts."""
        if not self.failure:
            kind = "cancelled" if error is None else f"{type(error).__name__}: {error}"
            self.failure = f"{name} has ended ({kind})"
        self._failed.set()

    async def wait(self) -> None:
        """Until something has failed."""
        await self._failed.wait()


class Tasks:
    """Background tasks of one owner. They are held until they end; a failure is logged and kept.

    With `vitals` it is told there, too.
    """

    def __init__(self, name: str, vitals: Vitals | None = None) -> None:
        self._name = name
        self._vitals = vitals
        self._tasks: dict[asyncio.Task[None], bool] = {}
        self._stopping = False

    def start(self, work: Coroutine[None, None, None], name: str, *, vital: bool = True) -> None:
        """Run `work` in the background of the current loop. Not `vital`: the rest goes on as well
        without it.
        """
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}.{name}")
        self._tasks[task] = vital
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        vital = self._tasks.pop(task, False)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            LOG.error("%s failed", task.get_name(), exc_info=error)
        elif not task.cancelled() or self._stopping:
            return
        if vital and self._vitals is not None:
            self._vitals.failed(task.get_name(), error)

    async def stop(self) -> None:
        """Cancel all and wait until they have ended."""
        self._stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
