"""What can go wrong with the queue's file, beyond `BrokerError` itself."""

from __future__ import annotations

from ackd.errors import BrokerError


class QueueBusyError(BrokerError):
    """Another process has held the queue's write lock for too long; nothing was stored."""


class QueueFullError(BrokerError):
    """The disk is full; nothing was stored."""
