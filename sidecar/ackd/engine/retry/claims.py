"""Retry copies ask their origin records whether they may be delivered (rule R2).

The owner of a retry copy sends the claim to the record of the message's origin partition. It writes
what the origin record confirmed into the record of the copy's own partition (`PlaceCopy`); then the
origin record may be closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ackd.core.dead_letter_key import dead_key
from ackd.core.ids import LedgerKey
from ackd.core.ledger.entry import EntryStatus
from ackd.core.record.operations import (
    ClaimOrigin,
    CloseOrigin,
    CopyRef,
    Op,
    RestoreClaimed,
    VouchCopy,
)
from ackd.core.record.protocol import (
    CallStatus,
    CallTexts,
    ItemTexts,
    MessageTexts,
    OpResult,
    RecordCall,
    RecordReply,
)
from ackd.core.record.transitions import Outcome, State
from ackd.engine.base.context import Context
from ackd.engine.base.copy_signature import Proof
from ackd.engine.base.replay_log import ReplayLog
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.copy_headers import RetryCopy, not_by_ackd
from ackd.engine.partition.ordering import OriginRecordRef
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import CLAIM_AGAIN_MS, Partition
from ackd.engine.retry.body_spill import BodySpill
from ackd.engine.retry.key_queues import KeyQueues
from ackd.engine.retry.strangers import Strangers, not_genuine
from ackd.errors import StoreError
from ackd.ports import Record
from ackd.store.flusher import LedgerHandle

LOG = logging.getLogger("ackd.engine")

BATCH_MAX = 500
HANDLES_MAX = 1_000
CLOSING_MAX = 100_000
HELD_MAX = 100_000
"""Most copies remembered in `held` per partition, some 200 bytes each (I8). A copy that is dropped
from it claims again by its timer, as all copies do.
"""
FRESH_MAX = 200
"""Most copies that claim for the first time in a batch with others, which may be delivered now."""
STRANGER = OpResult(Outcome.LOST, State.READY, 0, 0, 0, 0, late=False)
_NAMES: Mapping[Outcome, str] = {
    Outcome.CLAIMED: "claimed",
    Outcome.HELD: "held",
    Outcome.FINISHED: "finished",
    Outcome.REFUSED: "duplicate",
    Outcome.LOST: "unknown",
    Outcome.BLOCKED: "blocked",
}


@dataclass(frozen=True, slots=True, eq=False)
class _CopyClaim:
    """One retry copy that claims, or whose origin record is to be closed. `doubt`: why it may be no
    copy of ackd's; empty if it certainly is one. `earlier`: it is from before signatures, and
    believed if nobody knows better.
    """

    partition: Partition
    offset: int
    retry_copy: RetryCopy
    doubt: str = ""
    earlier: bool = False

    @property
    def place(self) -> CopyRef:
        """Where the copy is in the retry topic."""
        return CopyRef(self.partition.tp.partition, self.offset)

    @property
    def vouch(self) -> VouchCopy:
        """The question whether the copy is genuine though no signature says so."""
        return VouchCopy(
            self.retry_copy.origin_record.offset, self.retry_copy.generation, self.place
        )

    @property
    def close(self) -> CloseOrigin:
        """The operation that removes the origin record, which is no longer needed."""
        return CloseOrigin(self.retry_copy.origin_record.offset, self.retry_copy.generation)

    @property
    def line(self) -> OriginRecordRef | None:
        """The origin record's place in the queue of its key; None if it is in none."""
        order = self.partition.ledger.order
        position = None if order is None else order.position(self.offset)
        return (
            position.origin_record
            if position is not None and isinstance(position.origin_record, OriginRecordRef)
            else None
        )

    @property
    def claim(self) -> ClaimOrigin:
        """The claim, which asks whether this copy may be delivered."""
        retry_copy, partition = self.retry_copy, self.partition
        return ClaimOrigin(
            retry_copy.origin_record.offset,
            retry_copy.generation,
            retry_copy.rollback_epoch,
            self.place,
            must_deliver=partition.data_lost,
            attempt=retry_copy.attempt,
        )


