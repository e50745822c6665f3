"""Deduplication: settle a message without delivery when its deduplication key was acked before
(rule R18).

The ack comes first, the entry of its key second: a sidecar that dies between them lets a repeat
through and loses nothing. The owner of the partition writes the entry, because it holds the message
and gets every ack of it. The owner looks a message up after the store grants its lease and before
the dispatcher delivers it, and acks a repeat under that lease. So two messages of one key that are
in flight at the same time are both delivered.

A retry copy is not looked up again: its origin's coordinate, and so the reset epoch that counts for
it, belongs to another record. The same holds for a redriven dead letter, which also comes as a
copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b

from ackd.api.messages import Delivery
from ackd.core.dedup_window import ORIGIN_BYTES, Ask, DedupEntry
from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Settle
from ackd.core.record.protocol import RecordCall, RecordReply
from ackd.core.record.transitions import Outcome, Verb
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.base.tasks import endless
from ackd.engine.delivery.deduplication_key import deduplication_key
from ackd.engine.partition.copy_headers import original
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError
from ackd.ports import Record

LOG = logging.getLogger("ackd.engine")

ENTRIES_MAX = 100_000
WRITE_MAX = 5_000
LEAVE_MS = 500

Then = Callable[[list[Delivery]], None]


@dataclass(frozen=True, slots=True)
class _DedupCheck:
    """Granted leases to check; `then` gets those that are to be delivered."""

    partition: Partition
    epoch: int
    deliveries: list[Delivery]
    then: Then


class Dedup:
    """Finds and remembers repeats for one subscription. Exists only when deduplication is on."""

    def __init__(self, state: SubscriptionState, context: Context) -> None:
        self._state = state
        self._settings = state.settings.dedup
        self._context = context
        self._key_of = deduplication_key(self._settings.key)
        self._questions: list[_DedupCheck] = []
        self._entries: list[DedupEntry] = []
        self._asked = asyncio.Event()
        self._wake = asyncio.Event()
        self._over = False
        self.repeats = 0

    # --- looking up

    def check(
        self, partition: Partition, epoch: int, deliveries: list[Delivery], then: Then
    ) -> None:
        """Find the repeats among leases that the store has just granted; `then` is called later.

        Checks that arrive while a call is under way share the next call.
        """
        if self._over:
            then(deliveries)
            return
        self._questions.append(_DedupCheck(partition, epoch, deliveries, then))
        self._asked.set()

    async def run(self) -> None:
        """Look up and remember until cancelled. Messages that still wait for an answer then are
        delivered.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(endless(self._look_up))
                group.create_task(endless(self._remember_all))
        finally:
            self._over = True
            questions, self._questions = self._questions, []
            for each in questions:
                each.then(each.deliveries)

    async def _look_up(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            questions, self._questions = self._questions, []
            try:
                repeats = await self._repeats(questions)
            except BaseException:
                self._questions = questions + self._questions
                raise
            for each in questions:
                self._answer(each, repeats)

    async def _repeats(self, questions: Sequence[_DedupCheck]) -> frozenset[str]:
        """Return the leases of repeats; an empty set when the store fails to answer."""
        ledgers: dict[tuple[bytes, int], int] = {}
        leases: list[str] = []
        asks: list[Ask] = []
        for question in questions:
            partition = question.partition
            ledger = (_ledger(partition.key), question.epoch)
            for delivery in question.deliveries:
                key = self._key_of(delivery.record)
                if key is None or partition.ledger.holds_copies:
                    continue
                index = ledgers.setdefault(ledger, len(ledgers))
                leases.append(delivery.lease)
                asks.append(Ask(key, _origin(partition.key, delivery.record.offset), index))
        if not asks:
            return frozenset()
        dedup_keys, name = self._context.store.dedup_keys, self._state.name
        try:
            found = await dedup_keys.seen(name, self._settings.window_ms, list(ledgers), asks)
        except StoreError as error:
            LOG.info(
                "%s: the store did not look up deduplication keys, so repeats may be delivered: %s",
                name,
                error.detail,
            )
            self._context.metrics.dedup_skipped.at(name, "store").inc(len(asks))
            return frozenset()
        return frozenset(lease for lease, repeat in zip(leases, found, strict=True) if repeat)

    def _answer(self, question: _DedupCheck, repeats: frozenset[str]) -> None:
        if not repeats:
            question.then(question.deliveries)
            return
        fresh = [each for each in question.deliveries if each.lease not in repeats]
        gone = [each for each in question.deliveries if each.lease in repeats]
        if gone:
            self.repeats += len(gone)
            self._context.metrics.dedup_repeats.at(self._state.name).inc(len(gone))
            tokens = [self._context.keys.open(each.lease) for each in gone]
            question.partition.tell(
                *(
                    Settle(Verb.ACK, t.offset, t.fence, t.rollback_epoch, t.attempt, duplicate=True)
                    for t in tokens
                )
            )
        question.then(fresh)

    # --- remembering

    def on_reply(self, partition: Partition, call: RecordCall, reply: RecordReply) -> None:
        """Remember the key of every ack in this reply, whichever sidecar settled it."""
        for op, result in zip(call.ops, reply.results, strict=True):
            # The ack of a duplicate makes no entry, so that the window does not slide.
            duplicate = isinstance(op, Settle) and op.duplicate
            if result.outcome is Outcome.ACKED and not duplicate:
                self._acked(partition, op.offset, reply.now_ms)
        for item in reply.journal or ():
            if item.outcome is Outcome.ACKED:
                self._acked(partition, item.offset, reply.now_ms)

    def _acked(self, partition: Partition, offset: int, now_ms: int) -> None:
        entry = partition.ledger.entry(offset)
        body = None if entry is None else entry.body
        if not isinstance(body, Record) or len(self._entries) >= ENTRIES_MAX:
            why = "store" if isinstance(body, Record) else "forgotten"
            self._context.metrics.dedup_skipped.at(self._state.name, why).inc()
            return
        retry_copy = partition.copies.retry_copy(body)
        place = partition.key
        if retry_copy is not None:
            origin = retry_copy.origin
            place = place._replace(topic_id=origin.topic_id, partition=origin.partition)
            body = original(body, retry_copy)
        key = self._key_of(body)
        if key is not None:
            self._entries.append(DedupEntry(key, _origin(place, body.offset), now_ms))
            self._wake.set()

    async def _remember_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._entries:
                await self._remember()

    async def _remember(self) -> None:
        """Write one batch of keys. A failed batch is dropped: at worst it lets a repeat through."""
        entries, self._entries = self._entries[:WRITE_MAX], self._entries[WRITE_MAX:]
        dedup_keys, name = self._context.store.dedup_keys, self._state.name
        settings = self._settings
        skipped = self._context.metrics.dedup_skipped
        try:
            kept = await dedup_keys.remember(
                name, settings.window_ms, settings.entries_max, entries
            )
        except StoreError as error:
            LOG.info(
                "%s: the store did not remember %d deduplication keys, so their repeats may be "
                "delivered: %s",
                name,
                len(entries),
                error.detail,
            )
            skipped.at(name, "store").inc(len(entries))
        else:
            if kept < len(entries):
                skipped.at(name, "full").inc(len(entries) - kept)

    async def leave(self) -> None:
        """Write the remaining keys, for at most `LEAVE_MS`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_MS / 1000):
                while self._entries:
                    await self._remember()


def _ledger(key: LedgerKey) -> bytes:
    return key.topic_id + key.partition.to_bytes(4, "big")


def _origin(key: LedgerKey, offset: int) -> bytes:
    name = b"%s/%s/%d" % (key.cluster.encode(), _ledger(key), offset)
    return blake2b(name, digest_size=ORIGIN_BYTES).digest()
