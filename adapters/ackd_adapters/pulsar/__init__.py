"""Pulsar, by the project's own client and the admin interface: read as a log, acked in the store.

`adapter` is what the entry point `ackd.adapters` names. ADR 8 tells how Pulsar's ids
become offsets, and why no subscription of the broker's hands the messages out.
"""

from __future__ import annotations

from ackd.ports import Broker
from ackd_adapters.pulsar.broker import CAPABILITIES, PulsarBroker
from ackd_adapters.pulsar.config import PulsarOptions, check
from ackd_adapters.pulsar.elsewhere import KNOWN_ELSEWHERE

__all__ = ["PulsarAdapter", "PulsarBroker", "PulsarOptions", "adapter"]


class PulsarAdapter:
    """The adapter as the configuration sees it."""

    options = PulsarOptions
    capabilities = CAPABILITIES
    known_elsewhere = KNOWN_ELSEWHERE

    def check(self, options: PulsarOptions) -> None:
        """Rules between the options, for `ackd check`. Raises `ConfigError`."""
        check(options)

    def open(self, name: str, options: PulsarOptions) -> Broker:
        """Make the connection called `name`; it connects at `start`. Raises `ConfigError`."""
        check(options)
        return PulsarBroker(name, options)


adapter = PulsarAdapter()
