"""The brokers of a campaign: each is started when a world first wants it, and serves them all."""

from pathlib import Path

from ackd_torture.child import BrokerPart
from ackd_torture.parts import LocalQueue
from tests.chaos.world import KafkaAt
from tests.support.kafka import Kafka, KafkaOptions
from tests.support.pulsar.broker import Pulsar
from tests.support.pulsar.config import PulsarOptions
from tests.support.pulsar.part import PulsarAt
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.part import RocketMQAt
from tests.support.started import Started


class Brokers:
    """Real brokers with their defaults, on data of their own. `close` ends them."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Started, BrokerPart]] = {}

    def part(self, name: str, folder: Path, *, ordered: bool) -> BrokerPart:
        """The broker of a world, in good health."""
        if name == "local":
            return LocalQueue(folder)
        if name not in self._running:
            self._running[name] = _started(name)
        _, part = self._running[name]
        if isinstance(part, RocketMQAt):
            part.fifo = ordered
        part.start()
        return part

    def end(self, name: str) -> None:
        """End one, with its data: the next world gets a new one."""
        if name in self._running:
            server, _ = self._running.pop(name)
            server.stop()

    def close(self) -> None:
        """End all."""
        for name in list(self._running):
            self.end(name)


def _started(name: str) -> tuple[Started, BrokerPart]:
    if name == "kafka":
        kafka = Kafka(KafkaOptions(fast_groups=False)).start()
        return kafka, KafkaAt(kafka)
    if name == "pulsar":
        pulsar = Pulsar(PulsarOptions(persist_at_once=False)).start()
        return pulsar, PulsarAt(pulsar)
    rocketmq = RocketMQ().start()
    return rocketmq, RocketMQAt(rocketmq)
