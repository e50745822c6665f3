"""Judges what the store decides, at the moment when it does: each invariant by its name."""

from __future__ import annotations

import json
from collections.abc import Callable

from ackd.core.ids import LedgerKey
from ackd.core.record.maintenance import epoch_mark
from ackd.core.record.operations import (
    Advance,
    ClaimOrigin,
    Drop,
    EndRepair,
    FinishOrigin,
    Gap,
    Grant,
    MarkDead,
    NameCopy,
    Op,
    ReplayAck,
    ReplayFinished,
    Reset,
    RestoreClaimed,
    RestoreMoved,
    Settle,
    Truncate,
)
from ackd.core.record.protocol import (
    CallStatus,
    Finish,
    Open,
    OpResult,
    RecordCall,
    RecordReply,
    Snapshot,
)
from ackd.core.record.transitions import Outcome, Verb
from ackd.ports.own_topics import is_own_topic
from tests.simulation.book import Coordinate, Holding, Ledger, Message, Place, name_of
from tests.simulation.excuses import Excuses
from tests.simulation.forgers import Forgers
from tests.simulation.log import Cluster, Topic, is_retry
from tests.simulation.notes import NoteBook
from tests.simulation.order import too_early
from tests.simulation.origin_records import apart, lapsed, noted, unknown
from tests.simulation.outboxes import Deliveries
from tests.simulation.process import Process
from tests.simulation.repeats import Repeats
from tests.simulation.seeks import Seeks
from tests.simulation.world import World

ENDING = {
    Outcome.ACKED,
    Outcome.RETRYING,
    Outcome.DEAD,
    Outcome.RELEASED,
}


