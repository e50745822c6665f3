"""Stories about one partition, told in a few lines.

`story >> event << answer`: an event happens to the record (the store) and to the ledger of the
sidecar that is acting; `<<` demands that its answer was this. The production core decides
everything; the play only carries values between record and ledger, as the engine does.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

from ackd.core.ids import LedgerKey
from ackd.core.ledger.effects import (
    Claim,
    CloseOriginRecord,
    Effect,
    Exhausted,
    FetchFrom,
    FinishRange,
    LeaveKeyQueue,
    Mistaken,
    Restore,
    SendBack,
    SendDead,
    StoreForeignDelays,
)
from ackd.core.ledger.ledger import Ledger
from ackd.core.ledger.order import OrderPosition
from ackd.core.ledger.repair import Repair
from ackd.core.record import decide
from ackd.core.record.operations import (
    Advance,
    EndRepair,
    FinishOrigin,
    Gap,
    Grant,
    Op,
    ReplayAck,
    Settle,
)
from ackd.core.record.protocol import CallStatus, Finish, Open, OpResult, RecordCall, RecordReply
from ackd.core.record.transitions import Verb

KEY = LedgerKey("cluster", "orders", b"\1" * 16, 0)
T0_MS = 1_000_000_000_000
LEASE_MS = 30_000


@dataclass(frozen=True, slots=True)
class Letter:
    """A fetched message of `bytes` bytes."""

    offset: int
    bytes: int = 10

    def size(self) -> int:
        """Bytes, as the ledger counts them."""
        return self.bytes


@dataclass(slots=True)
class Owner:
    """A sidecar's memory of the partition: its ledger and what it must say to the store."""

    name: str
    ledger: Ledger[Letter] = field(default_factory=Ledger)
    term: int = 0
    seq: int = 0
    journal_next: int = 0
    incarnation: int = 0
    session: int = 0


Token = tuple[int, int, int]
Event = Callable[["Play"], object]
PositionOf = Callable[[Letter], OrderPosition | None]


class Play:
    """The world of a story. Truthy at its end, so that `assert (Play() >> ... << ...)` reads."""

    def __init__(self, start: int = 0, position_of: PositionOf | None = None) -> None:
        self.now_ms = T0_MS
        self.run = "run-1"
        self.runs = 1
        self.record = decide.create(
            Open(KEY, "", rollback_epoch=7, incarnation=77, grace_ms=0, create_at=start),
            start,
            self.run,
        )
        self.copy = self.record
        self.owners: dict[str, Owner] = {}
        self.position_of = position_of
        self.owner = Owner("")
        self.tokens: dict[int, list[Token]] = {}
        self.fetches: list[int] = []
        self.dead: list[int] = []
        self.asked: list[Effect] = []
        self.last: object = None
        self.told: list[str] = []
        self.given = self >> opens("a") >> fetches(start)

    def __rshift__(self, event: Event) -> Play:
        self.last = event(self)
        name = getattr(event, "__qualname__", "event").split(".")[0]
        self.told.append(f">> {name}: {self.last}")
        mistakes = self.owner.ledger.mistakes()
        assert not mistakes, f"{mistakes}\n" + "\n".join(self.told)
        return self

    def __lshift__(self, answer: object) -> Play:
        story = "\n".join(self.told)
        assert self.last == answer, f"expected {answer}\n{story}"
        return self

    def __bool__(self) -> bool:
        return True

    # --- what the engine would do

    def sidecar(self, name: str) -> Owner:
        """Who is known by this name, or somebody who knows nothing yet."""
        if name not in self.owners:
            self.owners[name] = Owner(name, Ledger(position_of=self.position_of))
        return self.owners[name]

    def call(self, *ops: Op, owner: Owner | None) -> RecordReply:
        """One call to the record, as the owner or (None) as somebody who only settles."""
        call = RecordCall(KEY, list(ops))
        if owner is not None:
            owner.seq += 1
            call.term, call.seq, call.incarnation = owner.term, owner.seq, owner.incarnation
            call.journal_from = owner.journal_next
        return decide.apply(self.record, call, self.now_ms * 1000, self.run)

    def as_owner(self, *ops: Op) -> RecordReply:
        """A call of the acting owner; its ledger hears the journal and the watermark."""
        owner = self.owner
        reply = self.call(*ops, owner=owner)
        if reply.verdict is CallStatus.OK:
            owner.journal_next = reply.journal_next
            owner.ledger.store_confirmed(reply.watermark)
            owner.ledger.journal(reply.journal or (), reply.now_ms, self.now_ms)
        return reply

    def perform(self) -> None:
        """Do what the ledger decided: holes go to the record, the rest is kept for the story."""
        for effect in self.owner.ledger.drain():
            match effect:
                case FinishRange(start, end, reason):
                    reply = self.as_owner(Gap(start, end, reason))
                    if reason == Finish.VANISHED and not reply.results[0].when_ms:
                        self.owner.ledger.finish(start)
                case FetchFrom(offset):
                    self.fetches.append(offset)
                case SendDead(offset):
                    self.dead.append(offset)
                case Mistaken(what):
                    raise AssertionError(what)
                case (
                    SendBack()
                    | Exhausted()
                    | Claim()
                    | CloseOriginRecord()
                    | LeaveKeyQueue()
                    | Restore()
                    | StoreForeignDelays()
                ):
                    self.asked.append(effect)

    def token(self, offset: int, nth: int) -> Token:
        """The nth lease that was handed out of this message; -1 is the newest."""
        return self.tokens[offset][nth]


