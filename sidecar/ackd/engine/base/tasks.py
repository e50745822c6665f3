"""Start background tasks outside a task group: held, named, and with no error lost. No other file
does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

LOG = logging.getLogger("ackd.engine")


class Vitals:
    """Whether every task that a sidecar needs still runs; `failure` names the first that does not.

    A task that ended by an unforeseen error can't be restarted, because nobody knows the state that
    it left. Everything that matters is in the store, so a new process is the cure, and `ackd serve`
    ends with a failure at the first such error. It does not wait for a liveness probe: ending works
    under every supervisor, takes no probe's period, and the other sidecars notice at once.
    """

    def __init__(self) -> None:
        self.failure = ""
        self._failed = asyncio.Event()

    def failed(self, name: str, error: BaseException | None) -> None:
        """Report a task that has ended; the first one counts."""
        if not self.failure:
            kind = "cancelled" if error is None else f"{type(error).__name__}: {error}"
            self.failure = f"{name} has ended ({kind})"
        self._failed.set()

    async def wait(self) -> None:
        """Wait until a task has failed."""
        await self._failed.wait()


class Tasks:
    """Background tasks of one owner, held until they end; a failure is logged and kept.

    With `vitals` it is reported there, too.
    """

    def __init__(self, name: str, vitals: Vitals | None = None) -> None:
        self._name = name
        self._vitals = vitals
        self._tasks: dict[asyncio.Task[None], bool] = {}
        self._stopping = False

    def start(self, work: Coroutine[None, None, None], name: str, *, vital: bool = True) -> None:
        """Run `work` in the background of the current loop. Not `vital`: the sidecar works as well
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
        """Cancel all tasks and wait until they have ended."""
        self._stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
