"""Planted mistakes about the order of keys (I6) and keys that are blocked (R19)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ackd.config.schema import Settings
from ackd.core.record.operations import CloseOrigin, MoveToRetry, Op
from ackd.core.record.protocol import Open, OpResult, RecordCall, Snapshot
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Outcome, Verb
from ackd.ports import Broker, Clock, PeerNetwork, Store
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts, SeededRuntime
from tests.simulation.plan import BLOCKED, PROMOTED_KEYS, Story
from tests.simulation.seams import WrongAsker, WrongStore, nothing
from tests.simulation.store_client import SimStore


class KeepsNoOrder(SeededRuntime):
    """Any message of a key, or of a partition, may go."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store,
        brokers: Mapping[str, Broker],
        clock: Clock,
        bits: Callable[[int], int],
        peers: PeerNetwork | None = None,
    ) -> None:
        loose = {
            name: replace(each, ordering="none") for name, each in settings.subscriptions.items()
        }
        super().__init__(
            replace(settings, subscriptions=loose),
            store=store,
            brokers=brokers,
            clock=clock,
            bits=bits,
            peers=peers,
        )


class SaysThatKeysAreFree(WrongStore):
    """Only the ledger hears it; the store is not asked at a grant."""

    def decided(self, record: PartitionRecord, op: Op, result: OpResult) -> OpResult:
        """Whoever asks for a key."""
        del record
        return result._replace(outcome=Outcome.FINISHED) if op.verb is Verb.ASK_BLOCKER else result


class SendsWithoutKey(WrongAsker):
    """What is sent back blocks no key."""

    def asks(self, call: RecordCall, op: Op) -> Op:
        """None is named."""
        del call
        return replace(op, key=0) if isinstance(op, MoveToRetry) else op


class OpensWithoutBlockedKeys(SimStore):
    """A new owner does not hear which keys are blocked."""

    async def open(self, request: Open) -> Snapshot:
        """None are."""
        return replace(await super().open(request), blocked=[])


def _line(record: PartitionRecord, offset: int) -> list[int]:
    """In which a message stands."""
    origin = record.origins.get(offset)
    return [] if origin is None or not origin.key else record.blocked[origin.key]


class ClaimsOutOfTurn(WrongStore):
    """A claim looks at no line."""

    def decides(self, record: PartitionRecord, op: Op) -> Op:
        """Who claims is the first."""
        line = _line(record, op.offset)
        if op.verb is Verb.CLAIM and line:
            line.sort(key=lambda offset: (offset != op.offset, offset))
        return op


class FreesWhatIsClaimed(WrongStore):
    """Too early: its copy is on its way, or in somebody's hands."""

    def decided(self, record: PartitionRecord, op: Op, result: OpResult) -> OpResult:
        """It leaves its line."""
        line = _line(record, op.offset)
        if op.verb is Verb.CLAIM and result.outcome is Outcome.CLAIMED and line:
            line.remove(op.offset)
            origin = record.origins[op.offset]
            if not line:
                del record.blocked[origin.key]
            origin.key = 0
        return result


class BlocksInFront(WrongStore):
    """A follower gets in line before whom it follows."""

    def decided(self, record: PartitionRecord, op: Op, result: OpResult) -> OpResult:
        """The newest is the first."""
        line = _line(record, op.offset)
        if op.verb is Verb.MOVE_TO_RETRY and result.outcome is Outcome.SENT and line:
            line.remove(op.offset)
            line.insert(0, op.offset)
        return result


class FreesOnlyTheClaimed(WrongStore):
    """The line of its origin record hears of a copy only if its claim is known."""

    def decides(self, record: PartitionRecord, op: Op) -> Op:
        """A forgotten claim is not made good."""
        origin = record.origins.get(op.offset)
        forgotten = origin is not None and origin.claimed_by is None
        return nothing(op) if isinstance(op, CloseOrigin) and op.finished and forgotten else op


MUTANTS = (
    Mutant(
        "any message of a key may go",
        "I6",
        Parts(runtime=KeepsNoOrder),
        Story(settings=(("ordered", 2),)),
    ),
    Mutant(
        "any message of a partition may go",
        "I6",
        Parts(runtime=KeepsNoOrder),
        Story(settings=(("ordered", -1),)),
    ),
    Mutant(
        "a blocked key goes on in the window", "R19", Parts(memory=SaysThatKeysAreFree), BLOCKED
    ),
    Mutant(
        "taken over without the blocked keys", "R19", Parts(store=OpensWithoutBlockedKeys), BLOCKED
    ),
    Mutant("sent back without its key", "R19", Parts(store=SendsWithoutKey), BLOCKED),
    Mutant("a claim looks at no line", "R19", Parts(memory=ClaimsOutOfTurn), BLOCKED),
    Mutant(
        "a key is free when a copy is claimed", "R19", Parts(memory=FreesWhatIsClaimed), BLOCKED
    ),
    Mutant("a follower gets in line first", "R19", Parts(memory=BlocksInFront), BLOCKED),
    Mutant(
        "a copy of a forgotten claim frees nobody",
        "R19",
        Parts(memory=FreesOnlyTheClaimed),
        replace(PROMOTED_KEYS, settings=(*PROMOTED_KEYS.settings, ("commit_ms", 10_000))),
        123,
    ),
)
