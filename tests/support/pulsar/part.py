"""A real Pulsar as a part for `ackd torture --start pulsar --parts tests.support.parts`."""

from tests.support.pulsar.broker import Pulsar
from tests.support.pulsar.config import PulsarOptions


class PulsarPart:
    """One broker that writes cursors down as rarely as it is shipped to, on data of its own."""

    adapter = "pulsar"
    name = "pulsar"

    def __init__(self) -> None:
        self.pulsar = Pulsar(PulsarOptions(persist_at_once=False))
        self._there = False

    def options(self) -> dict[str, str | int]:
        """How to connect. All who publish go through ackd, which does not batch."""
        return {
            "service_url": self.pulsar.url,
            "admin_url": self.pulsar.web_url,
            "batch_messages_max": 1,
        }

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic."""
        self.pulsar.admin.create_topic(f"public/default/{name}", partitions)

    def start(self) -> None:
        """Start it, or start it again."""
        if self._there:
            self.pulsar.restart()
        else:
            self.pulsar.start()
            self._there = True

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
        """Kill it and remove its data."""
        if self._there:
            self.pulsar.stop()
            self._there = False
