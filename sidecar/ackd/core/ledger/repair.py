"""Compares a re-read record with what its owner remembers, after a possible rollback (rules R9,
R10, R12).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ledger.entry import UNKNOWN_ROLLBACK_EPOCH, B, Entry, EntryStatus
from ackd.core.ledger.sent_back import Lease, MovedMessages
from ackd.core.record.protocol import JournalEntry, SlotView
from ackd.core.record.transitions import State


class Repair(NamedTuple):
    """What the owner has to write into a re-read record, from its memory.

    `finished`: offsets to replay. `watermark`: to advance to, 0 = the record's is right. `orphans`:
    (offset, fence, rollback epoch, attempt) of leases to release: the owner never got the answer to
    their grant, so nobody holds their tokens (R12). `leases`: (offset, fence, rollback epoch,
    attempt, due_ms) to extend: the store lost them while their holders work on. `origin_records`:
    origin records of recently moved messages, by offset, to restore before anything else.
    """

    finished: list[int]
    watermark: int
    orphans: list[tuple[int, int, int, int]]
    leases: list[tuple[int, int, int, int, int]]
    origin_records: Sequence[tuple[int, MovedMessages]] = ()


class Before(NamedTuple, Generic[B]):
    """What an owner knew before it read the record again. `entries` lacks leases that are the same
    in the record.
    """

    entries: dict[int, Entry[B]]
    finished: ChunkedBitmap
    confirmed: int


def compare(
    before: Before[B],
    entries: Mapping[int, Entry[B]],
    finished: ChunkedBitmap,
    watermark: int,
    sent: Collection[int] = (),
    journal: Iterable[JournalEntry] = (),
) -> Repair:
    """The differences between the re-read record (`entries`, `finished`, `watermark`) and `before`.

    `sent`: messages that moved to the retry topic; their finish is not replayed. `journal`: what
    other sidecars settled since the owner's last call. Each entry is later than all that the owner
    knows, so a lease that it ends sooner was not lost.
    """
    settled = {(each.offset, each.fence, each.when_ms) for each in journal}
    orphans, leases = [], []
    for offset, old in before.entries.items():
        if offset < watermark or offset in finished:
            continue
        now = entries.get(offset)
        if old.status is EntryStatus.GRANTING and now is not None and now.fence > old.fence:
            orphans.append((offset, now.fence, now.rollback_epoch, now.attempt))
        elif (
            old.status is EntryStatus.LEASED
            and old.rollback_epoch != UNKNOWN_ROLLBACK_EPOCH
            and (now is None or _forgot(old, now))
            and (now is None or (offset, now.fence, now.when_ms) not in settled)
        ):
            leases.append((offset, old.fence, old.rollback_epoch, old.attempt, old.due_ms))
    lost_end = before.confirmed if before.confirmed > watermark else 0
    missing = [o for o in before.finished.minus(finished, watermark) if o not in sent]
    # After an ADVANCE alone, the holder of a lease that was forwarded since would get "acked".
    known = {*missing, *sent}
    missing += [offset for offset in entries if offset < lost_end and offset not in known]
    return Repair(missing, lost_end, orphans, leases)


def held(entries: Mapping[int, Entry[B]]) -> list[Lease]:
    """The open leases whose rollback epoch this owner knows."""
    return [
        Lease(o, e.fence, e.rollback_epoch, e.attempt, e.due_ms)
        for o, e in entries.items()
        if e.status is EntryStatus.LEASED and e.rollback_epoch != UNKNOWN_ROLLBACK_EPOCH
    ]


def _forgot(old: Entry[B], now: Entry[B]) -> bool:
    """Whether the record shows an earlier lease, or this one before its extension."""
    return now.fence < old.fence or (now.fence == old.fence and now.when_ms < old.when_ms)


def unchanged(old: Entry[B], slot: SlotView) -> bool:
    """Whether the record shows exactly the lease that its owner knows, of a message in memory.

    Such a lease needs no comparison and no repair. Nearly all of many open leases are like that.
    """
    _, state, attempt, _, fence, rollback_epoch, when_ms, first_s = slot
    return (
        old.status is EntryStatus.LEASED
        and state is State.LEASED
        and old.fence == fence
        and old.when_ms == when_ms
        and old.attempt == attempt
        and old.rollback_epoch == rollback_epoch
        and old.first_s == first_s
        and old.body is not None
    )
