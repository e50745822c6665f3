"""Bodies of the addresses for a group's progress."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ackd.api.progress import Position, SeekRequest, SeekTo
from ackd.http.handlers.dead_letters_model import TIME_MS_MAX

OFFSET_MAX = 1 << 53
POSITIONS_MAX = 10_000
RANGES_MAX = 100_000
NUMBER_MAX = 1 << 31
TEXT_MAX = 1000

Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]
Ranges = Annotated[
    list[tuple[Offset, Offset]],
    Meta(max_length=RANGES_MAX, description="[start, end) above `offset` that are finished."),
]


class PositionBody(Struct, forbid_unknown_fields=True, frozen=True):
    """Where one partition goes on."""

    topic: Name
    partition: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
    offset: Offset
    finished: Ranges = []

    def plain(self) -> Position:
        return Position(self.topic, self.partition, self.offset, tuple(self.finished))


class Where(Struct, forbid_unknown_fields=True, frozen=True):
    """Either `time` (the first message with this Unix time in ms or a later one) or `positions`
    (other partitions stay as they are).
    """

    time: Annotated[int, Meta(ge=0, le=TIME_MS_MAX)] | None = None
    positions: (
        Annotated[list[PositionBody], Meta(min_length=1, max_length=POSITIONS_MAX)] | None
    ) = None


class SeekBody(Struct, forbid_unknown_fields=True, frozen=True):
    """Where the group goes on. `before_reset`: where it was before its progress was last moved."""

    to: Literal["earliest", "latest", "before_reset"] | Where
    dry_run: Annotated[bool, Meta(description="Only say what would happen.")] = False

    def request(self) -> SeekRequest:
        """As the engine takes it; the body was checked."""
        if isinstance(self.to, str):
            return SeekRequest(SeekTo(self.to), dry_run=self.dry_run)
        if self.to.positions is None:
            return SeekRequest(SeekTo.TIME, self.to.time, dry_run=self.dry_run)
        positions = tuple(each.plain() for each in self.to.positions)
        return SeekRequest(SeekTo.POSITIONS, positions=positions, dry_run=self.dry_run)


class ImportedPartition(Struct, forbid_unknown_fields=True, frozen=True):
    """One partition of an export. With `topic_id`: of that very topic only."""

    topic: Name
    partition: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
    offset: Offset
    finished: Ranges = []
    topic_id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")] | None = None
    epoch: Annotated[int, Meta(ge=0, le=NUMBER_MAX * 2)] | None = None

    def plain(self) -> Position:
        finished = tuple(self.finished)
        return Position(self.topic, self.partition, self.offset, finished, self.topic_id)


class ImportBody(Struct, forbid_unknown_fields=True, frozen=True):
    """An export as it was answered, and how to take it. Other partitions stay as they are.

    `increase_only`: no partition goes back, and what is finished stays so.
    """

    partitions: Annotated[list[ImportedPartition], Meta(min_length=1, max_length=POSITIONS_MAX)]
    increase_only: bool = True
    dry_run: Annotated[bool, Meta(description="Only say what would happen.")] = False
    version: Literal[1] = 1
    subscription: Annotated[str, Meta(max_length=TEXT_MAX)] | None = None
    cluster: Annotated[str, Meta(max_length=TEXT_MAX)] | None = None
    exported_ms: Annotated[int, Meta(ge=0, le=TIME_MS_MAX)] | None = None

    def request(self) -> SeekRequest:
        return SeekRequest(
            SeekTo.POSITIONS,
            positions=tuple(each.plain() for each in self.partitions),
            increase_only=self.increase_only,
            imported=True,
            dry_run=self.dry_run,
        )
