"""A server that a fixture owns as the broker of `ackd serve` processes."""

from pathlib import Path

from ackd_torture.child import BrokerPart
from ackd_torture.parts import LocalQueue
from tests.chaos.world import KafkaAt
from tests.support.kafka import Kafka
from tests.support.pulsar import Pulsar
from tests.support.pulsar.part import PulsarAt
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.part import RocketMQAt

Server = Kafka | Pulsar | RocketMQ | None
"""None: a queue on the local disk."""


def part_of(server: Server, folder: Path, group: str, *, fifo: bool = False) -> BrokerPart:
    """As a part of a deployment. `folder` is where a local queue lies, `group` the one that reads
    the topics that are made, `fifo` whether they are RocketMQ's for an order.
    """
    match server:
        case Kafka():
            return KafkaAt(server)
        case Pulsar():
            return PulsarAt(server, batch=0)
        case RocketMQ():
            return RocketMQAt(server, group=group, fifo=fifo)
        case None:
            return LocalQueue(folder, partitions=1)


def lines_of(part: BrokerPart) -> str:
    """What stands in its section of a configuration."""
    options = ", ".join(
        f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
        for name, value in part.options().items()
    )
    return f'adapter = "{part.adapter}"\noptions = {{ {options} }}'
