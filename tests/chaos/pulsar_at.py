"""A Pulsar that a fixture owns, as a broker part of `tests.chaos.world`."""

from dataclasses import dataclass

from tests.support.pulsar import Pulsar


@dataclass
class PulsarAt:
    """`batch`: the room for producer batches in offsets, see the adapter's options."""

    pulsar: Pulsar
    batch: int = 1
    adapter: str = "pulsar"
    name: str = "pulsar"

    def options(self) -> dict[str, str | int]:
        """How to connect."""
        return {
            "service_url": self.pulsar.url,
            "admin_url": self.pulsar.web_url,
            "batch_messages_max": self.batch,
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
