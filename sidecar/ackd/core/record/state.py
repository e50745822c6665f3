"""One partition's record: its data, how to read it, and the writes that all parts share.

A leaf: `decide`, `copies` and `maintenance` are functions over it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Protocol

from ackd.core.bitmap import CHUNK_SHIFT, ChunkedBitmap
from ackd.core.record.operations import CopyRef, Settle
from ackd.core.record.protocol import Finish, JournalEntry
from ackd.core.record.settles import OF_VERB, Count, Due
from ackd.core.record.slot import SLOT_CHUNK_SHIFT, Slot
from ackd.core.record.texts import Texts
from ackd.core.record.transitions import Phase, State


@dataclass(slots=True)
class OriginRecord:
    """An origin record. `slot`: the lease or delay as it was (FINISHED: acked). `claimed_by`: the
    retry copy that has claimed it. `closed_ms`: since when it is not needed, 0 = it is. `key`: the
    key in whose queue it is (`blocked`), 0 = in none. `signs`: its copy has a signature; False: an
    older build moved the message. `named`: where the copy is stored, as its mover said.
    """

    slot: Slot
    generation: int
    claimed_by: CopyRef | None = None
    closed_ms: int = 0
    key: int = 0
    signs: bool = False
    named: CopyRef | None = None


ORIGIN_FIELDS = (
    *("GENERATION", "COPY_PARTITION", "COPY_OFFSET", "CLOSED_MS", "CLAIMED"),
    *("KEY", "BEFORE", "AFTER"),
)
"""Fields of an origin record in the scripts, after its slot: `CLAIMED` 1 = `claimed_by` counts, 0 =
`COPY_OFFSET` is 0 (an older build moved the message), 1 (`signs`), or offset + 2 of `named`.
`BEFORE` and `AFTER` are offset + 1 of its neighbours in its key queue.
"""


LAYOUT: Final = 1
"""How a record stands in the store. It is in the record's head, every script checks it, and a
record of another one is refused (`CallStatus.LAYOUT`): a newer build has made it.
"""


# tidy: long-class attributes=29 -- the store's record; what changes it stands beside it
@dataclass(slots=True)
class PartitionRecord:
    """The record of one partition. `run` is the server run that it was last used on."""

    layout: int = LAYOUT
    incarnation: int = 0
    version: int = 0
    owner: str = ""
    term: int = 0
    seq: int = 0
    epoch: int = 0
    rollback_epoch: int = 0
    fence: int = 0
    fence_floor: int = 0
    watermark: int = 0
    clock_ms: int = 0
    shift_ms: int = 0
    run: str = ""
    grace_until_ms: int = 0
    repair_until_ms: int = 0
    finished: ChunkedBitmap = field(default_factory=ChunkedBitmap)
    listed: set[int] = field(default_factory=set)
    slots: dict[int, Slot] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    exceptions: dict[int, tuple[Finish, int]] = field(default_factory=dict)
    origins: dict[int, OriginRecord] = field(default_factory=dict)
    origin_count: int = 0
    blocked: dict[int, list[int]] = field(default_factory=dict)
    closing: deque[tuple[int, int]] = field(default_factory=deque)
    doubt: tuple[int, int] = (0, 0)
    texts: Texts = field(default_factory=Texts)
    journal: deque[JournalEntry] = field(default_factory=deque)
    journal_next: int = 1

    # --- to read

    @property
    def origins_lost(self) -> bool:
        """The record's head counts origin records, but the store has lost them (R14)."""
        return self.origin_count > 0 and not self.origins

    def phase(self, offset: int, now_ms: int) -> Phase:
        """The phase of an offset at `now_ms`."""
        if self.over(offset):
            return Phase.GONE if offset in self.exceptions else Phase.ACKED
        slot = self.slots.get(offset)
        return Phase.READY if slot is None else slot.phase(now_ms)

    def slot(self, offset: int) -> Slot:
        """The slot of an offset, an empty one if it has none."""
        return self.slots.get(offset) or Slot()

    def over(self, offset: int) -> bool:
        """Whether the offset is finished, in whatever way."""
        return offset < self.watermark or offset in self.finished

    def held_until(self, phase: Phase, slot: Slot, now_ms: int, *, waiting: bool = True) -> int:
        """When the owner may ask for a grant again; 0 = now. After an outage, expiry waits for the
        grace. `waiting` False: ignore a delay.
        """
        if phase in SETTLED_PHASES:
            return 0
        if now_ms < self.repair_until_ms:
            return self.repair_until_ms
        if phase is Phase.EXPIRED and now_ms < self.grace_until_ms:
            return self.grace_until_ms
        delayed = waiting and phase is Phase.WAITING and slot.when_ms > now_ms
        return slot.when_ms if phase is Phase.LEASED or delayed else 0

    def seen_by(self, token: FencedOp, phase: Phase, slot: Slot, now_ms: int) -> Phase:
        """The phase as this token sees it; GONE = the message went on without it."""
        if token.fence == slot.fence and token.rollback_epoch == slot.rollback_epoch:
            return phase
        # A rollback may have erased this token's grant (R9). Then the token has the larger fence,
        # and the lease in the slot was not granted after the last possible rollback.
        since = (
            phase is Phase.LEASED
            and slot.rollback_epoch == self.rollback_epoch
            and token.rollback_epoch != self.rollback_epoch
        )
        newer = token.fence > slot.fence and token.fence > self.fence_floor
        if newer and not since and phase is not Phase.DEAD:
            return Phase.FORGOTTEN if now_ms < self.repair_until_ms else Phase.EXPIRED
        return Phase.GONE

    # --- writes

    def clock(self, now_us: int) -> int:
        """The logical clock: it never goes back, and leaves out a measured jump ahead (R23)."""
        self.clock_ms = max(self.clock_ms, now_us // 1000 - self.shift_ms)
        return self.clock_ms

    def finish(self, offset: int) -> None:
        """Set the bit of one offset."""
        self.finished.add(offset)
        self.listed.add(offset >> CHUNK_SHIFT)
        self.touched.add(offset >> SLOT_CHUNK_SHIFT)

    def settle(self, op: Settle, state: State, slot: Slot, now_ms: int) -> None:
        """Write a settle that does not finish the message into its slot."""
        rule = OF_VERB[op.verb]
        match rule.due:
            case Due.LEASE:
                # A repair (not counted) gives a forgotten lease back, never shortens a known one.
                known_ms = slot.when_ms if op.fence == slot.fence and not op.counted else 0
                slot.fence, slot.rollback_epoch, slot.attempt = (
                    op.fence,
                    op.rollback_epoch,
                    op.attempt,
                )
                slot.when_ms = max(known_ms, now_ms + op.for_ms)
                slot.first_s = slot.first_s or now_ms // 1000
                self.fence = max(self.fence, op.fence)
            case Due.DELAY:
                slot.when_ms = now_ms + op.for_ms
            case Due.NOW:
                slot.when_ms = now_ms
            case Due.NEVER:
                slot.when_ms = 0
        if rule.count is Count.NEVER or (rule.count is Count.ASKED and not op.counted):
            slot.uncount()
        slot.state = state


class BrokenRecordError(AssertionError):
    """A record broke one of its own invariants, so none of it can be trusted."""


class FencedOp(Protocol):
    """An operation that names a lease: by its fence, and the record's `rollback_epoch` at its
    grant.
    """

    @property
    def fence(self) -> int: ...

    @property
    def rollback_epoch(self) -> int: ...


class Fences:
    """Fencing numbers of one call: one per receive or move, each larger than all before (R9)."""

    def __init__(self, record: PartitionRecord, now_us: int) -> None:
        self._record = record
        self._now_us = now_us
        self._of: dict[int, int] = {}

    def of(self, number: int) -> int:
        """The fence of a receive, or of a message that is moved, by its number in the call."""
        fence = self._of.get(number)
        if fence is None:
            fence = self._of[number] = max(self._record.fence + 1, self._now_us)
            self._record.fence = fence
        return fence


SETTLED_PHASES = (Phase.ACKED, Phase.GONE, Phase.DEAD, Phase.MOVING)
"""Nobody is granted a message in one of these."""
