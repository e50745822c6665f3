"""Writes down what a run of the simulator does with one partition, in the words of the model."""

from __future__ import annotations

from typing import Any, NamedTuple

from ackd.api.messages import Delivery, SettleItem, SettleResult, Status
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.record import operations as ops
from ackd.core.record.operations import EndRepair
from ackd.core.record.protocol import (
    CallStatus,
    Open,
    RecordCall,
    RecordReply,
    Snapshot,
)
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Outcome, State
from ackd.ports import Committed, Headers
from ackd.ports.own_topics import DEAD_PREFIX
from tests.proof.events import ORIGIN, Event, Step, Token, Trace, fence
from tests.proof.words import Words
from tests.simulation.book import read_token
from tests.simulation.checker import Checker
from tests.simulation.faults import TOPIC
from tests.simulation.log import is_retry
from tests.simulation.process import Process
from tests.simulation.redrives import origin_record_of
from tests.simulation.run import NAME, Run

ACKED = (Outcome.ACKED, Outcome.ALREADY_ACKED)
UNSEEN = (ops.Drop, ops.LookUp, ops.NameCopy, ops.VouchCopy, ops.CloseOrigin, ops.AskBlocker)
"""Operations that change nothing that the model has."""


class Before(NamedTuple):
    """Of a record before a call: leases with their deadlines, in slots and in origin records."""

    slots: tuple[tuple[int, int], ...] = ()
    origins: tuple[tuple[int, int], ...] = ()
    repair_until_ms: int = 0

    @classmethod
    def of(cls, record: PartitionRecord | None) -> Before:
        if record is None:
            return cls()
        slots = ((o, slot) for o, slot in record.slots.items())
        origins = ((o, each.slot) for o, each in record.origins.items())
        leased = State.LEASED
        return cls(
            tuple((o, slot.when_ms) for o, slot in slots if slot.state is leased),
            tuple((o, slot.when_ms) for o, slot in origins if slot.state is leased),
            record.repair_until_ms,
        )


