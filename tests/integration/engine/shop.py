"""Sidecars in this process on a local broker, for tests of long work: a store of either kind."""

import itertools
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ackd.api.dead_letters import DeadView
from ackd.api.messages import (
    Delivery,
    Received,
    ReceiveRequest,
    SettleItem,
    SettleResult,
    SettleVerb,
)
from ackd.config.schema import BrokerSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.config.traces import TraceSettings
from ackd.engine.runtime import Runtime
from ackd.engine.subscription import Subscription
from ackd.ports import Outgoing, Stored
from ackd.store.memory import Data, MemoryStore
from ackd_adapters.local import LocalOptions
from ackd_adapters.local import adapter as local_adapter
from tests.support.wait import wait_until_async

NAME = "work"
_numbers = itertools.count(1)


@dataclass
class Shop:
    """What the sidecars of one test have in common; `url` empty: the store in memory."""

    stack: AsyncExitStack
    folder: Path
    url: str
    topic: str = field(default_factory=lambda: f"long-{next(_numbers)}-{time.time_ns()}")
    data: Data = field(default_factory=Data)
    traces: TraceSettings = field(default_factory=TraceSettings)

    async def start(self, name: str = "one", **more: object) -> "Worker":
        """A sidecar, ready."""
        subscription = SubscriptionSettings(
            broker="b",
            topics=(self.topic,),
            group=self.topic,
            **{"start": "earliest", "commit_interval_ms": 50, **more},  # type: ignore[arg-type]
        )
        options = LocalOptions(path=self.folder / "queue", partitions=1)
        runtime = Runtime(
            Settings(
                identity=name,
                state_dir=self.folder / name,
                store=StoreSettings(url=self.url or "memory", prefix=self.topic),
                brokers={"b": BrokerSettings(adapter="local")},
                subscriptions={NAME: subscription},
                traces=self.traces,
            ),
            store=None if self.url else MemoryStore(self.data),
            brokers={"b": local_adapter.open("b", options)},
        )
        self.stack.push_async_callback(runtime.stop)
        await runtime.start()

        async def ready() -> bool:
            return all(reason.ok for reason in runtime.readiness())

        await wait_until_async(ready, "the sidecar to be ready", timeout_s=60)
        return Worker(self, runtime)


@dataclass
class Worker:
    """A running sidecar and what a test does with it."""

    shop: Shop
    runtime: Runtime

    @property
    def subscription(self) -> Subscription:
        """The one subscription."""
        return self.runtime._subscriptions[NAME]

    async def publish(self, count: int, size: int = 10, key: bytes | None = None) -> None:
        """Messages with their number as value, in one partition."""
        batch = [
            Outgoing(self.shop.topic, key, (b"%d" % n).ljust(size), (), partition=0)
            for n in range(count)
        ]
        stored = await self.runtime._brokers["b"].publish(batch)
        assert all(isinstance(each, Stored) for each in stored)

    async def receive(self, most: int = 1, wait_ms: int = 30_000, **more: int) -> Received:
        """One receive."""
        request = ReceiveRequest(max=most, wait_ms=wait_ms, **more)  # type: ignore[arg-type]
        return await self.runtime.receive(NAME, request)

    async def one(self, **more: int) -> Delivery:
        """The next message."""
        [message] = (await self.receive(**more)).messages
        return message

    async def collect(self, count: int, **more: int) -> list[Delivery]:
        """So many messages."""
        found: list[Delivery] = []
        while len(found) < count:
            got = (await self.receive(count - len(found), **more)).messages
            assert got, f"only {len(found)} of {count}"
            found += got
        return found

    async def settle(self, message: Delivery, do: SettleVerb, **more: object) -> SettleResult:
        """Settle one."""
        item = SettleItem(message.lease, do, **more)  # type: ignore[arg-type]
        [result] = await self.runtime.settle([item])
        return result

    async def all(self, messages: Sequence[Delivery], do: SettleVerb, **more: object) -> list[str]:
        """Settle several; the statuses."""
        items = [SettleItem(each.lease, do, **more) for each in messages]  # type: ignore[arg-type]
        return [each.status.value for each in await self.runtime.settle(items)]

    async def said(self, message: Delivery, note: str, lease_ms: int = 60_000) -> None:
        """Extend with a note."""
        result = await self.settle(message, SettleVerb.EXTEND, lease_ms=lease_ms, note=note)
        assert result.status == "extended", result

    async def dead(self, count: int) -> list[DeadView]:
        """The dead letters, as soon as there are so many."""

        async def there() -> bool:
            page = await self.runtime.dead.page(NAME, None, 100)
            return len(page.messages) >= count

        await wait_until_async(there, f"{count} dead letters")
        return list((await self.runtime.dead.page(NAME, None, 100)).messages)

    async def moved(self) -> None:
        """Wait until a copy waits for the end of the lease of its message."""

        async def claiming() -> bool:
            return any(
                e.state == "waiting_for_lease" for e in await self.runtime.in_flight(NAME, 0, 100)
            )

        await wait_until_async(claiming, "a copy that waits for a lease")

    def metric(self, name: str, **labels: str) -> float:
        """As a scrape shows it."""
        self.runtime.metrics.render("")
        named = {"subscription": NAME, **labels}
        return self.runtime.metrics.registry.get_sample_value(name, named) or 0.0
