"""A sidecar's view of one partition, for tests of the store's contract."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Grant, Op, Settle
from ackd.core.record.protocol import (
    TEXTS_BYTES_MAX,
    CallStatus,
    CallTexts,
    ItemTexts,
    Open,
    OpResult,
    RecordCall,
    RecordReply,
    Snapshot,
)
from ackd.core.record.transitions import Outcome, Verb
from ackd.ports import Store

_numbers = count(1)


def fresh_key(partition: int = 0) -> LedgerKey:
    """A partition that no other test uses."""
    return LedgerKey("cluster:{1}", f"sub-{next(_numbers)}", bytes(range(16)), partition)


@dataclass
class Owner:
    """Opens a partition and sends calls as its owner."""

    store: Store
    key: LedgerKey = field(default_factory=fresh_key)
    name: str = "me#1"
    term: int = 0
    seq: int = 0
    rollback_epoch: int = 0

    async def open(self, *, again: bool = False, create_at: int | None = 0) -> Snapshot:
        """Take it (or read it again under the same term)."""
        request = Open(
            self.key,
            self.name,
            rollback_epoch=next(_numbers) & 0xFFFF,
            incarnation=next(_numbers),
            grace_ms=0,
            create_at=create_at,
            term=self.term if again else 0,
        )
        snapshot = await self.store.open(request)
        if snapshot.verdict is CallStatus.OK:
            self.term, self.seq, self.rollback_epoch = (
                snapshot.term,
                snapshot.seq,
                snapshot.rollback_epoch,
            )
        return snapshot

    async def call(
        self,
        *ops: Op,
        journal_from: int = 0,
        texts: Sequence[ItemTexts] = (),
        bytes_max: int = TEXTS_BYTES_MAX,
    ) -> RecordReply:
        """One call as the owner."""
        self.seq += 1
        brought = CallTexts(texts, bytes_max)
        call = RecordCall(self.key, list(ops), self.term, self.seq, 0, journal_from, brought)
        return (await self.store.apply([call]))[0]

    async def foreign(
        self, *ops: Op, texts: Sequence[ItemTexts] = (), bytes_max: int = TEXTS_BYTES_MAX
    ) -> RecordReply:
        """One call as somebody else."""
        call = RecordCall(self.key, list(ops), texts=CallTexts(texts, bytes_max))
        return (await self.store.apply([call]))[0]

    async def grant(self, *offsets: int, lease_ms: int = 60_000) -> list[Settle]:
        """Lease offsets; returns an ACK for each, to be sent or changed."""
        reply = await self.call(*(Grant.of(o, lease_ms, 1) for o in offsets))
        assert reply.verdict is CallStatus.OK
        assert [r.outcome for r in reply.results] == [Outcome.GRANTED] * len(offsets)
        return [
            Settle(Verb.ACK, offset, result.fence, reply.rollback_epoch, result.attempt)
            for offset, result in zip(offsets, reply.results, strict=True)
        ]

    async def one(self, op: Op) -> OpResult:
        """One item as the owner."""
        reply = await self.call(op)
        assert reply.verdict is CallStatus.OK
        return reply.results[0]
