"""From a Shared subscription of plain consumers to ackd and back, while producers go on: no ack of
a single message is forgotten, no message is lost (I1, I2).
"""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar as client_library
import pytest

from ackd.api.messages import Delivery, ReceiveRequest, SettleItem, SettleVerb, Status
from ackd.cli.commands.adopt import Plan, adopt
from ackd.cli.commands.release_group import Leaving, leave
from ackd.cli.offline.parts import opened
from ackd.config.schema import BrokerSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.runtime import Runtime
from ackd_adapters.pulsar import PulsarOptions, adapter
from tests.support.pulsar import Pulsar, bare
from tests.support.redis import RedisServer
from tests.support.wait import wait_until, wait_until_async

pytestmark = [pytest.mark.pulsar, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(240)]

NAME = "work"
FIRST = 400
QUIET_MS = 3_000
SEED = 17


@dataclass
class Place:
    """A topic, and the settings of whoever adopts its group, which is called after it."""

    pulsar: Pulsar
    settings: Settings
    topic: str
    rng: random.Random

    @property
    def full(self) -> str:
        """The topic's whole name."""
        return f"persistent://public/default/{self.topic}"

    @contextmanager
    def producing(self, batch: int, every_s: float = 0.02) -> Iterator[list[int]]:
        """Numbered messages from `FIRST` on, until the end; those that are stored."""
        stored: list[int] = []
        over = threading.Event()

        def produce() -> None:
            with bare.client(self.pulsar.url) as made:
                producer = _producer(made, self.full, batch)
                number = FIRST
                while not over.wait(every_s):
                    producer.send(b"%d" % number)
                    stored.append(number)
                    number += 1

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield stored
        finally:
            over.set()
            thread.join(60)

    def fill(self, batch: int) -> None:
        """The messages below `FIRST`."""
        with bare.client(self.pulsar.url) as made:
            producer = _producer(made, self.full, batch)
            for number in range(FIRST):
                producer.send_async(b"%d" % number, None)
            producer.flush()

    def plain(self, most: int, share: float) -> tuple[set[int], set[int]]:
        """What a plain Shared consumer gets until nothing comes (with all acked: until the broker
        has nothing left); what of it is acked, at random. Of a batch all or nothing, and nothing of
        the last one unless all is acked, as it may have been cut.
        """
        seen: list[int] = []
        acked: set[int] = set()
        entry: list[Any] = []
        end_s = time.monotonic() + 60
        with bare.client(self.pulsar.url) as made:
            consumer = bare.join(made, self.full, self.topic)

            def over() -> None:
                if self.rng.random() < share:
                    for each in entry:
                        consumer.acknowledge(each)
                    acked.update(int(each.data()) for each in entry)
                entry.clear()

            while len(seen) < most:
                try:
                    message = consumer.receive(QUIET_MS if seen else 20_000)
                except client_library.Timeout:
                    if self.backlog() and share >= 1 and time.monotonic() < end_s:
                        over()
                        continue
                    break
                if entry and _place(entry[0]) != _place(message):
                    over()
                entry.append(message)
                seen.append(int(message.data()))
            if share >= 1:
                over()
            consumer.close()
        assert max(Counter(seen).values(), default=1) == 1
        return set(seen), acked

    def refused(self) -> bool:
        """Whether a plain consumer of the group is."""
        with bare.client(self.pulsar.url) as made:
            try:
                bare.join(made, self.full, self.topic)
            except client_library.ConsumerBusy:
                return True
        return False

    def backlog(self) -> int:
        """What the broker still has for the group."""
        return self.pulsar.admin.backlog(f"public/default/{self.topic}", self.topic)

    async def sidecar(self) -> Runtime:
        """A running one, ready."""
        options = self.settings.brokers["p"].options
        assert isinstance(options, PulsarOptions)
        runtime = Runtime(self.settings, brokers={"p": adapter.open("p", options)})
        await runtime.start()

        async def ready() -> bool:
            return all(reason.ok for reason in runtime.readiness())

        await wait_until_async(ready, "the sidecar to be ready")
        return runtime

    async def adopt(self) -> Plan:
        async with opened(self.settings, NAME) as parts:
            return await adopt(parts, do=True)

    async def leave(self) -> Leaving:
        async with opened(self.settings, NAME) as parts:
            return await leave(parts, do=True)


