"""Operations on a partition's record: what its owner, or another sidecar, asks of it.

An operation unpacks into the numbers of its item on the wire (`Item`). `Grant` and `Settle` are
such tuples themselves, because most operations are grants and settles. The others make theirs in
`_item`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple, TypeAlias

from ackd.core.bitmap import CHUNK_SHIFT
from ackd.core.record.transitions import Verb

Item: TypeAlias = tuple[int, int, int, int, int, int, int, bool]
"""verb, offset, fence, rollback epoch, attempt, and three numbers of which each verb makes its own
use.
"""


class ReplayWhat(IntEnum):
    """What a REPLAY does: repeat a finish, remake a lost chunk, forget lost origin records."""

    FINISH = 0
    ONE_CHUNK = 1
    ALL_ORIGINS = 2


class MovedFlag(IntEnum):
    """What the sidecar that moved a message knows of it, when it makes the origin record again."""

    STORED = 1
    """The copy is durable."""
    RELEASED = 2
    """The sidecar does not own the record any more."""


class CopyRef(NamedTuple):
    """Where a copy is in the group's retry topic."""

    partition: int
    offset: int


class Grant(NamedTuple):
    """Lease a message to a consumer. Made by `of` or `grants`.

    `receive`: grants of one call with the same number serve one receive and share a fence.
    """

    verb: Verb
    offset: int
    fence: int
    rollback_epoch: int
    attempt: int
    lease_ms: int
    receive: int
    counted: bool

    @classmethod
    def of(cls, offset: int, lease_ms: int, receive: int) -> Grant:
        return cls(Verb.GRANT, offset, 0, 0, 0, lease_ms, receive, counted=True)


class Settle(NamedTuple):
    """What the holder of a lease asks for, by one of the verbs of `settles.SETTLES`.

    `fence`, `rollback_epoch`, `attempt`: the token's. `for_ms`: the delay of a RETRY, the new lease
    of an EXTEND, counted from now. `duplicate`: deduplication acks a repeat and must not remember
    its key again. `counted` False: a RETRY that is no failed attempt, or an EXTEND that repairs: it
    restores a forgotten lease and never shortens a known one.
    """

    verb: Verb
    offset: int
    fence: int = 0
    rollback_epoch: int = 0
    attempt: int = 0
    for_ms: int = 0
    duplicate: bool = False
    counted: bool = True


class Operation:
    """An operation that makes its item on the wire when it is sent."""

    __slots__ = ()
    verb: ClassVar[Verb]

    def _item(self) -> Item:
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        """Unpack into the numbers on the wire."""
        return iter(self._item())


# --- one message in its partition


@dataclass(frozen=True, slots=True)
class LookUp(Operation):
    """Read the state of a lease; without a token, that of the offset. `message`: that of the
    message instead, whoever holds it, also where its lease is in an origin record.
    """

    verb: ClassVar[Verb] = Verb.LOOK_UP
    offset: int
    fence: int = 0
    rollback_epoch: int = 0
    message: bool = False

    def _item(self) -> Item:
        numbers = self.fence, self.rollback_epoch, 0, int(self.message), 0
        return (Verb.LOOK_UP, self.offset, *numbers, True)


@dataclass(frozen=True, slots=True)
class MoveToRetry(Operation):
    """Move a message out of the window, into an origin record, until its copy is claimed.

    `number`: unique in its call, so that it gets a fence of its own, the generation. `key`: the
    hash of the ordering key that it blocks (`order.key_hash`), 0 = none.
    """

    verb: ClassVar[Verb] = Verb.MOVE_TO_RETRY
    offset: int
    number: int
    key: int = 0

    def _item(self) -> Item:
        return (Verb.MOVE_TO_RETRY, self.offset, 0, 0, 0, self.key, self.number, True)


