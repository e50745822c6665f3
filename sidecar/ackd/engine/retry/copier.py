"""Copies messages into the retry or dead-letter topic: store the copy, then finish the original
(I1, R2).

The slot's state (MOVING, DEAD) is the commit point: once it is set, the message is wherever its
copy will be, whichever process crashes. A copy carries (origin, generation), and a repeat after a
lost answer carries the same. A copy that fails is tried again after 5 s or more and its original
stays unfinished meanwhile; other copies go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ackd.core.ledger.effects import SendBack, SendDead
from ackd.core.ledger.entry import UNKNOWN_ROLLBACK_EPOCH, Entry
from ackd.core.record.operations import CopyRef, FinishOrigin, NameCopy, Op
from ackd.core.record.protocol import CallStatus, Finish, OpResult
from ackd.core.record.transitions import Outcome
from ackd.engine.base.context import Context
from ackd.engine.base.copy_signature import CopyKind
from ackd.engine.base.retry_timer import RetryTimer
from ackd.engine.base.spill_file import Held
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.copy_headers import (
    RetryCopy,
    copy_partition,
    kept_headers,
    not_by_ackd,
    retry_copy_headers,
)
from ackd.engine.partition.failure_reasons import learn
from ackd.engine.partition.histories import history_header
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.body_spill import BodySpill
from ackd.engine.retry.own_topic import OwnTopic, make_early
from ackd.engine.retry.strangers import ASIDE, not_genuine
from ackd.errors import BrokerError, StoreError
from ackd.ports import Condition, Failure, Outgoing, Record, Stored

LOG = logging.getLogger("ackd.engine")

BATCH_MAX = 500
BATCH_BYTES_MAX = 8 * 1024 * 1024
LONG = 64 * 1024
"""What somebody else put into the retry topic may be so long that it fits there, and not into the
dead-letter topic. A shorter one was refused for another reason.
"""


@dataclass(slots=True, eq=False)
class CopyJob:
    """One copy to make. `stored`: the copy is durable, only the original is left to finish.
    `place`: where, if the broker said so. `vanished`: the log has lost the message, so there is no
    copy. `bare`: the broker refused it with the bytes of a record that ackd did not write, which is
    too long.
    """

    partition: Partition
    offset: int
    generation: int
    attempt: int
    pauses: RetryTimer
    stored: bool = False
    place: CopyRef | None = None
    vanished: bool = False
    bare: bool = False

    @property
    def entry(self) -> Entry[Held] | None:
        """The message's entry; None if it is no longer to be copied."""
        entry = None if self.partition.closed else self.partition.ledger.entry(self.offset)
        return entry if entry is not None and entry.fence == self.generation else None


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """The topic that copies go to, and what to do with their originals.

    `name`: in metrics. `condition`: the code of its own condition, while copies can't be stored.
    `kind`: what its signature says. `reason` is what the store notes at the original, `done` tells
    the ledger.
    """

    name: str
    condition: str
    kind: CopyKind
    reason: Finish
    done: Callable[[Partition, CopyJob], None]


RETRY = CopyTarget(
    "retry-topic",
    "retry-copies",
    CopyKind.RETRY,
    Finish.SENT,
    lambda of, job: of.ledger.send_back.sent_back(job.offset, job.place),
)
DEAD = CopyTarget(
    "dead-letter-topic",
    "dead-letter-topic",
    CopyKind.DEAD,
    Finish.DEAD,
    lambda of, job: of.ledger.finish(job.offset),
)


OnStored = Callable[[Partition, int, int, int], None]
"""Gets partition, offset and generation of a message whose copy is durable, and the store's time in
milliseconds; the ledger does not know it yet.
"""