def _place(message: Any) -> tuple[int, int]:
    return message.message_id().ledger_id(), message.message_id().entry_id()


def _producer(made: Any, topic: str, batch: int) -> Any:
    return made.create_producer(
        topic,
        batching_enabled=batch > 1,
        batching_max_messages=max(batch, 2),
        batching_max_publish_delay_ms=5,
        block_if_queue_full=True,
    )


@pytest.fixture
async def place(pulsar: Pulsar, valkey: RedisServer, tmp_path: Path) -> Place:
    """A topic that is not partitioned, as it is."""
    topic = f"handover-{time.time_ns()}"
    await asyncio.to_thread(pulsar.admin.create_topic, f"public/default/{topic}")
    options = PulsarOptions(service_url=pulsar.url, admin_url=pulsar.web_url)
    subscription = SubscriptionSettings(
        broker="p", topics=(topic,), group=topic, stuck_after_ms=60_000, commit_interval_ms=100
    )
    settings = Settings(
        identity="one",
        state_dir=tmp_path,
        store=StoreSettings(url=valkey.url, prefix=topic),
        brokers={"p": BrokerSettings(adapter="pulsar", options=options)},
        subscriptions={NAME: subscription},
    )
    print(f"seed {SEED}")  # noqa: T201 -- shown with a failure
    return Place(pulsar, settings, topic, random.Random(SEED))


def numbers(messages: list[Delivery]) -> set[int]:
    """Which ones."""
    found = [int(each.record.value or b"") for each in messages]
    assert len(set(found)) == len(found)
    return set(found)


async def test_a_group_with_a_consumer_is_neither_adopted_nor_given_back(place: Place) -> None:
    with bare.client(place.pulsar.url) as made:
        bare.join(made, place.full, place.topic, consumer_name="old one")
        assert (await place.adopt()).blocked == "the group has members, stop them first: old one"
        assert (await place.leave()).blocked == "the group has members: old one"


@pytest.mark.parametrize("batch", [1, 10])
async def test_i1_i2_from_shared_to_ackd_and_back_and_again(place: Place, batch: int) -> None:
    """Twice there and back. Each message is acked once, by whoever has the group at the time."""
    await asyncio.to_thread(place.fill, batch)
    _, acked = await asyncio.to_thread(place.plain, FIRST, 0.6)
    assert 0 < len(acked) < FIRST
    with place.producing(batch) as stored:
        for turn in range(2):
            plan = await place.adopt()
            assert (plan.blocked, plan.adopted) == ("", True)
            assert plan.partitions[0].acked_above
            runtime = await place.sidecar()
            got: list[Delivery] = []
            while len(got) < 100:
                request = ReceiveRequest(max=500, wait_ms=5_000, lease_ms=300_000)
                got += (await runtime.receive(NAME, request)).messages
            assert not numbers(got) & acked, "an acked message came again"
            assert await asyncio.to_thread(place.refused), "not beside ackd"
            by_entry = {each.record.offset // 1024: place.rng.random() < 0.5 for each in got}
            by_entry[max(by_entry)] = False  # more of its batch may be to come
            chosen = [each for each in got if by_entry[each.record.offset // 1024]]
            items = [SettleItem(each.lease, SettleVerb.ACK) for each in chosen]
            assert {each.status for each in await runtime.settle(items)} == {Status.ACKED}
            acked |= numbers(chosen)
            await runtime.stop()
            leaving = await place.leave()
            assert (leaving.blocked, leaving.left) == ("", True)
            assert sum(each.twice for each in leaving.partitions) == 0
            if not turn:
                seen, more = await asyncio.to_thread(place.plain, 150, 0.6)
                assert not seen & acked, "an acked message came again"
                acked |= more
    seen, more = await asyncio.to_thread(place.plain, 10**6, 1.0)
    assert not seen & acked, "an acked message came again"
    assert acked | more == {*range(FIRST), *stored}, "a message is lost"
    await asyncio.to_thread(wait_until, lambda: place.backlog() == 0, "nothing is left")