@dataclass(frozen=True, slots=True)
class MarkDead(Operation):
    """Dead-letter a message, unless it is under lease.

    `fence`: of the slot that the owner means. `deliveries_max`: refused after fewer deliveries; 0 =
    after any number. `claimed`: a copy that nobody ever gets, placed just before: its origin record
    was dead when it claimed, or ackd did not write it. A repair does not hold it up, since the slot
    that waits meanwhile could be granted by another owner.
    """

    verb: ClassVar[Verb] = Verb.MARK_DEAD
    offset: int
    fence: int = 0
    deliveries_max: int = 0
    claimed: bool = False

    def _item(self) -> Item:
        numbers = self.fence, 0, self.deliveries_max, int(self.claimed), 0
        return (Verb.MARK_DEAD, self.offset, *numbers, True)


@dataclass(frozen=True, slots=True)
class FinishOrigin(Operation):
    """Finish a message whose copy in the retry or dead-letter topic is durable.

    `fence`, `rollback_epoch`: of the slot, DEAD or MOVING. `reason`: `protocol.Finish`.
    """

    verb: ClassVar[Verb] = Verb.FINISH
    offset: int
    fence: int
    rollback_epoch: int
    reason: int

    def _item(self) -> Item:
        return (Verb.FINISH, self.offset, self.fence, self.rollback_epoch, 0, self.reason, 0, True)


@dataclass(frozen=True, slots=True)
class PlaceCopy(Operation):
    """Give a copy that has claimed its origin record a slot in its own partition.

    `generation`, `attempt`: of the origin record. `due_ms`: on the store's clock, 0 = now.
    `first_s`: first delivery of the message, 0 = now. `then_dead`: a `MarkDead` follows, whose
    answer counts for the owner.
    """

    verb: ClassVar[Verb] = Verb.PLACE_COPY
    offset: int
    generation: int = 0
    attempt: int = 0
    due_ms: int = 0
    first_s: int = 0
    then_dead: bool = False

    def _item(self) -> Item:
        place = self.generation, 0, self.attempt, self.due_ms, self.first_s
        return (Verb.PLACE_COPY, self.offset, *place, not self.then_dead)


# --- origin records; `offset` is that of the message in its origin


@dataclass(frozen=True, slots=True)
class ClaimOrigin(Operation):
    """A copy asks its origin record whether it may be delivered.

    `generation`, `rollback_epoch`: as MOVE_TO_RETRY had them. `must_deliver`: the copy's own record
    has lost data, so a copy of an unknown message has to be delivered. `attempt`: of the copy, for
    an origin whose record has forgotten the message.
    """

    verb: ClassVar[Verb] = Verb.CLAIM
    offset: int
    generation: int
    rollback_epoch: int
    copy: CopyRef
    must_deliver: bool = False
    attempt: int = 0

    def _item(self) -> Item:
        copy, known = self.copy, not self.must_deliver
        numbers = self.generation, self.rollback_epoch, self.attempt, copy.offset, copy.partition
        return (Verb.CLAIM, self.offset, *numbers, known)


@dataclass(frozen=True, slots=True)
class NameCopy(Operation):
    """Tell an origin record at which place the broker has stored its copy. The sidecar that stored
    it does so with FINISH; nobody else can know the place before.
    """

    verb: ClassVar[Verb] = Verb.NAME_COPY
    offset: int
    generation: int
    copy: CopyRef

    def _item(self) -> Item:
        partition, place = self.copy
        return (Verb.NAME_COPY, self.offset, self.generation, 0, 0, place, partition, True)


@dataclass(frozen=True, slots=True)
class VouchCopy(Operation):
    """Ask an origin record whether the copy at this place is its own: the copy has no signature
    that the reader can verify. Changes nothing.
    """

    verb: ClassVar[Verb] = Verb.VOUCH
    offset: int
    generation: int
    copy: CopyRef

    def _item(self) -> Item:
        partition, place = self.copy
        return (Verb.VOUCH, self.offset, self.generation, 0, 0, place, partition, True)


