"""An owned partition: it carries out what its ledger decides, and feeds the store's replies into
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ackd.api.messages import Delivery
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.lease_token import Signer
from ackd.core.ledger.effects import Effect, Exhausted, FetchFrom, FinishRange, Mistaken
from ackd.core.ledger.ledger import Ledger
from ackd.core.ledger.repair import Repair
from ackd.core.ledger.send_back import Rules, Stuck
from ackd.core.ledger.sent_back import restored
from ackd.core.ledger.unordered import UnorderedLedger
from ackd.core.record.decide import REPAIR_WAIT_MS
from ackd.core.record.operations import (
    Advance,
    AskBlocker,
    Gap,
    MarkDead,
    MoveToRetry,
    Op,
    PlaceCopy,
    RemakeChunk,
    ReplayFinished,
    Settle,
)
from ackd.core.record.protocol import (
    NO_TEXTS,
    CallStatus,
    CallTexts,
    Finish,
    OpResult,
    RecordCall,
    RecordReply,
    Snapshot,
)
from ackd.core.record.transitions import Outcome, Verb
from ackd.engine.base.context import Context
from ackd.engine.base.spill_file import Held
from ackd.engine.partition.copy_headers import original
from ackd.engine.partition.copy_notes import Copies
from ackd.engine.partition.long_leases import LongLeases, held_by
from ackd.engine.partition.ordering import PositionOf
from ackd.errors import StoreError, StoreUnknownError
from ackd.ports import Consumer, Record
from ackd.store.flusher import LedgerHandle, OnAnswer

LOG = logging.getLogger("ackd.engine")

REPAIR_BATCH = 1_000
CLAIM_AGAIN_MS = 1_000
_Moving: TypeAlias = MoveToRetry | MarkDead | PlaceCopy | AskBlocker
_ASKED = (Verb.GRANT, Verb.MOVE_TO_RETRY, Verb.PLACE_COPY, Verb.MARK_DEAD)


ReplyObserver = Callable[["Partition", RecordCall, RecordReply], None]
"""Gets every call of a partition that the store decided, in the order of the wiring."""
EffectHandler = Callable[["Partition", Any], None]
"""Carries out an effect of the type that it is wired for."""


def _ignore(_: RecordReply | StoreError, __: int) -> None:
    """Nobody waits for the outcome: the listener handles it."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """The parts that a partition reports to, and that carry out what its ledger decides.

    `observers`: get the calls that the store decided; `Partition.apply` is one of them. `effects`:
    handle the effects that the partition does not handle itself. `performed`: called after effects
    were done. `ready`: there are messages to deliver. `reload`: the record must be read again.
    `lost`: another sidecar owns it. `due`: something is due at this time (monotonic, ms).
    `blocked`: what holds the head of a blocked key (R19). `confirmed`: whether this sidecar may
    grant at all.
    """

    observers: tuple[ReplyObserver, ...]
    effects: Mapping[type[Effect], EffectHandler]
    performed: tuple[Callable[[Partition], None], ...]
    ready: Callable[[Partition], None]
    reload: Callable[[Partition], None]
    lost: Callable[[Partition], None]
    due: Callable[[int], None]
    blocked: Callable[[Partition, OpResult], None]
    confirmed: Callable[[], bool]


class Policy(NamedTuple):
    """The settings of a partition's ledger; see `ackd.core.ledger.ledger.Ledger`.

    `position_of`: gives messages their order position, None when unordered. `unordered`: messages
    arrive in any order.
    """

    rules: Rules | None
    deliveries_max: int
    retry_copies: bool
    message_ttl_ms: int = 0
    position_of: PositionOf | None = None
    unordered: bool = False


# tidy: long-class lines=447 methods=29 attributes=28 -- ledger, record and bodies of one meet here
class Partition:
    """Listens to every reply about its record; never raises into the flusher."""

    def __init__(
        self,
        tp: TopicPartition,
        key: LedgerKey,
        context: Context,
        consumer: Consumer,
        wiring: Wiring,
        policy: Policy,
    ) -> None:
        self.tp = tp
        self.key = key
        kind: type[Ledger[Held]] = UnorderedLedger if policy.unordered else Ledger
        self.ledger = kind(
            policy.rules,
            policy.deliveries_max,
            copies=policy.retry_copies,
            message_ttl_ms=policy.message_ttl_ms,
            position_of=policy.position_of,
        )
        self.handle = LedgerHandle(key, listener=self)
        self.closed = self.queued = self.repairing = False
        self.repair_until_ms = 0
        self.epoch = self.version = 0
        self.journal_read_ms = 0
        """When the store last answered a call, and so gave the journal."""
        self.committed = self.committed_version = self.end = -1
        self.data_lost = self.created = False
        self.has_texts = self.has_notes = True
        self.copies = Copies(tp, key, self.ledger)
        self.long_leases = LongLeases()
        self.signer: Signer = context.keys.signer(key.subscription, key.topic_id, key.partition)
        self._context = context
        self._consumer = consumer
        self._wiring = wiring
        self._pending: list[Gap] = []
        self._advanced = self._grants = self._mending = 0

    def sign(self) -> None:
        """Sign new leases with the current key."""
        key = self.key
        self.signer = self._context.keys.signer(key.subscription, key.topic_id, key.partition)

    def go_by(self, policy: Policy) -> None:
        """Take over the settings of a policy, which may have changed since the partition was
        made.
        """
        now_ms = self._context.clock.monotonic_ms()
        self.ledger.go_by(policy.rules, policy.deliveries_max, policy.message_ttl_ms, now_ms)

    # --- what others report of it

    def log_reaches(self, end: int) -> None:
        """The log reaches at least to this offset."""
        self.end = max(self.end, end)

    def committed_at(self, offset: int, version: int) -> None:
        """The broker has this position, and the record's version in its metadata."""
        self.committed, self.committed_version = offset, version

    def lost_data(self) -> None:
        """The store has lost data of this partition's record."""
        self.data_lost = True

    def has_turn(self, *, queued: bool) -> None:
        """It has a turn at the dispatcher, which asks for its messages, or has it no more."""
        self.queued = queued

    def close(self) -> None:
        """Perform nothing, and learn of no reply any more."""
        self.closed = True

    # --- opening

    def opened(self, snapshot: Snapshot) -> Repair:
        """Load the record's snapshot into the ledger. Fetching starts with `start_fetching`."""
        self.epoch, self.version = snapshot.epoch, snapshot.version
        self.created |= snapshot.created
        if snapshot.moved:
            self.repairing = True
            self.repair_until_ms = self._context.clock.monotonic_ms() + REPAIR_WAIT_MS
        return self.ledger.opened(snapshot, self._context.clock.monotonic_ms())

    def start_fetching(self) -> None:
        """Fetch from the watermark; the ledger skips finished messages above it as they come."""
        start = self.ledger.intake.start
        self.ledger.intake.fetching(self._consumer.fetch_from(self.tp, start), start)
        self.perform()

    def repaired(self) -> None:
        """End the repair (R10): every sidecar has replayed what it knew, or its time is over."""
        self.repairing = False

    async def repair(self, repair: Repair, lost_chunks: Sequence[int] = ()) -> None:
        """Write back what the store forgot, and release leases that no caller got. Raises
        StoreError.

        A lost chunk is made again together with what is known of it, never empty before that. A
        closed partition does nothing: it no longer learns who got which message, so it must not
        release.
        """
        if self.closed:
            return
        with self.mends():
            await self._mend(repair, lost_chunks)

    @contextmanager
    def mends(self) -> Iterator[None]:
        """Grant nothing while the record still lacks something."""
        self._mending += 1
        try:
            yield
        finally:
            self._mending -= 1

    async def _mend(self, repair: Repair, lost_chunks: Sequence[int]) -> None:
        now_ms = self._context.clock.monotonic_ms()
        ops: list[Op] = [RemakeChunk(index) for index in lost_chunks]
        for origin_record in repair.origin_records:
            ops += restored(*origin_record, now_ms)
        ops += [ReplayFinished(offset) for offset in repair.finished]
        if repair.watermark:
            ops.append(Advance(repair.watermark, repair=True))
        ops += [
            Settle(
                Verb.EXTEND,
                offset,
                fence,
                rollback_epoch,
                attempt,
                max(due_ms - now_ms, 1),
                counted=False,
            )
            for offset, fence, rollback_epoch, attempt, due_ms in repair.leases
        ]
        ops += [Settle(Verb.RELEASE, *orphan) for orphan in repair.orphans]
        for start in range(0, len(ops), REPAIR_BATCH):
            part = ops[start : start + REPAIR_BATCH]
            reply = await self._context.flusher.submit(self.handle, part)
            if reply.verdict is not CallStatus.OK:
                raise StoreError(f"the store refused the repair: {reply.verdict.name}")

    # --- granting

    def next_grant(self) -> int:
        """Number the grants of one receive, so that they share a fence of their own."""
        self._grants = (self._grants + 1) & 0x7FFF
        return self._grants

    def upkeep(self) -> list[Op]:
        """Return gaps and the watermark for the next call; each once while its call may succeed.
        While the record must be read again, no watermark: see `reload`.
        """
        ops: list[Op] = []
        if self._pending:
            ops = [gap for gap in self._pending if gap.end > self.ledger.watermark]
            self._pending = []
        ahead = self.ledger.watermark > max(self.ledger.confirmed, self._advanced)
        if ahead and not self.needs_reread:
            self._advanced = self.ledger.watermark
            ops.append(Advance(self._advanced))
        return ops

    def flush(self, *more: Op) -> asyncio.Future[RecordReply]:
        """Send the store all upkeep. A failure puts it back (`failed`)."""
        return self._context.flusher.submit(self.handle, self._all_upkeep(more))

    def tell(self, *more: Op, texts: CallTexts = NO_TEXTS, on_answer: OnAnswer = _ignore) -> None:
        """Like `flush` without waiting; `on_answer` gets the outcome. `texts`: those of `more`."""
        ops = self._all_upkeep(more)
        self._context.flusher.tell(self.handle, ops, on_answer, texts.shifted(len(ops) - len(more)))

    def note_long_leases(self, texts_max: int) -> None:
        """Write who holds leases that are old enough by now. `texts_max`: bound on all texts."""
        found = self.long_leases.due(self.ledger.entries, self._context.clock.monotonic_ms())
        if found:
            items = [held_by(place, holder) for place, (_, holder) in enumerate(found)]
            self.tell(*(look for look, _ in found), texts=CallTexts(items, texts_max))

    def _all_upkeep(self, more: Sequence[Op]) -> list[Op]:
        """Include the watermark even if a call with it is under way: that call may fail."""
        self._advanced = 0
        return [*self.upkeep(), *more]

    @property
    def grantable(self) -> bool:
        """Whether messages may be delivered now."""
        stopped = self.closed or self.repairing or self.needs_reread
        return not stopped and self._wiring.confirmed()

    @property
    def needs_reread(self) -> bool:
        """Whether the record must be read again, or still lacks what this owner is writing back."""
        return self.ledger.dirty or self._mending > 0

    @property
    def has_upkeep(self) -> bool:
        """Whether the store must get something even if no caller asks for messages."""
        return bool(self._pending) or self.ledger.watermark > self.ledger.confirmed

    def deliveries(
        self, offsets: Sequence[int], reply: RecordReply, first: int, attempts_max: int, holder: str
    ) -> list[Delivery]:
        """Return the messages that the store granted, without those that it refused.

        `first`: the index of their first result. `holder`: the caller, for `explain`.
        """
        handed_to, sign, rollback_epoch = (
            self.ledger.grants.handed_to,
            self.signer.token,
            reply.rollback_epoch,
        )
        copies = self.ledger.holds_copies
        topic, partition = self.tp
        made: list[Delivery] = []
        self.long_leases.begun(offsets, reply, first, self._context.clock.monotonic_ms())
        results = reply.results[first : first + len(offsets)]
        for offset, result in zip(offsets, results, strict=True):
            if result.outcome is not Outcome.GRANTED:
                continue
            entry = handed_to(offset, holder)
            if entry is None:
                continue
            body, attempt = entry.body, result.attempt
            if not isinstance(body, Record):
                continue
            lease = sign(offset, result.fence, rollback_epoch, attempt)
            facts = attempt, attempts_max, result.first_s * 1000, result.when_ms
            if copies:
                made.append(self.message(lease, body, *facts))
            else:
                made.append(Delivery(lease, topic, partition, body, *facts))
        return made

    def message(
        self,
        lease: str,
        body: Record,
        attempt: int,
        attempts_max: int,
        first_seen_ms: int,
        deadline_ms: int,
    ) -> Delivery:
        """Build the delivery of a leased message; a copy goes under its origin's name, if that is
        its own.
        """
        retry_copy = self.copies.retry_copy(body)
        if retry_copy is None:
            facts = attempt, attempts_max, first_seen_ms, deadline_ms
            return Delivery(lease, *self.tp, body, *facts)
        offset, origin, body = body.offset, retry_copy.origin, original(body, retry_copy)
        facts = attempt, attempts_max, retry_copy.first_ms or first_seen_ms, deadline_ms
        if not self.copies.named(retry_copy):
            body.offset = offset
            return Delivery(lease, *self.tp, body, *facts, origin=origin)
        return Delivery(lease, origin.topic, origin.partition, body, *facts, origin=origin)

    # --- the flusher's listener

    def on_reply(self, call: RecordCall, reply: RecordReply) -> None:
        """The store decided (or refused) a call of this partition."""
        if self.closed:
            return
        if reply.verdict is not CallStatus.OK:
            self._refused(call, reply)
            return
        for observer in self._wiring.observers:
            observer(self, call, reply)
        self.perform()

    def apply(self, call: RecordCall, reply: RecordReply) -> None:
        """Apply the store's decisions to the ledger."""
        self.has_texts, self.has_notes = reply.has_texts, reply.has_notes
        if reply.dropped:
            self._context.metrics.notes_dropped.at(self.key.subscription).inc(reply.dropped)
        now_ms, store_ms, ledger = self._context.clock.monotonic_ms(), reply.now_ms, self.ledger
        self.journal_read_ms = now_ms
        acked: list[int] = []
        for op, result in zip(call.ops, reply.results, strict=True):
            if op.verb is Verb.GRANT:
                ledger.grants.granted(op.offset, result, reply.rollback_epoch, store_ms, now_ms)
            elif result.outcome is Outcome.ACKED:
                acked.append(op.offset)
            elif type(op) is Settle:
                ledger.settled(
                    op.offset,
                    result.outcome,
                    result.fence,
                    result.when_ms,
                    store_ms,
                    now_ms,
                    op.rollback_epoch,
                    result.attempt,
                )
            elif isinstance(op, Gap):
                if op.reason == Finish.VANISHED:
                    self._vanished(op, kept=result.number)
            elif isinstance(op, _Moving):
                self._moved(op, result, reply.rollback_epoch, store_ms, now_ms)
        if acked:
            ledger.acked(acked)
        ledger.store_confirmed(reply.watermark)
        if reply.version < self.version or reply.journal is None:
            LOG.warning(
                "%s: the record was rolled back, or its journal lacks entries: ackd reads it again",
                self.tp,
            )
            self.reload()
        else:
            self.version = reply.version
            ledger.journal(reply.journal, store_ms, now_ms)

    def _moved(
        self, op: _Moving, result: OpResult, rollback_epoch: int, store_ms: int, now_ms: int
    ) -> None:
        """Apply the result for a message that leaves the window, or for a copy that enters one."""
        answer = (op.offset, result, rollback_epoch, store_ms, now_ms)
        match op:
            case MoveToRetry():
                if result.outcome is Outcome.SENT:
                    why = self.copies.why(op.offset)
                    self._context.metrics.retry_topic_moves.at(self.key.subscription, why).inc()
                self.ledger.send_back.sent(*answer)
            case PlaceCopy():
                if not op.then_dead:
                    self.ledger.claimed(*answer)
            case AskBlocker():
                if result.outcome is Outcome.FINISHED:
                    self.ledger.send_back.key_free(op.key)
                else:
                    self._wiring.blocked(self, result)
            case MarkDead():
                if op.claimed:
                    self.ledger.claimed(
                        *answer
                    )  # its origin record is dead: see `copies.place_dead`
                elif not self.ledger.marked_dead(*answer):
                    self.reload()

    def _vanished(self, op: Gap, *, kept: int) -> None:
        """The log lacks a message; it is finished unless another sidecar revived its lease
        meanwhile (R7).
        """
        if kept:
            self.reload()
        else:
            self.ledger.finish(op.offset)

    def failed(self, call: RecordCall, error: StoreError) -> None:
        """The call got no answer. After an unknown outcome the cache must be read again (R12)."""
        if self.closed:
            return
        self._put_back(call, granted_too=not isinstance(error, StoreUnknownError))
        if isinstance(error, StoreUnknownError):
            self.reload()
        else:
            self.perform()  # what was put back waits for the next receive

    def _refused(self, call: RecordCall, reply: RecordReply) -> None:
        if reply.verdict is CallStatus.FENCED:
            self._wiring.lost(self)
            return
        self._put_back(call, granted_too=True)
        LOG.info(
            "%s: the store refused a call (%s): ackd reads the record again",
            self.tp,
            reply.verdict.name,
        )
        self.reload()

    def _put_back(self, call: RecordCall, *, granted_too: bool) -> None:
        """Send gaps again later; messages are ready again if the store certainly decided
        nothing.
        """
        self._pending += [op for op in call.ops if isinstance(op, Gap)]
        if granted_too:
            now_ms = self._context.clock.monotonic_ms()
            of = {verb: [op.offset for op in call.ops if op.verb is verb] for verb in _ASKED}
            self.ledger.grants.not_granted(of[Verb.GRANT])
            self.ledger.send_back.not_sent(of[Verb.MOVE_TO_RETRY])
            if self.ledger.claims is not None:
                self.ledger.claims.not_claimed(of[Verb.PLACE_COPY], CLAIM_AGAIN_MS, now_ms)
            if of[Verb.MARK_DEAD] or (of[Verb.PLACE_COPY] and not self.ledger.holds_copies):
                self.reload()  # it makes the effect again

    def reload(self) -> None:
        """Grant nothing until the record was read again.

        A watermark that still waits would come before the repair. It would hide that messages below
        it are on their way to the retry topic, and a lease of them would be told `already_acked`.
        """
        if not self.ledger.dirty:
            self.ledger.must_reread()
            self._context.flusher.amend(self.handle, _held_back)
            self._wiring.reload(self)

    # --- effects

    def perform(self) -> None:
        """Carry out the ledger's effects, then report what changed."""
        exhausted: list[Op] = []
        for effect in self.ledger.drain():
            match effect:
                case Exhausted(offset, fence, out_of_time):
                    if out_of_time:
                        self.copies.out_of_time(offset)
                    most = 0 if out_of_time else self.ledger.limits.deliveries_max
                    exhausted.append(MarkDead(offset, fence, most))
                case FetchFrom(offset):
                    self.ledger.intake.fetching(self._consumer.fetch_from(self.tp, offset), offset)
                case FinishRange(start, end, reason):
                    self._pending.append(Gap(start, end, reason))
                    if reason == Finish.VANISHED:
                        self._context.metrics.vanished.at(self.key.subscription).inc()
                case Mistaken():
                    self._mistaken(effect)
                case _:
                    self._wiring.effects[type(effect)](self, effect)
        if exhausted:
            self.tell(*exhausted)
        for notify in self._wiring.performed:
            notify(self)
        self._context.lease_events.tell(self.key.subscription)
        if self.ledger.ready and not self.queued:
            self._wiring.ready(self)
        due_ms = self.ledger.deadlines.newly_due_ms()
        if due_ms is not None:
            self._wiring.due(due_ms)

    def _mistaken(self, effect: Mistaken) -> None:
        """The record is the truth: report the mistake, and rebuild the ledger from the record."""
        LOG.error("%s: the ledger is wrong: %s", self.tp, effect.what)
        if effect.may_mend:
            self.reload()

    def send_back(self, found: Sequence[Stuck]) -> None:
        """Ask the store to move these to the retry topic, in one call: their order counts (R19)."""
        self.copies.going(found)
        self.tell(*(MoveToRetry(o, self.next_grant(), key) for o, _, key in found))

    def ask_blockers(self, keys: Sequence[int]) -> None:
        """Ask whether these keys are still blocked; as the owner, so in order with the call that
        blocks one.
        """
        self.tell(*(AskBlocker(key) for key in keys))


def _held_back(op: Op) -> Op:
    """A repair's own stays: what it needs goes before it in the same call."""
    waits = isinstance(op, Advance) and not op.repair
    return Advance(0) if waits else op
