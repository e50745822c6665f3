"""The one place where a task is started outside a task group: held, named, and its error never
lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

LOG = logging.getLogger("ackd.engine")


class Tasks:
    """Background tasks of one owner. They are held until they end; a failure is logged and kept."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.failure: BaseException | None = None

    def start(self, work: Coroutine[None, None, None], name: str) -> None:
        """Run `work` in the background of the current loop."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}.{name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.failure = error
            LOG.error("%s failed", task.get_name(), exc_info=error)

    async def stop(self) -> None:
        """Cancel all and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
