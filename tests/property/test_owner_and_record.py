"""An owner's ledger never contradicts the record (I2, I3, I5, R7, R12, R16).

The log has holes; answers are lost; other sidecars settle; owners die and come back. After each
call that the owner heard, what it believes is compared with the record and with naive sets.
"""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ackd.core.ledger.entry import EntryStatus
from ackd.core.record.transitions import Phase, Verb
from tests.unit.core.playbook import (
    Play,
    PositionOf,
    brings,
    end_at,
    fetches,
    finishes_dead,
    forgets,
    leases,
    opens,
    passes,
    repairs,
    settles,
    writes,
)

END = 24
LEASE_MS = 100
SETTLES = st.sampled_from([Verb.ACK, Verb.ACK, Verb.RETRY, Verb.EXTEND, Verb.DEAD, Verb.RELEASE])
STATUSES = {
    Phase.READY: EntryStatus.READY,
    Phase.RELEASED: EntryStatus.READY,
    Phase.LEASED: EntryStatus.LEASED,
    Phase.WAITING: EntryStatus.WAITING,
    Phase.DEAD: EntryStatus.DEAD,
}


class OwnerMachine(RuleBasedStateMachine):
    """One partition of `END` offsets; `log` are those that exist."""

    rounds = 8
    """So many times everything is handed out and acked at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.play = Play(position_of=self.order())
        self.log: list[int] = []
        self.finished: set[int] = set()
        self.blind = False

    def order(self) -> PositionOf | None:
        """What the ledger keeps in order."""
        return None

    @initialize(log=st.sets(st.integers(0, END - 1), min_size=END // 2))
    def written(self, log: set[int]) -> None:
        self.log = sorted(log)

    # --- the broker

    @rule(count=st.integers(1, 8))
    @precondition(lambda self: not self.blind)
    def fetch(self, count: int) -> None:
        position = self.play.owner.ledger.position
        batch = [offset for offset in self.log if offset >= position][:count]
        if batch:
            self.finished |= set(range(position, batch[-1])) - set(self.log)
            self.play >> brings(*batch)
        else:
            self.finished |= set(range(position, END))
            self.play >> end_at(END)

    # --- applications

    @rule(most=st.integers(1, 6))
    @precondition(lambda self: not self.blind)
    def lease(self, most: int) -> None:
        self.play >> leases(most, lease_ms=LEASE_MS)

    @rule(verb=SETTLES, pick=st.randoms(use_true_random=False), elsewhere=st.booleans())
    @precondition(lambda self: self.play.tokens and not self.blind)
    def settle(self, verb: Verb, pick: Random, elsewhere: bool) -> None:  # noqa: FBT001 - drawn
        offset = pick.choice(sorted(self.play.tokens))
        nth = pick.randrange(len(self.play.tokens[offset]))
        self.play >> settles(verb, offset, nth=nth, arg=LEASE_MS, elsewhere=elsewhere)
        if verb is Verb.ACK and self.play.last in ("acked", "acked late", "already_acked"):
            self.finished.add(offset)

    @rule(ms=st.sampled_from([1, 50, LEASE_MS, 1000]))
    def time(self, ms: int) -> None:
        self.play >> passes(ms)

    # --- the owner

    @rule()
    @precondition(lambda self: not self.blind)
    def write(self) -> None:
        self.play >> writes()

    @rule()
    @precondition(lambda self: self.play.dead and not self.blind)
    def copies_arrive(self) -> None:
        for offset in self.play.dead:
            self.play >> finishes_dead(offset) << "done"
            self.finished.add(offset)
        self.play.dead.clear()

    @rule(most=st.integers(1, 6))
    @precondition(lambda self: not self.blind)
    def answer_lost(self, most: int) -> None:
        """R12: leases are given in the store and nobody knows."""
        self.play >> leases(most, heard=False, lease_ms=LEASE_MS)
        self.blind = True

    @rule()
    @precondition(lambda self: self.blind)
    def reread(self) -> None:
        self.play.dead.clear()
        self.play >> opens("a", again=True) >> repairs()
        self.play.perform()
        self.blind = False

    @rule()
    def killed(self) -> None:
        """A new process knows the record only; it fetches from the watermark."""
        self.play.dead.clear()
        self.play >> forgets("a") >> opens("a") >> fetches() >> passes(0)
        self.blind = False

    # --- what must hold

    @invariant()
    def the_owner_agrees_with_the_record(self) -> None:
        play = self.play
        if self.blind:
            return
        play >> writes() >> passes(0) >> writes()  # the first one brings the journal
        record, ledger = play.record, play.owner.ledger
        naive = 0
        while naive in self.finished:
            naive += 1
        assert ledger.watermark == naive
        assert record.watermark == naive
        for offset in range(naive, END):
            assert (offset in record.finished) == (offset in ledger.finished)
            assert record.over(offset) == (offset in self.finished), offset
        for offset, entry in ledger.entries.items():
            phase = record.phase(offset, play.now_ms)
            status = STATUSES.get(phase, EntryStatus.READY)
            if phase is Phase.WAITING and record.slots[offset].when_ms <= play.now_ms:
                status = EntryStatus.READY
            assert entry.status is status, (offset, phase)

    @invariant()
    def the_books_are_right(self) -> None:
        """I8: what bounds are counted in is never off."""
        ledger = self.play.owner.ledger
        statuses = [entry.status for entry in ledger.entries.values()]
        assert ledger.leased == statuses.count(EntryStatus.LEASED)
        assert ledger.waiting == statuses.count(EntryStatus.WAITING)
        assert ledger.bytes == sum(entry.size for entry in ledger.entries.values())
        timed = [
            entry.due_ms
            for entry in ledger.entries.values()
            if entry.status in (EntryStatus.LEASED, EntryStatus.WAITING)
        ]
        assert ledger.deadlines.next_due_ms() == min(timed, default=None)

    def teardown(self) -> None:
        """I5: when applications ack and time passes, everything gets done."""
        if self.blind:
            self.reread()
        for _ in range(self.rounds):
            while self.play.owner.ledger.position < END:
                self.fetch(8)
            self.play >> passes(LEASE_MS) >> leases(END, lease_ms=LEASE_MS)
            given = self.play.last
            assert isinstance(given, list)
            if given:
                self.play >> settles(Verb.ACK, *given) << "acked"
            for offset in self.play.dead:
                self.play >> finishes_dead(offset) << "done"
            self.play.dead.clear()
        assert self.play >> writes() << END
        assert not self.play.owner.ledger.entries


OwnerMachine.TestCase.settings = settings(max_examples=150)
TestOwner = OwnerMachine.TestCase