# --- the owner's events


def opens(name: str, *, grace_ms: int = 0, again: bool = False) -> Event:
    """A sidecar takes the partition (`again`: reads it again under its term). Answers the repair.

    From then on it is the one that acts.
    """

    def event(play: Play) -> Repair | CallStatus:
        owner = play.sidecar(name)
        play.owner = owner
        request = Open(
            KEY, name, rollback_epoch=8 + play.runs, incarnation=78, grace_ms=grace_ms,
            term=owner.term if again else 0,
        )  # fmt: skip
        snapshot = decide.open_record(
            play.record, request, play.now_ms * 1000, play.run, created=False
        )
        if snapshot.verdict is not CallStatus.OK:
            return snapshot.verdict
        owner.term, owner.seq = snapshot.term, snapshot.seq
        owner.incarnation, owner.journal_next = snapshot.incarnation, snapshot.journal_next
        return owner.ledger.opened(snapshot, play.now_ms)

    return event


def acts(name: str) -> Event:
    """This sidecar acts from now on, with the memory that it has (a zombie, say)."""

    def event(play: Play) -> str:
        play.owner = play.owners[name]
        return name

    return event


def forgets(name: str) -> Event:
    """The process died: what it knew is gone."""

    def event(play: Play) -> None:
        del play.owners[name]

    return event


def fetches(offset: int | None = None) -> Event:
    """Fetching starts anew, at the watermark if no offset is given. Answers where."""

    def event(play: Play) -> int:
        owner = play.owner
        owner.session += 1
        position = owner.ledger.watermark if offset is None else offset
        owner.ledger.intake.fetching(owner.session, position)
        return position

    return event


def brings(*offsets: int, session: int | None = None, size: int = 10) -> Event:
    """The broker brings these records. Answers where fetching goes on (None: right there)."""

    def event(play: Play) -> int | None:
        owner = play.owner
        play.fetches.clear()
        number = owner.session if session is None else session
        owner.ledger.intake.fetched(number, [Letter(offset, size) for offset in offsets])
        play.perform()
        return play.fetches[-1] if play.fetches else None

    return event


def end_at(offset: int) -> Event:
    """The broker says that everything below `offset` was read."""

    def event(play: Play) -> int:
        play.owner.ledger.intake.end_reached(play.owner.session, offset)
        play.perform()
        return play.owner.ledger.watermark

    return event


def leases(
    most: int = 1, *, bytes_max: int = 1 << 30, heard: bool = True, lease_ms: int = LEASE_MS
) -> Event:
    """Hand out up to `most` messages. Answers the offsets that are leased now.

    `heard` False: the store decided, its answer was lost (R12).
    """

    def event(play: Play) -> list[int] | CallStatus:
        owner = play.owner
        taken = owner.ledger.grants.take(most, bytes_max)
        ops = [Grant.of(offset, lease_ms, 1) for offset in taken]
        if not heard:
            play.call(*ops, owner=owner)
            return []
        reply = play.as_owner(*ops)
        if reply.verdict is not CallStatus.OK:
            owner.ledger.grants.not_granted(taken)
            return reply.verdict
        given = []
        for offset, result in zip(taken, reply.results, strict=True):
            entry = owner.ledger.grants.granted(
                offset, result, reply.rollback_epoch, reply.now_ms, play.now_ms
            )
            if entry is not None:
                given.append(offset)
                token = (entry.fence, entry.rollback_epoch, entry.attempt)
                play.tokens.setdefault(offset, []).append(token)
        play.perform()
        return given

    return event


