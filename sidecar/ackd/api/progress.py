"""What can be asked about a group's progress: plain values in and out, as in `ackd.api.messages`.

`ProgressApi` is implemented by `ackd.engine.operations.seek.Seeks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from ackd.api.dead_letters import OperationView


class SeekTo(StrEnum):
    """Where a group is moved to. BEFORE_RESET: where it was before its progress was last moved."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    POSITIONS = "positions"
    BEFORE_RESET = "before_reset"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a partition goes on. `finished`: ranges [start, end) above `offset` that stay so.

    `topic_id` (hex): only if the topic is this one, not another that got its name.
    """

    topic: str
    partition: int
    offset: int
    finished: tuple[tuple[int, int], ...] = ()
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class SeekRequest:
    """A move of the group. `positions` with POSITIONS, `time_ms` (Unix) with TIME.

    `increase_only`: no partition goes back, what is finished stays finished, and there is no new
    reset epoch. `imported`: it comes from an export, which only changes what it is called.
    """

    to: SeekTo
    time_ms: int | None = None
    positions: tuple[Position, ...] = ()
    increase_only: bool = False
    imported: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What would happen to one partition. Offsets that the log does not have count, too.

    `from_offset`: the watermark, -1 = no progress yet. `again`: finished ones that come again,
    `skipped`: unfinished ones that do not come. `leases_kept`: messages under lease that stay so.
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
    """How far a partition is: all below `offset` and in the ranges [start, end) is finished.

    `topic_id`: which topic of that name, hex. `epoch`: how often it was reset.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    epoch: int
    finished: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ProgressExport:
    """A group's progress as it is kept outside of the store. `version` of the form, so far 1."""

    version: int
    subscription: str
    cluster: str
    exported_ms: int
    partitions: list[PartitionProgress]


class ProgressApi(Protocol):
    """Everything about a group's progress. Every method may raise `AckdError`."""

    async def export(self, name: str) -> ProgressExport:
        """How far the group is, partition by partition. Changes nothing."""

    async def seek(self, name: str, request: SeekRequest) -> SeekPlan | OperationView:
        """Move the group, or say what that would do.

        Raises NotPausedError, NothingToUndoError, BadParameterError (positions),
        OperationRunningError.
        """
