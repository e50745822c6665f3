"""What the simulator makes a sidecar and its store of; planted mistakes are parts of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ackd.config.schema import Settings
from ackd.engine.base.context import Context
from ackd.engine.base.spill_file import Spill
from ackd.engine.runtime import Runtime
from ackd.ports import Broker, Clock, PeerNetwork, Store
from ackd.store.memory import MemoryStore
from ackd.telemetry.metrics import Metrics
from tests.simulation.broker import SimBroker, SimConsumer
from tests.simulation.peers import SimPeers
from tests.simulation.spill import MemorySpill
from tests.simulation.store_client import SimStore

METRICS = Metrics()
"""Shared by all simulated sidecars: making the families costs more than a whole start."""


class SeededRuntime(Runtime):
    """The runtime with random numbers from the seed."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store,
        brokers: Mapping[str, Broker],
        clock: Clock,
        bits: Callable[[int], int],
        peers: PeerNetwork | None = None,
    ) -> None:
        super().__init__(
            settings, store=store, brokers=brokers, clock=clock, metrics=METRICS, peers=peers
        )
        self._bits = bits

    def _spill(self, name: str, bytes_max: int) -> Spill:
        del name
        return MemorySpill(bytes_max)

    async def _connect(self) -> Context:
        return replace(await super()._connect(), random_bits=self._bits)


@dataclass(frozen=True, slots=True)
class Parts:
    """The classes of a run. `memory` decides in the store's server, `store` asks it on behalf of
    one sidecar; `runtime` is what applications and operators talk to; `peers` its way to others.
    """

    memory: type[MemoryStore] = MemoryStore
    store: type[SimStore] = SimStore
    broker: type[SimBroker] = SimBroker
    consumer: type[SimConsumer] = SimConsumer
    runtime: type[SeededRuntime] = SeededRuntime
    peers: type[SimPeers] = SimPeers


PARTS = Parts()
