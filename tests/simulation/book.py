"""What an all-seeing observer notes of every message, and the scars that faults leave."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from ackd.core.lease_token import MAC_BYTES
from tests.simulation.process import Process

_TOKEN = Struct(">B4s16sIQQHH")
FOREVER_US = 1 << 62


class Place(NamedTuple):
    """A partition of a topic of one identity."""

    topic_id: bytes
    partition: int


class Coordinate(NamedTuple):
    """A message's origin."""

    topic_id: bytes
    partition: int
    offset: int

    @property
    def place(self) -> Place:
        """Its partition."""
        return Place(self.topic_id, self.partition)


class Lease(NamedTuple):
    """What a token names, read without its key."""

    coordinate: Coordinate
    fence: int
    rollback_epoch: int
    attempt: int

    @property
    def key(self) -> tuple[int, int]:
        """A fence may come again after a rollback, then under another term (R9)."""
        return self.fence, self.rollback_epoch


def read_token(text: str) -> Lease:
    """The content of a token."""
    raw = urlsafe_b64decode(text[3:] + "=" * (-(len(text) - 3) % 4))
    _, _, topic_id, partition, offset, fence, rollback_epoch, attempt = _TOKEN.unpack(
        raw[:-MAC_BYTES]
    )
    return Lease(Coordinate(topic_id, partition, offset), fence, rollback_epoch, attempt)


@dataclass(slots=True)
class Holding:
    """One lease. `until_ms`: the store's clock; `told_ms`: what its holder knows of that.

    `by`: who granted it. `deadlines`: for each deadline that the store set, its real time (a store
    whose clock jumps back does not prolong what the holder knows), when it was written and by whom;
    `told_us`, `changed_us`, `told_by` are those of the latest deadline that the holder knows.
    `lapsed`: an origin record that held it says that its deadline has passed. `cancelled_us`: when
    an operator ended its message. `at`: where it was granted, the message's own coordinate or that
    of its copy.
    """

    fence: int
    rollback_epoch: int
    by: Process
    granted_us: int
    granted_ms: int
    until_ms: int
    at: Coordinate
    told_ms: int = 0
    told_us: int = 0
    changed_us: int = 0
    told_by: Process | None = None
    deadlines: dict[int, tuple[int, int, Process]] = field(default_factory=dict)
    ended: bool = False
    lapsed: bool = False
    cancelled_us: int = 0
    outcomes: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)

    def until(self, until_ms: int, now_ms: int, now_us: int, by: Process) -> None:
        """The store set a deadline. Who asked for less than he was told has only that."""
        self.until_ms = until_ms
        self.deadlines[until_ms] = now_us + (until_ms - now_ms) * 1000, now_us, by
        if until_ms < self.told_ms:
            self.told_ms = 0
            self.told(until_ms)

    def told(self, deadline_ms: int) -> None:
        """The holder read a deadline."""
        known = self.deadlines.get(deadline_ms)
        if known is None or deadline_ms <= self.told_ms:
            return
        self.told_ms = deadline_ms
        self.told_us, self.changed_us, self.told_by = known


@dataclass(slots=True)
class Ack:
    """An ack that an application was told of. `by` served it, the store did at `applied_us`."""

    by: Process
    applied_us: int
    told_us: int
    epoch: int


