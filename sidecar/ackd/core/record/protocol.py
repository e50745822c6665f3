"""Calls to a partition's record and their replies: the language between engine and store.

A call is decided atomically and in order. Several calls (one per partition) travel in one flush.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ackd.core.ids import LedgerKey
from ackd.core.record.operations import CopyRef, Op
from ackd.core.record.transitions import Outcome, State


class MessageTexts(NamedTuple):
    """What the store keeps of an unfinished message: the first and the last failure reason, the
    progress note (UTF-8), and its history (`delivery_events.events`). Empty = none.
    """

    first: bytes = b""
    last: bytes = b""
    note: bytes = b""
    history: bytes = b""


class ItemTexts(NamedTuple):
    """What a call tells of a message. `item`: the index of its operation in `ops`. UTF-8.

    An EXTEND brings a note; an empty one deletes the last. A failure brings its reason in `last`,
    at most `texts.ERROR_BYTES_MAX` long. PLACE_COPY brings all that the origin record has. GRANT, a
    LOOK_UP of a live lease, and what ends one add to the history; `holder` says who.
    """

    item: int
    first: bytes = b""
    last: bytes = b""
    note: bytes = b""
    history: bytes = b""
    holder: bytes = b""


TEXTS_BYTES_MAX = 1 << 20


class CallTexts(NamedTuple):
    """The texts of a call. `bytes_max`: bound on all texts of the record."""

    items: Sequence[ItemTexts] = ()
    bytes_max: int = TEXTS_BYTES_MAX

    def shifted(self, by: int) -> CallTexts:
        """The same texts, with `by` more items before them."""
        moved = [each._replace(item=each.item + by) for each in self.items]
        return CallTexts(moved, self.bytes_max)

    def joined(self, more: CallTexts) -> CallTexts:
        """These and later ones, which bring the bound."""
        return CallTexts([*self.items, *more.items], more.bytes_max)


NO_TEXTS = CallTexts()


class BlockedBy(NamedTuple):
    """The first message of a blocked key: its offset, and the copy that has claimed it, if any."""

    offset: int
    copy: CopyRef | None


class OpResult(NamedTuple):
    """The result of one operation. `when_ms`: deadline or due time, store's clock, 0 if none.

    `state` is the slot's state after it (with LOST: the message's present state). `first_s`: the
    time of the first delivery in seconds. `late`: the settle came past the deadline, but counted.
    With BLOCKED and with an owner's upkeep the numbers mean something else: `blocked_by`, `number`.
    """

    outcome: Outcome
    state: State
    attempt: int
    fence: int
    when_ms: int
    first_s: int
    late: bool

    @classmethod
    def blocked(cls, first: BlockedBy) -> OpResult:
        """Make a BLOCKED: an earlier message of the key must finish first."""
        partition, place = first.copy or (0, -1)
        numbers = first.offset, place + 1, partition
        return cls(Outcome.BLOCKED, State.MOVING, 0, *numbers, late=False)

    @property
    def blocked_by(self) -> BlockedBy:
        """The message that blocks this one, of a BLOCKED."""
        copy = CopyRef(self.first_s, self.when_ms - 1) if self.when_ms else None
        return BlockedBy(self.fence, copy)

    @property
    def copy(self) -> CopyRef | None:
        """The retry copy in which the message goes on, of a LOOK_UP of a message that is MOVING."""
        return CopyRef(self.when_ms, self.fence - 1) if self.fence else None

    @property
    def number(self) -> int:
        """The number that an operation of the owner's upkeep returned (`maintenance`)."""
        return self.when_ms


class Finish(IntEnum):
    """How an offset was finished, if not by an ack (kept for a while, rule R15)."""

    DEAD = 1
    EXPIRED = 2
    VANISHED = 3
    SENT = 4
    SKIPPED = 5
    """An operator moved the group past it."""