# tidy: long-class attributes=16 lines=410 -- seven collaborators, and what is under way
class CopyClaims:
    """Sends the claims of one subscription's retry copies, in batches by origin partition.

    `held`: copies that wait for a lease in their origin record, by topic id and partition, then by
    offset of that record: the copy's partition and offset, and the deadline by the store's clock.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        topics: Topics,
        bodies: BodySpill,
        key_queues: KeyQueues,
        open_dead: Callable[[LedgerKey], Awaitable[None]],
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._topics = topics
        self._bodies = bodies
        self._key_queues = key_queues
        self._open_dead = open_dead
        # Copies that claim for the first time, and those whose lease or delay has ended.
        self._wanted: dict[tuple[Partition, int], None] = {}
        self._due: dict[tuple[Partition, int], None] = {}
        self._closing: dict[tuple[Partition, int], _CopyClaim | None] = {}
        self._claimed: dict[tuple[Partition, int], _CopyClaim] = {}
        self.held: dict[tuple[bytes, int], dict[int, tuple[Partition, int, int]]] = {}
        self._handles: OrderedDict[tuple[LedgerKey, int], LedgerHandle] = OrderedDict()
        self._wake = asyncio.Event()
        self._strangers = Strangers(state, context)
        self._keys_again_ms = 0

    def claim(self, partition: Partition, offset: int) -> None:
        """Queue a claim for a copy that wants to be delivered. One that has claimed before and had
        to wait comes before those that have just been fetched (I4).
        """
        entry = partition.ledger.entry(offset)
        waited = entry is not None and entry.when_ms
        (self._due if waited else self._wanted)[partition, offset] = None
        self._wake.set()

    def first_waiting(self) -> int:
        """Count the copies here that have not claimed yet: when their leases end is not known."""
        return len(self._wanted)

    def question(self, partition: Partition, offset: int, retry_copy: RetryCopy) -> Op:
        """The claim of one copy, for callers that send it themselves."""
        return _CopyClaim(partition, offset, retry_copy).claim

    def settled(self, key: LedgerKey, offset: int, outcome: Outcome, when_ms: int) -> None:
        """A lease ended or got another deadline. If a copy here waits for that lease, and it ended
        or now ends earlier, the copy claims now instead of at the old deadline (R4, I4).
        """
        found = self.held.get((key.topic_id, key.partition), {}).get(offset)
        if found is not None and (outcome is not Outcome.EXTENDED or when_ms < found[2]):
            self._free(key.topic_id, key.partition, offset)
            self.claim(*found[:2])

    def waits_for(self, key: LedgerKey) -> bool:
        return (key.topic_id, key.partition) in self.held

    def on_reply(self, partition: Partition, _: RecordCall, reply: RecordReply) -> None:
        """Read from the journal what other sidecars settled in a partition owned here."""
        if reply.journal and self.waits_for(partition.key):
            for each in reply.journal:
                self.settled(partition.key, each.offset, each.outcome, each.when_ms)

    def failed_with(self, origin: tuple[bytes, int], offset: int, error: str) -> bool:
        """Keep the reason that an application reported under the lease of the original, for the
        headers of the next copy. Returns whether the copy that waits for this lease is here.
        """
        found = self.held.get(origin, {}).get(offset)
        if found is not None:
            found[0].copies.failed_with(found[1], error)
        return found is not None

    def _take_errors(self, ask: _CopyClaim) -> None:
        """Take the reasons that the original kept while this sidecar did not know the copy."""
        origin_record = ask.retry_copy.origin_record
        origin = self._partitions.by_ledger.get((origin_record.topic_id, origin_record.partition))
        if origin is not None:
            ask.partition.copies.take_errors(ask.offset, origin.copies, origin_record.offset)

    def forget(self, partition: Partition) -> None:
        """Another sidecar owns this partition now: stop tracking its copies."""
        if not partition.ledger.holds_copies:
            return
        for place, held_by in list(self.held.items()):
            for offset in [o for o, held in held_by.items() if held[0] is partition]:
                self._free(*place, offset)

    def _hold(self, ask: _CopyClaim, result: OpResult) -> None:
        origin_record = ask.retry_copy.origin_record
        if result.outcome is Outcome.HELD and result.state is State.LEASED:
            held_by = self.held.setdefault((origin_record.topic_id, origin_record.partition), {})
            held_by[origin_record.offset] = ask.partition, ask.offset, result.when_ms
            if len(held_by) > HELD_MAX:
                del held_by[next(iter(held_by))]
        else:
            self._free(origin_record.topic_id, origin_record.partition, origin_record.offset)

    def _free(self, topic_id: bytes, partition: int, offset: int) -> None:
        held_by = self.held.get((topic_id, partition))
        if held_by is not None:
            held_by.pop(offset, None)
            if not held_by:
                del self.held[topic_id, partition]

    def close(self, partition: Partition, offset: int) -> None:
        """Close the origin record of a copy that its own partition's record has. If this process
        dies first, the next owner does it.
        """
        self._closing[partition, offset] = self._claimed.pop((partition, offset), None)
        if len(self._closing) > CLOSING_MAX:
            self._closing.pop(next(iter(self._closing)))
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            if not (self._due or self._wanted or self._closing):
                await self._wake.wait()
            if self._due or self._wanted:
                await self._claim_some()
            if self._closing:
                await self._close_some()

    # --- claiming

    async def _claim_some(self) -> None:
        await self._key_queues.tell()
        asks: list[_CopyClaim] = []
        due = list(islice(self._due, BATCH_MAX))
        fresh = list(islice(self._wanted, FRESH_MAX if due else BATCH_MAX))
        for key in (*due, *fresh):
            self._due.pop(key, None)
            self._wanted.pop(key, None)
            ask = await self._read(*key)
            if ask is not None:
                asks.append(ask)
        async with asyncio.TaskGroup() as group:
            for handle, some in self._by_origin(asks):
                group.create_task(self._claim_genuine(handle, some))

    async def _claim_genuine(self, handle: LedgerHandle, asks: Sequence[_CopyClaim]) -> None:
        """Claim for the copies of one origin partition that ackd wrote."""
        asks = await self._vouched(handle, asks)
        if asks:
            await self._ask(handle, asks)

    async def _vouched(
        self, handle: LedgerHandle, asks: Sequence[_CopyClaim]
    ) -> Sequence[_CopyClaim]:
        """Return the copies that are signed, and those that their origin records know. The others
        ask again, or are put aside.
        """
        doubted = [ask for ask in asks if ask.doubt]
        if not doubted:
            return asks
        try:
            reply = await self._context.flusher.submit(handle, [ask.vouch for ask in doubted])
            gone = reply.verdict is CallStatus.ABSENT or (
                reply.verdict is not CallStatus.OK and await self._is_gone(handle.key, doubted)
            )
            # A move that nobody can confirm any more must not hold the copy for ever.
            held = any(each.outcome is Outcome.HELD for each in reply.results)
            here = doubted[0].retry_copy.redriven is None
            gone = gone or (held and here and await self._topics.is_gone(handle.key.topic_id))
        except StoreError as error:
            LOG.info(
                "%s: the store did not answer about copies without a signature, ackd tries again: "
                "%s",
                self._state.name,
                error.detail,
            )
            self._again(doubted)
            return [ask for ask in asks if not ask.doubt]
        genuine = [ask for ask in asks if not ask.doubt]
        answers = reply.results if reply.verdict is CallStatus.OK else [STRANGER] * len(doubted)
        for ask, result in zip(doubted, answers, strict=True):
            older = result.outcome is Outcome.REFUSED and ask.retry_copy.generation < result.fence
            nothing = result.outcome is Outcome.LOST and (gone or reply.verdict is CallStatus.OK)
            if result.outcome is Outcome.CLAIMED:
                self._count("vouched")
                genuine.append(ask)
            elif ask.earlier and (nothing or older):
                self._count("unsigned")
                genuine.append(ask)
            elif result.outcome is Outcome.REFUSED or nothing or gone:
                self._strangers.not_genuine(ask.partition, ask.offset, ask.doubt)
            elif result.outcome is Outcome.HELD:
                self._count(_NAMES[Outcome.HELD])
                self._tell(ask.partition, ask.offset, result._replace(state=State.READY), reply)
            else:
                self._again([ask])
        return genuine

    async def _read(self, partition: Partition, offset: int) -> _CopyClaim | None:
        """Read the copy's headers; None when there is nothing to claim."""
        entry = partition.ledger.entry(offset)
        if partition.closed or entry is None or entry.status is not EntryStatus.CLAIMING:
            return None
        body = await self._bodies.body(partition, offset)
        if body is None:
            return None
        retry_copy = partition.copies.retry_copy(body)
        found = await self._proof(partition, body)
        if found is Proof.UNDECIDED:
            now_ms = self._context.clock.monotonic_ms()
            if partition.ledger.claims is not None:
                partition.ledger.claims.not_claimed([offset], CLAIM_AGAIN_MS, now_ms)
            return None
        if retry_copy is not None:
            why = "" if found is Proof.SIGNED else not_genuine(body)
            return _CopyClaim(partition, offset, retry_copy, why, found.believed)
        if not_by_ackd(body) == "" and not found.believed:
            self._strangers.not_genuine(partition, offset, not_genuine(body))
        elif not self._strangers.put_aside(partition, offset, body):
            self._strangers.delivered(partition, offset, "it is a copy of another subscription")
            self._tell(partition, offset, STRANGER, RecordReply(CallStatus.OK))
        return None

    async def _proof(self, partition: Partition, body: Record) -> Proof:
        """Verify a copy. A key that is not known here may have come into the store since."""
        found, now_ms = partition.copies.proof(body), self._context.clock.monotonic_ms()
        keys = self._state.copy_keys
        if not found.believed and keys.lacks_key_of(body) and now_ms >= self._keys_again_ms:
            self._keys_again_ms = now_ms + CLAIM_AGAIN_MS
            try:
                await keys.sync()
            except StoreError as error:
                LOG.info("%s: ackd can't read the keys of copies: %s", self._state.name, error)
            found = partition.copies.proof(body)
        return found

    def _by_origin(self, asks: Sequence[_CopyClaim]) -> list[tuple[LedgerHandle, list[_CopyClaim]]]:
        found: dict[int, tuple[LedgerHandle, list[_CopyClaim]]] = {}
        for ask in asks:
            handle = self.handle(ask.retry_copy)
            found.setdefault(id(handle), (handle, []))[1].append(ask)
        return list(found.values())

    def handle(self, retry_copy: RetryCopy) -> LedgerHandle:
        """Handle to the record that has the copy's origin record; used without owning it."""
        origin_record, name = retry_copy.origin_record, self._state.name
        key = LedgerKey(
            origin_record.cluster, name, origin_record.topic_id, origin_record.partition
        )
        if retry_copy.redriven is not None:
            key = dead_key(
                origin_record.cluster, name, origin_record.topic_id, origin_record.partition
            )
        handle = self._handles.get((key, retry_copy.incarnation))
        if handle is None:
            handle = LedgerHandle(key, incarnation=retry_copy.incarnation)
            self._handles[key, retry_copy.incarnation] = handle
            if len(self._handles) > HANDLES_MAX:
                self._handles.popitem(last=False)
        return handle

    async def _ask(self, handle: LedgerHandle, asks: Sequence[_CopyClaim]) -> None:
        try:
            reply = await self._context.flusher.submit(handle, [ask.claim for ask in asks])
        except StoreError as error:
            LOG.info(
                "%s: the store did not answer claims of retry copies, ackd tries again: %s",
                self._state.name,
                error.detail,
            )
            self._again(asks)
            return
        results = reply.results
        if reply.verdict is not CallStatus.OK:
            if reply.verdict is not CallStatus.ABSENT and not await self._is_gone(handle.key, asks):
                self._again(asks)
                return
            results = [STRANGER] * len(asks)
        try:
            texts = await self._texts(handle.key, asks, results) if reply.has_texts else {}
        except StoreError as error:
            LOG.info(
                "%s: ackd can't read reasons and notes of retry copies, and tries again: %s",
                self._state.name,
                error.detail,
            )
            self._again(asks)
            return
        self._answered(asks, reply, results, texts)
        _remember(self._context.replay_log, handle, reply.epoch, asks, results)

    async def _texts(
        self, key: LedgerKey, asks: Sequence[_CopyClaim], results: Sequence[OpResult]
    ) -> dict[_CopyClaim, MessageTexts]:
        """Load the texts reported under leases in these origin records, for the copies' own
        records.
        """
        claimed = [
            ask
            for ask, result in zip(asks, results, strict=True)
            if result.outcome is Outcome.CLAIMED
        ]
        if not claimed:
            return {}
        found = await self._context.store.texts(
            key, [a.retry_copy.origin_record.offset for a in claimed]
        )
        pairs = zip(claimed, found, strict=True)
        return {ask: texts for ask, texts in pairs if texts is not None}

    async def _is_gone(self, key: LedgerKey, asks: Sequence[_CopyClaim]) -> bool:
        """True if no sidecar will ever open this record again. A record of dead letters has no
        owner: open it here and claim again.
        """
        if asks[0].retry_copy.redriven is None:
            return await self._topics.is_gone(key.topic_id)
        try:
            await self._open_dead(key)
        except StoreError as error:
            LOG.info(
                "%s: ackd can't open a record of dead letters, and tries again: %s",
                self._state.name,
                error.detail,
            )
        return False

    def _answered(
        self,
        asks: Sequence[_CopyClaim],
        reply: RecordReply,
        results: Sequence[OpResult],
        texts: Mapping[_CopyClaim, MessageTexts],
    ) -> None:
        places: dict[Partition, list[Op]] = {}
        brought: dict[Partition, list[ItemTexts]] = {}
        for ask, result in zip(asks, results, strict=True):
            if result.outcome is Outcome.LOST and not ask.partition.copies.named(ask.retry_copy):
                why = f"its message {ask.retry_copy.origin.text()} is not known here"
                self._strangers.delivered(ask.partition, ask.offset, why)
            else:
                self._count(_NAMES.get(result.outcome, "unknown"))
            self._hold(ask, result)
            self._take_errors(ask)
            if result.outcome in (Outcome.CLAIMED, Outcome.LOST):
                ops = places.setdefault(ask.partition, [])
                if ask in texts:
                    item = ItemTexts(len(ops), *texts[ask])
                    brought.setdefault(ask.partition, []).append(item)
                ops.extend(_place(ask, result))
                if result.outcome is Outcome.CLAIMED and ask.line is None:
                    self._claimed[ask.partition, ask.offset] = ask
                    if len(self._claimed) > CLOSING_MAX:
                        self._claimed.pop(next(iter(self._claimed)))
            else:
                self._tell(ask.partition, ask.offset, result, reply)
                place = None if ask.partition.closed else ask.line
                if result.outcome is Outcome.BLOCKED and place is not None:
                    self._key_queues.waits(ask.partition, ask.offset, place, result)
        for partition, ops in places.items():
            if not partition.closed:
                bytes_max = self._state.settings.notes_bytes_max
                partition.tell(*ops, texts=CallTexts(brought.get(partition, ()), bytes_max))

    def _tell(
        self, partition: Partition, offset: int, result: OpResult, reply: RecordReply
    ) -> None:
        if not partition.closed:
            now_ms = self._context.clock.monotonic_ms()
            partition.ledger.claimed(offset, result, reply.rollback_epoch, reply.now_ms, now_ms)
            partition.perform()

    def _again(self, asks: Sequence[_CopyClaim]) -> None:
        now_ms = self._context.clock.monotonic_ms()
        for ask in asks:
            claims = ask.partition.ledger.claims
            if claims is not None and not ask.partition.closed:
                claims.not_claimed([ask.offset], CLAIM_AGAIN_MS, now_ms)
                ask.partition.perform()

    def _count(self, outcome: str) -> None:
        self._context.metrics.claims.at(self._state.name, outcome).inc()

    # --- closing

    async def _close_some(self) -> None:
        asks: list[_CopyClaim] = []
        for key in list(self._closing)[:BATCH_MAX]:
            ask = self._closing.pop(key) or await self._closed(*key)
            if ask is not None:
                asks.append(ask)
        for handle, some in self._by_origin(asks):
            try:
                ops = [ask.close for ask in some]
                reply = await self._context.flusher.submit(handle, ops)
                if reply.verdict is CallStatus.OK:
                    self._context.replay_log.confirmed(handle.key, handle.incarnation, ops)
            except StoreError:
                await asyncio.sleep(CLAIM_AGAIN_MS / 1000)
                for ask in some:
                    if not ask.partition.closed:
                        self._closing[ask.partition, ask.offset] = ask

    async def _closed(self, partition: Partition, offset: int) -> _CopyClaim | None:
        body = await self._bodies.body(partition, offset)
        retry_copy = None if body is None else partition.copies.retry_copy(body)
        return None if retry_copy is None else _CopyClaim(partition, offset, retry_copy)