@dataclass(frozen=True, slots=True)
class CloseOrigin(Operation):
    """Close an origin record: its copy does not need it any more.

    `finished`: this copy is finished, so the origin record leaves its key queue. With `generation`
    0 it does so only if it knows that this copy has claimed it.
    """

    verb: ClassVar[Verb] = Verb.CLOSE
    offset: int
    generation: int = 0
    finished: CopyRef | None = None

    def _item(self) -> Item:
        partition, place = self.finished or (0, -1)
        return (Verb.CLOSE, self.offset, self.generation, 0, 0, place + 1, partition, True)


@dataclass(frozen=True, slots=True)
class AskBlocker(Operation):
    """Ask which message blocks a key. `key`: as in `MoveToRetry`."""

    verb: ClassVar[Verb] = Verb.ASK_BLOCKER
    offset: ClassVar[int] = 0
    key: int

    def _item(self) -> Item:
        return (Verb.ASK_BLOCKER, 0, 0, 0, 0, self.key, 0, True)


@dataclass(frozen=True, slots=True)
class RestoreMoved(Operation):
    """Make an origin record again that a rollback erased. The sidecar that moved the message asks
    for it.

    `generation`, `rollback_epoch`, `attempt`, `key`: as MOVE_TO_RETRY had them. `stored`: the copy
    is durable. `released`: the asking sidecar does not own the record any more.
    """

    verb: ClassVar[Verb] = Verb.RESTORE
    offset: int
    generation: int
    rollback_epoch: int
    attempt: int
    key: int = 0
    stored: bool = False
    released: bool = False

    def _item(self) -> Item:
        flags = MovedFlag.STORED * self.stored + MovedFlag.RELEASED * self.released
        numbers = self.generation, self.rollback_epoch, self.attempt, self.key, flags
        return (Verb.RESTORE, self.offset, *numbers, True)


@dataclass(frozen=True, slots=True)
class RestoreClaimed(Operation):
    """Make an origin record again that a rollback erased. The sidecar whose claim was confirmed
    asks for it.
    """

    verb: ClassVar[Verb] = Verb.RESTORE
    offset: int
    generation: int
    rollback_epoch: int
    attempt: int
    copy: CopyRef

    def _item(self) -> Item:
        partition, place = self.copy
        numbers = self.generation, self.rollback_epoch, self.attempt, place + 1, partition
        return (Verb.RESTORE, self.offset, *numbers, False)


# --- upkeep by the owner, and repair


@dataclass(frozen=True, slots=True)
class Gap(Operation):
    """Finish [start, end), where the log has no messages. Live leases and pending copies stay open.

    `reason`: `protocol.Finish`, for messages that had been delivered; 0 = the log lacks them. In a
    longer gap it is kept only for offsets that have a slot.
    `repair`: they were finished before a rollback, and it is not known how (`doubt`).
    """

    verb: ClassVar[Verb] = Verb.GAP
    start: int
    end: int
    reason: int = 0
    repair: bool = False

    @property
    def offset(self) -> int:
        return self.start

    def _item(self) -> Item:
        return (Verb.GAP, self.start, 0, 0, 0, self.end, self.reason, not self.repair)


@dataclass(frozen=True, slots=True)
class Advance(Operation):
    """Move the watermark to `offset`, never back. `repair`: as in `Gap`."""

    verb: ClassVar[Verb] = Verb.ADVANCE
    offset: int
    repair: bool = False

    def _item(self) -> Item:
        return (Verb.ADVANCE, self.offset, 0, 0, 0, 0, 0, not self.repair)


@dataclass(frozen=True, slots=True)
class Drop(Operation):
    """Free the chunks below `offset`, which the broker has confirmed as committed."""

    verb: ClassVar[Verb] = Verb.DROP
    offset: int

    def _item(self) -> Item:
        return (Verb.DROP, self.offset, 0, 0, 0, 0, 0, True)


