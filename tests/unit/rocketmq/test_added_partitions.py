"""Partitions that the engine adds for log generations are drawn with the others (R1, R32)."""

from ackd.core.ids import TopicPartition
from ackd.core.log_generations import GENERATION, partition_of
from ackd.ports import ConsumerSpec
from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.consumer import COPIES, RocketMQConsumer, assigned_place
from ackd_adapters.rocketmq.message import Taken
from ackd_adapters.rocketmq.remoting_admin import RemotingAdmin
from ackd_adapters.rocketmq.rpc import Rpc

QUEUE = TopicPartition("orders", 0)
ADDED = TopicPartition("orders", partition_of(0, 1))


def consumer() -> RocketMQConsumer:
    options = RocketMQOptions(endpoints="127.0.0.1:1")
    spec = ConsumerSpec("group", ("orders",), "client")
    made = RocketMQConsumer(options, spec, Rpc(options, spec.client_id), RemotingAdmin(options))
    made._assign([QUEUE])
    return made


def test_nothing_is_drawn_while_an_added_partition_has_no_room() -> None:
    it = consumer()
    assert not it._may_draw("orders")
    it.fetch_from(QUEUE, 0)
    it.fetch_from(ADDED, 0)
    assert it._may_draw("orders")
    it.pause(ADDED)
    assert not it._may_draw("orders")
    it.resume(ADDED)
    assert it._may_draw("orders")
    # One that was let go may never be this sidecar's again: nobody waits for it.
    it.pause(ADDED)
    it.stop_fetch(ADDED)
    assert it._may_draw("orders")
    it.stop_fetch(QUEUE)
    assert not it._may_draw("orders")


def test_numbers_of_the_adapter_are_below_those_of_generations() -> None:
    copy = Taken("id", "orders", COPIES - 1, 7, "0 1 2 3 1 5", 1, b"")
    assert assigned_place(copy).partition == 2 * COPIES - 1 < GENERATION
