"""The tests' RocketMQ as a part of a deployment for fault tests."""

from tests.support.rocketmq.broker import RocketMQ


class RocketMQAt:
    """A RocketMQ that a fixture owns. Its groups are called as `tests.chaos.world` calls them."""

    adapter = "rocketmq"
    name = "rocketmq"

    def __init__(self, rocketmq: RocketMQ, hold_ms: int = 4_000) -> None:
        self.rocketmq = rocketmq
        self.hold_ms = hold_ms

    def options(self) -> dict[str, str | int]:
        """How to connect."""
        return {
            "endpoints": self.rocketmq.endpoints,
            "hold_ms": self.hold_ms,
            "poll_ms": 1_000,
            "request_timeout_ms": 3_000,
        }

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic, and the group that will read it."""
        self.rocketmq.admin.topic(name, partitions)
        self.rocketmq.admin.group(f"{name}-group")

    def start(self) -> None:
        """Start it again after a kill; nothing when it runs."""
        if not self.rocketmq.proxy.running:
            self.rocketmq.restart(self.rocketmq.proxy)

    def kill(self) -> None:
        """SIGKILL."""
        self.rocketmq.proxy.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.rocketmq.proxy.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.rocketmq.proxy.thaw()

    def stop(self) -> None:
        """It belongs to the fixture."""
