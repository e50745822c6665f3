"""From plain consumers to ackd and back, on a real Kafka: nothing lost, and twice what was planned.

The plain side is an ordinary consumer of the group, before and after.
"""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from ackd.api.messages import Delivery, ReceiveRequest, SettleItem, SettleVerb, Status
from ackd.cli import exit_codes
from ackd.cli.commands.adopt import Plan, adopt
from ackd.cli.commands.release_group import Leaving, leave
from ackd.cli.offline.group_drain import drain
from ackd.cli.offline.parts import opened
from ackd.config.schema import BrokerSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.runtime import Runtime
from ackd_adapters.kafka import KafkaOptions, adapter
from tests.support.kafka import Kafka
from tests.support.kafka.fill import fill
from tests.support.redis import RedisServer
from tests.support.wait import wait_until, wait_until_async
from tests.unit.cli.test_command import ackd

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(240)]
_numbers = itertools.count(1)
NAME = "work"
QUIET_S = 5.0
CONFIG = """\
state_dir = "{folder}/state"
[store]
url = "{url}"
prefix = "{prefix}"
[brokers.k]
adapter = "kafka"
options = {{ bootstrap_servers = "{bootstrap}" }}
[subscriptions.{name}]
topics = ["{prefix}"]
group = "{prefix}"
"""
Offsets = set[tuple[int, int]]


