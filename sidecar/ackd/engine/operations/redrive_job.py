"""Carries out a redrive or purge batch by batch; stores each batch in the document before it
begins.

To the group: origin record, copy in the retry topic, finish, as for any message that moves to the
retry topic (R2, R29). However often a batch is begun anew, the group gets exactly one copy of each
message. To the origin topic there are no claims: if the sidecar dies between copy and mark, one
batch is published twice. Nor are there where the broker keeps the acks and has a topic for the
group alone (`GroupTopics`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ackd.api.dead_letters import DeadRequest, Kind, Progress, To
from ackd.core.ids import TopicPartition
from ackd.core.record.operations import (
    Advance,
    CopyRef,
    FinishOrigin,
    Gap,
    MoveToRetry,
    NameCopy,
    Op,
    PlaceCopy,
)
from ackd.core.record.protocol import Finish
from ackd.core.record.transitions import Outcome, State
from ackd.engine.base.context import Context
from ackd.engine.base.copy_signature import CopyKind
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.operations.archive import Archive, KeepRight, RedriveDocument
from ackd.engine.operations.dead_letter_records import DeadLetterRecords, TakenRecord
from ackd.engine.partition.copy_headers import (
    RetryCopy,
    copy_partition,
    own_headers,
    redriven_headers,
    retry_copy_headers,
)
from ackd.engine.retry.copy_filter import is_copy
from ackd.engine.retry.dead_letter_reader import (
    BYTES_MAX,
    DeadLetterLog,
    Letter,
    open_dead_log,
    read_id,
)
from ackd.engine.retry.own_topic import OwnTopic, ReservedTopics
from ackd.errors import BrokerError, StoreError
from ackd.ports import (
    Failure,
    GroupTopics,
    Headers,
    NotStored,
    Outgoing,
    PublishResult,
    Stored,
)

BATCH_MAX = 100
READ_MAX = 500
NAP_S = 1.0
OnRedriven = Callable[[Sequence[tuple[RetryCopy, str]], int], None]
"""Gets dead letters that were published, each with the id that it had as one, and the time in
milliseconds.
"""


@dataclass(frozen=True, slots=True)
class _MovedLetter:
    """A dead letter on its way, with the generation and rollback epoch of its slot, and the place
    of its copy once that is stored.
    """

    letter: Letter
    generation: int
    rollback_epoch: int
    place: CopyRef | None = None


class RedriveJob:
    """One attempt to finish an operation. Raises StoreError, BrokerError, NoRightError.

    `marks`: keeps which dead letters are gone; `retry_topic`: where redriven messages go.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        marks: DeadLetterRecords,
        retry_topic: OwnTopic,
        on_redriven: OnRedriven,
        keep_right: KeepRight,
        document: RedriveDocument,
    ) -> None:
        self._state = state
        self._context = context
        self._marks = marks
        self._retry_topic = retry_topic
        self._on_redriven = on_redriven
        self._keep_right = keep_right
        self._archive = Archive(context.store, context.clock)
        self._document = document
        self._reserved = ReservedTopics(state.broker, {state.name: state.settings})
        self._taken: dict[int, TakenRecord] = {}

    @property
    def _request(self) -> DeadRequest:
        return self._document.request

    async def run(self) -> None:
        """Work until the operation is done or cancelled."""
        document = self._document
        async with open_dead_log(self._state, self._context) as log:
            there = "" if log.info is None else log.info.topic_id.hex()
            if document.topic_id not in ("", there):
                document.state = Progress.FAILED
                document.error = "the dead-letter topic was deleted meanwhile"
                await self._save()
                return
            while document.state is Progress.RUNNING:
                await self._step(log)

    async def _step(self, log: DeadLetterLog) -> None:
        document = self._document
        await self._keep_right()
        if document.pending:
            letters = [
                letter
                for offset in document.pending
                if (letter := await log.one(document.partition, offset)) is not None
            ]
        elif document.partition == len(document.ends) or document.left == 0:
            document.state, document.error = Progress.DONE, None
            await self._save()
            return
        elif await self._archive.cancelled(document.id):
            document.state = Progress.CANCELLED
            await self._save()
            return
        else:
            letters = await self._next(log)
            await self._save()
        if document.pending:
            await self._batch(log, letters)

    async def _save(self) -> None:
        await self._archive.write(self._document)

    # --- which letters

    async def _next(self, log: DeadLetterLog) -> list[Letter]:
        """Read the next batch and put it into `pending`. If nothing matches, only the position
        moves.
        """
        document = self._document
        number = document.partition
        first, _ = await log.range(number)
        offset = max(document.offset, first)
        if self._request.ids:
            letters, document.next_offset = await self._named(log, number, offset)
        else:
            end = document.ends[number]
            found, document.next_offset = await log.read(number, offset, end, READ_MAX)
            letters = [each for each in found if each.fits(self._request.filter)]
        letters = await self._still_there(log, number, letters)
        most = min(BATCH_MAX, self._request.rate_per_s or BATCH_MAX)
        if document.left is not None:
            most = min(most, document.left)
        if len(letters) > most:
            letters = letters[:most]
            document.next_offset = letters[-1].record.offset + 1
        if letters:
            document.pending = [letter.record.offset for letter in letters]
        else:
            self._go_on()
        return letters

    async def _named(
        self, log: DeadLetterLog, number: int, offset: int
    ) -> tuple[list[Letter], int]:
        """The letters in this partition that the request names."""
        wanted = sorted(
            at for partition, at in map(read_id, self._request.ids) if partition == number
        )
        found: list[Letter] = []
        size = 0
        for at in wanted:
            if len(found) == BATCH_MAX or size >= BYTES_MAX:
                return found, found[-1].record.offset + 1
            letter = await log.one(number, at) if at >= offset else None
            if letter is not None:
                found.append(letter)
                size += letter.record.size()
        return found, self._document.ends[number]

    async def _still_there(
        self, log: DeadLetterLog, number: int, letters: Sequence[Letter]
    ) -> list[Letter]:
        offsets = [letter.record.offset for letter in letters]
        states = await self._marks.states(log.key(number), offsets)
        pairs = zip(letters, states, strict=True)
        return [letter for letter, state in pairs if state is not State.FINISHED]

    def _go_on(self) -> None:
        """After the batch: move to the next offset, or to the next partition that has any."""
        document = self._document
        document.pending = []
        document.offset = document.next_offset
        ends = document.ends
        while document.partition < len(ends) and document.offset >= ends[document.partition]:
            document.partition += 1
            document.offset = 0

    # --- one batch

    async def _batch(self, log: DeadLetterLog, letters: list[Letter]) -> None:
        document = self._document
        began_ms = self._context.clock.monotonic_ms()
        taken = await self._take(log, document.partition)
        if self._request.kind is Kind.REDRIVE and not self._request.unsigned:
            letters = [each for each in letters if self._genuine(log, each)]
        if not letters:
            moved, failed = 0, 0  # deleted by retention meanwhile
        elif self._request.kind is Kind.PURGE:
            moved, failed = await self._purge(taken, letters), 0
        elif self._request.to is To.ORIGIN or isinstance(self._state.broker, GroupTopics):
            moved, failed = await self._to_topics(log, taken, letters)
        else:
            moved, failed = await self._to_group(log, taken, letters)
        document.moved += moved
        document.failed += failed
        document.skipped += len(document.pending) - moved - failed
        document.error = None
        self._count(moved, failed)
        self._go_on()
        await self._save()
        await self._rest(len(letters), began_ms)

    def _genuine(self, log: DeadLetterLog, letter: Letter) -> bool:
        """Whether ackd wrote a dead letter, of a message that it did not put aside. Where the
        settings name a topic of other clients' dead letters, these count, too.
        """
        if letter.retry_copy.origin.topic == self._retry_topic.name:
            return False
        if not is_copy(letter.record):
            return True
        tp = TopicPartition("" if log.info is None else log.info.topic, letter.partition)
        keys = self._state.copy_keys
        return keys.proof(letter.record, CopyKind.DEAD, tp, log.topic_id).believed

    def _count(self, moved: int, failed: int) -> None:
        name, metrics = self._state.name, self._context.metrics
        done = "purged" if self._request.kind is Kind.PURGE else "redriven"
        metrics.dead_letters.at(name, done).inc(moved)
        metrics.dead_letters.at(name, "failed").inc(failed)

    async def _rest(self, count: int, began_ms: int) -> None:
        """Wait as long as the requested rate demands."""
        rate = self._request.rate_per_s
        if rate is None or self._document.partition == len(self._document.ends):
            return
        until_ms = began_ms + count * 1000 // rate
        left_ms = until_ms - self._context.clock.monotonic_ms()
        if left_ms > 0:
            await asyncio.sleep(min(left_ms / 1000, NAP_S))

    async def _take(self, log: DeadLetterLog, number: int) -> TakenRecord:
        taken = self._taken.get(number)
        if taken is None:
            first, _ = await log.range(number)
            taken = self._taken[number] = await self._marks.take(log.key(number), first)
        return taken

    async def _purge(self, taken: TakenRecord, letters: Sequence[Letter]) -> int:
        ops = []
        for letter in letters:
            offset = letter.record.offset
            slot = taken.slots.get(offset)
            if slot is not None and slot.state is State.MOVING:
                ops.append(_finish(offset, slot.fence, slot.rollback_epoch))
            else:
                ops.append(Gap(offset, offset + 1))
        if ops:
            await self._marks.decide(taken.handle, ops)
        return len(ops)

    # --- to the origin topic, or to the topic that stands for it in this group

    async def _to_topics(
        self, log: DeadLetterLog, taken: TakenRecord, letters: Sequence[Letter]
    ) -> tuple[int, int]:
        # An attempt before at this batch may have failed after the broker took a part of it.
        left = await self._still_there(log, self._document.partition, letters)
        before = len(letters) - len(left)
        sent = [each for each in left if each.record.offset not in taken.slots]
        # Origins may be forged: whoever can write dead letters also writes their origin.
        free = [each for each in sent if each.retry_copy.origin.topic not in self._reserved]
        origins = dict.fromkeys(each.retry_copy.origin.topic for each in free)
        topics = {each: await _topic(self._state, self._request.to, each) for each in origins}
        copies = [
            Outgoing(
                topics[letter.retry_copy.origin.topic],
                letter.record.key,
                letter.record.value,
                self._headers(letter) + redriven_headers(log.origin_record(letter)),
            )
            for letter in free
        ]
        results = await self._state.broker.publish(copies)
        stored = [x for x, result in zip(free, results, strict=True) if not _bad(result)]
        ops = [Gap(x.record.offset, x.record.offset + 1) for x in stored]
        if ops:
            await self._marks.decide(taken.handle, ops)
        self._report(log, stored)
        refused = _refused(results)
        return before + len(stored), refused + len(sent) - len(free)

    # --- to this group

    async def _to_group(
        self, log: DeadLetterLog, taken: TakenRecord, letters: Sequence[Letter]
    ) -> tuple[int, int]:
        """Origin record, copy, finish (R2). Beginning anew after a crash is harmless."""
        partitions = await self._retry_topic.ensure()
        moved_letters, before = await self._send(taken, letters)
        copies = [
            self._copy(log, taken, moved_letter, partitions) for moved_letter in moved_letters
        ]
        results = await self._state.broker.publish(copies)
        stored = [
            replace(moved_letter, place=_place(result))
            for moved_letter, result in zip(moved_letters, results, strict=True)
            if not _bad(result)
        ]
        if stored:
            await self._mark(taken, stored)
            self._report(log, [moved_letter.letter for moved_letter in stored])
        if len(stored) < len(moved_letters):
            self._retry_topic.doubt()
        return before + len(stored), _refused(results)

    def _report(self, log: DeadLetterLog, letters: Sequence[Letter]) -> None:
        letters_and_ids = [(each.retry_copy, log.origin_record(each).id) for each in letters]
        self._on_redriven(letters_and_ids, self._context.clock.wall_ms())

    async def _send(
        self, taken: TakenRecord, letters: Sequence[Letter]
    ) -> tuple[list[_MovedLetter], int]:
        """Write the origin records; also counts the letters that an earlier attempt at this batch
        redrove.
        """
        reply = await self._marks.decide(taken.handle, _send_ops(letters))
        moved_letters: list[_MovedLetter] = []
        before = 0
        for letter, result in zip(letters, reply.results[1::2], strict=True):
            if result.outcome is Outcome.SENT:
                slot = taken.slots.get(letter.record.offset)
                rollback_epoch = reply.rollback_epoch if slot is None else slot.rollback_epoch
                moved_letters.append(_MovedLetter(letter, result.fence, rollback_epoch))
            elif result.outcome is Outcome.FINISHED:
                before += 1
            else:
                raise StoreError(
                    f"an origin record was answered {result.outcome.name}; trying again"
                )
        return moved_letters, before

    async def _mark(self, taken: TakenRecord, moved_letters: Sequence[_MovedLetter]) -> None:
        """The copies are durable: mark the dead letters as gone."""
        ops: list[Op] = [
            _finish(
                moved_letter.letter.record.offset,
                moved_letter.generation,
                moved_letter.rollback_epoch,
            )
            for moved_letter in moved_letters
        ]
        ops += [
            NameCopy(each.letter.record.offset, each.generation, each.place)
            for each in moved_letters
            if each.place is not None
        ]
        # Two drop as many old origin records as this batch made.
        ops += [Advance(0)] * 2
        reply = await self._marks.decide(taken.handle, ops)
        if any(each.state is not State.FINISHED for each in reply.results[: len(moved_letters)]):
            raise StoreError("a copy could not be marked; trying again")

    def _copy(
        self, log: DeadLetterLog, taken: TakenRecord, moved_letter: _MovedLetter, partitions: int
    ) -> Outgoing:
        letter = moved_letter.letter
        old, record = letter.retry_copy, letter.record
        retry_copy = RetryCopy(
            origin=old.origin,
            subscription=old.subscription,
            generation=moved_letter.generation,
            incarnation=taken.handle.incarnation,
            rollback_epoch=moved_letter.rollback_epoch,
            attempt=0,
            due_ms=0,
            first_ms=self._context.clock.wall_ms(),
            published_ms=old.published_ms,
            redriven=log.origin_record(letter),
            reset_epoch=old.reset_epoch,
        )
        place = None
        if self._state.broker.capabilities.explicit_partition:
            place = copy_partition(record, old.origin, partitions)
        name = self._retry_topic.name
        headers = retry_copy_headers(retry_copy, self._headers(letter))
        outgoing = Outgoing(name, record.key, record.value, headers, place)
        return self._state.copy_keys.signed(outgoing, CopyKind.RETRY)

    def _headers(self, letter: Letter) -> Headers:
        """The message's own headers, edited as the request asks."""
        request = self._request
        gone = {*request.remove_headers, *(name for name, _ in request.set_headers)}
        kept = tuple(each for each in own_headers(letter.record.headers) if each[0] not in gone)
        return (*kept, *((name, value.encode()) for name, value in request.set_headers))


