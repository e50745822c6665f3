"""An adapter for ackd in a package of its own: Redis streams as a broker.

`adapter` is what the entry point in pyproject.toml names. It imports nothing of ackd but what an
adapter may: `ackd.core`, `ackd.errors`, `ackd.options` and `ackd.ports`.
"""

from __future__ import annotations

from ackd_redis_stream.broker import CAPABILITIES, RedisStreamBroker
from ackd_redis_stream.config import RedisStreamOptions

__all__ = ["RedisStreamAdapter", "RedisStreamBroker", "RedisStreamOptions", "adapter"]


class RedisStreamAdapter:
    """The adapter as the configuration sees it."""

    options = RedisStreamOptions
    capabilities = CAPABILITIES

    def open(self, name: str, options: RedisStreamOptions) -> RedisStreamBroker:
        """Make the connection called `name`; it connects at `start`."""
        return RedisStreamBroker(name, options)


adapter = RedisStreamAdapter()