class Decisions(Excuses):
    """The store's observer. `Checker` adds what brokers and applications see."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        super().__init__(world)
        self.cluster = cluster
        self.delivered_count = 0
        self.acked_count = 0
        self.committed_topics: set[bytes] = set()
        self.calm = False
        self.ordered = 0
        self.jumped_ms = 0
        self.on_grant: Callable[[Coordinate, Holding], None] = lambda *_: None
        self.on_take: Callable[[Process, LedgerKey], None] = lambda *_: None
        self.carried: dict[Coordinate, Coordinate] = {}
        self.seeks = Seeks(self.book, self.carried, cluster.of, world.fail)
        self.repeats = Repeats(world, cluster)
        self.notes = NoteBook(world.fail)
        self.deliveries = Deliveries(world, self.book)
        self.enqueued = self.deliveries.enqueued
        self.forgers: Forgers | None = None
        self.on_verb: Callable[[str], None] = lambda *_: None

    # --- the store's decisions (Observer)

    def applied(self, by: Process, call: RecordCall, reply: RecordReply) -> None:
        """A call was decided."""
        if reply.verdict is not CallStatus.OK:
            self.world.note(by.name, "refused", call.key.partition, reply.verdict.name)
            return
        for op, result in zip(call.ops, reply.results, strict=True):
            coordinate = Coordinate(call.key.topic_id, call.key.partition, op.offset)
            self._note(by, coordinate, op, result, reply)
            noted(self.book.message(coordinate), by, result, self.world.now_us)
            self.on_verb(op.verb.name)
            match op:
                case Grant():
                    if result.outcome is Outcome.GRANTED:
                        self._retry_copy_granted(coordinate)
                        self._granted(by, coordinate, result, reply)
                case Settle():
                    self._settled(by, self.origin(coordinate), op, result, reply)
                case Gap() | Advance() | Reset() | Truncate():
                    self._went_on(call.key, op, reply)
                case ReplayAck() | ReplayFinished():
                    self._replayed(by, coordinate, op, reply)
                case ClaimOrigin():
                    self._claimed(coordinate, op, result, reply)
                case NameCopy() | MarkDead():
                    self._owners_word(coordinate, op, result)
                case FinishOrigin() if result.outcome is Outcome.DONE:
                    self._finished(coordinate, op)
                case RestoreMoved() | RestoreClaimed() if result.number:
                    self._sent(coordinate, op.generation)
                case _:
                    pass

    def _went_on(
        self, key: LedgerKey, op: Gap | Advance | Reset | Truncate, reply: RecordReply
    ) -> None:
        at = Coordinate(key.topic_id, key.partition, op.offset)
        match op:
            case Gap():
                self._gap(at, op)
            case Advance():
                self._passed(at, 0, op.offset, "below the watermark")
            case Reset() | Truncate():
                self.repeats.reset(at.place)
                self.seeks.reset(key, op.offset, reply.epoch)

    def _replayed(
        self, by: Process, at: Coordinate, op: ReplayAck | ReplayFinished, reply: RecordReply
    ) -> None:
        """I1: what is finished is told again, or an operator has ended it as an ack would."""
        message = self.book.message(self.origin(at))
        if "ack" in message.cancelled and isinstance(op, ReplayAck) and not message.done:
            message.acked_us, message.acked_by = self.world.now_us, by
            message.acked_epoch = self.seeks.epoch(at, reply)
            for holding in message.holdings.values():
                holding.cancelled_us = self.world.now_us
        known = self.cluster.of(at.topic_id) is None or op.mark not in (0, epoch_mark(reply.epoch))
        if not known and not self.done(at):
            self.world.fail(f"I1: {name_of(at)} replayed, but never finished")

    def _note(
        self, by: Process, at: Coordinate, op: Op, result: OpResult, reply: RecordReply
    ) -> None:  # fmt: skip
        if isinstance(op, Drop | EndRepair):
            return
        late = "late" if result.late else ""
        retry = self._retry_topic()
        own = "r" if retry is not None and retry.topic_id == at.topic_id else ""
        self.world.note(
            by.name, f"{op.verb.name.lower()} {own}{at.partition}/{at.offset}", result.outcome.name,
            late, "item", *tuple(op)[5:7], "fence", result.fence, "until", result.when_ms,
            "now", reply.now_ms,
        )  # fmt: skip

    def _granted(
        self, by: Process, where: Coordinate, result: OpResult, reply: RecordReply
    ) -> None:
        at = self.origin(where)
        message = self.book.message(at)
        now_us = self.world.now_us
        for holding in message.holdings.values():
            held = self.still_held(holding, reply.now_ms)
            if held and not self._forgotten(at, holding, by) and not self._without_origin(at):
                self.world.fail(
                    f"I3: {name_of(at)} granted by {by.name} while fence {holding.fence} holds it "
                    f"until {holding.told_ms} (now {reply.now_ms})"
                )
            same = holding.fence == result.fence and holding.rollback_epoch == reply.rollback_epoch
            if same and holding.at == where:  # two copies of one message are two tokens
                self.world.fail(f"R9: {name_of(at)} granted twice with fence {result.fence}")
        for ack in message.told:
            if not self._ack_excused(at, ack, self.seeks.epoch(at, reply), by):
                self.world.fail(f"I2: {name_of(at)} granted again by {by.name} after its ack")
        if message.copies and not self.disturbed():
            self.world.fail(f"R2: {name_of(at)} granted although its dead copy is stored")
        self._in_order(at)
        message.moving &= where != at
        holding = Holding(
            result.fence, reply.rollback_epoch, by, now_us, reply.now_ms, result.when_ms, where
        )
        holding.until(result.when_ms, reply.now_ms, now_us, by)
        message.holdings[holding.fence, holding.rollback_epoch] = message.newest = holding
        self.on_grant(at, holding)

    def _in_order(self, at: Coordinate) -> None:
        """I6, while the store keeps its data. A redriven dead letter has lost its place."""
        topic = self.cluster.of(at.topic_id)
        if topic is None or is_own_topic(topic.name):
            return
        if self.ordered and not self.disturbed():
            earlier = too_early(self.book, topic.logs[at.partition].records, at, self.ordered)
            if earlier is not None:
                self.world.fail(f"I6: {name_of(at)} granted before {name_of(earlier)} was over")

    def _settled(
        self, by: Process, at: Coordinate, op: Settle, result: OpResult, reply: RecordReply
    ) -> None:  # fmt: skip
        message = self.book.message(at)
        holding = message.holdings.get((op.fence, op.rollback_epoch))
        if holding is None:
            return
        holding.outcomes.add(result.outcome.name)
        if result.outcome is Outcome.LOST:
            newest = holding is message.newest and not message.skipped
            newest = newest and not self._outranked(message, holding)
            # After a loss of data: an ack of before that was replayed behind the grant's back.
            gone = op.verb is Verb.EXTEND or message.acked_us < holding.granted_us
            acked = message.acked_us and gone and self.disturbed()
            newest = newest and not (acked or message.cancelled or self._without_origin(at))
            newest = newest and reply.epoch == self.book.ledger(at.place).epoch
            # A forgotten lease of a message that is in the log no more is beyond help.
            kept = op.verb in (Verb.ACK, Verb.EXTEND) and not message.removed
            sure = kept or not self._forgotten(at, holding, by)
            if newest and sure and self.still_held(holding, reply.now_ms):
                self.world.fail(f"I7: {name_of(at)} told lost to the holder of its live lease")
            return
        if result.outcome in ENDING:
            self._ended(at, message, holding, op, reply)
        if result.outcome is Outcome.ALREADY_ACKED and op.verb is Verb.ACK:
            acked = bool(message.acked_us or message.told or message.acked_before)
            over = message.removed or message.skipped or message.cancelled
            if not (acked or over or self._ended_before_a_loss(at)):
                self.world.fail(f"I7: {name_of(at)} told already_acked; nobody acked it")
        if result.outcome is Outcome.EXTENDED:
            holding.until(result.when_ms, reply.now_ms, self.world.now_us, by)
        if result.outcome is Outcome.ACKED:
            if message.copies and not self.disturbed():
                self.world.fail(f"R2: {name_of(at)} acked although its dead copy is stored")
            message.acked_us, message.acked_by = self.world.now_us, by
            message.acked_epoch = self.seeks.epoch(at, reply) - message.moving
            self.acked_count += 1
            (self.repeats.settled if op.duplicate else self.repeats.worked)(at)

    def _ended_before_a_loss(self, at: Coordinate) -> bool:
        """The store lost the whole record of its partition, and the one that was made anew from the
        commit knows that the message is over, not that it became a dead letter.
        """
        ledger = self.book.ledger(at.place)
        committed = at.offset < ledger.made_anew_at or any(
            at.offset in ranges for _, ranges, _ in ledger.losses
        )
        return committed and bool(self.book.message(at).copies)

    def _ended(
        self, at: Coordinate, message: Message, holding: Holding, op: Settle, reply: RecordReply
    ) -> None:  # fmt: skip
        """R17, I4: a lease is ended by its newest holder's own wish, or not at all."""
        newest, now_us = message.newest, self.world.now_us
        if newest is not None and apart(self.book, at, holding, newest, now_us):
            newest = None
        if newest is not None and newest.granted_us > holding.granted_us:
            lost = self.book.rolled_back(newest.granted_us, now_us)
            if newest.fence < holding.fence:  # the clock went back with the store (R9)
                lost = lost or self.book.rolled_back(holding.granted_us, now_us)
            if lost is None and not newest.ended and op.verb is not Verb.ACK:
                self.world.fail(f"R17: {name_of(at)}: {op.verb.name} by an older token counted")
            # A cancel ended the message, not the lease: an ack of it changes nothing more.
            over = op.verb is Verb.ACK and message.cancelled
            if lost is None and not over and self.still_held(newest, reply.now_ms):
                self.world.fail(f"R17: {name_of(at)}: {op.verb.name} by an older token counted")
        asked = holding.asked | message.cancelled
        if holding.told_ms and op.verb.name.lower() not in asked and not holding.ended:
            self.world.fail(f"I4: {name_of(at)}: {op.verb.name} that its holder never asked for")
        holding.ended = True

    def _finished(self, at: Coordinate, op: FinishOrigin) -> None:
        """R2, I1: the original of a dead letter ends after its copy."""
        if op.reason == Finish.SENT:
            self._sent(at, op.fence)
        message = self.book.message(self.origin(at))
        put_aside = self.book.message(at).copies  # a copy that became a dead letter of its own
        if op.reason == Finish.DEAD and not (message.copies or put_aside):
            self.world.fail(f"I1: {name_of(at)} finished as dead without a copy")
        if op.reason == Finish.VANISHED and self.cluster.holds(
            at.topic_id, at.partition, at.offset
        ):
            self.world.fail(f"I1: {name_of(at)} finished as vanished, but it is in the log")

    def _sent(self, at: Coordinate, generation: int) -> None:
        """R2: the original ends after its copy is stored; who has claimed that may say so, too."""
        message = self.book.message(at)
        message.sent = True
        if generation not in message.retry_copies:
            self.world.fail(f"R2: {name_of(at)} finished as sent without its copy")

    def _gap(self, at: Coordinate, op: Gap) -> None:
        if op.reason != Finish.SKIPPED:
            self._passed(at, op.start, op.end, "marked as a hole")
        elif self.cluster.of(at.topic_id) is not None and not self._forged(at):
            self.seeks.skipped(at)

    def _forged(self, at: Coordinate) -> bool:
        return self.forgers is not None and at in self.forgers.forged

    def _passed(self, at: Coordinate, start: int, end: int, what: str) -> None:
        """I1, R7: nothing unfinished is passed over by the watermark or marked as a hole."""
        topic = self.cluster.of(at.topic_id)
        if topic is None:
            return
        for offset in topic.logs[at.partition].records:
            if start <= offset < end:
                each = at._replace(offset=offset)
                if not self.done(each):
                    self.world.fail(f"I1: {name_of(each)} is {what} and was never finished")

    def opened(self, by: Process, request: Open, snapshot: Snapshot) -> None:
        """A record was taken or read again."""
        self.world.note(
            by.name, "open", request.key.partition, snapshot.verdict.name, "term", snapshot.term,
            "watermark", snapshot.watermark, "created" if snapshot.created else "",
            "moved" if snapshot.moved else "",
        )  # fmt: skip
        if snapshot.verdict is not CallStatus.OK or request.peek:
            return
        place = Place(request.key.topic_id, request.key.partition)
        ledger = self.book.ledger(place)
        if not request.term:
            ledger.taken_us = self.world.now_us
            self.on_take(by, request.key)
        if snapshot.created:
            ledger.epoch = 0
            if snapshot.watermark in ledger.resets:  # a seek may find no record there yet
                if snapshot.watermark not in ledger.seeks:
                    ledger.resets.remove(snapshot.watermark)
                self.seeks.skip_below(place, snapshot.watermark)
            if ledger.start < 0 or self._new_group(place):
                ledger.start = snapshot.watermark
            if ledger.created:
                ledger.losses.append((*ledger.committed, self.world.now_us))
            if ledger.losses:
                ledger.made_anew_at = max(ledger.made_anew_at, snapshot.watermark)
            ledger.created = True
            self._created(place, ledger, snapshot.watermark)

    def _new_group(self, place: Place) -> bool:
        """The store forgot the group before anything was granted or committed: it starts anew."""
        book = self.book
        if not book.rollbacks and not book.flushed_us:
            return False
        granted = any(
            each.place == place and message.holdings for each, message in book.messages.items()
        )
        return not granted and place.topic_id not in self.committed_topics

    def _created(self, place: Place, ledger: Ledger, start: int) -> None:
        """I1, R6: a new record never starts above an unfinished message."""
        topic = self.cluster.of(place.topic_id)
        for offset in () if topic is None else topic.logs[place.partition].records:
            each = Coordinate(*place, offset)
            if ledger.start <= offset < start and not self.done(each):
                self.world.fail(f"I1: a new record starts above {name_of(each)}, never finished")

    def value_set(self, name: str, value: bytes) -> None:
        """The group's start is decided (R6)."""
        self.world.note("store", "value", name, len(value))
        self.seeks.written(name, value)
        if not name.startswith("start:"):
            return
        for field, position in json.loads(value).items():
            topic_id, partition = field.split(":")
            place = Place(bytes.fromhex(topic_id), int(partition))
            ledger = self.book.ledger(place)
            if ledger.start < 0 or self._new_group(place):
                ledger.start = position

    # --- copies

    def origin(self, at: Coordinate) -> Coordinate:
        """What a coordinate stands for: itself, or the message that a retry copy stands for."""
        return self.carried.get(at, at)

    def _claimed(
        self, at: Coordinate, op: ClaimOrigin, result: OpResult, reply: RecordReply
    ) -> None:
        """R2: the first copy wins, and none is dismissed while nobody else has the message."""
        retry = self._retry_topic()
        if retry is None:
            return
        retry_copy, message = Coordinate(retry.topic_id, *op.copy), self.book.message(at)
        if self.forgers is not None and retry_copy in self.forgers.forged:
            if result.outcome is Outcome.CLAIMED:
                self.forgers.claimed(retry_copy)
            return
        match result.outcome:
            case Outcome.CLAIMED | Outcome.LOST:
                if message.claimed_by not in (None, retry_copy) and not self.disturbed():
                    self.world.fail(f"R2: {name_of(at)} claimed by two copies")
                if message.acked_us and message.claimed_by is None and not self.disturbed():
                    self.world.fail(f"R2: {name_of(at)} claimed although it was acked")
                if message.claimed_by != retry_copy:
                    lapsed(message, reply.now_ms)
                message.claimed_by = retry_copy
            case Outcome.REFUSED | Outcome.FINISHED:
                if (
                    op.generation < result.fence
                ):  # a rollback forgot its origin record; it was sent again (R2)
                    message.dismissed.add(retry_copy)
                elif message.again and result.outcome is Outcome.FINISHED:
                    message.dismissed.add(retry_copy)  # of an earlier epoch (R8)
                elif not message.settled(retry_copy) and not self.disturbed():
                    self.world.fail(f"R2: a copy of {name_of(at)} dismissed; nobody has it")
            case _:
                pass

    def _owners_word(self, at: Coordinate, op: NameCopy | MarkDead, result: OpResult) -> None:
        """The mover of a message says which copy counts, or an owner that it is dead."""
        retry = self._retry_topic()
        if isinstance(op, MarkDead):
            self.book.message(self.origin(at)).exhausted |= result.outcome is Outcome.DEAD
        elif retry is not None:
            self.book.message(at).named = Coordinate(retry.topic_id, *op.copy)

    def _retry_copy_granted(self, at: Coordinate) -> None:
        """R2: a copy is handed out only after it has claimed its message."""
        if self.forgers is not None:
            self.forgers.got(at)
        origin = self.carried.get(at)
        if origin is None:
            return
        message = self.book.message(origin)
        if message.moving and message.claimed_by is None and message.claimed_before == at:
            message.claimed_by = at
        if message.claimed_by != at and not unknown(self.book, origin):
            self.world.fail(f"R2: {name_of(origin)} handed out by a copy that did not claim it")

    def _retry_topic(self) -> Topic | None:
        return next((t for t in self.cluster.topics.values() if is_retry(t.name)), None)

    # --- shared

    def removed(self, place: Place, offset: int) -> None:
        """Compaction or retention takes a message away."""
        self.repeats.removed(Coordinate(*place, offset))
        self.book.message(Coordinate(*place, offset)).removed = True

    def done(self, at: Coordinate) -> bool:
        """It may leave the unfinished set (I1)."""
        message = self.book.messages.get(at)
        if self._forged(at):
            return True
        if message is not None and (message.done or message.sent):
            return True
        if at in self.carried and self.book.message(self.carried[at]).settled(at):
            return True
        if at in self.carried and at in self.book.message(self.carried[at]).dismissed:
            return True
        if at.offset < self.book.ledger(at.place).start:
            return True
        return self.cluster.is_hole(at.topic_id, at.partition, at.offset)
