"""Test support: a group's progress in memory, so that its addresses can be tested by themselves."""

from __future__ import annotations

from collections.abc import Callable

from ackd.api.dead_letters import OperationView
from ackd.api.progress import (
    PartitionPlan,
    PartitionProgress,
    ProgressExport,
    SeekPlan,
    SeekRequest,
    SeekTo,
)
from ackd.errors import NothingToUndoError, NotPausedError


class MemoryProgress:
    """One partition in each subscription; `paused` as a test sets it."""

    def __init__(self, check: Callable[[str], object]) -> None:
        self._check = check
        self.paused = True
        self.begun: list[SeekRequest] = []

    async def export(self, name: str) -> ProgressExport:
        """Seven of ten."""
        self._check(name)
        partition = PartitionProgress(name, "0" * 32, 0, 7, 1, [(8, 10)])
        return ProgressExport(1, name, "cluster", 5, [partition])

    async def seek(self, name: str, request: SeekRequest) -> SeekPlan | OperationView:
        """Remembers it."""
        self._check(name)
        if request.to is SeekTo.BEFORE_RESET:
            raise NothingToUndoError
        if request.dry_run:
            return SeekPlan(7, 0, 1, [PartitionPlan(name, 0, 7, 0, 7, 0, 1)])
        if not self.paused:
            raise NotPausedError
        self.begun.append(request)
        kind = "import" if request.imported else "seek"
        return OperationView("op", name, kind, "running", request.to, 1, 1, 1, 0, 0, 0, 0)
