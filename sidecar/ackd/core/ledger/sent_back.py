"""What an owner remembers of what it sent back, in case the store forgets the home (R2, R10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ackd.core.record.operations import Op, ReplayAck, RestoreMoved, Settle
from ackd.core.record.transitions import Outcome, Verb

KEEP_MS = 540_000
"""A store that was set back by less forgets nothing of it. Shorter than homes are kept that are
over (`record.copies`): one that is written again must not be one that was dropped in good order.
"""
SENT_MAX = 2_000
"""So many of a partition are remembered below the committed position, the newest."""


@dataclass(slots=True)
class MovedMessages:
    """A message that has a home. `generation`, `rterm`, `attempt`, `key`: as SEND had them.

    `lease`: (fence, rterm, attempt, due_ms on the owner's clock) of what was parked, as far as it
    is known. `stored`: the copy is durable and the record says finished. `since_ms`: when one of
    these was confirmed, owner's clock. `acked`: under the lease that was parked.
    """

    generation: int
    rterm: int
    attempt: int
    key: int
    since_ms: int
    lease: tuple[int, int, int, int] | None = None
    stored: bool = False
    acked: bool = False

    def matters(self, now_ms: int) -> bool:
        """A store that was set back may have forgotten it, and nobody has dropped it by himself."""
        lives = self.lease is not None and self.lease[3] > now_ms
        return lives or self.since_ms >= now_ms - KEEP_MS


class SentBack(dict[int, MovedMessages]):
    """By offset, the oldest first."""

    def young(self, now_ms: int) -> dict[int, MovedMessages]:
        """What the store may have forgotten; the rest has been there for long enough."""
        return {o: sent for o, sent in self.items() if sent.matters(now_ms)}

    def drop(self, committed: int, now_ms: int) -> None:
        """Forget what is old and below the broker's position: the record has nothing of it."""
        newest_ms = self[next(reversed(self))].since_ms if self else 0
        at_ms, spare = max(now_ms, newest_ms), len(self) - SENT_MAX
        for offset in [o for o, s in self.items() if o < committed]:
            if spare > 0 or not self[offset].matters(at_ms):
                del self[offset]
                spare -= 1

    def ended(self, offsets: Sequence[int]) -> None:
        """Whatever ended them, there is no lease any more."""
        for offset in self.keys() & offsets:
            self[offset].lease = None

    def settled(self, offset: int, outcome: Outcome, fence: int, due_ms: int) -> None:
        """The store decided about a lease that is parked."""
        sent = self.get(offset)
        if sent is not None and outcome is Outcome.ACKED:
            # What others repeat looks like an ack, too, but for the generation of the home.
            sent.acked |= fence == sent.generation
        elif sent is None or sent.lease is None or sent.lease[0] != fence:
            return
        elif outcome is Outcome.EXTENDED:
            sent.lease = (*sent.lease[:3], max(due_ms, sent.lease[3]))
        else:
            sent.lease = None


class Lease(NamedTuple):
    """A lease in the window. `due_ms`: on its owner's clock."""

    offset: int
    fence: int
    rterm: int
    attempt: int
    due_ms: int

    def again(self, now_ms: int) -> Op:
        """Given back if it was forgotten, never shortened."""
        left_ms = max(self.due_ms - now_ms, 1)
        return Settle(Verb.EXTEND, *self[:4], left_ms, counted=False)


class LeftOpen(NamedTuple):
    """What was open when its owner let a partition go, who may have to say it again."""

    sent: SentBack
    leases: Sequence[Lease]

    def ops(self, now_ms: int) -> list[Op]:
        """What was sent back lately, and the leases that live."""
        young = self.sent.young(now_ms).items()
        ops = [op for o, sent in young for op in restored(o, sent, now_ms, released=True)]
        return ops + [lease.again(now_ms) for lease in self.leases if lease.due_ms > now_ms]


def restored(offset: int, sent: MovedMessages, now_ms: int, *, released: bool = False) -> list[Op]:
    """The home again, and the lease in it. `released`: see `RestoreMoved`."""
    if sent.acked:
        return [ReplayAck(offset, sent.generation)]
    told = sent.generation, sent.rterm, sent.attempt, sent.key
    ops: list[Op] = [RestoreMoved(offset, *told, stored=sent.stored, released=released)]
    if sent.lease is not None and sent.lease[3] > now_ms:
        lease = sent.lease
        ops.append(Settle(Verb.EXTEND, offset, *lease[:3], lease[3] - now_ms, counted=False))
    return ops
