"""What an owner remembers of each message it moved to the retry topic, so that it can restore the
origin record if a rollback of the store erases it (R2, R10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from ackd.core.record.operations import CopyRef, NameCopy, Op, ReplayAck, RestoreMoved, Settle
from ackd.core.record.transitions import Outcome, Verb

KEEP_MS = 540_000
"""A rollback is assumed to erase no more than this. It is shorter than
`record.copies.ORIGIN_KEEP_MS` (for how long the store keeps a closed origin record), so that an
owner never restores one that the store has dropped in the regular way.
"""
SENT_MAX = 2_000
"""The newest messages below the committed position that are remembered for each partition."""


@dataclass(slots=True)
class MovedMessages:
    """One message with an origin record. `generation`, `rollback_epoch`, `attempt`, `key`: as
    MOVE_TO_RETRY had them.

    `lease`: (fence, rollback epoch, attempt, due_ms on the owner's clock) of its forwarded lease,
    None if unknown or over. `stored`: the retry copy is durable and the record has the message as
    finished; `place`: where the copy is, if the broker said so. `since_ms`: when the store last
    confirmed one of these, owner's clock. `acked`: the forwarded lease was acked.
    """

    generation: int
    rollback_epoch: int
    attempt: int
    key: int
    since_ms: int
    lease: tuple[int, int, int, int] | None = None
    stored: bool = False
    acked: bool = False
    place: CopyRef | None = None

    def matters(self, now_ms: int) -> bool:
        """Whether a rollback may have erased it: its lease lives, or it is recent."""
        lives = self.lease is not None and self.lease[3] > now_ms
        return lives or self.since_ms >= now_ms - KEEP_MS


REPORTED_MS = 60
"""By then the owner has read in the journal that another sidecar extended a lease."""


class SentBack(dict[int, MovedMessages]):
    """The moved messages of one partition by offset, the oldest first."""

    def __init__(self, sent: Mapping[int, MovedMessages] | None = None) -> None:
        super().__init__()
        self._leased: set[int] = set()
        self._ends: list[tuple[int, int]] = []
        for offset, each in (sent or {}).items():
            self[offset] = each

    def __setitem__(self, offset: int, sent: MovedMessages) -> None:
        super().__setitem__(offset, sent)
        self._watch(offset, sent, 0)

    def __delitem__(self, offset: int) -> None:
        super().__delitem__(offset)
        self._leased.discard(offset)

    def clear(self) -> None:
        """Forget all of them."""
        super().clear()
        self._leased.clear()
        self._ends.clear()

    def leased(self, now_ms: int) -> int:
        """Count the forwarded leases that live."""
        while self._ends and self._ends[0][0] <= now_ms:
            _, offset = heappop(self._ends)
            self._watch(offset, self.get(offset), now_ms)
        return len(self._leased)

    def _watch(self, offset: int, sent: MovedMessages | None, now_ms: int) -> None:
        """Count its forwarded lease until that ends."""
        if sent is None or sent.lease is None or sent.lease[3] + REPORTED_MS <= now_ms:
            self._leased.discard(offset)
        else:
            self._leased.add(offset)
            heappush(self._ends, (sent.lease[3] + REPORTED_MS, offset))

    def young(self, now_ms: int) -> dict[int, MovedMessages]:
        """Those that a rollback may have erased."""
        return {o: sent for o, sent in self.items() if sent.matters(now_ms)}

    def drop(self, committed: int, now_ms: int) -> None:
        """Forget what is old and below the committed position: the record no longer has it."""
        newest_ms = self[next(reversed(self))].since_ms if self else 0
        at_ms, spare = max(now_ms, newest_ms), len(self) - SENT_MAX
        for offset in [o for o, s in self.items() if o < committed]:
            if spare > 0 or not self[offset].matters(at_ms):
                del self[offset]
                spare -= 1

    def ended(self, offsets: Sequence[int]) -> None:
        """Forget the leases of these messages, however they ended."""
        for offset in self.keys() & offsets:
            self[offset].lease = None
            self._leased.discard(offset)

    def settled(self, offset: int, outcome: Outcome, fence: int, due_ms: int) -> None:
        """The store settled a forwarded lease."""
        sent = self.get(offset)
        if sent is not None and outcome is Outcome.ACKED:
            # A finish that another sidecar replays looks like an ack, too. Only an ack in the
            # origin record carries its generation.
            sent.acked |= fence == sent.generation
        elif sent is None or sent.lease is None or sent.lease[0] != fence:
            return
        elif outcome is Outcome.EXTENDED:
            sent.lease = (*sent.lease[:3], max(due_ms, sent.lease[3]))
        else:
            self.ended((offset,))


class Lease(NamedTuple):
    """A lease in the window. `due_ms`: on its owner's clock."""

    offset: int
    fence: int
    rollback_epoch: int
    attempt: int
    due_ms: int

    def again(self, now_ms: int) -> Op:
        """The operation that restores the lease if the store lost it, and never shortens it."""
        left_ms = max(self.due_ms - now_ms, 1)
        return Settle(Verb.EXTEND, *self[:4], left_ms, counted=False)


class LeftOpen(NamedTuple):
    """State of a partition at its release: moved messages and live leases that its former owner may
    have to replay after a rollback.
    """

    sent: SentBack
    leases: Sequence[Lease]

    def ops(self, now_ms: int) -> list[Op]:
        """Restore the recently moved messages and the live leases."""
        young = self.sent.young(now_ms).items()
        ops = [op for o, sent in young for op in restored(o, sent, now_ms, released=True)]
        return ops + [lease.again(now_ms) for lease in self.leases if lease.due_ms > now_ms]


def restored(offset: int, sent: MovedMessages, now_ms: int, *, released: bool = False) -> list[Op]:
    """Operations that restore an origin record and its lease. `released`: see `RestoreMoved`."""
    if sent.acked:
        return [ReplayAck(offset, sent.generation)]
    numbers = sent.generation, sent.rollback_epoch, sent.attempt, sent.key
    ops: list[Op] = [RestoreMoved(offset, *numbers, stored=sent.stored, released=released)]
    if sent.place is not None:
        ops.append(NameCopy(offset, sent.generation, sent.place))
    if sent.lease is not None and sent.lease[3] > now_ms:
        lease = sent.lease
        ops.append(Settle(Verb.EXTEND, offset, *lease[:3], lease[3] - now_ms, counted=False))
    return ops
