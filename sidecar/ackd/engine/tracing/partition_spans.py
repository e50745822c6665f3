"""Spans of the messages of one owned partition.

The owner sees every decision about its record, including settles that other sidecars served. This
file writes spans from a call and its reply in one pass, before the ledger applies the reply. A
message that succeeds at its first attempt costs one span, which is sampled; everything else is
kept. Deliveries, and acks of any attempt, also appear in batches with their offsets, which are
never sampled, so that a delivery after an ack always shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from ackd.core.ledger.entry import Entry
from ackd.core.origin import Origin
from ackd.core.record.operations import MarkDead, MoveToRetry, Settle
from ackd.core.record.protocol import JournalEntry, OpResult, RecordCall, RecordReply
from ackd.core.record.settles import OF_OUTCOME, SETTLES, Count, Due, SettleVerb
from ackd.core.record.transitions import Outcome, State
from ackd.engine.base.spill_file import Held, Stub
from ackd.engine.partition.partition import Partition
from ackd.engine.tracing.batches import SpanBatches
from ackd.engine.tracing.commit_spans import CommitSpans
from ackd.ports import Record
from ackd.telemetry.acked import DEADLINE, END, PUBLISHED, Acked
from ackd.telemetry.spans import MASK_56, MessageSpans, SpanEvent, link, number, text, truth
from ackd.telemetry.traces import Traces

N = TypeVar("N")
CONTEXT = "traceparent"
NOTED_MAX = 100_000
LAPSED_MS = 2_000
"""A lapsed lease gets its span when its message goes on, or after this: until then the owner may
still learn of a settle that came in time at another sidecar.
"""


class _Lapsed(NamedTuple):
    """A lease that nobody settled. `noticed_ms`: by the monotonic clock."""

    fence: int
    attempt: int
    deadline_ms: int
    noticed_ms: int
    entry: Entry[Held]


class _TracedMessage(NamedTuple):
    """A message's own partition, and what is known of the message as attributes and links."""

    lives: MessageSpans
    offset: int
    more: str
    links: str


_Leaving: TypeAlias = MarkDead | MoveToRetry
_Other: TypeAlias = Settle | _Leaving
_OTHERS = (Settle, MarkDead, MoveToRetry)


class Whole(Protocol):
    """What partitions ask of the spans of the whole subscription."""

    traces: Traces

    def lives(self, origin: Origin, epoch: int) -> MessageSpans: ...
    def holder(self, name: str) -> str: ...
    def named(self, identity: str) -> Origin | None: ...
    def now_ms(self) -> int: ...
    def flushed(self, partition: Partition) -> None: ...


