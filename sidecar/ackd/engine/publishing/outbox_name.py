"""Decides the name of a broker's outbox: its configured name and the cluster behind it (R1).

Two services that share a store may both call their broker `main` and mean different clusters. This
file asks the broker for its cluster once it is up. It keeps the answer in the store, beside a
digest of the connection settings, for a sidecar that starts while the broker is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from hashlib import blake2b

from ackd.config.schema import BrokerSettings
from ackd.core.backoff import Backoff
from ackd.errors import AckdError, BrokerError, StoreError
from ackd.ports import Broker, Store
from ackd.retries import repeating

LOG = logging.getLogger("ackd.engine")

AGAIN = Backoff.constant(500)
"""Store and broker have just started, as a rule."""


class OutboxName:
    """The name of an outbox in the store, as soon as it is known."""

    def __init__(
        self, broker: str, settings: BrokerSettings, store: Store, up: asyncio.Event
    ) -> None:
        self._broker = broker
        self._store = store
        self._up = up
        connection = f"{settings.adapter} {settings.options!r}".encode()
        self._value = f"cluster:{broker}:{blake2b(connection, digest_size=8).hexdigest()}"
        self._name = ""
        self.known = asyncio.Event()

    @property
    def name(self) -> str:
        """Raises BrokerError until the cluster is known."""
        if not self._name:
            raise BrokerError(f"{self._broker} was never reached: its cluster is not known yet")
        return self._name

    def _found(self, cluster: str) -> None:
        self._name = f"{self._broker}:{cluster}"
        self.known.set()

    async def find(self, broker: Broker) -> None:
        """Learn the name: first from the store, then from the broker itself."""
        if not self._up.is_set():
            retrying = repeating(StoreError, AGAIN, only=lambda _: not self._up.is_set())
            with contextlib.suppress(StoreError):  # the broker came up first
                kept: bytes | None = await retrying(self._store.get, self._value)
                if kept is not None:
                    self._found(kept.decode())
        await self._up.wait()

        async def ask() -> None:
            cluster = await broker.cluster_id()
            self._found(cluster)
            await self._store.put(self._value, cluster.encode())

        def failed(error: AckdError) -> None:
            LOG.info(
                "outbox of %s: ackd can't read or keep the cluster id, and tries again: %s",
                self._broker,
                error.detail,
            )

        await repeating((BrokerError, StoreError), AGAIN, failed=failed)(ask)