class Recorder:
    """Stands where the store's observer does, and passes on what it hears.

    `befores`: the records before the calls that were decided and not noted yet.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.befores: list[Before] = []
        self.words = Words(run)
        self._inner: Checker = run.checker
        self._steps: list[Step] = []
        self._empty: Step | None = None  # an owner's call that asks for nothing, but has a number
        self._heard: set[int] = set()
        self._terms = {0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _note(self, do: str, *, write: int = 0, reply: object = None, **fields: Any) -> None:
        if not self.words.beyond:
            self._steps.append(Step({"do": do, **fields}, write, reply))

    # --- the store's observer

    def opened(self, by: Process, request: Open, snapshot: Snapshot) -> None:
        """A record was taken or read again."""
        self._inner.opened(by, request, snapshot)
        p, key, write = self.words.record(request.key), request.key, self.run.server.writes
        if p is None or request.peek or snapshot.verdict is not CallStatus.OK:
            return
        if snapshot.created or snapshot.moved:
            self.words.epochs[key.topic_id, key.partition, snapshot.rollback_epoch] = (
                self.words.runs
            )
        if p != ORIGIN:
            self._note("copies opened", write=write, p=p, created=snapshot.created)
            return
        if snapshot.created and snapshot.watermark:
            self.words.beyond = self.words.beyond or "it does not begin at the beginning of the log"
        self._empty = None
        self._terms.add(snapshot.term)
        fields: Event = {"s": by.name, "term": snapshot.term, "seq": snapshot.seq}
        fields |= {"moved": snapshot.moved, "created": snapshot.created}
        if not request.term:
            self._note("leave", s=by.name)
        self._note(
            "reread" if request.term else "take", write=write, reply=snapshot, **fields
        )  # fmt: skip

    def heard(self, result: object) -> None:
        """An answer of the store has reached who asked."""
        self._heard.update(map(id, result if isinstance(result, list) else [result]))

    def applied(self, by: Process, call: RecordCall, reply: RecordReply) -> None:
        """A call was decided."""
        self._inner.applied(by, call, reply)
        before, p, write = self.befores.pop(0), self.words.record(call.key), self.run.server.writes
        if p is None or reply.verdict is CallStatus.ABSENT:
            return
        owner = bool(call.term) and p == ORIGIN
        asked: Event = {"write": write, "reply": reply, "s": by.name, "term": call.term}
        asked |= {"seq": call.seq}
        if reply.verdict is not CallStatus.OK:
            if p == ORIGIN:
                self._terms.add(call.term)
                self._number()
                self._note("refused", why=reply.verdict.name, **asked)
            return
        shown = [op for op in call.ops if not isinstance(op, UNSEEN)]
        if not shown and not reply.journal:
            if owner:
                fields = {"s": by.name, "term": call.term, "seq": call.seq}
                self._empty = Step({"do": "call", **fields}, write, reply)
            return
        self._time_passed(before, p, reply.now_ms, write)
        if p == ORIGIN:
            self._empty = None if owner else self._empty
            self._note("call", **asked)
        for op, result in zip(call.ops, reply.results, strict=True):
            if isinstance(op, EndRepair) and p == ORIGIN:
                self._say_who_repeated()
            if not isinstance(op, UNSEEN):
                event = self.words.operation(by, call.key, p, op, result)
                self._note(**event, write=write, reply=reply)
        if owner:
            self._note("unheard", write=write, reply=reply, s=by.name, term=call.term)
            self._note(
                "hear", write=write, reply=reply, s=by.name, ms=self._learned(call, reply)
            )  # fmt: skip
        if shown:
            self._state(call.key, p, reply.now_ms, write)

    def _number(self) -> None:
        """The last call that asked for nothing has taken a number."""
        if self._empty is not None and not self.words.beyond:
            self._steps.append(self._empty)
        self._empty = None

    def _learned(self, call: RecordCall, reply: RecordReply) -> frozenset[int]:
        """What an owner reads to be acked: here, or in the journal."""
        acked = [e.offset for e in reply.journal or () if e.outcome is Outcome.ACKED]
        pairs = zip(call.ops, reply.results, strict=True)
        acked += [op.offset for op, result in pairs if result.outcome in ACKED]
        return frozenset(map(self.words.message, acked))

    # --- time

    def _time_passed(self, before: Before, p: int, now_ms: int, write: int) -> None:
        """Deadlines that have passed, by the record and by what was told."""
        ended = {o for o, when_ms in before.slots if when_ms <= now_ms}
        moved = {o for o, when_ms in before.origins if when_ms <= now_ms}
        mine = [token for token in self.words.deadlines if (token.c == 0) == (p == ORIGIN)]
        told = frozenset(token for token in mine if self.words.deadlines[token] <= now_ms)
        for token in told:
            del self.words.deadlines[token]
        if ended or moved or told:
            copies = {self.words.copy(p, o) for o in ended} if p != ORIGIN else set()
            slots = {self.words.message(o) for o in ended} if p == ORIGIN else set()
            origins = {self.words.message(o) for o in moved} if p == ORIGIN else set()
            self._note(
                "clock", write=write, toks=told, slots=frozenset(slots), orgs=frozenset(origins),
                copies=frozenset(copies),
            )  # fmt: skip
        if before.repair_until_ms and before.repair_until_ms <= now_ms:
            self._note("repaired", write=write, p=p, timeout=True)

    # --- the record after a call

    def _state(self, key: LedgerKey, p: int, now_ms: int, write: int) -> None:
        record = self.run.server.data.records[key]
        if p != ORIGIN:
            for (partition, offset), c in self.words.places.items():
                if partition == p:
                    over = record.over(offset)
                    phase = "ACKED" if over else record.phase(offset, now_ms).name
                    self._note("copy state", write=write, c=c, phase=phase)
            return
        offsets = range(self.run.cluster.topics[TOPIC].logs[0].end)
        self.words.messages = max(self.words.messages, len(offsets))
        shown = tuple(self.words.slot(key, record, offset, now_ms) for offset in offsets)
        self._note("state", write=write, wm=record.watermark, term=record.term, ms=shown)

    # --- beside the store

    def appended(self, tp: TopicPartition, offset: int, headers: Headers) -> None:
        """The broker stores a record; a copy or a dead letter counts."""
        if not is_retry(tp.topic) and not tp.topic.startswith(DEAD_PREFIX):
            return
        fields = dict(headers)
        _, name, partition, number = origin_record_of(fields)
        retried = is_retry(name)
        m = (
            self.words.origins[self.words.copy(partition, number)]
            if retried
            else self.words.message(number)
        )
        if not is_retry(tp.topic):
            self._note("bury", m=m)
            return
        c = self.words.places[tp.partition, offset] = len(self.words.places) + 1
        self.words.origins[c] = m
        topic_id = self.run.cluster.topics[TOPIC].topic_id
        rb = self.words.epochs.get((topic_id, 0, int(fields["ackd-rollback-epoch"] or 0)), 0)
        self._note("publish", m=m, gen=fence(int(fields["ackd-generation"] or 0)), rb=rb)

    def committed(self, by: Process | None, tp: TopicPartition, committed: Committed) -> None:
        """A position was committed."""
        del committed
        if tp.topic == TOPIC and by is not None:
            base, ranges = self.run.committed_progress(tp)
            done = frozenset(map(self.words.message, [*range(base), *ranges]))
            self._note("commit", s=by.name, ms=done)

    def killed(self, name: str) -> None:
        """A process died."""
        self._note("kill", s=name)

    def _say_who_repeated(self) -> None:
        for sidecar in self.run.sidecars:
            runtime = sidecar.runtime if sidecar.process.alive else None
            subscription = runtime and runtime._subscriptions.get(NAME)
            if subscription and subscription.membership.replayed_run == self.run.server.run:
                self._note("kept", s=sidecar.name)

    def started(self, keep: int) -> None:
        """The store's server runs anew, with its first `keep` calls: its replica fell behind after
        the last of them.
        """
        self._empty = None
        later = (at for at, step in enumerate(self._steps) if step.write > keep)
        at = next(later, len(self._steps))
        if any(step.event["do"] == "failover" for step in self._steps[at:]):
            self.words.beyond = self.words.beyond or "it forgets what was before the last failover"
        if not self.words.beyond:
            self._steps.insert(at, Step({"do": "behind"}))
            self.words.runs += 1
            self._note("failover")

    # --- what applications read

    def read(self, item: SettleItem, result: SettleResult) -> None:
        """An answer to a settle."""
        lease = read_token(item.lease)
        m = self.words.lease(
            lease.coordinate.topic_id, lease.coordinate.partition, lease.coordinate.offset
        )[0]
        if result.status in (Status.ACKED, Status.ALREADY_ACKED):
            self._note("told", m=m)

    def delivered_to(self, delivery: Delivery) -> None:
        """A message under a lease."""
        lease = read_token(delivery.lease)
        at = lease.coordinate
        m, c, key = self.words.lease(at.topic_id, at.partition, at.offset)
        token = Token(m, c, fence(lease.fence), self.words.run_of(key, lease.rollback_epoch))
        self._note("delivered", **token._asdict())

    # --- the trace

    def trace(self) -> Trace:
        """All that was noted. Terms, which are times, become small numbers in the same order."""
        ranks = {term: rank for rank, term in enumerate(sorted(self._terms))}
        events = []
        for step in self._steps:
            event = dict(step.event)
            if step.reply is not None:
                event["heard"] = id(step.reply) in self._heard
            if "term" in event:
                event["term"] = ranks.get(event["term"], 0)
            nothing = event["do"] == "hear" and not (event["heard"] and event["ms"])
            if not nothing and not (event["do"] == "unheard" and event["heard"]):
                events.append(event)
        log = self.run.cluster.topics[TOPIC].logs[0]
        holes = frozenset(o + 1 for o in range(log.end) if o not in log.records)
        return Trace(self.run.world.seed, holes, (*events, {"do": "end"}))
