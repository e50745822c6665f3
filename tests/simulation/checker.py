"""Judges what brokers store and what applications are told, beside the store's decisions."""

from __future__ import annotations

from collections.abc import Mapping

from ackd.api.messages import Delivery, SettleItem, SettleResult, Status
from ackd.api.messages import SettleVerb as Do
from ackd.config.subscription import RETRY_DELAYS_MS
from ackd.core.commit_metadata import decode
from ackd.core.ids import TopicPartition
from ackd.core.record.settles import SETTLES
from ackd.ports import Committed, Headers
from ackd.ports.own_topics import DEAD_PREFIX, is_own_topic
from tests.simulation.book import Ack, Coordinate, Message, Place, name_of, read_token
from tests.simulation.decisions import Decisions
from tests.simulation.foreign_delays import broken
from tests.simulation.log import is_retry
from tests.simulation.origin_records import apart
from tests.simulation.process import Process
from tests.simulation.redrives import origin_record_of, reached

ATTEMPTS_MAX = len(RETRY_DELAYS_MS) + 1
"""As the default settings have it."""
TOLD = {
    Status.ACKED: "ACKED",
    Status.RETRYING: "RETRYING",
    Status.EXTENDED: "EXTENDED",
    Status.DEAD: "DEAD",
    Status.RELEASED: "RELEASED",
}


