"""Questions and operations about a group's progress: plain values in and out, as in
`ackd.api.messages`.

`ProgressApi` is implemented by `ackd.engine.operations.seek.Seeks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from ackd.api.dead_letters import OperationView


class SeekTo(StrEnum):
    """Where an operator moves a group to. BEFORE_RESET: where it was before the last move."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    POSITIONS = "positions"
    BEFORE_RESET = "before_reset"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a partition goes on. `finished`: ranges [start, end) above `offset` that stay finished.

    `topic_id` (hex): refuse another topic that got the name meanwhile.
    """

    topic: str
    partition: int
    offset: int
    finished: tuple[tuple[int, int], ...] = ()
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class SeekRequest:
    """A move of the group. `positions` with POSITIONS, `time_ms` (Unix) with TIME.

    `increase_only`: no partition goes back, finished messages stay finished, and there is no new
    reset epoch. `imported`: it comes from an export; the operation
    is then called an import.
    """

    to: SeekTo
    time_ms: int | None = None
    positions: tuple[Position, ...] = ()
    increase_only: bool = False
    imported: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What a seek would do to one partition. The counts include offsets that the log does not have.

    `from_offset`: the watermark, -1 = no progress yet. `again`: finished messages that come again.
    `skipped`: unfinished messages that do not come. `leases_kept`: messages that stay under lease.
    """

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    again: int
    skipped: int
    leases_kept: int


@dataclass(slots=True)
class SeekPlan:
    """What a seek would do, with sums."""

    again: int = 0
    skipped: int = 0
    leases_kept: int = 0
    partitions: list[PartitionPlan] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The progress of a partition: everything below `offset` and within the ranges [start, end) is
    finished.

    `topic_id` (hex): which topic of that name. `epoch`: how often an operator reset the partition.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    epoch: int
    finished: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ProgressExport:
    """A group's progress in a form to keep outside of the store. `version`: of that form, so
    far 1.
    """

    version: int
    subscription: str
    cluster: str
    exported_ms: int
    partitions: list[PartitionProgress]


class ProgressApi(Protocol):
    """A group's progress: export, seek. Every method may raise `AckdError`."""

    async def export(self, name: str) -> ProgressExport:
        """Export the progress of each partition."""

    async def seek(self, name: str, request: SeekRequest) -> SeekPlan | OperationView:
        """Move the group, or report what that would do.

        Raises NotPausedError, NothingToUndoError, BadParameterError (positions),
        OperationRunningError.
        """