class Copier:
    """Sends the copies of one subscription to one topic, in batches, until all are stored."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        target: CopyTarget,
        topic: OwnTopic,
        bodies: BodySpill,
        on_stored: OnStored,
    ) -> None:
        self._state = state
        self._on_stored = on_stored
        self._bodies = bodies
        self._context = context
        self._target = target
        self._topic = topic
        self._jobs: dict[tuple[Partition, int], CopyJob] = {}
        self._errors: dict[tuple[Partition, int], str] = {}
        self._wake = asyncio.Event()

    def send(self, partition: Partition, effect: SendDead | SendBack) -> None:
        """Queue a copy; the message stays unfinished until it is stored."""
        generation = effect.fence if isinstance(effect, SendDead) else effect.generation
        known = self._jobs.get((partition, effect.offset))
        if known is not None and known.generation == generation:
            return
        pauses = RetryTimer(self._context.clock)
        job = CopyJob(partition, effect.offset, generation, effect.attempt, pauses)
        self._jobs[partition, effect.offset] = job
        self._wake.set()

    def __len__(self) -> int:
        return len(self._jobs)

    def on_their_way(self) -> int:
        """Count the copies of which no attempt has failed yet."""
        return len(self._jobs) - len(self._errors)

    def error_of(self, partition: Partition, offset: int) -> str:
        """Why the last attempt to copy this message failed; empty if none failed."""
        return self._errors.get((partition, offset), "")

    async def run(self) -> None:
        while True:
            now_ms = self._context.clock.monotonic_ms()
            batch = self._batch(now_ms)
            if batch:
                await self._send_all(batch)
            else:
                await self._sleep(now_ms)

    def _batch(self, now_ms: int) -> list[CopyJob]:
        """Collect the jobs to try now; drop those whose message no longer needs a copy."""
        batch: list[CopyJob] = []
        size = 0
        for job in list(self._jobs.values()):
            entry = job.entry
            if entry is None:
                self._drop(job)
            elif entry.rollback_epoch == UNKNOWN_ROLLBACK_EPOCH:
                self._drop(job)
                job.partition.reload()  # its snapshot names the copy and the rollback epoch
            elif job.pauses.again_ms <= now_ms:
                batch.append(job)
                size += 0 if job.stored else entry.size
                if len(batch) == BATCH_MAX or size >= BATCH_BYTES_MAX:
                    break
        return batch

    def _drop(self, job: CopyJob) -> None:
        self._jobs.pop((job.partition, job.offset), None)
        self._no_error(job)

    def _no_error(self, job: CopyJob) -> None:
        if self._errors.pop((job.partition, job.offset), None) is not None:
            self._report_condition()

    async def _sleep(self, now_ms: int) -> None:
        self._wake.clear()
        again_ms = min((job.pauses.again_ms for job in self._jobs.values()), default=None)
        seconds = None if again_ms is None else max(again_ms - now_ms, 1) / 1000
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _report_condition(self) -> None:
        code, conditions = self._target.condition, self._state.conditions
        if self._errors:
            first = next(iter(self._errors.values()))
            conditions[code] = Condition(code, f"{len(self._errors)} copies not stored: {first}")
        else:
            conditions.pop(code, None)

    async def prepare(self) -> None:
        """Make the topic before it is needed (`make_early`)."""
        await make_early(self._state, self._topic)

    # --- one batch

    async def _send_all(self, batch: Sequence[CopyJob]) -> None:
        fresh = [job for job in batch if not job.stored]
        try:
            if fresh:
                await self._store(fresh)
        except (BrokerError, StoreError) as error:
            self._failed(fresh, error.detail)
        by_partition: dict[Partition, list[CopyJob]] = {}
        for job in batch:
            if job.stored:
                by_partition.setdefault(job.partition, []).append(job)
        async with asyncio.TaskGroup() as group:
            for partition, jobs in by_partition.items():
                group.create_task(self._finish(partition, jobs))

    async def _store(self, jobs: Sequence[CopyJob]) -> None:
        """Publish the messages that have a body. Without a body a message is finished uncopied."""
        partitions = await self._topic.ensure()
        await self._learn(jobs)
        copies: list[tuple[CopyJob, Outgoing]] = []
        for job in jobs:
            entry = job.entry
            if entry is not None and entry.body is None:
                self._context.metrics.vanished.at(self._state.name).inc()
                job.stored = job.vanished = True
            elif entry is not None:
                body = await self._bodies.body(job.partition, job.offset)
                if body is None:
                    self._drop(job)  # the ledger fetches it again and asks again
                else:
                    copies.append((job, self._copy(job, entry, body, partitions)))
        sign, kind = self._state.copy_keys.signed, self._target.kind
        results = await self._state.broker.publish([sign(copy, kind) for _, copy in copies])
        for (job, _), result in zip(copies, results, strict=True):
            job.stored = isinstance(result, Stored)
            if isinstance(result, Stored):
                known = result.offset >= 0
                job.place = CopyRef(result.partition, result.offset) if known else None
            else:
                self._topic.doubt()
                entry = job.entry
                job.bare = (
                    result.failure is Failure.REFUSED and entry is not None and entry.size >= LONG
                )
                self._failed([job], f"{result.code}: {result.detail}")

    async def _learn(self, jobs: Sequence[CopyJob]) -> None:
        """Load the reasons that any sidecar reported for these failures. Raises StoreError."""
        wanted: dict[Partition, list[int]] = {}
        for job in jobs:
            wanted.setdefault(job.partition, []).append(job.offset)
        await learn(self._context.store, wanted)

    def _copy(self, job: CopyJob, entry: Entry[Held], body: Record, partitions: int) -> Outgoing:
        partition = job.partition
        copies = partition.copies
        aside = self._aside(partition, job, body)
        carried = copies.retry_copy(body)
        origin = carried.origin if carried is not None else copies.origin(job.offset)
        first, last = copies.errors(job.offset)
        retry_copy = RetryCopy(
            origin=origin,
            subscription=self._state.name,
            generation=job.generation,
            incarnation=partition.handle.incarnation,
            rollback_epoch=entry.rollback_epoch,
            attempt=job.attempt,
            due_ms=entry.when_ms,
            first_ms=(carried.first_ms if carried is not None else 0) or entry.first_s * 1000,
            published_ms=carried.published_ms if carried is not None else body.timestamp_ms,
            reason=aside or copies.reason(job.offset),
            first_error=(carried.first_error if carried is not None else "") or first,
            last_error=last or (carried.last_error if carried is not None else ""),
            redriven=carried.redriven if carried is not None else None,
            order_key=partition.ledger.send_back.key(job.offset) if self._target is RETRY else 0,
            reset_epoch=carried.reset_epoch if carried is not None else partition.epoch,
            history=b"" if self._target is RETRY else history_header(copies.history(job.offset)),
        )
        # The broker spreads dead letters as it likes; retry copies of one key stay in order.
        place = None
        if self._target is RETRY and self._state.broker.capabilities.explicit_partition:
            place = copy_partition(body, origin, partitions)
        if aside and job.bare:
            retry_copy = replace(retry_copy, reason=f"{aside}; {body.size()} bytes did not fit")
            return Outgoing(self._topic.name, None, b"", retry_copy_headers(retry_copy, ()), place)
        own = kept_headers(body.headers) if aside else body.headers
        headers = retry_copy_headers(retry_copy, own)
        return Outgoing(self._topic.name, body.key, body.value, headers, place)

    @staticmethod
    def _aside(partition: Partition, job: CopyJob, body: Record) -> str:
        """Why a record of the retry topic is a dead letter of its own; empty if it is none.

        An earlier owner may have decided so.
        """
        copies = partition.copies
        if not partition.ledger.holds_copies or copies.aside(job.offset):
            return copies.aside(job.offset)
        why = not_by_ackd(body) or (not_genuine(body) if job.generation == ASIDE else "")
        if why:
            copies.put_aside(job.offset, why)
        return why

    async def _finish(self, partition: Partition, jobs: Sequence[CopyJob]) -> None:
        """The copies are durable: finish their originals. Repeating this is harmless."""
        todo = [(job, self._finish_op(job, entry)) for job in jobs if (entry := job.entry)]
        named = [
            NameCopy(job.offset, job.generation, job.place)
            for job, _ in todo
            if self._target is RETRY and job.place is not None
        ]
        ops: list[Op] = [*(op for _, op in todo), *named]
        try:
            reply = await self._context.flusher.submit(partition.handle, ops)
        except StoreError as error:
            self._failed(jobs, error.detail)
            return
        if reply.verdict is not CallStatus.OK:
            self._failed(jobs, f"the record is {reply.verdict.name}")
            return
        for (job, _), result in zip(todo, reply.results[: len(todo)], strict=True):
            self._finished(job, result, reply.now_ms)
        partition.perform()

    def _finish_op(self, job: CopyJob, entry: Entry[Held]) -> Op:
        reason = Finish.VANISHED if job.vanished else self._target.reason
        return FinishOrigin(job.offset, job.generation, entry.rollback_epoch, reason)

    def _finished(self, job: CopyJob, result: OpResult, now_ms: int) -> None:
        partition, offset = job.partition, job.offset
        if result.outcome is Outcome.HELD:  # it vanished, and its lease lives on (R7)
            self._no_error(job)
            job.pauses.wait(result.when_ms - now_ms)
            return
        self._drop(job)
        if result.outcome not in (Outcome.DONE, Outcome.FINISHED):
            partition.reload()  # a rejoin changed the slot's rollback epoch: read it again
            return
        self._bodies.free(partition, offset)
        if job.vanished:
            partition.ledger.send_back.vanished(offset)
        else:
            self._context.metrics.copies.at(self._state.name, self._target.name, "stored").inc()
            self._on_stored(partition, offset, job.generation, now_ms)
            self._target.done(partition, job)
        partition.copies.forget(offset)

    def _failed(self, jobs: Sequence[CopyJob], detail: str) -> None:
        for job in jobs:
            self._errors[job.partition, job.offset] = detail
            job.pauses.failed()
        name = self._state.name
        LOG.warning(
            "%s: the broker did not store %d copies in %s, ackd tries again: %s",
            name,
            len(jobs),
            self._topic.name,
            detail,
        )
        self._context.metrics.copies.at(name, self._target.name, "failed").inc(len(jobs))
        self._report_condition()