class Checker(Decisions):
    """Sees everything: the store's decisions, commits, copies, and what applications read."""

    attempts_max = ATTEMPTS_MAX

    # --- the broker

    def committed(self, by: Process | None, tp: TopicPartition, committed: Committed) -> None:
        """I1: what is committed is finished; so are the ranges beside it."""
        topic = self.cluster.topics[tp.topic]
        place = Place(topic.topic_id, tp.partition)
        who = "operator" if by is None else by.name
        self.world.note(who, "commit", tp.partition, committed.offset)
        if by is None:
            self.book.ledger(place).resets.append(committed.offset)
            self.book.ledger(place).committed = (committed.offset, set())
            self.book.ledger(place).unjudged = committed.offset, self.book.ledger(place).epoch
            return
        progress = decode(committed.metadata)
        if progress is None or not progress.fits(
            self.cluster.name, topic.topic_id, committed.offset
        ):
            if progress is not None and progress.topic_id != topic.topic_id.hex():
                return  # the topic was made again while this commit was on its way
            self.world.fail(f"R8: commit of {committed.offset} without a fitting marker")
            return
        self.committed_topics.add(topic.topic_id)
        self._judged(place, committed.offset, progress.epoch)
        ranges = {offset for a, b in progress.ranges for offset in range(a, b)}
        self.book.ledger(place).committed = (committed.offset, ranges)
        if progress.epoch < self.book.ledger(place).epoch:
            return  # it was on its way when the group was moved; nobody believes it any more
        log = topic.logs[tp.partition]
        for offset in log.records:
            if offset < committed.offset or offset in ranges:
                each = Coordinate(*place, offset)
                if not self.done(each):
                    self.world.fail(f"I1: {name_of(each)} committed and never finished")

    def _judged(self, place: Place, offset: int, epoch: int) -> None:
        """R8: nobody commits over an operator's position before he has accepted it."""
        ledger = self.book.ledger(place)
        wanted, ledger.unjudged = ledger.unjudged, None
        if wanted is None or self.book.rollbacks or self.book.flushed_us:
            return
        if offset != wanted[0] and epoch <= wanted[1]:
            self.world.fail(f"R8: partition {place.partition}: reset to {wanted[0]} not judged")

    def copied(self, headers: Headers, tp: TopicPartition, offset: int) -> None:
        """A dead letter or a retry copy landed."""
        reached(self.world, tp.topic, headers)
        if is_retry(tp.topic):
            self._retry_copy(headers, tp, offset)
        if tp.topic.startswith(DEAD_PREFIX):
            self._dead_letter(headers)

    def _retry_copy(self, headers: Headers, tp: TopicPartition, offset: int) -> None:
        fields = dict(headers)
        generation = fields["ackd-generation"]
        assert generation is not None
        topic_id, _, partition, number = origin_record_of(fields)
        at = Coordinate(bytes.fromhex(topic_id), partition, number)
        self.book.message(at).retry_copies.append(int(generation))
        here = Coordinate(self.cluster.topics[tp.topic].topic_id, tp.partition, offset)
        self.carried[here] = at
        self.world.note("broker", f"retry copy of {at.partition}/{at.offset}", generation.decode())

    def _dead_letter(self, headers: Headers) -> None:
        fields = dict(headers)
        generation = fields["ackd-generation"]
        assert generation is not None
        topic_id, name, partition, offset = origin_record_of(fields)
        if is_retry(name):
            self._put_aside(Coordinate(bytes.fromhex(topic_id), partition, offset), fields)
            return
        holding = self._find(name, partition, offset, int(generation))
        if holding is None:
            self.world.fail(f"R2: a dead copy of {name} {offset} that nobody asked for")
            return
        at, message = holding
        self.world.note("broker", f"dead copy {at.partition}/{at.offset}", generation.decode())
        if message.acked_us and not (message.cancelled or self.disturbed()):
            self.world.fail(f"R2: a dead copy of {name_of(at)}, which was acked")
        message.copies.append(int(generation))

    def _put_aside(self, at: Coordinate, fields: Mapping[str, bytes | None]) -> None:
        """A record of the retry topic became a dead letter of its own: only a forged one does."""
        self.book.message(at).copies.append(0)
        forged = self.forgers is not None and at in self.forgers.forged
        self.world.note("broker", f"put aside {at.partition}/{at.offset}", fields["ackd-reason"])
        if not (forged or self.book.flushed_us or self._replaced(at)):
            self.world.fail(f"I1: {name_of(self.origin(at))} is put aside, which ackd wrote")

    def _replaced(self, at: Coordinate) -> bool:
        """Its message has another copy: the store lost the key of this one, and who signed it died
        before he could confirm the move, so the message was copied again (decision 27).
        """
        message = self.book.message(self.origin(at))
        counts = message.claimed_by or message.named
        return self.book.copy_keys_lost and counts not in (None, at)

    def _find(
        self, name: str, partition: int, offset: int, fence: int
    ) -> tuple[Coordinate, Message] | None:
        for topic in (*self.cluster.topics.values(), *self.cluster.retired):
            at = Coordinate(topic.topic_id, partition, offset)
            message = self.book.messages.get(at)
            if topic.name != name or message is None:
                continue
            known = {holding.fence for holding in message.holdings.values()}
            if fence in known or fence in message.retry_copies:
                return at, message
            # A copy whose origin record is gone has none until somebody gets it.
            unconfirmed = not fence and message.retry_copies and self._without_origin(at)
            if unconfirmed and message.exhausted:
                return at, message
        return None

    # --- what applications read (Told)

    def delivered(self, by: Process, delivery: Delivery, asked_us: int) -> None:
        """A lease was handed over."""
        del asked_us
        lease = read_token(delivery.lease)
        at = self.origin(lease.coordinate)
        message = self.book.message(at)
        holding = message.holdings.get(lease.key)
        self.world.note("app", f"got {at.partition}/{at.offset}", lease.fence, by.name)
        if holding is None:
            self.world.fail(f"I7: {name_of(at)} handed over without a grant")
            return
        self.delivered_count += 1
        if not self.cluster.is_of(at.topic_id, at.partition, at.offset, delivery.record.value):
            self.world.fail(f"R1: {name_of(at)} was handed over with a message of another topic")
            return
        topic = self.cluster.of(at.topic_id) if self.cluster.foreign_delays else None
        told = topic is not None and not is_own_topic(topic.name)
        record = topic.logs[at.partition].records.get(at.offset) if topic and told else None
        if record is not None:
            counted = not self.disturbed()
            wrong = broken(
                record,
                holding.granted_us,
                lease.attempt,
                counted=counted,
                ordered=bool(self.ordered),
                jumped_ms=self.jumped_ms,
            )
            if wrong:
                self.world.fail(f"{wrong}: {name_of(at)}")
        if holding.ended and not (holding.asked or message.cancelled):
            self.world.fail(f"I4: {name_of(at)} handed over after its lease was given back")
        holding.told(delivery.deadline_ms)
        if not self.disturbed():
            self.notes.delivered(at, holding, delivery.note)
        newest = message.newest
        if newest is None or newest is holding or newest.granted_us < holding.granted_us:
            return
        if apart(self.book, at, holding, newest, self.world.now_us):
            return  # of the message and of its copy, whose origin record the store has forgotten
        if self.still_held(holding, newest.granted_ms) and newest.granted_us < holding.told_us:
            self.world.fail(f"I3: {name_of(at)} handed over, but granted on already")

    def asked(self, item: SettleItem) -> None:
        """A settle is on its way."""
        lease = read_token(item.lease)
        holding = self.book.message(self.origin(lease.coordinate)).holdings.get(lease.key)
        if holding is not None:
            holding.asked.add(item.do.value)
            if item.note:
                self.notes.say(self.origin(lease.coordinate), holding.fence, item.note)

    def cancelled(self, at: Coordinate, done: str) -> None:
        """An operator was told that it is over (I2, I7)."""
        message = self.book.message(at)
        self.world.note("operator", f"read {at.partition}/{at.offset}", "cancelled", done)
        dying = message.exhausted or any("DEAD" in e.outcomes for e in message.holdings.values())
        if not (message.done or (dying and done == "dead")):
            self.world.fail(f"I7: {name_of(at)} told cancelled, and is not over")
        if message.acked_by is not None and done == "acked":
            message.told.append(
                Ack(message.acked_by, message.acked_us, self.world.now_us, message.acked_epoch)
            )

    def settled(
        self, by: Process, item: SettleItem, result: SettleResult, asked_us: int
    ) -> None:  # fmt: skip
        """An answer was read."""
        lease = read_token(item.lease)
        at = self.origin(lease.coordinate)
        message = self.book.message(at)
        holding = message.holdings.get(lease.key)
        self.world.note("app", f"read {at.partition}/{at.offset}", item.do, result.status, by.name)
        # A new key after a loss of all data has the old one's id once in 256 times (R27).
        invalid = result.status is Status.INVALID and not self.book.flushed_us
        if invalid or holding is None:
            self.world.fail(f"I7: a real token of {name_of(at)} is {result.status}")
            return
        needed = TOLD.get(Status(result.status))
        if result.status is Status.DEAD and item.do in (Do.RETRY, Do.RELEASE):
            needed = TOLD[SETTLES[item.do].status]
            if lease.attempt < self.attempts_max:
                self.world.fail(f"I7: {name_of(at)} told dead after {lease.attempt} deliveries")
        if needed is not None and needed not in holding.outcomes:
            self.world.fail(f"I7: {name_of(at)} answered {result.status}; no store decided so")
        acked_before = message.told or message.acked_before  # a seek has made it unfinished since
        if result.status is Status.ALREADY_ACKED and not (self.done(at) or acked_before):
            self.world.fail(f"I7: {name_of(at)} answered already_acked; it never was")
        dead = message.copies and not message.acked_us and not self.disturbed()
        if result.status is Status.ALREADY_ACKED and dead:
            self.world.fail(f"R15: {name_of(at)} answered already_acked; it is a dead letter")
        acked = result.status in (Status.ACKED, Status.ALREADY_ACKED) and item.do is Do.ACK
        if acked and message.acked_by is not None:
            # Who repeats it has seen it in the store, too, and remembers it as well.
            witness = message.acked_by if result.status is Status.ACKED else by
            message.told.append(
                Ack(witness, message.acked_us, self.world.now_us, message.acked_epoch)
            )
        if result.status is Status.EXTENDED and result.deadline_ms is not None:
            holding.told(result.deadline_ms)
            if item.note:
                self.notes.say(at, holding.fence, item.note, self.world.now_us)
