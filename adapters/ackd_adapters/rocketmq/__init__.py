"""RocketMQ 5 over its gRPC proxies, by a thin client of our own on `grpc.aio`.

`adapter` is what the entry point `ackd.adapters` names. See ADR 7.
"""

from __future__ import annotations

from ackd.ports import Broker
from ackd_adapters.rocketmq.broker import CAPABILITIES, RocketMQBroker
from ackd_adapters.rocketmq.config import RocketMQOptions, check

__all__ = ["RocketMQAdapter", "RocketMQBroker", "RocketMQOptions", "adapter"]


class RocketMQAdapter:
    """The adapter as the configuration sees it."""

    options = RocketMQOptions
    capabilities = CAPABILITIES

    def check(self, options: RocketMQOptions) -> None:
        """Rules between the options, for `ackd check`. Raises `ConfigError`."""
        check(options)

    def open(self, name: str, options: RocketMQOptions) -> Broker:
        """Make the connection called `name`; it connects at `start`. Raises `ConfigError`."""
        check(options)
        return RocketMQBroker(name, options)


adapter = RocketMQAdapter()