def _place(ask: _CopyClaim, result: OpResult) -> list[Op]:
    """What the copy's own record stores: what the origin record answered, or what the copy's
    headers say if there is no origin record.
    """
    retry_copy, copies = ask.retry_copy, ask.partition.copies
    if result.outcome is not Outcome.CLAIMED:
        first_s = retry_copy.first_ms // 1000
        attempt, due_ms = retry_copy.attempt, retry_copy.due_ms
        # No origin record confirmed the generation, and this record's fences continue after it.
        return [copies.place(ask.offset, 0, attempt, due_ms, first_s)]
    if result.state is State.DEAD:
        return copies.place_dead(ask.offset, retry_copy.generation, result.attempt, result.first_s)
    # A recreated origin record has lost the delay and the time of the first delivery.
    delayed = {State.WAITING: result.when_ms, State.READY: retry_copy.due_ms}
    due_ms = delayed.get(result.state, 0)
    attempt, first_s = result.attempt, result.first_s or retry_copy.first_ms // 1000
    return [copies.place(ask.offset, retry_copy.generation, attempt, due_ms, first_s)]


def _remember(
    replay_log: ReplayLog,
    handle: LedgerHandle,
    epoch: int,
    asks: Sequence[_CopyClaim],
    results: Sequence[OpResult],
) -> None:
    """Keep these claims for replay: a rollback may erase a claim, or the whole origin record,
    and then the sidecar that claimed writes it again (R10). Likewise an ack of which a claim
    has learned: its copy is over, so nobody else would take the message out of its key queue.
    """
    of_messages = [
        (ask.claim, result)
        for ask, result in zip(asks, results, strict=True)
        if ask.retry_copy.redriven is None
    ]
    ops = [
        RestoreClaimed(
            claim.offset, claim.generation, claim.rollback_epoch, result.attempt, claim.copy
        )
        for claim, result in of_messages
        if result.outcome is Outcome.CLAIMED
    ]
    if ops:
        replay_log.confirmed(handle.key, handle.incarnation, ops)
    acked = [
        (claim.offset, claim.generation)
        for claim, result in of_messages
        if result.outcome is Outcome.FINISHED and result.fence
    ]
    if acked:
        replay_log.acked_in_origin(handle.key, handle.incarnation, epoch, acked)
