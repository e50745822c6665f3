"""An operator cancels one message: it is finished, and its worker learns that at its next extend.

The wish is part of the live value, so every sidecar sees it. The sidecar that has the message
carries it out: as an ack, or as `dead`, decided by the store like a settle of the worker. It writes
the outcome beside the wish, where it stays for a while, so that the answer to a late settle can say
that the message was cancelled.
"""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from ackd.api.control import Cancel, CancelTo
from ackd.core.ids import message_place
from ackd.core.lease_token import Token
from ackd.core.ledger.entry import UNKNOWN_ROLLBACK_EPOCH, Entry, EntryStatus
from ackd.core.origin import Origin
from ackd.core.record.maintenance import epoch_mark
from ackd.core.record.operations import LookUp, MarkDead, Op, ReplayAck, Settle
from ackd.core.record.protocol import NO_TEXTS, CallStatus, CallTexts, RecordReply
from ackd.core.record.transitions import Outcome, Verb
from ackd.engine.base.context import Context
from ackd.engine.base.live import Live
from ackd.engine.base.spill_file import Held
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.base.tasks import Tasks
from ackd.engine.control.control import Control
from ackd.engine.partition.copy_headers import RetryCopy
from ackd.engine.partition.failure_reasons import reason_text
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.body_spill import BodySpill
from ackd.engine.retry.claims import CopyClaims
from ackd.errors import NotInFlightError, StoreError
from ackd.store.flusher import LedgerHandle

LOG = logging.getLogger("ackd.engine")

KEPT_MAX = 100
"""Most cancels to keep, the newest; each takes about 300 bytes of the live value."""
WAIT_MS = 5_000
AGAIN_MS = 50
"""Constant: a caller waits for the answer."""
POLL_MS = 10


