"""A sidecar in this process on a real RocketMQ and a real Valkey."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ackd.api.messages import Delivery, ReceiveRequest, SettleItem, SettleVerb
from ackd.config.schema import BrokerSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.cluster.even import even
from ackd.engine.runtime import Runtime
from ackd.ports import Failure, NotStored, Outgoing, PublishResult
from ackd_adapters.rocketmq import RocketMQOptions, adapter
from tests.support.redis import RedisServer
from tests.support.rocketmq import RocketMQ
from tests.support.wait import wait_until_async

NAME = "work"
HOLD_MS = 4_000


@dataclass
class Shop:
    """What the sidecars of one test have in common: a topic, a group, a store, and the name of
    their subscription. `cuts`: how often the test makes the broker use offsets again.
    """

    stack: AsyncExitStack
    folder: Path
    rocketmq: RocketMQ
    store: RedisServer
    topic: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:12]}")
    cuts: int = 0
    subscription: str = NAME
    workers: "list[Worker]" = field(default_factory=list)

    async def open(self, queues: int = 4, kind: str = "NORMAL") -> None:
        """Make topic and group."""
        admin = self.rocketmq.admin
        await asyncio.to_thread(admin.topic, self.topic, queues, kind)
        await asyncio.to_thread(lambda: admin.group(self.topic, orderly=kind == "FIFO"))

    async def start(
        self,
        name: str = "one",
        *,
        group: str = "",
        within_s: float = 60,
        asks: bool = True,
        keys: tuple[str, Path] | None = None,
        endpoints: str = "",
        names: int = 0,
        unready: str = "",
        **more: object,
    ) -> "Worker":
        """A sidecar, ready; AssertionError with what readiness says if it is not. `unready`: one
        that is not, and says this. `keys`: access key, and file of the secret one. `asks`: it may
        ask the brokers themselves. `endpoints`: of what stands before the proxy. `names`: port of
        what stands in for the name server.
        """
        subscription = SubscriptionSettings(
            broker="b",
            topics=(self.topic,),
            group=group or self.topic,
            **more,  # type: ignore[arg-type]
        )
        options = RocketMQOptions(
            endpoints=endpoints or self.rocketmq.endpoints,
            name_servers=f"127.0.0.1:{names or self.rocketmq.ports.names}" if asks else "",
            invisible_duration_ms=HOLD_MS,
            poll_ms=1_000,
            request_timeout_ms=15_000,
            access_key=None if keys is None else keys[0],
            secret_key_file=None if keys is None else keys[1],
        )
        runtime = Runtime(
            Settings(
                identity=name,
                state_dir=self.folder / name,
                store=StoreSettings(url=self.store.url, prefix=self.topic.strip("%")),
                brokers={"b": BrokerSettings(adapter="rocketmq")},
                subscriptions={self.subscription: subscription},
            ),
            brokers={"b": adapter.open("b", options)},
        )
        self.stack.push_async_callback(runtime.stop)
        await runtime.start()
        worker = Worker(self, runtime)
        self.workers.append(worker)

        async def ready() -> bool:
            worker.unready = [f"{r.name}: {r.detail}" for r in runtime.readiness() if not r.ok]
            if unready:
                return any(unready in each for each in worker.unready)
            return not worker.unready

        try:
            await wait_until_async(ready, "the sidecar to be ready", timeout_s=within_s)
        except AssertionError:
            raise AssertionError(f"not ready: {worker.unready}") from None
        return worker


@dataclass
class Worker:
    """A running sidecar."""

    shop: Shop
    runtime: Runtime
    unready: list[str] = field(default_factory=list)

    def successor(self) -> str:
        """A name to which this sidecar's source goes as soon as a sidecar of that name is there."""
        state = self.runtime._subscriptions[self.shop.subscription]
        source = state.state.consumer.source(next(iter(state.partitions.owned)))  # type: ignore[attr-defined]
        thing, me = f"{source.topic} {source.broker}", self.runtime.settings.identity
        names = (f"two-{number}" for number in count())
        return next(name for name in names if even([thing], [me, name])[thing] == name)

    async def publish(self, *values: bytes, **more: int) -> list[PublishResult]:
        """Messages with these values."""
        batch = [Outgoing(self.shop.topic, None, value, **more) for value in values]  # type: ignore[arg-type]
        return await self.runtime._brokers["b"].publish(batch)

    async def stored(self, *values: bytes) -> None:
        """Publish, and insist."""
        await insist(self.publish, values)

    async def receive(self, most: int = 100, wait_ms: int = 5_000, **more: int) -> list[Delivery]:
        """One receive."""
        request = ReceiveRequest(max=most, wait_ms=wait_ms, **more)  # type: ignore[arg-type]
        return list((await self.runtime.receive(self.shop.subscription, request)).messages)

    async def collect(self, count: int, **more: int) -> list[Delivery]:
        """So many messages."""
        found: list[Delivery] = []

        async def enough() -> bool:
            found.extend(await self.receive(count - len(found), wait_ms=2_000, **more))
            return len(found) >= count

        await wait_until_async(enough, f"{count} messages", timeout_s=60)
        return found

    async def settle(self, do: SettleVerb, *messages: Delivery, **more: object) -> list[str]:
        """Settle them alike; the statuses."""
        items = [SettleItem(each.lease, do, **more) for each in messages]  # type: ignore[arg-type]
        return [each.status.value for each in await self.runtime.settle(items)]

    async def broker_told(self) -> None:
        """Wait until the broker knows all that was settled: nothing is held there any more."""

        async def told() -> bool:
            consumer = self.runtime._subscriptions[self.shop.subscription].state.consumer
            return not consumer._holds  # type: ignore[attr-defined]

        await wait_until_async(told, "the broker is told")

    def metric(self, name: str) -> float:
        """As a scrape shows it."""
        self.runtime.metrics.render("")
        named = {"subscription": self.shop.subscription}
        return self.runtime.metrics.registry.get_sample_value(name, named) or 0.0


NOT_THERE = (Failure.NOT_STORED, Failure.PRESSURE)


async def insist(
    publish: Callable[..., Awaitable[Sequence[PublishResult]]], messages: Sequence[Any]
) -> None:
    """Publish again what is certainly not stored: a broker may have no route yet, or be busy."""
    left = list(messages)

    async def stored() -> bool:
        said = await publish(*left)
        failed = [each for each in said if isinstance(each, NotStored)]
        assert all(each.failure in NOT_THERE for each in failed), failed
        left[:] = [one for one, each in zip(left, said, strict=True) if each in failed]
        return not left

    await wait_until_async(stored, "all is stored")
