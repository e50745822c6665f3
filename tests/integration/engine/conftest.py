"""Whole sidecars in this process, on the shared Kafka and a store that they have in common."""

import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ackd.api.messages import Delivery, ReceiveRequest, SettleItem, SettleResult, SettleVerb, Status
from ackd.config.schema import BrokerSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.runtime import Runtime
from ackd.store.memory import Data, MemoryStore
from ackd_adapters.kafka import KafkaOptions, adapter
from tests.integration.engine.together import Together
from tests.support.kafka import Kafka
from tests.support.redis import RedisServer
from tests.support.wait import wait_until_async

_numbers = itertools.count(1)
NAME = "work"
STEP_MS = 400
DEFAULTS = {
    "start": "earliest",
    "commit_interval_ms": 100,
    "retry_topic": False,
    "lease_ms": 300_000,
}
"""The retry topic has tests of its own (`test_send_back`); here partitions are counted.

A lease that is not the point of a test outlives every test."""


@dataclass
class Sidecar:
    """One running sidecar with one subscription, and what a test does with it."""

    runtime: Runtime
    seen: list[Delivery] = field(default_factory=list)

    async def ready(self) -> None:
        """Wait until it says so."""

        async def ok() -> bool:
            return all(reason.ok for reason in self.runtime.readiness())

        await wait_until_async(ok, "the sidecar to be ready", timeout_s=60)

    async def receive(self, most: int = 100, wait_ms: int = 30_000) -> list[Delivery]:
        """One receive."""
        got = await self.runtime.receive(NAME, ReceiveRequest(max=most, wait_ms=wait_ms))
        self.seen += got.messages
        return got.messages

    async def collect(self, count: int) -> list[Delivery]:
        """So many messages, in as many receives as it takes."""
        found: list[Delivery] = []
        while len(found) < count:
            got = await self.receive(count - len(found))
            assert got, f"only {len(found)} of {count} came"
            found += got
        return found

    async def drain(self, quiet_ms: int = 2500) -> list[int]:
        """Receive and ack until nothing comes for a while; the offsets that came.

        The while is short once every message of every partition of this sidecar is finished.
        """
        offsets: list[int] = []
        quiet_s = 0.0
        while not offsets or quiet_s * 1000 < quiet_ms:
            begin_s = time.monotonic()
            wait_ms = min(quiet_ms, STEP_MS) if offsets else 30_000
            messages = await self.receive(wait_ms=wait_ms)
            if messages:
                offsets += [message.record.offset for message in messages]
                await self.settle(messages, SettleVerb.ACK)
                quiet_s = 0.0
            elif not offsets or await self.finished():
                break
            else:
                quiet_s += time.monotonic() - begin_s
        return offsets

    async def finished(self) -> bool:
        """Whether nothing that is in the log of the partitions it owns is still to be finished."""
        rows = await self.runtime.lag(NAME)
        identity = self.runtime.settings.identity
        return all(0 <= row.end <= row.watermark for row in rows if row.owner == identity)

    async def settle(self, messages: Sequence[Delivery], do: SettleVerb) -> list[SettleResult]:
        """Settle; everything must succeed."""
        items = [SettleItem(message.lease, do) for message in messages]
        results = await self.runtime.settle(items)
        assert all(r.status is not Status.UNAVAILABLE for r in results)
        return results

    async def watermarks(self) -> dict[int, int]:
        """Watermark by partition, of those that this sidecar owns."""
        return {row.partition: row.watermark for row in await self.runtime.lag(NAME)}

    async def committed(self) -> dict[int, int]:
        """What was committed to the broker, by partition."""
        return {row.partition: row.committed for row in await self.runtime.lag(NAME)}


StartSidecar = Callable[..., Awaitable[Sidecar]]


@pytest.fixture
def data() -> Data:
    """The contents of the store that the test's sidecars share."""
    return Data()


@pytest.fixture
async def start(kafka: Kafka, data: Data) -> AsyncIterator[StartSidecar]:
    """Start a sidecar on a topic; stopped at the end unless the test did so."""
    async with AsyncExitStack() as stack:

        async def started(
            topic: str,
            group: str,
            *,
            store: Data | None = None,
            name: str = "",
            wait: bool = True,
            topics_refresh_ms: int = 500,
            **more: object,
        ) -> Sidecar:
            settings = SubscriptionSettings(
                broker="k",
                topics=(topic,),
                group=group,
                **{**DEFAULTS, **more},  # type: ignore[arg-type]
            )
            identity = name or f"sidecar-{next(_numbers)}"
            options = KafkaOptions(
                bootstrap_servers=kafka.bootstrap, topics_refresh_ms=topics_refresh_ms
            )
            runtime = Runtime(
                Settings(
                    identity=identity,
                    brokers={"k": BrokerSettings(adapter="kafka")},
                    subscriptions={NAME: settings},
                ),
                store=MemoryStore(store or data),
                brokers={"k": adapter.open("k", options)},
            )
            stack.push_async_callback(runtime.stop)
            await runtime.start()
            sidecar = Sidecar(runtime)
            if wait:
                await sidecar.ready()
            return sidecar

        yield started


@pytest.fixture
def topic(kafka: Kafka, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Make a topic with a name of its own."""
    base = request.node.name.split("[")[0].removeprefix("test_")[:60]

    def made(partitions: int = 1, **config: str) -> str:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        return kafka.create_topic(
            f"{base}.{next(_numbers)}", partitions=partitions, config=settings
        )

    return made


@pytest.fixture
async def together(valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Together]:
    """A topic and a part of the store of its own."""
    name = f"flow-{next(_numbers)}-{time.time_ns()}"
    async with AsyncExitStack() as stack:
        yield Together(stack, tmp_path, StoreSettings(url=valkey.url, prefix=name), name)
