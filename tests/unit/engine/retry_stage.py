"""A partition of `orders` whose messages have moved, and one of the retry topic with their copies.

Both records lie in the store in memory. What stores copies is left out: a test says which copy
arrives, so that it can bring one twice, late or forged.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from ackd.core.ids import LedgerKey
from ackd.core.ledger.effects import Claim, CloseOriginRecord, LeaveKeyQueue, SendBack
from ackd.core.ledger.order import key_hash
from ackd.core.ledger.send_back import Rules, Stuck, Why
from ackd.core.origin import Origin
from ackd.core.record.operations import Settle
from ackd.core.record.protocol import NO_TEXTS, CallTexts, ItemTexts, OpResult, RecordCall
from ackd.core.record.state import OriginRecord, PartitionRecord
from ackd.core.record.transitions import Verb
from ackd.engine.base.tasks import Tasks
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.partition.ordering import OriginRecordRef, position_of
from ackd.engine.partition.partition import Partition, Policy, Wiring
from ackd.engine.retry.body_spill import BodySpill
from ackd.engine.retry.claims import CopyClaims
from ackd.engine.retry.key_queues import KeyQueues
from ackd.ports import Record, TopicInfo
from tests.unit.engine.copies import NoSpill
from tests.unit.engine.world import LEASE_MS, NAME, TOPIC, TOPIC_ID, World

RETRY_TOPIC = "ackd.retry.work"
RETRY_ID = bytes(range(16, 32))
KEY = b"k"


class RetryStage:
    """`origin`, `copies`: the two partitions, both number 0 of their topics. `dead_records`: the
    records of dead letters that were opened.
    """

    rules = Rules(1_000_000, 1_000_000, 1_000_000)

    def __init__(self, world: World) -> None:
        state, context, partitions = world.state, world.context, world.partitions
        self.world = world
        self.bodies = BodySpill(state, context, partitions, NoSpill())
        self.queues = KeyQueues(
            state,
            context,
            partitions,
            world.topics,
            RETRY_TOPIC,
            self._claim,
        )
        self.dead_records: list[LedgerKey] = []
        self.claims = CopyClaims(
            state, context, partitions, world.topics, self.bodies, self.queues, self._open_dead
        )
        self.tasks = Tasks("retry")
        self.origin: Partition
        self.copies: Partition

    def _claim(self, partition: Partition, offset: int) -> None:
        self.claims.claim(partition, offset)

    async def _open_dead(self, key: LedgerKey) -> None:
        self.dead_records.append(key)

    async def begin(self, *, ordered: bool = False) -> None:
        """Own both partitions, as one sidecar does that has the whole group to itself."""
        position = position_of("key" if ordered else "none", NAME, retry_copies=False)
        plain = Policy(None, 0, retry_copies=False, position_of=position)
        self.origin = await self.world.owns(0, range(10), policy=plain, wiring=self._wiring())
        self.copies = await self.owns_copies(0)
        self.world.topics.known = {
            TOPIC: TopicInfo(TOPIC, TOPIC_ID, 1),
            RETRY_TOPIC: TopicInfo(RETRY_TOPIC, RETRY_ID, 2),
        }
        self.world.consumer.known = list(self.world.topics.known.values())

    async def owns_copies(self, number: int) -> Partition:
        """A partition of the retry topic, without copies."""
        position = position_of("none", NAME, retry_copies=True)
        policy = Policy(None, 0, retry_copies=True, position_of=position)
        topic = RETRY_TOPIC, RETRY_ID
        return await self.world.owns(number, policy=policy, wiring=self._wiring(), topic=topic)

    def _wiring(self) -> Wiring:
        def leave(partition: Partition, effect: LeaveKeyQueue) -> None:
            assert isinstance(effect.origin_record, OriginRecordRef)
            self.queues.over(partition, effect.offset, effect.origin_record)

        plain = self.world.events.wiring()
        effects: dict[Any, Any] = {
            Claim: lambda partition, effect: self.claims.claim(partition, effect.offset),
            CloseOriginRecord: lambda partition, effect: self.claims.close(
                partition, effect.offset
            ),
            LeaveKeyQueue: leave,
        }
        return replace(
            plain,
            observers=(Partition.apply, self.claims.on_reply),
            effects=defaultdict(lambda: self.world.events.note, effects),
            blocked=self.queues.on_blocked,
        )

    def start(self, *parts: CopyClaims | KeyQueues) -> None:
        """Run these parts' tasks."""
        for part in parts:
            self.tasks.start(part.run(), type(part).__name__)

    # --- messages and copies

    async def moves(
        self, offset: int = 0, *, lease_ms: int = LEASE_MS, key: bytes | None = None
    ) -> RetryCopy:
        """Lease the next message, then move it: what its copy says. Its lease lives on."""
        await self.world.leases(self.origin, lease_ms=lease_ms)
        number = 0 if key is None else key_hash(key)
        self.origin.send_back([Stuck(offset, Why.AGE, number)])
        await self.world.flusher.idle()
        (effect,) = [
            each
            for each in self.world.events.effects
            if isinstance(each, SendBack) and each.offset == offset
        ]
        return RetryCopy(
            origin=self.origin.copies.origin(offset),
            subscription=NAME,
            generation=effect.generation,
            incarnation=self.origin.handle.incarnation,
            rollback_epoch=1,
            attempt=effect.attempt,
            due_ms=0,
            first_ms=1_000,
            published_ms=800,
            order_key=number,
        )

    async def moves_and_ends(self, offset: int = 0, *, key: bytes | None = None) -> RetryCopy:
        """The same, with a lease that is over: the copy may be delivered."""
        retry_copy = await self.moves(offset, lease_ms=10, key=key)
        self.world.clock.pass_ms(11)
        return retry_copy

    def arrives(
        self, at: int, retry_copy: RetryCopy | None, *, into: Partition | None = None
    ) -> None:
        """The copy is fetched from this offset of the retry topic; None: a record of a stranger."""
        headers = () if retry_copy is None else retry_copy_headers(retry_copy, ())
        partition = into or self.copies
        intake = partition.ledger.intake
        intake.fetched(intake.session, [Record(at, KEY, b"v", headers, 1_000)])
        partition.perform()

    async def settles(
        self,
        verb: Verb,
        retry_copy: RetryCopy,
        *,
        for_ms: int = 0,
        here: bool = True,
        error: str = "",
    ) -> OpResult:
        """Settle the lease of the original. `here` False: through another sidecar. `error`: the
        reason of the failure.
        """
        record = self.origin_record(retry_copy.origin.offset)
        slot = record.slot
        op = Settle(verb, retry_copy.origin.offset, slot.fence, 1, slot.attempt, for_ms)
        handle = self.origin.handle if here else self.world.handle()
        texts = CallTexts([ItemTexts(0, last=error.encode())]) if error else NO_TEXTS
        reply = await self.world.flusher.submit(handle, [op], texts)
        return reply.results[0]

    # --- what the store has

    def record(self, partition: Partition) -> PartitionRecord:
        return self.world.data.records[partition.key]

    def origin_record(self, offset: int) -> OriginRecord:
        return self.record(self.origin).origins[offset]

    def asked(self, kind: type[Any]) -> list[Any]:
        """The operations of this kind that the store was asked for."""
        return [op for call in self.world.store.asked for op in call.ops if isinstance(op, kind)]

    def calls(self, kind: type[Any]) -> list[RecordCall]:
        """The calls that hold such an operation."""
        store = self.world.store
        return [call for call in store.asked if any(isinstance(op, kind) for op in call.ops)]

    def claims_counted(self, outcome: str) -> float:
        return self.world.count("ackd_claims_total", subscription=NAME, outcome=outcome)


def dead_letter(offset: int) -> Origin:
    """A place in the dead-letter topic."""
    return Origin("cluster", bytes(range(32, 48)), "ackd.dead.work", 0, offset)