class Plain:
    """A consumer that knows nothing of ackd. Blocking; for a thread."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])
        self.seen: list[tuple[int, int]] = []

    def consume(self, most: int, first_s: float = 60.0) -> None:
        """So many, or until nothing comes for a while; then commit what was consumed."""
        last_s, wait_s = time.monotonic(), first_s
        after: dict[int, int] = {}
        topic = ""
        while len(self.seen) < most and time.monotonic() - last_s < wait_s:
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            offset, partition = message.offset(), message.partition()
            assert offset is not None
            assert partition is not None
            topic = message.topic() or topic
            self.seen.append((partition, offset))
            after[partition] = offset + 1
            last_s, wait_s = time.monotonic(), QUIET_S
        positions = [ClientPartition(topic, p, offset) for p, offset in after.items()]
        if positions:
            self._consumer.commit(offsets=positions, asynchronous=False)

    def start_from(self, topic: str, partitions: int) -> None:
        """Commit the beginning, as a group that has been there from the start."""
        positions = [ClientPartition(topic, number, 0) for number in range(partitions)]

        def committed() -> bool:
            self._consumer.commit(offsets=positions, asynchronous=False)
            return True

        # On a broker that has just started the coordinator is still on its way.
        wait_until(committed, "the first commit", ignoring=(KafkaException,))

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


@dataclass
class Place:
    """A topic with a group, and a store."""

    kafka: Kafka
    settings: Settings
    topic: str
    partitions: int
    count: int
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def everything(self) -> Offsets:
        """All offsets."""
        each = self.count // self.partitions
        return {(p, o) for p in range(self.partitions) for o in range(each)}

    def be_patient(self) -> None:
        """Nothing is sent back within a test."""
        patient = replace(self.settings.subscriptions[NAME], stuck_after_ms=60_000)
        self.settings = replace(self.settings, subscriptions={NAME: patient})

    async def plain(self, most: int) -> Offsets:
        """What an ordinary consumer of the group consumes and commits now."""

        def work() -> list[tuple[int, int]]:
            consumer = Plain(self.kafka.bootstrap, self.topic, self.topic)
            try:
                consumer.consume(most)
            finally:
                consumer.close()
            return consumer.seen

        seen = await asyncio.to_thread(work)
        assert len(set(seen)) == len(seen)
        return set(seen)

    async def adopt(self, *, do: bool) -> Plan:
        """`ackd adopt`."""
        async with opened(self.settings, NAME) as parts:
            return await adopt(parts, do=do)

    async def leave(self, *, do: bool, copies: str = "refuse") -> Leaving:
        """`ackd release-group`."""
        async with opened(self.settings, NAME) as parts:
            return await leave(parts, do=do, copies=copies)

    async def sidecar(self) -> Runtime:
        """A running one, ready."""
        options = self.settings.brokers["k"].options
        assert isinstance(options, KafkaOptions)
        runtime = Runtime(self.settings, brokers={"k": adapter.open("k", options)})
        self.stack.push_async_callback(runtime.stop)
        await runtime.start()

        async def ready() -> bool:
            return all(reason.ok for reason in runtime.readiness())

        await wait_until_async(ready, "the sidecar to be ready")
        return runtime


@pytest.fixture
async def place(kafka: Kafka, valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Place]:
    """A topic of two partitions with 120 messages, of which a plain group has consumed none."""
    name, partitions, count = f"handover-{next(_numbers)}-{time.time_ns()}", 2, 120
    kafka.create_topic(name, partitions=partitions)
    for number in range(partitions):
        values: list[bytes | None] = [b"%d" % n for n in range(count // partitions)]
        await asyncio.to_thread(fill, kafka.bootstrap, name, number, values)
    options = KafkaOptions(bootstrap_servers=kafka.bootstrap, topics_refresh_ms=500)
    settings = Settings(
        identity="one",
        state_dir=tmp_path,
        store=StoreSettings(url=valkey.url, prefix=name),
        brokers={"k": BrokerSettings(adapter="kafka", options=options)},
        subscriptions={
            NAME: SubscriptionSettings(
                broker="k",
                topics=(name,),
                group=name,
                stuck_after_ms=500,
                stuck_min_age_ms=500,
                commit_interval_ms=100,
            )
        },
    )
    made = Place(kafka, settings, name, partitions, count)
    async with made.stack:

        def begin() -> None:
            consumer = Plain(kafka.bootstrap, name, name)
            consumer.start_from(name, partitions)
            consumer.close()

        await asyncio.to_thread(begin)
        yield made


async def received(runtime: Runtime, most: int) -> list[Delivery]:
    """So many deliveries."""
    found: list[Delivery] = []
    while len(found) < most:
        request = ReceiveRequest(max=most - len(found), wait_ms=30_000, lease_ms=300_000)
        got = (await runtime.receive(NAME, request)).messages
        assert got, f"only {len(found)} of {most} came"
        found += got
    return found


def offsets(messages: list[Delivery]) -> Offsets:
    """Where they are from."""
    return {(each.partition, each.record.offset) for each in messages}


async def ack(runtime: Runtime, messages: list[Delivery]) -> None:
    """All of them."""
    results = await runtime.settle([SettleItem(each.lease, SettleVerb.ACK) for each in messages])
    assert {each.status for each in results} == {Status.ACKED}


def value(runtime: Runtime, name: str, **labels: str) -> float:
    """A metric."""
    return runtime.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_i1_from_a_plain_group_to_ackd_and_back(place: Place) -> None:
    """The adopted group goes on where it was; what comes twice afterwards was in the plan."""
    place.be_patient()  # what is held stays in the window
    before = await place.plain(50)
    plan = await place.adopt(do=False)
    assert (plan.blocked, plan.adopted, plan.members) == ("", False, [])
    assert sum(each.to_come for each in plan.partitions) == place.count - len(before)
    assert {each.why for each in plan.partitions} == {"what the group committed"}
    assert (await place.adopt(do=True)).adopted
    runtime = await place.sidecar()
    assert (await place.adopt(do=True)).blocked.startswith("sidecars have this subscription")
    got = await received(runtime, 60)
    held = [each for each in got if each.record.offset % 7 == 0]
    acked = [each for each in got if each.record.offset % 7]
    assert held
    await ack(runtime, acked)
    assert not before & offsets(got)
    assert value(runtime, "ackd_store_data_lost_total") == 0
    for decision in ("accepted", "refused"):
        labels = {"subscription": NAME, "decision": decision}
        assert value(runtime, "ackd_external_commits_total", **labels) == 0
    assert "stop the sidecars first" in (await place.leave(do=True)).blocked
    await runtime.stop()
    leaving = await place.leave(do=False)
    planned = {
        (each.partition, offset)
        for each in leaving.partitions
        for first, behind in each.finished_above
        for offset in range(first, behind)
    }
    assert planned
    assert planned <= offsets(acked)
    assert sum(each.twice for each in leaving.partitions) == len(planned)
    assert (await place.leave(do=True)).left
    after = await place.plain(place.count)
    assert offsets(acked) & after == planned  # twice: exactly what was said
    assert before | offsets(acked) | after == place.everything  # lost: nothing
    assert not before & after


async def test_as_commands(place: Place, tmp_path: Path) -> None:
    """The plans as JSON on standard output, and exit codes that a script can use."""
    file = tmp_path / "ackd.toml"
    text = CONFIG.format(
        folder=tmp_path,
        url=place.settings.store.url,
        prefix=place.topic,
        bootstrap=place.kafka.bootstrap,
        name=NAME,
    )
    await asyncio.to_thread(file.write_text, text)

    async def run(*words: str) -> tuple[int, str, str]:
        done = await asyncio.to_thread(ackd, *words, "--config", str(file))
        return done.returncode, done.stdout, done.stderr

    before = await place.plain(50)
    code, out, _ = await run("adopt", NAME, "--plan")
    assert code == exit_codes.DONE
    assert sum(each["to_come"] for each in json.loads(out)["partitions"]) == 120 - len(before)
    code, out, _ = await run("adopt", NAME)
    assert (code, json.loads(out)["adopted"]) == (exit_codes.DONE, True)
    code, out, _ = await run("release-group", NAME)
    assert (code, json.loads(out)["left"]) == (exit_codes.DONE, True)
    assert [each["finished_above"] for each in json.loads(out)["partitions"]] == [[], []]
    code, out, said = await run("release-group", "nobody")
    assert (code, out) == (exit_codes.CONFIG, "")
    assert "no subscription 'nobody'" in said
    assert await place.plain(place.count) == place.everything - before


async def test_the_exit_drains_by_itself(place: Place) -> None:
    """I1, I2: nothing new is handed out, what is under lease is finished, and then it goes."""
    place.be_patient()
    assert (await place.adopt(do=True)).adopted
    runtime = await place.sidecar()
    held = await received(runtime, 20)
    said: list[str] = []

    async def drained(most_ms: int) -> str:
        async with opened(place.settings, NAME) as parts:
            return await drain(parts, most_ms, said.append)

    # Not in time: it goes on as before.
    assert await drained(100) == "20 leases are still open"
    assert said[-1] == f"{NAME} is delivered again"

    async def resumed() -> bool:
        return runtime.subscription(NAME).pauses == []

    await wait_until_async(resumed, "the pause to be taken back")
    held += await received(runtime, 1)
    said.clear()

    async def paused() -> bool:
        return [each.reason for each in runtime.subscription(NAME).pauses] == ["ackd release-group"]

    async def at_rest() -> bool:
        return bool(said) and "stop the sidecars" in said[-1]

    async with asyncio.TaskGroup() as group:
        draining = group.create_task(drained(60_000))
        await wait_until_async(paused, "the sidecar to hear of it")
        empty = await runtime.receive(NAME, ReceiveRequest(max=10, wait_ms=0))
        assert (empty.messages, empty.limited_by) == ([], "paused")
        await ack(runtime, held)
        await wait_until_async(at_rest, "no lease to be open")
        await runtime.stop()
    assert draining.result() == ""
    leaving = await place.leave(do=True)
    assert leaving.left
    twice = {
        (each.partition, offset)
        for each in leaving.partitions
        for first, behind in each.finished_above
        for offset in range(first, behind)
    }
    assert await place.plain(place.count) == (place.everything - offsets(held)) | twice


async def test_a_group_with_members_is_not_adopted_and_a_strange_commit_is_told(
    place: Place,
) -> None:
    """R8-S4: a plan beside a running plain consumer; then one that committed after ackd did."""
    plain = await asyncio.to_thread(Plain, place.kafka.bootstrap, place.topic, place.topic)
    await asyncio.to_thread(plain.consume, 30)
    plan = await place.adopt(do=True)
    assert plan.blocked.startswith("the group has members, stop them first: ")
    assert not plan.adopted
    await asyncio.to_thread(plain.close)
    assert (await place.adopt(do=True)).adopted
    runtime = await place.sidecar()
    await ack(runtime, await received(runtime, 40))
    await runtime.stop()
    await place.plain(place.count)  # an old instance that somebody forgot: to the end
    plan = await place.adopt(do=False)
    moved = [each for each in plan.partitions if each.external]
    assert {each.why for each in moved} == {"a strange commit moves the group, as a reset does"}
    skipped = sum(each.skipped for each in plan.partitions)
    assert skipped == place.count - 30 - 40
    assert sum(each.to_come for each in plan.partitions) == 0


async def test_what_waits_in_the_retry_topic_holds_the_exit_up(place: Place) -> None:
    """I1: its only live copy is where no plain consumer looks, unless it is published again."""
    assert (await place.adopt(do=True)).adopted
    runtime = await place.sidecar()
    got = await received(runtime, place.count)
    (stuck,) = [each for each in got if offsets([each]) == {(1, 3)}]
    await ack(runtime, [each for each in got if each is not stuck])

    async def sent() -> bool:
        rows = await runtime.lag(NAME)
        ours = [row.committed for row in rows if row.topic == place.topic]
        return ours == [60, 60]

    await wait_until_async(sent, "the stuck message to be sent back and the position to move")
    await runtime.stop()
    leaving = await place.leave(do=True)
    assert leaving.blocked == "1 messages wait in the retry topic only; see --copies"
    (copy,) = leaving.copies
    assert (copy.message, copy.below) == (f"{place.topic}/1/3", True)
    leaving = await place.leave(do=True, copies="origin")
    assert leaving.left
    assert leaving.copies[0].published
    assert await place.plain(place.count) == {(1, 60)}
    assert (await place.leave(do=False)).copies == []
