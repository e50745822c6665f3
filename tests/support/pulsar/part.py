"""The tests' Pulsar as a part of a deployment for fault tests."""

from tests.support.pulsar.broker import Pulsar
from tests.support.pulsar.config import PulsarOptions


class PulsarAt:
    """A Pulsar that a fixture owns, as `tests.chaos.world` wants it.

    `batch`: the room for producer batches in offsets, see the adapter's options; 0 its default.
    """

    adapter = "pulsar"
    name = "pulsar"

    def __init__(self, pulsar: Pulsar, batch: int = 1) -> None:
        self.pulsar = pulsar
        self.batch = batch

    def options(self) -> dict[str, str | int]:
        """How to connect."""
        return {
            "service_url": self.pulsar.url,
            "admin_url": self.pulsar.web_url,
            **({"batch_messages_max": self.batch} if self.batch else {}),
        }

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic; one that has one partition is not partitioned, as most are."""
        plain = partitions if partitions > 1 else 0
        self.pulsar.admin.create_topic(f"public/default/{name}", plain)

    def start(self) -> None:
        """Start it again after a kill; nothing when it runs."""
        if not self.pulsar.process.running:
            self.pulsar.restart()

    def kill(self) -> None:
        """SIGKILL."""
        self.pulsar.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.pulsar.process.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.pulsar.process.thaw()

    def stop(self) -> None:
        """It belongs to the fixture."""


class PulsarPart(PulsarAt):
    """One of its own for `ackd torture --start pulsar --parts tests.support.parts`.

    It writes cursors down as rarely as it is shipped to. All who publish go through ackd, which
    does not batch.
    """

    def __init__(self) -> None:
        super().__init__(Pulsar(PulsarOptions(persist_at_once=False)))
        self._there = False

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic that is partitioned also when it has one partition."""
        self.pulsar.admin.create_topic(f"public/default/{name}", partitions)

    def start(self) -> None:
        """Start it, or start it again."""
        if self._there:
            super().start()
        else:
            self.pulsar.start()
            self._there = True

    def stop(self) -> None:
        """Kill it and remove its data."""
        if self._there:
            self.pulsar.stop()
            self._there = False
