"""Real brokers as parts for `ackd torture --parts tests.support.parts` and the demo."""

from ackd_torture.child import BrokerPart
from tests.support.kafka import Kafka, KafkaOptions
from tests.support.pulsar.part import PulsarPart
from tests.support.rocketmq.part import RocketMQPart


class KafkaPart:
    """One broker with default group time-outs, on data of its own. `options` names its address."""

    adapter = "kafka"
    name = "kafka"

    def __init__(self, options: KafkaOptions | None = None) -> None:
        self.kafka = Kafka(options or KafkaOptions(fast_groups=False))
        self._there = False

    def options(self) -> dict[str, str | int]:
        """How to connect."""
        return {"bootstrap_servers": self.kafka.bootstrap}

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic."""
        self.kafka.create_topic(name, partitions=partitions)

    def start(self) -> None:
        """Start it, or start it again."""
        if self._there:
            self.kafka.node.start()
            self.kafka.wait_ready()
        else:
            self.kafka.start()
            self._there = True

    def kill(self) -> None:
        """SIGKILL."""
        self.kafka.node.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.kafka.node.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.kafka.node.thaw()

    def stop(self) -> None:
        """Kill it and remove its data."""
        if self._there:
            self.kafka.stop()
            self._there = False


def kafka() -> BrokerPart:
    """For `--parts`."""
    return KafkaPart()


def pulsar() -> BrokerPart:
    """For `--start pulsar --parts`."""
    return PulsarPart()


def rocketmq() -> BrokerPart:
    """For `--start rocketmq --parts`."""
    return RocketMQPart()
