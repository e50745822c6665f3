"""Partitions that the engine adds for log generations are drawn with the others (R1, R32)."""

from ackd.core.ids import TopicPartition
from ackd.core.log_generations import GENERATION, partition_of
from ackd.core.sources import BLOCK, BLOCKS, COPIES
from ackd.ports import AssignedPlace, KnownSource
from ackd_adapters.rocketmq.message import Taken
from ackd_adapters.rocketmq.protocol.definition_pb2 import MessageQueue
from ackd_adapters.rocketmq.source import GONE_MS, DrawnSource

QUEUE = TopicPartition("orders", 0)
ADDED = TopicPartition("orders", partition_of(0, 1))


def drawn(queues: int = 1, blocks: tuple[int, ...] = (0,), silent_ms: int = 0) -> DrawnSource:
    made = DrawnSource("orders", "broker-a")
    made.numbered(KnownSource("broker-a", queues, silent_ms, blocks))
    made.queue = MessageQueue()
    return made


def test_nothing_is_drawn_while_an_added_partition_has_no_room() -> None:
    it = drawn()
    assert it.assign([QUEUE]) == (QUEUE,)
    assert it.assign([QUEUE]) == ()
    assert not it.may_draw()
    it.fetch(QUEUE, 1)
    it.fetch(ADDED, 2)
    assert it.may_draw()
    it.pause(ADDED)
    assert not it.may_draw()
    it.resume(ADDED)
    assert it.may_draw()
    # One that was let go may never be this sidecar's again: nobody waits for it.
    it.pause(ADDED)
    it.stop(ADDED)
    assert it.may_draw()
    it.stop(QUEUE)
    assert not it.may_draw()


def test_i3_a_broker_that_the_route_does_not_name_is_not_asked() -> None:
    """The proxy would ask another one in its place."""
    it = drawn()
    it.assign([QUEUE])
    it.fetch(QUEUE, 1)
    it.queue = None
    assert not it.may_draw()


def test_partitions_that_were_taken_before_their_broker_was_known_are_drawn() -> None:
    early, it = DrawnSource("orders", ""), drawn()
    early.fetch(QUEUE, 1)
    early.fetch(ADDED, 2)
    early.pause(ADDED)
    it.assign([QUEUE])
    it.adopt(early)
    assert not it.may_draw()
    it.resume(ADDED)
    assert it.may_draw()


def test_numbers_of_the_adapter_are_below_those_of_generations() -> None:
    it = drawn(2 * BLOCK, (3, BLOCKS - 1))
    copy = Taken("id", "orders", 2 * BLOCK - 1, 7, "0 1 2 3 1 broker-a 5", 1, b"")
    assert it.place(copy) == AssignedPlace(GENERATION - 1, 7)
    itself = Taken("id", "orders", 2, 7, "0 1 2 3 0 broker-a 5", 1, b"")
    assert it.place(itself) == AssignedPlace(3 * BLOCK + 2, 7)
    assert (copy.broker, itself.copied) == ("broker-a", False)
    for number in (3 * BLOCK + 2, COPIES + 3 * BLOCK + 2, partition_of(3 * BLOCK + 2, 5)):
        assert it.queue_of(TopicPartition("orders", number)) == 2
    assert it.queue_of(TopicPartition("orders", COPIES - 1)) == 2 * BLOCK - 1
    assert it.knows(2 * BLOCK - 1)
    assert not it.knows(2 * BLOCK)


def test_a_broker_that_nobody_finds_for_long_is_gone() -> None:
    assert not drawn(silent_ms=GONE_MS - 1).gone
    assert drawn(silent_ms=GONE_MS).gone
