"""Takes in what the broker's log holds: bodies that arrive, and gaps between them (rule R7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappush
from typing import Generic

from ackd.core.ledger.bodies import Bodies
from ackd.core.ledger.claims import ClaimTracker
from ackd.core.ledger.effects import FetchFrom
from ackd.core.ledger.entries import Entries
from ackd.core.ledger.entry import B, Entry, EntryStatus
from ackd.core.ledger.foreign_delays import ForeignDelays
from ackd.core.ledger.lifecycle import Lifecycle
from ackd.core.record.protocol import Finish

SKIP_MIN_OFFSETS = 1_000
"""A new fetch skips a finished range of at least this length; a shorter one is read and ignored."""


class Intake(Generic[B]):
    """Follows a fetch session through the log. `session`: the number of the current one.

    A body that arrives goes to the order first, because the later steps ask the order which message
    is next; then to its entry; then to the claims, if this is a retry topic.
    """

    __slots__ = ("_bodies", "_claims", "_entries", "_life", "delays", "session")

    def __init__(
        self,
        entries: Entries[B],
        life: Lifecycle[B],
        bodies: Bodies[B],
        claims: ClaimTracker[B] | None,
    ) -> None:
        self.session = 0
        self.delays = ForeignDelays(entries, life)
        self._entries = entries
        self._life = life
        self._bodies = bodies
        self._claims = claims

    @property
    def start(self) -> int:
        """The offset at which a new session has to start. It ignores finished messages above."""
        entries, claims = self._entries, self._claims
        first = entries.finished.first_clear(entries.watermark)
        if claims is not None and claims.finished_by_commit:
            return min(first, claims.finished_by_commit.start)
        return first

    def known_end(self) -> int:
        """The first offset from which on the record knows nothing."""
        entries = self._entries
        highest = entries.finished.highest()
        seen = [entries.watermark, *(each + 1 for each in entries.by_offset)]
        return max(seen if highest is None else [*seen, highest + 1])

    def fetching(self, session: int, offset: int) -> None:
        """A new fetch session starts at `offset`. Records of earlier ones are ignored from now."""
        self.session = session
        self._entries.position = offset

    def foreign_delays(self, session: int, delays: Iterable[tuple[int, int, int]]) -> None:
        """Client-set delays of messages that the session will bring next: see `ForeignDelays`."""
        if session == self.session:
            self.delays.reported(delays)

    def fetched(self, session: int, records: Sequence[B]) -> int:
        """Take records of the current session, in offset order. Returns how many became ready."""
        if session != self.session:
            return 0
        entries, claims = self._entries, self._claims
        before = len(entries.ready)
        finished = entries.finished
        new = bool(records) and finished.empty(records[0].offset, records[-1].offset + 1)
        for record in records:
            offset = record.offset
            if offset < entries.position:
                continue
            if offset > entries.position:
                self._gap(entries.position, offset)
            entries.position = offset + 1
            if offset >= entries.watermark and (new or offset not in finished):
                self.arrived(offset, record)
            elif claims is not None:
                claims.fetched_again(record)
        self._skip()
        return len(entries.ready) - before

    def end_reached(self, session: int, offset: int) -> None:
        """The log has nothing more below `offset`: unseen offsets are a gap (such as a transaction
        marker).
        """
        if session == self.session and offset > self._entries.position:
            self._gap(self._entries.position, offset)
            self._entries.position = offset

    def expired(self, log_start: int) -> int:
        """Retention removed all below `log_start`. Bodies in memory can still be delivered.

        Returns how many unfinished messages are lost.
        """
        entries = self._entries
        start = max(entries.position, entries.watermark)
        if start >= log_start:
            return 0
        known = sum(
            min(end, log_start) - first
            for first, end in entries.finished.ranges(start)
            if first < log_start
        )
        self._gap(start, log_start, Finish.EXPIRED)
        entries.position = log_start
        return log_start - start - known

    def arrived(self, offset: int, record: B, before: Entry[B] | None = None) -> None:
        """Take in a message that was fetched, or that was here `before` a reread of the record."""
        entries, life, order = self._entries, self._life, self._life.order
        if order is not None:
            order.enqueue(record)
        entry = entries.by_offset.get(offset)
        if entry is None:
            entry = entries.by_offset[offset] = Entry(record)
            entry.spilled = before is not None and before.spilled
            entries.bytes += entry.size
            if self._claims is not None:
                self._claims.arrived(offset)
            elif entry.spilled or order is not None:
                life.make_ready(offset, entry)
            else:
                heappush(entries.ready, offset)
        elif entry.body is None:
            spilled = before is not None and before.spilled
            entries.fill(offset, entry, record, spilled=spilled)
            if entry.status is EntryStatus.READY:
                life.make_ready(offset, entry)
            elif entry.status is EntryStatus.DEAD or entry.status is EntryStatus.MOVING:
                life.copy(offset, entry)
            elif entry.status is EntryStatus.WAITING:
                self._bodies.waits(offset)
            if (
                self._claims is not None
                and before is None
                and entry.status is not EntryStatus.CLAIMING
            ):
                self._claims.close_origin_record(offset)

    def _gap(self, start: int, end: int, reason: int = 0) -> None:
        """The log does not have [start, end). A lease in that range lasts until it ends (rule R7).

        At or above the position all entries lack a body: they are leases of earlier owners.
        """
        entries, life = self._entries, self._life
        start = max(start, entries.watermark)
        for offset in entries.bodiless.between(start, end):
            entries.finish_range(start, offset, reason)
            start = offset + 1
            entry = entries.by_offset[offset]
            entry.gone = True
            if life.order is not None:
                life.order.gone(offset, None)
            if entry.status is EntryStatus.READY:
                life.vanish(offset)
            elif entry.status is EntryStatus.DEAD or entry.status is EntryStatus.MOVING:
                life.copy(offset, entry)
        entries.finish_range(start, end, reason)
        entries.advance()

    def _skip(self) -> None:
        """Skip a long finished range instead of fetching it."""
        entries, claims = self._entries, self._claims
        if claims is not None and entries.position < claims.finished_by_commit.stop:
            return
        following = entries.finished.first_clear(entries.position)
        if following - entries.position >= SKIP_MIN_OFFSETS:
            entries.effects.append(FetchFrom(following))

    # --- after the record was read again

    def fetch_again(self) -> None:
        """Fetch again what the position has passed, is unfinished again and has no body here."""
        entries = self._entries
        passed = entries.bodiless.between(entries.watermark, entries.position)
        lacking = next((o for o in passed if not entries.by_offset[o].gone), entries.position)
        if self._unknown():
            offset = entries.finished.first_clear(entries.watermark)
            while offset < lacking and offset in entries.by_offset:
                offset = entries.finished.first_clear(offset + 1)
            lacking = min(lacking, offset)
        if lacking < entries.position:
            entries.effects.append(FetchFrom(lacking))

    def _unknown(self) -> bool:
        """Whether the position has passed an offset that is neither finished nor an entry. Counts
        instead of walking over up to 100,000 open ones at each re-read.
        """
        entries = self._entries
        span = max(entries.position - entries.watermark, 0)
        known = sum(map(entries.position.__gt__, entries.by_offset))
        finished = entries.finished.count_between(entries.watermark, entries.position)
        return known + finished != span
