"""Keys that are blocked and freed: two owners, two records, copies in any order, kills (R19, I6).

Both production ledgers against both reference records. Whatever the order of leases, settles,
sending, copies that land twice or late, claims, lost messages between the parts and kills of either
owner: no message is handed out before an earlier one of its key is over, none after its ack, and in
the end every one of them is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from ackd.core.ids import LedgerKey
from ackd.core.ledger.effects import (
    Claim,
    CloseOriginRecord,
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
from ackd.core.ledger.entry import EntryStatus
from ackd.core.ledger.ledger import Ledger
from ackd.core.ledger.order import OrderPosition
from ackd.core.ledger.send_back import Rules
from ackd.core.record import decide
from ackd.core.record.operations import (
    AskBlocker,
    ClaimOrigin,
    CloseOrigin,
    CopyRef,
    FinishOrigin,
    Gap,
    Grant,
    MarkDead,
    MoveToRetry,
    Op,
    PlaceCopy,
    Settle,
)
from ackd.core.record.protocol import CallStatus, Finish, Open, OpResult, RecordCall, RecordReply
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Outcome, State, Verb

T0_MS = 1_700_000_000_000
MESSAGES = 12
KEYS = (2, 3)
LEASE_MS = 100
RULES = Rules(stuck_after_ms=1_000, min_age_ms=500, span_max=2_000)
ROUNDS = 100
STORIES = 100


def key_of(offset: int) -> int:
    return KEYS[offset * 7 // 4 % len(KEYS)]


@dataclass(frozen=True)
class Body:
    """A message, or a copy of `origin` with the generation of its origin record."""

    offset: int
    origin: int = -1
    generation: int = 0

    def size(self) -> int:
        return 10


def position_of(body: Body) -> OrderPosition:
    if body.origin < 0:
        return OrderPosition(key_of(body.offset), body.offset)
    return OrderPosition(("origin", key_of(body.origin)), body.origin, origin_record=body)


@dataclass
class Lease:
    """A token of a message, and where it is settled."""

    side: Side
    offset: int
    message: int
    fence: int
    rollback_epoch: int
    attempt: int


@dataclass
class Side:
    """A partition: its record, its log, its owner, and what that owner still has to do."""

    number: int
    record: PartitionRecord
    ledger: Ledger[Body] = field(default_factory=Ledger)
    log: list[Body] = field(default_factory=list)
    session: int = 0
    copies: list[Body] = field(default_factory=list)
    claims: list[int] = field(default_factory=list)
    closes: list[tuple[int, Body]] = field(default_factory=list)

    @classmethod
    def new(cls, number: int) -> Side:
        request = Open(LedgerKey("c", "s", b"t" * 16, number), "a", 7, 77, 0, create_at=0)
        return cls(number, decide.create(request, 0, "run"))

    def call(self, now_ms: int, *ops: Op, owner: bool = True) -> RecordReply:
        call = RecordCall(LedgerKey("c", "s", b"t" * 16, self.number), list(ops))
        if owner:
            call.term, call.seq = self.record.term, self.record.seq + 1
        reply = decide.apply(self.record, call, now_ms * 1000, "run")
        assert reply.verdict is CallStatus.OK
        return reply

    def one(self, now_ms: int, op: Op) -> OpResult:
        return self.call(now_ms, op, owner=False).results[0]

    def opened(self, now_ms: int) -> None:
        """A new process takes it over; what the last one had in hand is gone."""
        request = Open(LedgerKey("c", "s", b"t" * 16, self.number), "b", 9, 79, 0)
        snapshot = decide.open_record(self.record, request, now_ms * 1000, "run", created=False)
        retry_copies = self.number == 1
        rules = None if retry_copies else RULES
        self.ledger = Ledger(rules, copies=retry_copies, position_of=position_of)
        self.copies, self.claims, self.closes = [], [], []
        self.ledger.opened(snapshot, now_ms)
        self.session += 1
        self.ledger.intake.fetching(self.session, self.ledger.watermark)

    def fetch(self, most: int) -> None:
        start = self.ledger.position
        self.ledger.intake.fetched(self.session, self.log[start : start + most])


class Story:
    """The partition of the messages and that of the copies."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = T0_MS
        self.origin, self.retry = Side.new(0), Side.new(1)
        self.origin.log = [Body(offset) for offset in range(MESSAGES)]
        self.leases: list[Lease] = []
        self.acked: set[int] = set()
        self.over: set[int] = set()
        for side in (self.origin, self.retry):
            side.opened(self.now_ms)

    # --- what the ledgers decide, done or kept

    def perform(self, side: Side) -> None:
        for effect in side.ledger.drain():
            match effect:
                case SendBack(offset, generation):
                    side.copies.append(Body(-1, offset, generation))
                case Claim(offset):
                    side.claims.append(offset)
                case LeaveKeyQueue(offset, origin_record):
                    assert isinstance(origin_record, Body)
                    side.closes.append((offset, origin_record))
                case FetchFrom(offset):
                    side.session += 1
                    side.ledger.intake.fetching(side.session, offset)
                case SendDead(offset, fence, attempt):
                    self.given_up(side, offset, fence, attempt)
                case FinishRange(start, end):
                    side.call(self.now_ms, Gap(start, end))
                case (
                    Mistaken()
                    | CloseOriginRecord()
                    | Exhausted()
                    | StoreForeignDelays()
                    | Restore()
                ):
                    raise AssertionError(effect)

    def given_up(self, side: Side, offset: int, fence: int, attempt: int) -> None:
        """The dead copy is durable at once."""
        rollback_epoch = side.ledger.entries[offset].rollback_epoch
        op = FinishOrigin(offset, fence, rollback_epoch, Finish.DEAD)
        assert side.call(self.now_ms, op).results[0].outcome in (Outcome.DONE, Outcome.FINISHED)
        self.over.add(side.log[offset].origin if side is self.retry else offset)
        side.ledger.finish(offset)
        self.perform(side)

    # --- time, fetching, owners

    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        for side in (self.origin, self.retry):
            side.ledger.tick(self.now_ms)
            self.perform(side)

    def fetched(self, most: int, *, copies: bool) -> None:
        side = self.retry if copies else self.origin
        side.fetch(most)
        self.perform(side)

    def killed(self, *, copies: bool) -> None:
        side = self.retry if copies else self.origin
        side.opened(self.now_ms)
        self.perform(side)

    # --- leases

    def lease(self, most: int, *, copies: bool, lost: bool) -> None:
        """`lost`: the owner dies before it hears of the answer."""
        side = self.retry if copies else self.origin
        given = side.ledger.grants.take(most, 1_000)
        ops = [Grant.of(offset, LEASE_MS, 1) for offset in given]
        reply = side.call(self.now_ms, *ops)
        messages = [side.log[offset].origin if copies else offset for offset in given]
        keys = [key_of(message) for message in messages]
        assert len(set(keys)) == len(keys), "two of one key in one answer"
        for offset, message, result in zip(given, messages, reply.results, strict=True):
            if result.outcome is Outcome.GRANTED:
                self.granted(message)
                self.leases.append(
                    Lease(side, offset, message, result.fence, reply.rollback_epoch, result.attempt)
                )
            side.ledger.grants.granted(
                offset, result, reply.rollback_epoch, reply.now_ms, self.now_ms
            )
        if lost:
            side.opened(self.now_ms)
        self.perform(side)

    def granted(self, message: int) -> None:
        assert message not in self.acked, f"{message} again after its ack"
        for earlier in range(message):
            if key_of(earlier) == key_of(message):
                assert earlier in self.over, f"{message} before {earlier}"

    def settled(self) -> None:
        """By the owner, or by somebody else, of which the owner reads."""
        lease = self.rng.choice(self.leases[-4:])
        verb = self.rng.choice([Verb.ACK, Verb.ACK, Verb.ACK, *GIVEN])
        self.settle(lease, verb, self.rng.choice([0, 300, 5_000]), told=self.rng.random() < 0.5)

    def settle(self, lease: Lease, verb: Verb, delay_ms: int = 0, *, told: bool = True) -> None:
        side = lease.side
        op = Settle(verb, lease.offset, lease.fence, lease.rollback_epoch, lease.attempt, delay_ms)
        reply = side.call(self.now_ms, op, owner=told)
        (result,) = reply.results
        if result.outcome in (Outcome.ACKED, Outcome.ALREADY_ACKED):
            self.acked.add(lease.message)
            self.over.add(lease.message)
        side.ledger.settled(
            lease.offset,
            result.outcome,
            result.fence,
            result.when_ms,
            reply.now_ms,
            self.now_ms,
            lease.rollback_epoch,
            result.attempt,
        )
        self.perform(side)

    # --- sending back

    def stuck(self) -> None:
        side = self.origin
        found = side.ledger.send_back.stuck(self.now_ms)
        ops = [MoveToRetry(s.offset, at, s.key) for at, s in enumerate(found, 1)]
        reply = side.call(self.now_ms, *ops)
        for each, result in zip(found, reply.results, strict=True):
            side.ledger.send_back.sent(
                each.offset, result, reply.rollback_epoch, reply.now_ms, self.now_ms
            )
        self.perform(side)

    def copy(self, at: int, *, twice: bool = False, finish: bool = True) -> None:
        side, body = self.origin, self.origin.copies[at]
        for _ in range(1 + twice):
            self.retry.log.append(Body(len(self.retry.log), body.origin, body.generation))
        if not finish:
            return
        del side.copies[at]
        entry = side.ledger.entry(body.origin)
        if entry is None or entry.status is not EntryStatus.MOVING:
            return
        op = FinishOrigin(body.origin, body.generation, entry.rollback_epoch, Finish.SENT)
        side.call(self.now_ms, op)
        side.ledger.send_back.sent_back(body.origin)
        self.perform(side)

    # --- claims

    def claim(self, at: int) -> None:
        side = self.retry
        offset = side.claims.pop(at)
        entry = side.ledger.entry(offset)
        if entry is None or entry.status is not EntryStatus.CLAIMING:
            return
        body = side.log[offset]
        rollback_epoch = self.origin.record.rollback_epoch
        claim = ClaimOrigin(body.origin, body.generation, rollback_epoch, CopyRef(1, offset))
        result = self.origin.one(self.now_ms, claim)
        first = result.blocked_by
        if result.outcome is Outcome.BLOCKED and first.copy and side.ledger.over(first.copy.offset):
            self.origin.one(self.now_ms, CloseOrigin(first.offset, finished=first.copy))
            result = self.origin.one(self.now_ms, claim)
        if result.outcome is Outcome.CLAIMED:
            due_ms = result.when_ms if result.state is State.WAITING else 0
            place = PlaceCopy(
                offset,
                body.generation,
                attempt=result.attempt,
                due_ms=due_ms,
                first_s=result.first_s,
            )
            ops: list[Op] = [place]
            if result.state is State.DEAD:
                ops.append(MarkDead(offset, body.generation))
            reply = side.call(self.now_ms, *ops)
            result = reply.results[-1]
        side.ledger.claimed(offset, result, side.record.rollback_epoch, self.now_ms, self.now_ms)
        self.perform(side)

    def close(self, at: int) -> None:
        offset, origin_record = self.retry.closes.pop(at)
        op = CloseOrigin(
            origin_record.origin, origin_record.generation, finished=CopyRef(1, offset)
        )
        self.origin.one(self.now_ms, op)

    def swept(self) -> None:
        """The owner of the messages asks for keys of which nothing was heard."""
        for key in list(self.origin.ledger.send_back.blocked):
            assert isinstance(key, int)
            result = self.origin.one(self.now_ms, AskBlocker(key))
            if result.outcome is Outcome.FINISHED:
                self.origin.ledger.send_back.key_free(key)
            elif result.when_ms and self.retry.record.over(result.when_ms - 1):
                close = CloseOrigin(result.fence, 0, finished=CopyRef(1, result.when_ms - 1))
                self.origin.one(self.now_ms, close)
        self.perform(self.origin)

    # --- the end

    def step(self) -> None:
        """Something happens."""
        rng, origin, retry = self.rng, self.origin, self.retry
        copies = rng.random() < 0.5
        match rng.choice(STEPS):
            case "time":
                self.time_passes(rng.choice([1, 60, 101, 1_100, 2_500]))
            case "fetch":
                self.fetched(rng.randint(1, 4), copies=copies)
            case "kill":
                self.killed(copies=copies)
            case "lease":
                self.lease(rng.randint(1, 3), copies=copies, lost=rng.random() < 0.1)
            case "settle" if self.leases:
                self.settled()
            case "stuck":
                self.stuck()
            case "copy" if origin.copies:
                at = rng.randrange(len(origin.copies))
                self.copy(at, twice=rng.random() < 0.2, finish=rng.random() < 0.7)
            case "claim" if retry.claims:
                self.claim(rng.randrange(len(retry.claims)))
            case "close" if retry.closes:
                self.close(rng.randrange(len(retry.closes)))
            case "sweep":
                self.swept()
            case _:
                pass  # nothing of that is there

    def ends(self) -> None:
        """Everything works from now on: every message comes to its end, and nothing stays."""
        for _ in range(ROUNDS):
            if self.done():
                return
            self.time_passes(1_100)
            self.stuck()
            while self.origin.copies:
                self.copy(0)
            for side in (self.origin, self.retry):
                side.fetch(100)
                self.perform(side)
            while self.retry.closes:
                self.close(0)
            while self.retry.claims:
                self.claim(0)
            self.swept()
            before = len(self.leases)
            for copies in (False, True):
                self.lease(100, copies=copies, lost=False)
            for lease in self.leases[before:]:
                self.settle(lease, Verb.ACK)
        missing = sorted(set(range(MESSAGES)) - self.over)
        raise AssertionError(f"not at an end: {missing}, blocked {self.origin.record.blocked}")

    def done(self) -> bool:
        rest = self.origin.record.blocked or self.origin.ledger.send_back.blocked
        return len(self.over) == MESSAGES and not rest and self.origin.ledger.watermark == MESSAGES


STEPS = ["time", "fetch", "lease", "lease", "settle", "settle", "stuck", "copy", "claim", "claim"]
STEPS = STEPS * 3 + ["close", "kill", "sweep"]
GIVEN = [Verb.RETRY, Verb.RELEASE, Verb.DEAD]


@pytest.mark.parametrize("chunk", range(4))
def test_r19_each_key_is_delivered_in_order_and_comes_to_its_end(chunk: int) -> None:
    for seed in range(chunk * STORIES, (chunk + 1) * STORIES):
        story = Story(seed)
        try:
            for _ in range(story.rng.choice([20, 80, 200])):
                story.step()
            story.ends()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
