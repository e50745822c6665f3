"""What the dispatcher asks of whoever gets messages from other sidecars (`ackd.engine.peers`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ackd.engine.delivery.waiters import Waiter


class Elsewhere(Protocol):
    """Receives wait there beside this sidecar's own messages."""

    def wait(self, waiter: Waiter) -> bool:
        """Nothing is ready here. Whether another sidecar has been asked."""

    def end(self, waiter: Waiter) -> None:
        """The receive gets messages, here or from one of them, or nobody waits for it any more."""

    def reached(self) -> bool:
        """Whether there is a link to a sidecar that owns partitions."""

    def surplus(self) -> None:
        """Messages lie ready here, and no receive waits for them."""

    def give_back(self, leases: Sequence[str]) -> None:
        """Release leases on partitions of other sidecars, without counting an attempt (R21)."""
