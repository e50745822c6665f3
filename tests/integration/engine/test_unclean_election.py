"""R1: a log that loses its newest messages by an unclean election, and grows again."""

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewTopic

from ackd.api.messages import Delivery, SettleVerb, Status
from tests.integration.engine.conftest import NAME, Sidecar, StartSidecar
from tests.support.kafka import Kafka, KafkaNode, KafkaOptions
from tests.support.kafka.fill import fill
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]
KEPT, OLD, NEW = 40, 100, 120
REPLICAS = [1, 2]
"""Brokers of the topic. The third is there for the group and the controllers' majority."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """Three brokers."""
    properties = {"min.insync.replicas": "1"}
    with Kafka(KafkaOptions(nodes=3, properties=properties)) as started:
        yield started


def make(kafka: Kafka, name: str) -> tuple[KafkaNode, KafkaNode]:
    """A topic that would rather lose messages than wait; its leader and its follower."""
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = NewTopic(name, 1, replica_assignment=[REPLICAS], config=config)
    kafka.admin().create_topics([topic])[name].result(30)
    kafka.wait_topic(name, 1)
    leader = kafka.leader(name, 0)
    return leader, next(n for n in kafka.nodes if n.number in REPLICAS and n is not leader)


def write(kafka: Kafka, name: str, value: bytes, count: int) -> None:
    """So many messages, by whoever leads."""
    fill(kafka.bootstrap, name, 0, [value] * count)


async def is_leader(kafka: Kafka, name: str, node: KafkaNode) -> None:
    """Wait until it leads the partition."""

    async def leads() -> bool:
        try:
            return (await asyncio.to_thread(kafka.leader, name, 0)) is node
        except (KafkaException, StopIteration, KeyError):
            return False

    await wait_until_async(leads, "the follower to lead", timeout_s=90)


async def lose(kafka: Kafka, name: str, leader: KafkaNode, follower: KafkaNode) -> None:
    """The leader dies, the follower that lacks messages is elected, and the log grows again."""
    leader.kill()
    await asyncio.to_thread(follower.start)
    await is_leader(kafka, name, follower)
    await asyncio.to_thread(write, kafka, name, b"new", NEW - KEPT)


@pytest.mark.parametrize("running", [True, False], ids=["running", "down"])
@pytest.mark.parametrize("held", [range(50, 60), range(0)], ids=["held", "all-acked"])
async def test_i1_new_messages_on_old_numbers_are_delivered_after_an_unclean_election(
    kafka: Kafka,
    start: StartSidecar,
    request: pytest.FixtureRequest,
    held: range,
    running: bool,  # noqa: FBT001
) -> None:
    name = "unclean." + request.node.callspec.id
    leader, follower = make(kafka, name)
    write(kafka, name, b"old", KEPT)
    follower.kill()
    write(kafka, name, b"old", OLD - KEPT)
    sidecar = await start(name, name, wait=False)
    found = await sidecar.collect(OLD)
    await sidecar.settle([m for m in found if m.record.offset not in held], SettleVerb.ACK)
    late = [m for m in found if m.record.offset in held]
    if not running:
        await sidecar.runtime.stop()
    await lose(kafka, name, leader, follower)
    if not running:
        sidecar = await start(name, name, wait=False)
    new = await collect(sidecar, NEW - KEPT)
    assert sorted(each.record.offset for each in new) == list(range(KEPT, NEW))
    assert {each.record.value for each in new} == {b"new"}
    limits = (await sidecar.runtime.explain(NAME)).limits
    assert not [each for each in limits if each.startswith("fetch/truncated")]  # it went on
    results = await sidecar.settle(late, SettleVerb.ACK)
    assert {each.status for each in results} <= {Status.LOST}
    await sidecar.settle(new, SettleVerb.ACK)
    assert await sidecar.receive(wait_ms=1_000) == []
    await asyncio.to_thread(leader.start)
    await asyncio.to_thread(kafka.wait_ready)


async def test_i2_a_change_of_the_leader_that_loses_nothing_brings_nothing_again(
    kafka: Kafka, start: StartSidecar, caplog: pytest.LogCaptureFixture
) -> None:
    name = "clean"
    leader, follower = make(kafka, name)
    write(kafka, name, b"first", KEPT)
    sidecar = await start(name, name, wait=False)
    found = await sidecar.collect(KEPT)
    held = [message for message in found if message.record.offset in range(10, 20)]
    await sidecar.settle([message for message in found if message not in held], SettleVerb.ACK)
    await asyncio.to_thread(leader.terminate)
    await is_leader(kafka, name, follower)
    await asyncio.to_thread(write, kafka, name, b"second", OLD - KEPT)
    second = await collect(sidecar, OLD - KEPT)
    assert {message.record.value for message in second} == {b"second"}
    await sidecar.settle(second, SettleVerb.ACK)
    await sidecar.runtime.stop()
    successor = await start(name, name, wait=False)
    # It reads from the first held one, and has looked at the end of the log before.
    assert await successor.receive(wait_ms=8_000) == []
    results = await successor.settle(held, SettleVerb.ACK)
    assert {each.status for each in results} == {Status.ACKED}
    assert await successor.receive(wait_ms=1_000) == []
    assert await successor.watermarks() == {0: OLD}
    assert "was truncated" not in caplog.text
    await asyncio.to_thread(leader.start)
    await asyncio.to_thread(kafka.wait_ready)


async def collect(sidecar: Sidecar, count: int) -> list[Delivery]:
    """So many messages; elections take their time, so a receive may find nothing."""
    found: list[Delivery] = []

    async def there() -> bool:
        found.extend(await sidecar.receive(count - len(found) or 1, wait_ms=2_000))
        return len(found) >= count

    await wait_until_async(there, f"{count} messages", timeout_s=90)
    return found
