"""Planted mistakes of starts, commits, resets and seeks (R1, R6, R7, R8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ackd.core.commit_metadata import decode, encode
from ackd.core.ids import TopicPartition
from ackd.core.record.operations import Gap, Op
from ackd.core.record.protocol import Finish, OpResult, RecordCall
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Verb
from ackd.ports import Committed, ConsumerEvent, ConsumerSpec, TopicReplaced
from tests.simulation.broker import SimBroker, SimConsumer
from tests.simulation.fetch import Fetcher, Session
from tests.simulation.handovers import MOVES
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts
from tests.simulation.plan import OUTGROWN, RESET, RESET_LOST, SEEK, Story
from tests.simulation.seams import DONE, WrongAsker, WrongStore, nothing
from tests.simulation.store_client import SimStore

START = "start:"
METADATA_CHARS = 4095


class SeesNoReplacement(SimConsumer):
    """A topic that was made again goes on as before."""

    async def events(self) -> list[ConsumerEvent]:
        """All but that."""
        return [each for each in await super().events() if not isinstance(each, TopicReplaced)]


class ReadsOnIn(Fetcher):
    """Fetches by name: its sessions pass over to the new log where they stand."""

    def blind(self, topic: str) -> None:
        """It sees the new one."""
        for tp, session in self._sessions.items():
            if tp.topic == topic:
                log = session.log = self._broker.cluster.log(tp)

                def pull(tp: TopicPartition = tp, session: Session = session) -> None:
                    if session.log.end > session.position:
                        self._pull(tp, session)

                log.listeners.append(pull)


class ReadsOn(SimConsumer):
    """See `ReadsOnIn`."""

    def __init__(self, broker: SimBroker, spec: ConsumerSpec) -> None:
        super().__init__(broker, spec)
        self.fetcher = ReadsOnIn(broker, self._put)


class ForgetsTheStart(SimStore):
    """Each sidecar decides anew where the group starts."""

    async def get(self, name: str) -> bytes | None:
        """The start is never there."""
        return None if name.startswith(START) else await super().get(name)

    async def put_new(self, name: str, value: bytes, ttl_ms: int | None = None) -> bytes | None:
        """Nor was it."""
        there = await super().put_new(name, value, ttl_ms)
        return None if name.startswith(START) else there


class SkipsWhatIsOpen(SimConsumer):
    """Fetching starts above all that is finished, and the gap rule meets this seek."""

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        """Further ahead than it was asked for."""
        committed = self.broker.group.offsets.get(partition)
        progress = None if committed is None else decode(committed.metadata)
        ends = () if progress is None else (end for _, end in progress.ranges)
        return super().fetch_from(partition, max((offset, *ends)))


class TrustsAnyMetadata(SimConsumer):
    """What somebody else has written beside a position is read as if it were for this topic."""

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """As if written here."""
        found = await super().committed(partitions)
        return {tp: self._as_ours(tp, each) for tp, each in found.items()}

    def _as_ours(self, tp: TopicPartition, committed: Committed) -> Committed:
        progress, cluster = decode(committed.metadata), self.broker.cluster
        if progress is None:
            return committed
        base = committed.offset
        ranges = [(max(start, base), end) for start, end in progress.ranges if end > base]
        topic_id = cluster.topics[tp.topic].topic_id
        metadata = encode(
            cluster.name, topic_id, progress.epoch, base, progress.version, ranges, METADATA_CHARS
        )
        return Committed(base, metadata)


class LeavesResetsOpen(SimConsumer):
    """A position that an operator has set is not confirmed by a commit of our own."""

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Only where nobody else has set one."""
        there = self.broker.group.offsets
        mine = {
            tp: each
            for tp, each in positions.items()
            if tp not in there or decode(there[tp].metadata) or there[tp].offset != each.offset
        }
        if mine:
            await super().commit(mine)


class ResetDropsLeases(WrongStore):
    """Nobody's lease survives a reset."""

    def decided(self, record: PartitionRecord, op: Op, result: OpResult) -> OpResult:
        """No slot is kept."""
        if op.verb is Verb.RESET:
            record.slots.clear()
        return result


class CopiesStay(WrongAsker):
    """A seek, or somebody else's reset, does not finish the copies of what comes again."""

    def asks(self, call: RecordCall, op: Op) -> Op:
        """What is not a part of a reset."""
        return nothing(op) if self._copies(call) else op

    def answered(self, call: RecordCall, op: Op, result: OpResult) -> OpResult:
        """It was no copy that anybody holds."""
        del op
        return DONE if self._copies(call) else result

    @staticmethod
    def _copies(call: RecordCall) -> bool:
        return all(
            isinstance(op, Gap) and op.reason == Finish.SKIPPED and op.end == op.start + 1
            for op in call.ops
        )


MUTANTS = (
    Mutant(
        "a re-made topic is not noticed",
        "R1",
        Parts(consumer=SeesNoReplacement),
        Story(("remake",)),
    ),
    Mutant("a session reads on", "R1", Parts(consumer=ReadsOn), OUTGROWN),
    Mutant(
        "the start is resolved at every start",
        "R6",
        Parts(store=ForgetsTheStart),
        Story(("store_freeze", "kill", "cut")),
    ),
    Mutant(
        "what a takeover does not fetch is a hole",
        "R7",
        Parts(consumer=SkipsWhatIsOpen),
        Story(("kill",)),
    ),
    Mutant("any commit metadata fits", "R8", Parts(consumer=TrustsAnyMetadata), Story(("copied",))),
    Mutant(
        "an accepted reset is not committed",
        "R8",
        Parts(consumer=LeavesResetsOpen),
        Story(("reset", "kill", "fuse"), (("commit_ms", 5_000),)),
    ),
    Mutant(
        "a reset ends live leases",
        "R8",
        Parts(memory=ResetDropsLeases),
        Story(("reset",), (("lease_ms", 8_000), ("session_ms", 3_000))),
    ),
    Mutant("a reset is not judged by its owner", "R8", story=RESET_LOST),
    Mutant("what was revoked is taken back from its next owner", "R5", story=MOVES),
    Mutant("a seek leaves copies", "R8", Parts(store=CopiesStay), SEEK),
    Mutant("a foreign reset leaves copies", "R8", Parts(store=CopiesStay), RESET, 16),
)