class PartitionSpans:
    """Lives as long as the partition is owned."""

    def __init__(self, partition: Partition, tracing: Whole) -> None:
        self._partition = partition
        self._tracing = tracing
        self._traces = tracing.traces
        self._lives: MessageSpans | None = None
        self._retry_copies = partition.ledger.holds_copies
        self._sampled = bool(self._traces.weight)
        self._extensions: dict[int, tuple[int, int]] = {}
        self._kept: dict[int, None] = {}
        self._lapsed: dict[int, _Lapsed] = {}
        self._batches = SpanBatches(tracing.traces, copies=partition.ledger.holds_copies)
        self._commits = CommitSpans(tracing.traces, tracing.now_ms)
        self._traces.collect(self, self.flush)

    def lives(self, epoch: int) -> MessageSpans:
        """Spans of this partition's own messages."""
        lives = self._lives
        if lives is None or lives.epoch != epoch:
            if lives is not None:
                self._batches.flush(lives)
            lives = self._lives = self._tracing.lives(self._partition.copies.origin(0), epoch)
        return lives

    # --- decisions of the store

    def on_reply(self, call: RecordCall, reply: RecordReply) -> None:
        """The store decided a call; the ledger has not applied it yet."""
        lives, now_ms = self.lives(reply.epoch), reply.now_ms
        entries = self._partition.ledger.entries
        granted: list[int] = []
        acks: list[Acked] = []
        finished: list[int] = []
        again = fence = 0
        for op, result in zip(call.ops, reply.results, strict=True):
            outcome = result.outcome
            if outcome is Outcome.GRANTED:
                granted.append(op.offset)
                again += result.attempt > 1
                fence = result.fence
                if self._lapsed:
                    self._went_on(lives, op.offset)
            elif outcome is Outcome.ACKED and isinstance(op, Settle):
                finished.append(op.offset)
                self._ack(lives, op, result, entries.get(op.offset), now_ms, acks)
            elif isinstance(op, _OTHERS):
                self._other(lives, op, result, entries.get(op.offset), now_ms)
        if granted:
            self._batches.granted(lives, granted, again, fence)
        for settled in reply.journal or ():
            if settled.fence:
                entry, op = entries.get(settled.offset), _op(settled)
                result = _NOTHING._replace(outcome=settled.outcome, when_ms=settled.when_ms)
                if settled.outcome is Outcome.ACKED:
                    finished.append(settled.offset)
                    self._ack(lives, op, result, entry, now_ms, acks)
                else:
                    self._other(lives, op, result, entry, now_ms)
        if finished:
            self._batches.acked(lives, finished, now_ms)
            if acks:
                self._traces.acked(acks)

    def _ack(
        self,
        lives: MessageSpans,
        op: Settle,
        result: OpResult,
        entry: Entry[Held] | None,
        now_ms: int,
        acks: list[Acked],
    ) -> None:
        """A message is finished: append what its span says to `acks`, unless sampling leaves it
        out.
        """
        offset, attempt, fence = op.offset, op.attempt, op.fence
        more = ""
        if self._sampled and attempt == 1 and entry is not None and not result.late:
            if self._unsampled(lives, offset, attempt):
                return
            more = self._weight(offset, attempt)
        if result.late:
            more += f",{truth('ackd.late')}"
        if self._extensions:
            more += self._extended(offset, fence)
        if self._lapsed:
            self._lapsed.pop(offset, None)
        if self._kept:
            self._kept.pop(offset, None)
        body = None if entry is None else entry.body
        if entry is None or not isinstance(body, Record) or self._retry_copies:
            self._tell(SpanEvent.ACK, lives, offset, (attempt, fence, fence, now_ms), entry, more)
            return
        holder, parent = self._tracing.holder(entry.holder), None
        for name, value in body.headers:
            if name == CONTEXT:
                parent = value
                break
        facts = entry.when_ms, body.timestamp_ms, holder, parent, more
        acks.append((lives, offset, attempt, fence, now_ms, *facts))

    def _settled(
        self,
        lives: MessageSpans,
        op: Settle,
        result: OpResult,
        entry: Entry[Held] | None,
        now_ms: int,
    ) -> None:
        """A settle other than an ack."""
        outcome, offset = result.outcome, op.offset
        attempt, fence, more = op.attempt, op.fence, ""
        rule = OF_OUTCOME.get(outcome)
        if outcome is Outcome.ALREADY_ACKED:
            if self._unsampled(lives, offset, attempt):
                return
            event = SpanEvent.ACK
            more = f",{truth('ackd.repeat')}" + self._weight(offset, attempt)
        elif rule is None:
            return
        elif not rule.ends:
            if op.counted:
                self._extend(lives, op, result, entry, now_ms)
            return
        else:
            event = SpanEvent[rule.span.upper()]
            if rule.due is Due.DELAY:
                more = f",{number('ackd.due.unix_ms', result.when_ms)}"
            if not op.counted:
                more += f",{truth('ackd.uncounted')}"
            if rule.state is not State.DEAD and not (op.counted and rule.count is not Count.NEVER):
                self._keep(offset)
        self._lapsed.pop(offset, None)
        if self._extensions and event is not SpanEvent.ACK:
            more += self._extended(offset, fence)
        self._tell(event, lives, offset, (attempt, fence, fence, now_ms), entry, more)

    def _other(
        self,
        lives: MessageSpans,
        op: _Other,
        result: OpResult,
        entry: Entry[Held] | None,
        now_ms: int,
    ) -> None:
        """An operation other than a grant or an ack."""
        if isinstance(op, Settle):
            self._settled(lives, op, result, entry, now_ms)
        else:
            self._left(lives, op, result, entry, now_ms)

    def _left(
        self,
        lives: MessageSpans,
        op: _Leaving,
        result: OpResult,
        entry: Entry[Held] | None,
        now_ms: int,
    ) -> None:
        """The owner took a message out of the window, perhaps because its attempts are used up."""
        offset = op.offset
        if result.outcome in (Outcome.SENT, Outcome.DEAD):
            self._went_on(lives, offset)
        if isinstance(op, MoveToRetry) or result.outcome is not Outcome.DEAD:
            return
        fence = op.fence
        more = f",{text('ackd.reason', self._partition.copies.reason(offset))}"
        if self._extensions:
            more += self._extended(offset, fence)
        facts = max(result.attempt, 1), fence, now_ms * 1000, now_ms
        self._tell(SpanEvent.DEAD, lives, offset, facts, entry, more)

    def _extend(
        self,
        lives: MessageSpans,
        op: Settle,
        result: OpResult,
        entry: Entry[Held] | None,
        now_ms: int,
    ) -> None:
        """A lease goes on. This owner numbers it; the new deadline makes the span's id."""
        offset, attempt, fence = op.offset, op.attempt, op.fence
        before = self._extensions.get(offset, (fence, 0))
        count = before[1] + 1 if before[0] == fence else 1
        _note(self._extensions, offset, (fence, count))
        self._lapsed.pop(offset, None)
        if self._unsampled(lives, offset, attempt):
            return
        more = f",{number('ackd.lease.extensions', count)}{self._weight(offset, attempt)}"
        facts = attempt, fence, now_ms * 1000, now_ms
        self._tell(SpanEvent.EXTEND, lives, offset, facts, entry, more, result.when_ms)

    def _tell(
        self,
        event: SpanEvent,
        lives: MessageSpans,
        offset: int,
        facts: tuple[int, int, int, int],
        entry: Entry[Held] | None,
        more: str,
        ordinal: int = 0,
    ) -> None:
        """Write a span. `facts`: attempt, fence, start (us), end (ms)."""
        links = ""
        if entry is not None:
            deadline_ms = ordinal or entry.when_ms
            if self._retry_copies:
                message = self._message(entry, deadline_ms)
                if message is None:
                    self._traces.lost(event)
                    return
                lives, offset, known, links = message
            else:
                known, links = self._facts(entry, deadline_ms)
            more += known
        attempt, fence, start_us, end_ms = facts
        span = lives.span(event, offset, attempt, fence, start_us, end_ms, more, links, ordinal)
        self._traces.add(event, [span])

    def copied(
        self, event: SpanEvent, offset: int, generation: int, topic: str, now_ms: int
    ) -> None:
        """A copy is durable in the retry or dead-letter topic; the ledger does not know it yet."""
        entry = self._partition.ledger.entry(offset)
        if entry is None:
            return
        reason = self._partition.copies.reason(offset)
        more = f",{text('ackd.copy.topic', topic)},{text('ackd.reason', reason)}"
        facts = max(entry.attempt, 1), generation, now_ms * 1000, now_ms
        lives = self.lives(self._partition.epoch)
        self._tell(event, lives, offset, facts, entry, more)

    def committed(self, offset: int, end: int) -> None:
        """The broker has the progress. `end` -1: not known."""
        self._commits.committed(offset, end)
        self._tell_commit(last=False)

    def _tell_commit(self, *, last: bool) -> None:
        if self._lives is not None:
            self._commits.tell(self._lives, self._partition.ledger.store_ms, last=last)

    # --- what is known of a message

    def _facts(self, entry: Entry[Held], deadline_ms: int) -> tuple[str, str]:
        """Attributes and links of a message that is no copy."""
        body, holder = entry.body, self._tracing.holder(entry.holder)
        if body is None:
            return f"{DEADLINE}{deadline_ms}{END}{holder}", ""
        more = f"{DEADLINE}{deadline_ms}{PUBLISHED}{body.timestamp_ms}{END}{holder}"
        return more, _links(body) if isinstance(body, Record) and body.headers else ""

    def _message(self, entry: Entry[Held], deadline_ms: int) -> _TracedMessage | None:
        """The message that a copy stands for; None if that is unknown.

        It is identified by the reset epoch in which it left its window: after a seek the message
        starts another life.
        """
        body, links, epoch = entry.body, "", 0
        more = f"{DEADLINE}{deadline_ms}{END}{self._tracing.holder(entry.holder)}"
        if isinstance(body, Stub):
            origin, epoch = self._tracing.named(body.name), body.epoch
        elif body is None:
            return None
        else:
            retry_copy = self._partition.copies.retry_copy(body)
            origin = None if retry_copy is None else retry_copy.origin
            if retry_copy is not None:
                more += f"{PUBLISHED[len(END) :]}{retry_copy.published_ms}{END}"
                epoch = retry_copy.reset_epoch
            links = _links(body)
        if origin is None:
            return None
        lives = self._tracing.lives(origin, epoch)
        return _TracedMessage(lives, origin.offset, more, links)

    def _extended(self, offset: int, fence: int) -> str:
        known = self._extensions.pop(offset, None)
        if known is None or known[0] != fence:
            return ""
        return f",{number('ackd.lease.extensions', known[1])}"

    def _unsampled(self, lives: MessageSpans, offset: int, attempt: int) -> bool:
        if not self._sampled or self._retry_copies or attempt != 1 or offset in self._kept:
            return False
        return lives.trace(offset) & MASK_56 < self._traces.threshold

    def _weight(self, offset: int, attempt: int) -> str:
        """The sampling weight of a span that was kept."""
        always = self._retry_copies or attempt != 1 or offset in self._kept
        return "" if always else self._traces.weight

    def _keep(self, offset: int) -> None:
        """Spans of this message are kept although its attempt does not show it, so keep its ack
        too.
        """
        if self._sampled:
            _note(self._kept, offset, None)

    # --- leases that nobody settled

    def expired(self, found: Iterable[Sequence[int]]) -> None:
        """The ledger found lapsed leases (`take_lapsed`)."""
        entries, now_ms = self._partition.ledger.entries, self._tracing.now_ms()
        for offset in [each for group in found for each in group]:
            entry = entries.get(offset)
            if entry is not None:
                lapsed = _Lapsed(entry.fence, entry.attempt, entry.when_ms, now_ms, entry)
                _note(self._lapsed, offset, lapsed)

    def _went_on(self, lives: MessageSpans, offset: int) -> None:
        """The store went on with a message, so its lease had lapsed."""
        lapsed = self._lapsed.pop(offset, None)
        if lapsed is not None:
            fence = lapsed.fence
            more = self._extended(offset, fence) if self._extensions else ""
            facts = (lapsed.attempt, fence, fence, lapsed.deadline_ms)
            self._tell(SpanEvent.EXPIRE, lives, offset, facts, lapsed.entry, more)

    def flush(self) -> None:
        """Write what waits before spans are exported: batches, and leases that lapsed a while
        ago.
        """
        if self._lives is not None:
            now_ms = self._tracing.now_ms()
            old = [o for o, each in self._lapsed.items() if each.noticed_ms + LAPSED_MS <= now_ms]
            for offset in old:
                self._went_on(self._lives, offset)
            self._batches.flush(self._lives)
            self._tell_commit(last=self._partition.closed)
        if self._partition.closed:
            self._traces.collected(self)
            self._tracing.flushed(self._partition)


_NOTHING = OpResult(Outcome.DONE, State.READY, 0, 0, 0, 0, late=False)


def _op(settled: JournalEntry) -> Settle:
    """The settle that another sidecar served. A release has given its attempt back."""
    rule = OF_OUTCOME.get(settled.outcome, SETTLES[SettleVerb.ACK])
    uncounted = rule.count is Count.NEVER and settled.attempt > 0
    attempt = max(settled.attempt, 1) + uncounted
    return Settle(rule.verb, settled.offset, settled.fence, attempt=attempt)


def _links(body: Record) -> str:
    """The trace context of the publisher (`traceparent`)."""
    for name, value in body.headers:
        if name == CONTEXT:
            return link(value)
    return ""


def _note(notes: dict[int, N], offset: int, note: N) -> None:
    notes[offset] = note
    if len(notes) > NOTED_MAX:
        notes.pop(next(iter(notes)))
