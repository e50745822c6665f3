"""Planted mistakes: each breaks one rule in production code, and the simulator has to notice.

A simulator that finds nothing proves little unless it is known what it would find.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ackd.api import messages
from ackd.core.commit_metadata import Progress
from ackd.core.dedup_window import Seen
from ackd.core.ids import TopicPartition
from ackd.core.ledger.claims import Carriers
from ackd.core.ledger.entry import HOLD_OF, Hold
from ackd.core.ledger.ledger import Ledger
from ackd.core.record import copies as home
from ackd.core.record import decide, maintenance, transitions
from ackd.core.record.protocol import Call, JournalEntry, Op, Open, Result
from ackd.core.record.slot import Slot
from ackd.core.record.state import Fences, Record
from ackd.core.record.transitions import Outcome, Phase, State, Step, Verb
from ackd.engine.delivery.dedup import Dedup
from ackd.engine.ownership.commit import Committer
from ackd.engine.ownership.ownership import Ownership
from ackd.engine.ownership.start_positions import StartPositions
from ackd.engine.partition.partition import Partition
from ackd.engine.retry import copier
from ackd.engine.retry.copier import Job, Sender
from ackd.engine.runtime import Runtime
from ackd.engine.settlement.settle import Settler
from ackd.errors import StoreError, StoreUnknownError
from ackd.ports import NotStored, Stored
from tests.simulation import mutants_of_cancels as cancels
from tests.simulation import mutants_of_notes as notes
from tests.simulation import mutants_of_order as order
from tests.simulation import mutants_of_outbox as outbox
from tests.simulation import mutants_of_redrive as redrive
from tests.simulation import mutants_of_rollback as rollback
from tests.simulation import mutants_of_seek as seek
from tests.simulation import put_off
from tests.simulation.fetch import Fetcher, Session
from tests.simulation.mutant import Mutant
from tests.simulation.plan import (
    FAILOVER,
    KEYS,
    OUTGROWN,
    PARKED,
    PROMOTED,
    PROMOTED_KEYS,
    REDRIVE,
    RESET,
    SEEK,
    SEND_BACK,
    Story,
)


def _with(*faults: str, style: str = "", **settings: int) -> Story:
    return Story(faults, tuple(settings.items()), style)


def _row(phase: Phase, verb: Verb, row: Step) -> Any:
    return patch.dict(transitions.TABLE, {(phase, verb): row})


# --- core: the record


@contextmanager
def _grant_without_deadline() -> Iterator[None]:
    """The store does not look at the deadline, and a new owner does not either."""
    row = Step(Outcome.GRANTED, State.LEASED)
    waits = {State.WAITING: Hold.WAITING, State.DEAD: Hold.DEAD}
    with (
        _row(Phase.LEASED, Verb.GRANT, row),
        patch.object(Record, "held_until", lambda *_, **__: 0),
        patch.dict(HOLD_OF, waits, clear=True),
    ):
        yield


def _ack_after_dead() -> Any:
    return _row(Phase.DEAD, Verb.ACK, Step(Outcome.ACKED, State.FINISHED))


@contextmanager
def _fences_from_memory() -> Iterator[None]:
    """After a rollback the same number, under the same term, is given to somebody else."""

    def of(self: Any, group: int) -> int:
        fence: int = self._of.setdefault(group, self._record.fence + 1)
        self._record.fence = max(self._record.fence, fence)
        return fence

    rejoin = decide._rejoin

    def keep_term(record: Record, request: Open, now_us: int, run: str) -> bool:
        rterm, moved = record.rterm, rejoin(record, request, now_us, run)
        record.rterm = rterm
        return moved

    with (
        patch.object(Fences, "of", of),
        patch.object(decide, "_rejoin", keep_term),
    ):
        yield


def _exceptions_forgotten() -> Any:
    original = Record.phase

    def phase(self: Record, offset: int, now_ms: int) -> Phase:
        found = original(self, offset, now_ms)
        return Phase.ACKED if found is Phase.GONE else found

    return patch.object(Record, "phase", phase)


def _any_token() -> Any:
    return patch.object(Record, "seen_by", lambda _self, _op, phase, *_: phase)


def _reset_drops_leases() -> Any:
    original = maintenance.reset

    def reset(record: Record, op: Op, now_ms: int) -> int:
        original(record, op, now_ms)
        record.slots = {}
        return 0

    return patch.dict(maintenance.VERBS, {Verb.RESET: reset})


# --- core: the ledger


def _watermark_over_a_gap() -> Any:
    def advance(self: Ledger[Any]) -> None:
        highest = self.finished.highest()
        if highest is not None and highest >= self.watermark:
            self.watermark = highest + 1

    return patch.object(Ledger, "_advance", advance)


def _journal_ignored() -> Any:
    def journal(self: Ledger[Any], entries: Sequence[JournalEntry], *_: int) -> None:
        del self, entries

    return patch.object(Ledger, "journal", journal)


# --- engine


def _unknown_is_nothing() -> Any:
    def failed(self: Partition, call: Call, error: StoreError) -> None:
        if not isinstance(error, StoreUnknownError):
            self._put_back(call, granted_too=True)

    return patch.object(Partition, "failed", failed)


def _answered_before() -> Any:
    original = Settler.settle

    async def settle(
        self: Settler, items: Sequence[messages.SettleItem], *rest: Any
    ) -> list[messages.SettleResult]:
        results = await original(self, items, *rest)
        for item, result in zip(items, results, strict=True):
            if item.do is messages.Verb.ACK and result.status is messages.Status.UNAVAILABLE:
                result.status = messages.Status.ACKED
        return results

    return patch.object(Settler, "settle", settle)


def _dead_without_copy() -> Any:
    async def store(self: Sender, jobs: Sequence[Job]) -> None:
        del self
        for job in jobs:
            job.stored = True

    return patch.object(Sender, "_store", store)


def _refused_copy_counts() -> Any:
    return patch.object(copier, "Stored", (Stored, NotStored))


def _claim_not_asked() -> Any:
    def claim(self: Carriers[Any], offset: int) -> None:
        self._make_ready(offset, self.entries[offset])

    return patch.object(Carriers, "_claim", claim)


def _any_copy_may_claim() -> Any:
    original = home.claim

    def claim(record: Record, op: Op, now_ms: int) -> Result:
        found = record.homes.get(op.offset)
        if found is not None and found.carrier is not None:
            found.carrier = (op.group, op.arg)
        return original(record, op, now_ms)

    return patch.dict(home.VERBS, {Verb.CLAIM: claim})


def _parking_ends_the_lease() -> Any:
    original = home.send

    def send(record: Record, op: Op, slot: Slot, fences: Fences) -> None:
        original(record, op, slot, fences)
        record.homes[op.offset].slot.when_ms = 0

    return patch.object(home, "send", send)


def _start_resolved_again() -> Any:
    original = StartPositions._load

    async def load(self: StartPositions) -> dict[str, int]:
        await original(self)
        return await self._resolve()

    return patch.object(StartPositions, "_load", load)


def _any_metadata_fits() -> Any:
    return patch.object(Progress, "fits", lambda *_: True)


def _reset_not_committed() -> Any:
    original = Committer.commit

    async def commit(self: Committer, partitions: Sequence[Partition], **how: bool) -> None:
        if not how.get("always"):
            await original(self, partitions)

    return patch.object(Committer, "commit", commit)


def _seek_makes_holes() -> Any:
    """Fetching starts above what is known, and the gap rule meets this seek."""

    def start_fetching(self: Partition) -> None:
        highest = self.ledger.finished.highest()
        known = [*self.ledger.entries, -1 if highest is None else highest]
        start = max(self.ledger.watermark, *(offset + 1 for offset in known))
        session = self._consumer.fetch_from(self.tp, start)
        self.ledger.fetching(session, self.ledger.watermark)
        self.perform()

    return patch.object(Partition, "start_fetching", start_fetching)


def _replaced_unnoticed() -> Any:
    return patch.object(Ownership, "replaced", lambda _self, _topic: None)


def _reads_on_in_a_topic_made_again() -> Any:
    """A client that fetches by name: its sessions pass over to the new log where they stand."""

    def blind(self: Fetcher, topic: str) -> None:
        for tp, session in self._sessions.items():
            if tp.topic == topic:
                log = session.log = self._broker.cluster.log(tp)

                def pull(tp: TopicPartition = tp, session: Session = session) -> None:
                    if session.log.end > session.position:
                        self._pull(tp, session)

                log.listeners.append(pull)

    return patch.object(Fetcher, "blind", blind)


def _given_back_although_sent() -> Any:
    original = Runtime.receive

    async def receive(
        self: Runtime, name: str, request: messages.ReceiveRequest
    ) -> messages.Received:
        received = await original(self, name, request)
        self._of(name).hand_out.give_back(received.messages)
        return received

    return patch.object(Runtime, "receive", receive)


def _entry_before_the_ack() -> Any:
    original = Dedup._answer

    def answer(self: Dedup, question: Any, repeats: frozenset[str]) -> None:
        for each in question.deliveries:
            if each.lease not in repeats:
                self._acked(question.partition, each.record.offset, each.first_seen_ms)
        original(self, question, repeats)

    return patch.object(Dedup, "_answer", answer)


def _resets_do_not_count() -> Any:
    return patch.object(Seen, "_since", lambda *_: 0)


MUTANTS = (
    Mutant("a re-made topic is not noticed", "R1", _replaced_unnoticed, _with("remake")),
    Mutant("a session reads on", "R1", _reads_on_in_a_topic_made_again, OUTGROWN),
    Mutant(
        "an ack counts after dead", "R2", _ack_after_dead, _with("kill", "broker_net", style="dead")
    ),
    Mutant("a dead letter is finished without its copy", "R2", _dead_without_copy),
    Mutant("a stuck message is finished without its copy", "R2", _dead_without_copy, SEND_BACK),
    Mutant("a copy is handed out without a claim", "R2", _claim_not_asked, SEND_BACK),
    Mutant(
        "a copy that was refused counts as stored",
        "R25",
        _refused_copy_counts,
        _with("broker_net", "broker_down", style="slow", stuck_ms=1_500),
    ),
    Mutant("any copy may claim", "R2", _any_copy_may_claim, SEND_BACK),
    Mutant("parking ends the lease", "R4", _parking_ends_the_lease, SEND_BACK),
    Mutant(
        "the start is resolved at every start",
        "R6",
        _start_resolved_again,
        _with("store_freeze", "kill", "cut"),
    ),
    Mutant("what a takeover does not fetch is a hole", "R7", _seek_makes_holes, _with("kill")),
    Mutant("any commit metadata fits", "R8", _any_metadata_fits, _with("copied")),
    Mutant(
        "an accepted reset is not committed",
        "R8",
        _reset_not_committed,
        _with("reset", "kill", "fuse", commit_ms=5_000),
    ),
    Mutant(
        "a reset ends live leases",
        "R8",
        _reset_drops_leases,
        _with("reset", lease_ms=8_000, session_ms=3_000),
    ),
    Mutant("a seek leaves copies", "R8", seek.copies_stay, SEEK),
    Mutant("a foreign reset leaves copies", "R8", seek.copies_stay_in_a_foreign_reset, RESET),
    Mutant("fences come from memory", "R9", _fences_from_memory, _with("store_failover", "kill")),
    Mutant(
        "nothing is repaired after a rollback", "R10", rollback.no_repair, _with("store_failover")
    ),
    Mutant("a forgotten home is not written again", "R10", rollback.no_homes, FAILOVER, 54),
    Mutant("replays are given up", "R10", rollback.no_patience, PROMOTED_KEYS, 1087),
    Mutant("settles overtake homes", "I7", rollback.homes_are_passed, PROMOTED, 1016),
    Mutant("late acks overtake claims", "R10", rollback.late_acks_overtake_claims, PROMOTED, 2325),
    Mutant("no answer to a claim is one", "R2", rollback.unanswered_is_unknown, FAILOVER),
    Mutant("an ack is answered before the store", "R11", _answered_before, _with("net")),
    Mutant("an unknown outcome is ignored", "R12", _unknown_is_nothing, _with("net")),
    Mutant("below the watermark all is acked", "R15", _exceptions_forgotten),
    Mutant("the journal is not read", "R16", _journal_ignored, _with(lease_ms=8_000, sidecars=2)),
    Mutant("any token of a message counts", "R17", _any_token),
    Mutant("a key is kept before its ack", "R18", _entry_before_the_ack, KEYS),
    Mutant(
        "after a reset old keys count",
        "R18",
        _resets_do_not_count,
        _with("reset", "reset", keys=4, commit_ms=50),
    ),
    Mutant("a told lease is given back", "R21", _given_back_although_sent),
    Mutant("a redrive goes to everybody", "R29", redrive.to_everybody, REDRIVE),
    Mutant("a dead letter is gone before its copy", "R2", redrive.marked_before_its_copy, REDRIVE),
    Mutant("what others put off is not heard", "I4", put_off.unheard, put_off.AWAY),
    Mutant("what was put off is told once", "I4", put_off.not_told_again, put_off.AWAY, 2),
    *outbox.MUTANTS,
    *notes.MUTANTS,
    *cancels.MUTANTS,
    Mutant("the watermark passes over a gap", "I1", _watermark_over_a_gap),
    Mutant(
        "a grant does not ask for the deadline",
        "I3",
        _grant_without_deadline,
        _with("rebalance", "kill"),
    ),
    Mutant("any message of a key may go", "I6", order.any_of_a_key_may_go, _with(ordered=2)),
    Mutant("any message of a partition may go", "I6", order.any_of_a_key_may_go, _with(ordered=-1)),
    Mutant(
        "a parked key goes on in the window", "R19", order.parked_keys_go_on_in_the_window, PARKED
    ),
    Mutant(
        "taken over without the parked keys",
        "R19",
        order.taken_over_without_the_parked_keys,
        PARKED,
    ),
    Mutant("sent back without its key", "R19", order.sent_back_without_its_key, PARKED),
    Mutant("a claim looks at no line", "R19", order.a_claim_looks_at_no_line, PARKED),
    Mutant(
        "a key is free when a copy is claimed", "R19", order.free_when_the_first_is_claimed, PARKED
    ),
    Mutant("a follower gets in line first", "R19", order.the_newest_goes_first, PARKED),
    Mutant(
        "a copy of a forgotten claim frees nobody", "R19", order.acked_unheard, PROMOTED_KEYS, 97
    ),
)
"""The list to which every rule that the simulator guards adds at least one."""