class Cancels:
    """The cancels of one subscription."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        control: Control,
        partitions: OwnedPartitions,
        bodies: BodySpill,
        claims: CopyClaims,
        topics: Topics,
    ) -> None:
        self._topics = topics
        self._state = state
        self._context = context
        self._control = control
        self._partitions = partitions
        self._bodies = bodies
        self._claims = claims
        self._tasks = Tasks(f"cancel.{state.name}", context.vitals)
        self._trying = False
        self._ends: dict[Cancel, Cancel] = {}

    # --- asking

    async def cancel(self, message: str, then: CancelTo, reason: str) -> Cancel:
        """Cancel a message, and wait until some sidecar has done it. Raises NotInFlightError,
        StoreError.
        """
        control = self._control
        # A topic that is made again has other messages of the same ids (R1).
        topic_id = (self._topics.id_of(message_place(message)[0].topic) or b"").hex()
        wish = Cancel(message, then, reason, control.now_ms(), topic_id=topic_id)

        def add(live: Live) -> Live:
            others = [each for each in live.cancels if each.message != message]
            return replace(live, cancels=[*others, wish][-KEPT_MAX:])

        await control.change(add)
        end_ms = self._context.clock.monotonic_ms() + WAIT_MS
        while self._context.clock.monotonic_ms() < end_ms:
            for each in self._state.live.cancels:
                if each.message == message and each.done:
                    return each
            await asyncio.sleep(POLL_MS / 1000)
        await control.change(
            lambda live: replace(live, cancels=[e for e in live.cancels if e != wish])
        )
        raise NotInFlightError(f"nobody works on {message}, and it does not wait for a retry")

    def of(self, token: Token) -> Cancel | None:
        """The cancel of a message, for the answer to a settle whose lease is lost.

        A lease that was granted after the cancel (fences are at least the time in microseconds) is
        not affected: the group was reset to a time before the cancel.
        """
        place = _place(token.topic_id, token.partition, token.offset)
        for each in self._state.live.cancels:
            if place in each.places and token.fence < (each.at_ms + WAIT_MS) * 1000:
                return each
        return None

    # --- doing

    def changed(self, _before: Live, _live: Live) -> None:
        """Check whether this sidecar has a cancel to carry out."""
        if self._open() and not self._trying:
            self._trying = True
            self._tasks.start(self._try_all(), "try", ends=True)

    def _open(self) -> list[Cancel]:
        """Cancels that are not done and whose caller may still wait."""
        control = self._control
        since_ms = control.now_ms() - WAIT_MS
        return [
            each for each in self._state.live.cancels if not each.done and each.at_ms > since_ms
        ]

    async def _try_all(self) -> None:
        try:
            while open_ones := self._open():
                for wish in open_ones:
                    try:
                        await self._try(wish)
                    except StoreError as error:
                        LOG.info(
                            "%s: a cancel could not be carried out yet, ackd tries again: %s",
                            self._state.name,
                            error.detail,
                        )
                await asyncio.sleep(AGAIN_MS / 1000)
        finally:
            self._ends.clear()
            self._trying = False

    async def _try(self, wish: Cancel) -> None:
        end = self._ends.get(wish) or await self._end(wish)
        if end is None:
            return
        # Keep the outcome until the other sidecars know it: the cancel can't be done twice.
        self._ends[wish] = end
        await self._control.change(
            lambda live: replace(live, cancels=[end if e == wish else e for e in live.cancels])
        )
        del self._ends[wish]

    async def _end(self, wish: Cancel) -> Cancel | None:
        """Carry the cancel out if the message is here; returns the cancel with its outcome."""
        found = self._find(wish.message)
        if found is None:
            return None
        partition, offset, entry = found
        retry_copy = await self._retry_copy(partition, offset)
        if not _meant(wish, partition, retry_copy):
            return None
        done = await self._do(partition, offset, entry, retry_copy, wish)
        if done is None:
            return None
        key = partition.key
        places = [_place(key.topic_id, key.partition, offset)]
        if retry_copy is not None:
            both = (retry_copy.origin, retry_copy.origin_record)
            places += [_place(each.topic_id, each.partition, each.offset) for each in both]
        LOG.warning(
            "%s: an operator cancelled the message %s; outcome: %s",
            self._state.name,
            wish.message,
            done,
        )
        self._context.metrics.cancels.at(self._state.name, done).inc()
        return replace(wish, done=done, places=tuple(dict.fromkeys(places)))

    def _find(self, message: str) -> tuple[Partition, int, Entry[Held]] | None:
        """Find the message here: in a partition of its own topic, or as a retry copy."""
        owned = self._partitions.owned
        tp, place = message_place(message)
        partition = owned.get(tp)
        entry = None if partition is None else partition.ledger.entry(place)
        if partition is not None and entry is not None and entry.status is not EntryStatus.MOVING:
            # A message that was never delivered has no worker yet.
            return (partition, place, entry) if entry.first_s else None
        for copies in owned.values():
            if copies.ledger.holds_copies:
                for offset, entry in copies.ledger.entries.items():
                    if copies.copies.name_of(offset) == message:
                        return copies, offset, entry
        return None

    async def _retry_copy(self, partition: Partition, offset: int) -> RetryCopy | None:
        if not partition.ledger.holds_copies:
            return None
        body = await self._bodies.body(partition, offset)
        if body is None or not partition.copies.proof(body).believed:
            return None  # whoever forged it names a message of its choice
        return partition.copies.retry_copy(body)

    async def _do(
        self,
        partition: Partition,
        offset: int,
        entry: Entry[Held],
        retry_copy: RetryCopy | None,
        wish: Cancel,
    ) -> str | None:
        """Cancel the message. Returns the outcome; None to try again later. Raises StoreError."""
        if entry.status is EntryStatus.DEAD:
            return "dead"
        reason = f"cancelled: {wish.reason}".rstrip(": ")
        if wish.then == "dead":
            partition.copies.failed_with(offset, reason)
        if entry.status is EntryStatus.CLAIMING:
            if retry_copy is None:
                return None
            return await self._forwarded(partition, offset, retry_copy, wish.then, reason)
        if wish.then == "ack":
            # A moving message may have a copy already, which the next attempt finds.
            going = partition.ledger.send_back.may_go(offset)
            return None if going else await self._ack(partition, offset)
        if entry.status is EntryStatus.LEASED:
            if entry.rollback_epoch == UNKNOWN_ROLLBACK_EPOCH:
                partition.reload()
                return None
            op: Op = Settle(Verb.DEAD, offset, entry.fence, entry.rollback_epoch, entry.attempt)
        else:
            op = MarkDead(offset, entry.fence)
        reply = await self._ask(partition.handle, op, reason)
        return "dead" if _is(reply, Outcome.DEAD) else None

    async def _ack(self, partition: Partition, offset: int) -> str | None:
        """Finish it as an ack would, whoever holds its lease."""
        op = ReplayAck(offset, mark=epoch_mark(partition.epoch))
        reply = await self._ask(partition.handle, op)
        if reply.verdict is not CallStatus.OK:
            return None
        self._context.replay_log.acked(partition.key, partition.epoch, [offset])
        now_ms = self._context.clock.monotonic_ms()
        if not partition.closed:
            partition.ledger.settled(offset, Outcome.ACKED, 0, 0, reply.now_ms, now_ms)
            partition.perform()
        return "acked"

    async def _forwarded(
        self, partition: Partition, offset: int, retry_copy: RetryCopy, then: str, reason: str
    ) -> str | None:
        """End a message whose copy waits for the end of the lease in the origin record."""
        handle, origin_record = self._claims.handle(retry_copy), retry_copy.origin_record
        if then == "ack":
            over = await self._forwarded_ack(handle, partition, offset, retry_copy)
            done = "acked" if over else None
        else:
            lease = await self.lease_at(handle, origin_record)
            reply = await self._ask(handle, lease, reason)
            done = "dead" if _is(reply, Outcome.DEAD) else None
        if done is not None:
            self._claims.claim(partition, offset)
        return done

    async def _forwarded_ack(
        self, handle: LedgerHandle, partition: Partition, offset: int, retry_copy: RetryCopy
    ) -> bool:
        """Finish the message in its origin record; returns whether it is finished. If the copy
        claims it at this very moment, the message goes on in the copy; a later attempt ends it
        there, as soon as the copy is placed.
        """
        claims, origin_record = self._claims, retry_copy.origin_record
        ops = [ReplayAck(origin_record.offset), claims.question(partition, offset, retry_copy)]
        reply = await self._context.flusher.submit(handle, ops)
        if reply.verdict is not CallStatus.OK or reply.results[1].outcome is not Outcome.FINISHED:
            return False
        acked_there = [(origin_record.offset, retry_copy.generation)]
        self._context.replay_log.acked_in_origin(
            handle.key, handle.incarnation, reply.epoch, acked_there
        )
        return True

    async def lease_at(self, handle: LedgerHandle, origin_record: Origin) -> Settle:
        """Return the operation that dead-letters the message under the origin record's lease."""
        reply = await self._ask(handle, LookUp(origin_record.offset))
        if reply.verdict is not CallStatus.OK:
            raise StoreError(f"the record is not open: {reply.verdict.name}")
        result = reply.results[0]
        return Settle(
            Verb.DEAD, origin_record.offset, result.fence, reply.rollback_epoch, result.attempt
        )

    async def _ask(self, handle: LedgerHandle, op: Op, reason: str = "") -> RecordReply:
        texts = NO_TEXTS
        if reason:
            bytes_max = self._state.settings.notes_bytes_max
            texts = CallTexts([reason_text(0, reason)], bytes_max)
        return await self._context.flusher.submit(handle, [op], texts)

    async def stop(self) -> None:
        await self._tasks.stop()


def _meant(wish: Cancel, partition: Partition, retry_copy: RetryCopy | None) -> bool:
    """Whether the message is of the topic that had this name when the cancel was asked for."""
    if retry_copy is not None:
        topic_id = retry_copy.origin.topic_id
    elif partition.ledger.holds_copies:
        return True  # a copy without its body: its name is all that is known
    else:
        topic_id = partition.key.topic_id
    return wish.topic_id in ("", topic_id.hex())


def _is(reply: RecordReply, outcome: Outcome) -> bool:
    return reply.verdict is CallStatus.OK and reply.results[0].outcome is outcome


def _place(topic_id: bytes, partition: int, offset: int) -> str:
    return f"{topic_id.hex()}/{partition}/{offset}"