def writes() -> Event:
    """The owner writes its watermark into the record. Answers what may be committed."""

    def event(play: Play) -> int:
        ledger = play.owner.ledger
        play.as_owner(Advance(ledger.watermark))
        play.perform()
        return ledger.confirmed

    return event


def repairs() -> Event:
    """Perform the repair that the last `opens` answered with. Answers the outcomes' names."""

    def event(play: Play) -> list[str]:
        repair = play.last
        assert isinstance(repair, Repair)
        ops: list[Op] = [ReplayAck(offset) for offset in repair.finished]
        ops += [Settle(Verb.RELEASE, *orphan) for orphan in repair.orphans]
        for offset, fence, rollback_epoch, attempt, due_ms in repair.leases:
            left_ms = due_ms - play.now_ms
            ops.append(Settle(Verb.EXTEND, offset, fence, rollback_epoch, attempt, for_ms=left_ms))
        if repair.watermark:
            ops.append(Advance(repair.watermark))
        reply = play.as_owner(*ops, EndRepair())
        for op, result in zip(ops, reply.results, strict=False):
            _tell(play, op, result, reply.now_ms)
        return [result.outcome.name.lower() for result in reply.results[:-1]]

    return event


def finishes_dead(offset: int) -> Event:
    """The dead-letter copy is durable: the owner finishes the original."""

    def event(play: Play) -> str:
        reply = play.as_owner(FinishOrigin(offset, *play.token(offset, -1)[:2], Finish.DEAD))
        play.owner.ledger.finish(offset)
        return reply.results[0].outcome.name.lower()

    return event


# --- applications' events


def _tell(play: Play, op: Op, result: OpResult, store_ms: int) -> None:
    play.owner.ledger.settled(
        op.offset, result.outcome, result.fence, result.when_ms, store_ms, play.now_ms
    )


def settles(
    verb: Verb, *offsets: int, nth: int = -1, arg: int = 0, elsewhere: bool = False
) -> Event:
    """An application settles its nth lease of each message. Answers the outcomes, one if all alike.

    `elsewhere`: through a sidecar that does not own the partition; the owner reads it in the
    journal at its next call.
    """

    def event(play: Play) -> str | list[str]:
        ops = [Settle(verb, offset, *play.token(offset, nth), arg) for offset in offsets]
        reply = play.call(*ops, owner=None) if elsewhere else play.as_owner(*ops)
        if reply.verdict is not CallStatus.OK:
            return reply.verdict.name.lower()
        said = []
        for op, result in zip(ops, reply.results, strict=True):
            if not elsewhere:
                _tell(play, op, result, reply.now_ms)
            said.append(result.outcome.name.lower() + (" late" if result.late else ""))
        play.perform()
        return said[0] if len(set(said)) == 1 else said

    return event


def acks(*offsets: int, nth: int = -1, elsewhere: bool = False) -> Event:
    """`settles` with ack."""
    return settles(Verb.ACK, *offsets, nth=nth, elsewhere=elsewhere)


# --- the world's events


def passes(ms: int) -> Event:
    """Time passes; the owner's timers run. Answers how many messages woke up."""

    def event(play: Play) -> int:
        play.now_ms += ms
        woken = play.owner.ledger.tick(play.now_ms)
        play.perform()
        return woken

    return event


def replicates() -> Event:
    """A replica has the record as it is now."""

    def event(play: Play) -> None:
        play.copy = deepcopy(play.record)

    return event


def promotes() -> Event:
    """The store fails over to the replica: what came after `replicates` is gone."""

    def event(play: Play) -> None:
        play.record = deepcopy(play.copy)
        play.runs += 1
        play.run = f"run-{play.runs}"

    return event


def watermark() -> Event:
    """The acting owner's watermark."""
    return lambda play: play.owner.ledger.watermark


def waits_ready() -> Event:
    """Offsets that the acting owner would hand out now, without doing so."""
    return lambda play: sorted(
        offset
        for offset, entry in play.owner.ledger.entries.items()
        if entry.status.name == "READY" and entry.body is not None
    )