class CallStatus(IntEnum):
    """The result of a whole call. Any other than OK: nothing was changed."""

    OK = 0
    ABSENT = 1
    """There is no record (never opened, or the store's data is gone)."""
    FENCED = 2
    """Another sidecar owns the partition now."""
    STALE = 3
    """The store has decided a later call of the same owner already."""
    MOVED = 4
    """The store's server run is not the one in the record: rejoin first (R10, R23)."""
    CHUNK_LOST = 5
    """A chunk that the record lists, or its origin records, are gone: by eviction or a deleted key
    (R14)."""
    LAYOUT = 6
    """The record has a layout that this ackd can't read."""


@dataclass(slots=True)
class RecordCall:
    """Operations on one partition. `term` 0: not as the owner. `seq` grows with every call of an
    owner's term.

    `incarnation` 0: any. `journal_from`: the owner wants settles through other sidecars from this
    sequence on. `texts` are stored if their item counts.
    """

    key: LedgerKey
    ops: Sequence[Op]
    term: int = 0
    seq: int = 0
    incarnation: int = 0
    journal_from: int = 0
    texts: CallTexts = NO_TEXTS


class JournalEntry(NamedTuple):
    """A settle that came through another sidecar, for the owner to apply (rule R16)."""

    offset: int
    outcome: Outcome
    when_ms: int
    fence: int
    attempt: int


@dataclass(slots=True)
class RecordReply:
    """The answer to a call. `now_ms`: the store's logical clock. `rollback_epoch`: the rollback
    epoch, which goes into the tokens of new leases.

    `journal` None: it was trimmed, so the owner must read the record again. `epoch`: the reset
    epoch. `has_texts`: this record has texts, `has_notes`: progress notes among them. `dropped`: so
    many messages lost their texts to the bound.
    """

    verdict: CallStatus
    now_ms: int = 0
    version: int = 0
    rollback_epoch: int = 0
    epoch: int = 0
    term: int = 0
    watermark: int = 0
    journal_next: int = 0
    results: list[OpResult] = field(default_factory=list)
    journal: list[JournalEntry] | None = field(default_factory=list)
    has_texts: bool = False
    has_notes: bool = False
    dropped: int = 0


class SlotView(NamedTuple):
    """An unfinished offset's slot as stored."""

    offset: int
    state: State
    attempt: int
    releases: int
    fence: int
    rollback_epoch: int
    when_ms: int
    first_s: int


@dataclass(slots=True)
class Open:
    """Take (or, with `term` set, read again without raising the term) a partition's record.

    `peek`: only read. Changes nothing, whoever owns the record, and does not create it.

    `create_at` None: it must exist. `owner`: `SidecarId.text()`. `rollback_epoch`, `incarnation`:
    fresh random numbers (16 and 48 bits) for the store to use if it needs them. `jump_ms`: by how
    much, at least, the store's clock jumped ahead (negative: back) with the last change of the
    server run. `grace_ms`: how long expiry waits after a change of the server run. `journal_from`:
    also read the journal from this entry on, as far as the store has it (0: not at all).
    """

    key: LedgerKey
    owner: str
    rollback_epoch: int
    incarnation: int
    grace_ms: int
    create_at: int | None = None
    term: int = 0
    jump_ms: int = 0
    peek: bool = False
    journal_from: int = 0


@dataclass(slots=True)
class Snapshot:
    """A record as read by `Open`. `chunks`: bitmap chunks (index -> bytes) at or above the
    watermark. `lost_origins`: the store has lost origin records (R14). `blocked`: the blocked keys.
    `journal`: the newest entries from `Open.journal_from` on.
    """

    verdict: CallStatus
    created: bool = False
    moved: bool = False
    previous_owner: str = ""
    now_ms: int = 0
    version: int = 0
    incarnation: int = 0
    term: int = 0
    seq: int = 0
    epoch: int = 0
    rollback_epoch: int = 0
    watermark: int = 0
    fence: int = 0
    journal_next: int = 0
    slots: list[SlotView] = field(default_factory=list)
    chunks: dict[int, bytes] = field(default_factory=dict)
    lost_chunks: list[int] = field(default_factory=list)
    lost_origins: bool = False
    blocked: list[int] = field(default_factory=list)
    journal: list[JournalEntry] = field(default_factory=list)
