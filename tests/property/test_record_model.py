"""One partition's record against a naive model: a dict per offset and obvious code (I1-I3, R17)."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from ackd.core.ids import LedgerKey
from ackd.core.record import decide
from ackd.core.record.operations import Advance, FinishOrigin, Gap, Grant, Op, Settle
from ackd.core.record.protocol import CallStatus, Finish, Open, RecordCall
from ackd.core.record.transitions import Outcome, Phase, Verb

KEY = LedgerKey("c", "s", b"t" * 16, 0)
OFFSETS = st.integers(0, 11)
T0_MS = 1_700_000_000_000


@dataclass
class Message:
    """What a person would note about one message."""

    state: str = "ready"
    attempt: int = 0
    gave_back: int = 0
    fence: int = 0
    until_ms: int = 0


@dataclass(frozen=True)
class Lease:
    """A token somebody holds."""

    offset: int
    fence: int
    rollback_epoch: int
    attempt: int


class RecordMachine(RuleBasedStateMachine):
    """Grants, settles by any token ever given, holes, dead letters, watermark, time."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = T0_MS
        self.record = decide.create(Open(KEY, "", 7, 77, 0, create_at=0), 0, "run")
        first = decide.open_record(
            self.record, Open(KEY, "a", 8, 78, 0), T0_MS * 1000, "run", created=True
        )
        self.term = first.term
        self.model = [Message() for _ in range(14)]
        self.fences: list[int] = []
        self.group = 0

    def call(self, *ops: Op, owner: bool = True) -> list[Outcome]:
        call = RecordCall(KEY, list(ops))
        if owner:
            call.term, call.seq = self.term, self.record.seq + 1
        self.reply = decide.apply(self.record, call, self.now_ms * 1000, "run")
        assert self.reply.verdict is CallStatus.OK
        return [result.outcome for result in self.reply.results]

    @rule(ms=st.sampled_from([1, 10, 99, 100, 101, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(target=leases, offsets=st.lists(OFFSETS, min_size=1, max_size=4), ms=st.just(100))
    def grant(self, offsets: list[int], ms: int) -> object:
        self.group += 1
        said = self.call(*(Grant.of(each, ms, self.group) for each in offsets))
        given = []
        for offset, outcome, result in zip(offsets, said, self.reply.results, strict=True):
            message = self.model[offset]
            if message.state in ("acked", "gone"):
                assert outcome is Outcome.FINISHED
            elif message.state == "dead":
                assert outcome is Outcome.REFUSED
            elif message.state in ("leased", "waiting") and message.until_ms > self.now_ms:
                assert outcome is Outcome.HELD
                assert result.when_ms == message.until_ms
            else:
                assert outcome is Outcome.GRANTED
                message.state, message.until_ms = "leased", self.now_ms + ms
                message.attempt += 1
                message.fence = result.fence
                assert result.attempt == message.attempt
                given.append(Lease(offset, result.fence, self.reply.rollback_epoch, result.attempt))
        fences = {lease.fence for lease in given}
        assert len(fences) <= 1
        assert all(fence > max(self.fences, default=0) for fence in fences)
        self.fences += fences
        return multiple(*given)

    @rule(lease=leases, owner=st.booleans())
    def ack(self, lease: Lease, owner: bool) -> None:  # noqa: FBT001 - drawn
        message = self.model[lease.offset]
        (said,) = self.call(self._op(Verb.ACK, lease), owner=owner)
        if message.state == "acked":
            assert said is Outcome.ALREADY_ACKED
        elif message.state == "leased" and message.fence == lease.fence:
            assert said is Outcome.ACKED
            assert self.reply.results[0].late == (message.until_ms <= self.now_ms)
            message.state = "acked"
        else:
            assert said is Outcome.LOST

    @rule(lease=leases, ms=st.sampled_from([0, 50, 100, 1000]))
    def extend(self, lease: Lease, ms: int) -> None:
        message = self.model[lease.offset]
        (said,) = self.call(self._op(Verb.EXTEND, lease, for_ms=ms))
        if message.state == "leased" and message.fence == lease.fence:
            assert said is Outcome.EXTENDED
            message.until_ms = self.now_ms + ms
            assert self.reply.results[0].when_ms == message.until_ms
        else:
            assert said is Outcome.LOST

    @rule(lease=leases, ms=st.sampled_from([0, 50, 100]), counted=st.booleans())
    def retry(self, lease: Lease, ms: int, counted: bool) -> None:  # noqa: FBT001 - drawn
        message = self.model[lease.offset]
        (said,) = self.call(self._op(Verb.RETRY, lease, for_ms=ms, counted=counted))
        if message.fence == lease.fence and message.state == "waiting":
            assert said is Outcome.RETRYING
        elif self._live(message, lease):
            assert said is Outcome.RETRYING
            message.state, message.until_ms = "waiting", self.now_ms + ms
            if not counted:
                self._uncount(message)
        else:
            assert said is Outcome.LOST

    @rule(lease=leases)
    def release(self, lease: Lease) -> None:
        message = self.model[lease.offset]
        (said,) = self.call(self._op(Verb.RELEASE, lease))
        if message.fence == lease.fence and message.state == "released":
            assert said is Outcome.RELEASED
        elif self._live(message, lease):
            assert said is Outcome.RELEASED
            message.state = "released"
            self._uncount(message)
        else:
            assert said is Outcome.LOST

    @rule(lease=leases)
    def dead(self, lease: Lease) -> None:
        message = self.model[lease.offset]
        (said,) = self.call(self._op(Verb.DEAD, lease))
        if message.fence == lease.fence and message.state == "dead":
            assert said is Outcome.DEAD
        elif self._live(message, lease):
            assert said is Outcome.DEAD
            message.state = "dead"
        else:
            assert said is Outcome.LOST

    @rule(lease=leases)
    def finish_dead(self, lease: Lease) -> None:
        """R2: only from `dead`; a repeat and a stranger's finish change nothing."""
        message = self.model[lease.offset]
        (said,) = self.call(
            FinishOrigin(lease.offset, lease.fence, lease.rollback_epoch, Finish.DEAD)
        )
        if message.state == "dead" and message.fence == lease.fence:
            assert said is Outcome.DONE
            message.state = "gone"
        elif message.state in ("acked", "gone"):
            assert said is Outcome.FINISHED
        else:
            assert said is Outcome.LOST

    @rule(start=OFFSETS, length=st.integers(0, 3))
    def hole(self, start: int, length: int) -> None:
        """R7: everything but live leases and pending dead letters."""
        self.call(Gap(start, start + length))
        for offset in range(max(start, self._watermark()), start + length):
            message = self.model[offset]
            live = message.state == "leased" and message.until_ms > self.now_ms
            if live or message.state in ("dead", "acked", "gone"):
                continue
            message.state = "gone" if message.attempt or message.gave_back else "acked"

    @rule()
    def advance(self) -> None:
        self.call(Advance(self._watermark()))
        assert self.reply.watermark == self._watermark()

    @rule()
    def take_over(self) -> None:
        """A takeover changes nothing of the messages."""
        request = Open(KEY, "b", 9, 79, 0)
        snapshot = decide.open_record(
            self.record, request, self.now_ms * 1000, "run", created=False
        )
        assert snapshot.term > self.term
        self.term = snapshot.term
        for slot in snapshot.slots:
            assert self.model[slot.offset].state not in ("acked", "gone")

    def _op(self, verb: Verb, lease: Lease, for_ms: int = 0, *, counted: bool = True) -> Op:
        token = lease.offset, lease.fence, lease.rollback_epoch, lease.attempt
        return Settle(verb, *token, for_ms, counted=counted)

    def _live(self, message: Message, lease: Lease) -> bool:
        mine = message.state == "leased" and message.fence == lease.fence
        return mine and message.until_ms > self.now_ms

    def _uncount(self, message: Message) -> None:
        message.attempt -= 1
        message.gave_back += 1

    def _watermark(self) -> int:
        offset = 0
        while offset < len(self.model) and self.model[offset].state in ("acked", "gone"):
            offset += 1
        return offset

    @invariant()
    def the_phases_agree(self) -> None:
        for offset, message in enumerate(self.model):
            phase = self.record.phase(offset, self.now_ms)
            expected = message.state
            if expected == "leased" and message.until_ms <= self.now_ms:
                expected = "expired"
            assert phase is Phase[expected.upper()], (offset, message)


TestRecord = RecordMachine.TestCase
