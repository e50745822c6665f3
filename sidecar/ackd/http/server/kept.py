"""Leases that ackd releases when their client's connection dies (`release_on_close`, R21).

This works only on a connection that stays open between requests. While it has such leases, the
server does not close it for being idle, because the worker may be busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ackd.api.messages import Delivery, Engine, Unsettled


class Releasing(Protocol):
    """The service: counts open leases, and releases them."""

    @property
    def engine(self) -> Engine: ...
    def release(self, leases: Sequence[str]) -> None: ...


class Kept:
    """The leases of one connection, by subscription."""

    def __init__(self, service: Releasing) -> None:
        self._service = service
        self._unsettled: dict[str, Unsettled] = {}

    def add(self, name: str, messages: Sequence[Delivery]) -> None:
        """Keep the leases of messages that are being delivered on this connection."""
        if name not in self._unsettled:
            self._unsettled[name] = self._service.engine.unsettled(name)
        self._unsettled[name].add(messages)

    @property
    def open(self) -> bool:
        """Whether some of the leases are not settled."""
        return any(each.count() for each in self._unsettled.values())

    def close(self, *, lost: bool) -> None:
        """End with the connection; release the leases if client or network ended it (`lost`)."""
        for each in self._unsettled.values():
            if lost:
                self._service.release(each.leases())
            each.close()
        self._unsettled.clear()
