"""The local queue: a durable broker in one SQLite file, shared by the sidecars of one host.

For the first five minutes, for tests and for small deployments; `adapter` is what the entry point
`ackd.adapters` names. Nothing but the standard library is needed.
"""

from __future__ import annotations

from ackd_adapters.local.broker import CAPABILITIES, LocalBroker
from ackd_adapters.local.config import LocalOptions

__all__ = ["LocalAdapter", "LocalBroker", "LocalOptions", "adapter"]


class LocalAdapter:
    """The adapter as the configuration sees it."""

    options = LocalOptions
    capabilities = CAPABILITIES

    def open(self, name: str, options: LocalOptions) -> LocalBroker:
        """Make the connection called `name`; the file is opened or made by `start`."""
        return LocalBroker(name, options)


adapter = LocalAdapter()