@dataclass(slots=True)
class Message:
    """Everything about one message.

    `again`: a reset has brought it back. `moving`: a foreign reset did, and it was not granted in
    its own place since; a copy that is handed out until then is what comes of it. `named`: the
    copy that its mover confirmed. `meanwhile`: when it was acked, and its dead copies, between the
    begin of a seek and its reset.
    """

    holdings: dict[tuple[int, int], Holding] = field(default_factory=dict)
    newest: Holding | None = None
    acked_us: int = 0
    acked_by: Process | None = None
    acked_epoch: int = 0
    told: list[Ack] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    retry_copies: list[int] = field(default_factory=list)
    sent: bool = False
    moved_by: list[tuple[Process, int]] = field(default_factory=list)
    named: Coordinate | None = None
    claimed_by: Coordinate | None = None
    claimed_before: Coordinate | None = None
    moving: bool = False
    again: bool = False
    dismissed: set[Coordinate] = field(default_factory=set)
    removed: bool = False
    skipped: bool = False
    acked_before: bool = False
    exhausted: bool = False
    cancelled: set[str] = field(default_factory=set)
    meanwhile: tuple[int, tuple[int, ...]] = 0, ()

    @property
    def done(self) -> bool:
        """It may leave the unfinished set (I1)."""
        return bool(self.acked_us or self.copies or self.removed or self.skipped)

    def settled(self, retry_copy: Coordinate) -> bool:
        """A copy may be finished without a word: another one has the message, or it is over."""
        return self.done or (self.claimed_by is not None and self.claimed_by != retry_copy)


@dataclass(slots=True)
class Rollback:
    """Writes since `from_us` were lost at `at_us`. `silent`: the server run did not change."""

    from_us: int
    at_us: int
    silent: bool


@dataclass(slots=True)
class Ledger:
    """A partition as it should be. `start`: where the group starts (-1 = not known yet).

    `resets`: positions that an operator set, `seeks`: all that were ever sought. `rests`: (offset,
    real time) of data losses: from there on messages at or above may come again. `gone_us`: when a
    rollback forgot the whole record, which somebody may make anew much later.
    """

    start: int = -1
    resets: list[int] = field(default_factory=list)
    seeks: set[int] = field(default_factory=set)
    over_before: set[Coordinate] = field(default_factory=set)
    """What was over when the last of these seeks began."""
    losses: list[tuple[int, set[int], int]] = field(default_factory=list)
    made_anew_at: int = 0
    """Where the record began that was made anew after such a loss."""
    gone_us: list[int] = field(default_factory=list)
    epoch: int = 0
    taken_us: int = 0
    created: bool = False
    committed: tuple[int, set[int]] = (0, set())
    unjudged: tuple[int, int] | None = None
    """What an operator committed, and the reset epoch of then; until a sidecar commits."""


class Book:
    """All messages, and what happened to the store."""

    def __init__(self) -> None:
        self.messages: dict[Coordinate, Message] = {}
        self.ledgers: dict[Place, Ledger] = {}
        self.rollbacks: list[Rollback] = []
        self.evicted: dict[tuple[Place, int], tuple[int, Process | None]] = {}
        self.flushed_us: list[int] = []
        self.retired: set[bytes] = set()  # topics that were deleted
        self.copy_keys_lost = False
        self.failovers = 0  # also those that lost nothing

    def message(self, coordinate: Coordinate) -> Message:
        """The notes on one message."""
        found = self.messages.get(coordinate)
        if found is None:
            found = self.messages[coordinate] = Message()
        return found

    def ledger(self, place: Place) -> Ledger:
        """The notes on a partition."""
        return self.ledgers.setdefault(place, Ledger())

    # --- what excuses what

    def rolled_back(self, written_us: int, now_us: int) -> Rollback | None:
        """The first rollback that lost a write of then."""
        for each in self.rollbacks:
            if each.from_us <= written_us <= each.at_us <= now_us:
                return each
        return None

    def flushed_since(self, since_us: int) -> bool:
        """All data was lost after that."""
        return any(at_us >= since_us for at_us in self.flushed_us)

    def repaired_by(self, witness: Process, written_us: int, now_us: int) -> bool:
        """If a rollback lost a write of then, its witness lived on to write it again (R10).

        Nobody can be blamed for a rollback that could not be noticed.
        """
        if self.rolled_back(written_us, now_us) is None:
            return True
        silent = any(each.silent and each.at_us >= written_us for each in self.rollbacks)
        return not silent and witness.undisturbed_since(written_us)


def name_of(at: Coordinate) -> str:
    """For people."""
    return f"message {at.topic_id.hex()[:4]}/{at.partition}/{at.offset}"
