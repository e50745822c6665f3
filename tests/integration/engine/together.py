"""Sidecars in this process that share a local broker and a real Valkey, for tests of flow."""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ackd.api.messages import Delivery, Received, ReceiveRequest
from ackd.config.schema import BrokerSettings, PublishSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.config.traces import TraceSettings
from ackd.engine.runtime import Runtime
from ackd.ports import Outgoing, Stored
from ackd.store.build import open_store
from ackd_adapters.local import LocalOptions
from ackd_adapters.local import adapter as local_adapter
from tests.support.wait import wait_until_async

NAME = "work"
PARTITIONS = 4


@dataclass
class Together:
    """What the sidecars of one test have in common."""

    stack: AsyncExitStack
    folder: Path
    store: StoreSettings
    topic: str
    publish: PublishSettings = field(default_factory=PublishSettings)
    traces: TraceSettings = field(default_factory=TraceSettings)

    async def start(self, name: str, **more: object) -> "Sidecar":
        """A sidecar, ready unless `wait` is False. What else is named is a setting."""
        wait = more.pop("wait", True)
        subscription = SubscriptionSettings(
            broker="b",
            topics=(self.topic,),
            group=self.topic,
            **{"start": "earliest", "retry_topic": False, "lease_ms": 300_000, **more},  # type: ignore[arg-type]
        )
        options = LocalOptions(path=self.folder / "queue", partitions=PARTITIONS)
        runtime = Runtime(
            Settings(
                identity=name,
                state_dir=self.folder / name,
                store=self.store,
                brokers={"b": BrokerSettings(adapter="local", options=options)},
                subscriptions={NAME: subscription},
                publish=self.publish,
                traces=self.traces,
            ),
            store=open_store(self.store, self.folder / name),
            brokers={"b": local_adapter.open("b", options)},
        )
        self.stack.push_async_callback(runtime.stop)
        await runtime.start()

        sidecar = Sidecar(self, runtime)
        if wait:
            await sidecar.ready()
        return sidecar

    async def pair(self, **more: object) -> tuple["Sidecar", "Sidecar"]:
        """Two sidecars, each with partitions of its own."""
        one, two = await self.start("one", **more), await self.start("two", **more)

        async def shared() -> bool:
            return all([len(await each.owned()) == PARTITIONS // 2 for each in (one, two)])

        await wait_until_async(shared, "the partitions to be shared", timeout_s=60)
        return one, two


@dataclass
class Sidecar:
    """A running one."""

    place: Together
    runtime: Runtime

    async def ready(self) -> None:
        """Wait until it says so."""

        async def ok() -> bool:
            return all(reason.ok for reason in self.runtime.readiness())

        await wait_until_async(ok, "the sidecar to be ready", timeout_s=60)

    async def says(self, *words: str) -> str:
        """Wait until readiness says this of the subscription; the whole of it."""

        async def told() -> str:
            (reason,) = [r for r in self.runtime.readiness() if r.name == f"subscription:{NAME}"]
            return reason.detail if all(word in reason.detail for word in words) else ""

        return await wait_until_async(told, f"readiness to say {words}", timeout_s=60)

    async def owned(self) -> list[int]:
        """Its partitions."""
        rows = await self.runtime.lag(NAME)
        return [row.partition for row in rows if row.owner == self.runtime.settings.identity]

    async def publish(self, count: int) -> None:
        """So many messages, spread evenly over the partitions."""
        batch = [
            Outgoing(self.place.topic, None, b"%d" % n, (), partition=n % PARTITIONS)
            for n in range(count)
        ]
        stored = await self.runtime._brokers["b"].publish(batch)
        assert all(isinstance(each, Stored) for each in stored)

    async def receive(self, most: int = 100, wait_ms: int = 30_000, **more: int) -> Received:
        """One receive."""
        request = ReceiveRequest(max=most, wait_ms=wait_ms, **more)  # type: ignore[arg-type]
        return await self.runtime.receive(NAME, request)

    async def collect(self, count: int) -> list[Delivery]:
        """So many messages."""
        found: list[Delivery] = []
        while len(found) < count:
            got = (await self.receive(most=count - len(found))).messages
            assert got, f"only {len(found)} of {count} came"
            found += got
        return found

    async def collect_all(self, count: int, other: "Sidecar") -> list[Delivery]:
        """So many messages of both."""
        found: list[Delivery] = []

        async def all_there() -> bool:
            for each in (self, other):
                found.extend((await each.receive(wait_ms=100)).messages)
            return len(found) >= count

        await wait_until_async(all_there, "all messages")
        return found

    async def version(self) -> int:
        """Of the live value, as this sidecar knows it."""
        return self.runtime.subscription(NAME).live_version