@dataclass(frozen=True, slots=True)
class Reset(Operation):
    """Start a new reset epoch at `offset`, to which an operator moved the group."""

    verb: ClassVar[Verb] = Verb.RESET
    offset: int

    def _item(self) -> Item:
        return (Verb.RESET, self.offset, 0, 0, 0, 0, 0, True)


@dataclass(frozen=True, slots=True)
class Truncate(Operation):
    """Start a new reset epoch at `watermark`, because the log was truncated and now ends at
    `offset`.

    Unfinished messages between the two stay, with their leases.
    """

    verb: ClassVar[Verb] = Verb.RESET
    offset: int
    watermark: int

    def _item(self) -> Item:
        return (Verb.RESET, self.offset, 0, 0, 0, self.watermark + 1, 0, True)


@dataclass(frozen=True, slots=True)
class EndRepair(Operation):
    """End the wait for replays: every sidecar has replayed after the rollback, and grants go on."""

    verb: ClassVar[Verb] = Verb.SETTLED
    offset: ClassVar[int] = 0

    def _item(self) -> Item:
        return (Verb.SETTLED, 0, 0, 0, 0, 0, 0, True)


@dataclass(frozen=True, slots=True)
class ReplayAck(Operation):
    """Repeat an ack that the store had confirmed before a rollback.

    `generation`: of the origin record that took the ack, 0 = the ack came in the window. `mark`:
    the ack counts only in the epoch with this mark (`maintenance.epoch_mark`), 0 = in any.
    """

    verb: ClassVar[Verb] = Verb.REPLAY
    offset: int
    generation: int = 0
    mark: int = 0

    def _item(self) -> Item:
        return (Verb.REPLAY, self.offset, self.generation, 0, 0, 0, self.mark, True)


@dataclass(frozen=True, slots=True)
class ReplayFinished(Operation):
    """Repeat that an offset is finished, when nobody knows whether by an ack. `mark`: as in
    `ReplayAck`.
    """

    verb: ClassVar[Verb] = Verb.REPLAY
    offset: int
    mark: int = 0

    def _item(self) -> Item:
        return (Verb.REPLAY, self.offset, 0, 0, 0, 0, self.mark, False)


@dataclass(frozen=True, slots=True)
class RemakeChunk(Operation):
    """Make a chunk of finished offsets again, empty, after the store lost it (R14)."""

    verb: ClassVar[Verb] = Verb.REPLAY
    index: int

    @property
    def offset(self) -> int:
        return self.index << CHUNK_SHIFT

    def _item(self) -> Item:
        return (Verb.REPLAY, self.offset, 0, 0, 0, ReplayWhat.ONE_CHUNK, 0, True)


@dataclass(frozen=True, slots=True)
class ForgetOriginRecords(Operation):
    """Go on without the origin records, which the store has lost, under a new `rollback_epoch`
    (R14).
    """

    verb: ClassVar[Verb] = Verb.REPLAY
    offset: ClassVar[int] = 0
    rollback_epoch: int

    def _item(self) -> Item:
        return (Verb.REPLAY, 0, 0, self.rollback_epoch, 0, ReplayWhat.ALL_ORIGINS, 0, True)


OwnersOp: TypeAlias = MoveToRetry | MarkDead | FinishOrigin | PlaceCopy
OriginOp: TypeAlias = LookUp | ClaimOrigin | CloseOrigin | NameCopy | VouchCopy | AskBlocker
ReplayOp: TypeAlias = ReplayAck | ReplayFinished | RemakeChunk | ForgetOriginRecords
RestoreOp: TypeAlias = RestoreMoved | RestoreClaimed
UpkeepOp: TypeAlias = Gap | Advance | Drop | Reset | Truncate | EndRepair | ReplayOp | RestoreOp
Op: TypeAlias = Grant | Settle | OwnersOp | OriginOp | UpkeepOp