async def _topic(state: SubscriptionState, to: To, origin: str) -> str:
    """Where to send messages of an origin topic. Raises BrokerError."""
    broker, group = state.broker, state.settings.group or state.name
    if to is To.ORIGIN or not isinstance(broker, GroupTopics):
        return origin
    topic = broker.group_topic(group, origin)
    await broker.ensure_topic(topic, {})
    return topic


def _send_ops(letters: Sequence[Letter]) -> list[Op]:
    """For each letter: a slot with a fresh budget of attempts, then its origin record; a repeat
    changes nothing and gets the same answer.
    """
    ops: list[Op] = []
    for number, letter in enumerate(letters, 1):
        ops.append(PlaceCopy(letter.record.offset))
        ops.append(MoveToRetry(letter.record.offset, number))
    return ops


def _finish(offset: int, fence: int, rollback_epoch: int) -> Op:
    return FinishOrigin(offset, fence, rollback_epoch, Finish.SENT)


def _place(result: PublishResult) -> CopyRef | None:
    if not isinstance(result, Stored) or result.offset < 0:
        return None
    return CopyRef(result.partition, result.offset)


def _bad(result: PublishResult) -> bool:
    return isinstance(result, NotStored)


def _refused(results: Sequence[PublishResult]) -> int:
    """How many the broker will never take. Raises BrokerError when another attempt may succeed."""
    refused = 0
    for result in results:
        if isinstance(result, NotStored):
            if result.failure is not Failure.REFUSED:
                raise BrokerError(f"{result.code}: {result.detail}")
            refused += 1
    return refused
