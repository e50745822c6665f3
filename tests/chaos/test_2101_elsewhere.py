"""The 2101 test (I2) where every receive and every settle is at a sidecar that owns no partition.

Three sidecars, one partition: its owner serves no application. Whatever dies, 2101 alone comes
back, at a sidecar that owns nothing either.
"""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.child import BrokerPart
from ackd_torture.parts import LocalQueue, Sidecar
from tests.chaos.test_2101 import (
    COUNT,
    GRACE,
    LEASE_MS,
    STUCK,
    messages,
    only_2101_comes_back,
)
from tests.chaos.world import Http, KafkaAt, World, world
from tests.support.pulsar import PulsarOptions
from tests.support.pulsar.part import PulsarAt
from tests.support.rocketmq.part import RocketMQAt
from tests.support.wait import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
NAMES = ("s1", "s2", "s3")
BATCH = 200
BROKERS = ["local", pytest.param("kafka", marks=pytest.mark.kafka)]


@dataclass
class Trio:
    """`owner` has the partition; `client` is an application beside a sidecar without any."""

    deployment: World
    owner: Sidecar
    beside: Sidecar
    client: Http

    @property
    def third(self) -> Sidecar:
        """Neither of the two."""
        sidecars = self.deployment.sidecars.values()
        return next(each for each in sidecars if each not in (self.owner, self.beside))


@pytest.fixture(params=BROKERS)
def trio(request: pytest.FixtureRequest, folder: Path) -> Iterator[Trio]:
    broker: BrokerPart = LocalQueue(folder, partitions=1)
    if request.param == "kafka":
        broker = request.getfixturevalue("at_kafka")
    with world(broker, folder, store_settings=GRACE) as deployment:
        yield all_but_one_are_acked(deployment)


def all_but_one_are_acked(deployment: World) -> Trio:
    """Leaves 2101 under a lease that ends soon."""
    sidecars = [deployment.sidecar(each) for each in NAMES]
    publish(sidecars[0], deployment.topic)
    owner = settled_owner(deployment, sidecars)
    beside = next(each for each in sidecars if each is not owner)
    assert owns_nothing(beside)
    client = Http(beside)
    found = client.receive_until(lambda got: len(got) >= COUNT, 90, lease_ms=300_000)
    assert sorted(messages(found)) == list(range(COUNT))
    leases = dict(zip(messages(found), (each["lease"] for each in found), strict=True))
    stuck = str(leases.pop(STUCK))
    assert client.settle([stuck], "extend", lease_ms=LEASE_MS) == ["extended"]
    assert set(client.settle(list(leases.values()))) == {"acked"}
    assert owns_nothing(beside)
    return Trio(deployment, owner, beside, client)


def publish(sidecar: Sidecar, topic: str) -> None:
    """All messages, in order, through this sidecar."""
    client = Http(sidecar)
    for first in range(0, COUNT, BATCH):
        batch = [{"json": {"msg": f"m{n}"}} for n in range(first, min(first + BATCH, COUNT))]
        status, answer = client.post(f"/v1/topics/{topic}/messages:batch", {"messages": batch})
        assert status == 200, answer
        assert {each["status"] for each in answer["results"]} == {"stored"}


def rows(sidecar: Sidecar) -> list[dict[str, Any]]:
    """What it says of the group's partitions, also of the retry topic."""
    with urllib.request.urlopen(f"{sidecar.admin_url}/v1/subscriptions/orders/lag") as answer:  # noqa: S310
        found: list[dict[str, Any]] = json.load(answer)["partitions"]
    return found


def owns_nothing(sidecar: Sidecar) -> bool:
    return sidecar.name not in {row["owner"] for row in rows(sidecar)}


def owner_of(sidecar: Sidecar, topic: str) -> str:
    """Who has the topic's partition, as this one says; empty if nobody has."""
    return next((str(row["owner"]) for row in rows(sidecar) if row["topic"] == topic), "")


def settled_owner(deployment: World, sidecars: list[Sidecar]) -> Sidecar:
    """Who owns the partition when all agree on that, and nobody else owns anything."""

    def known() -> str:
        told = {owner_of(each, deployment.topic) for each in sidecars}
        everything = {row["owner"] for each in sidecars for row in rows(each)}
        return told.pop() if len(told) == 1 and told == everything else ""

    name = wait_until(known, "one owner, whom all name", timeout_s=60, ignoring=(OSError,))
    return deployment.sidecars[str(name)]


def test_the_owner_is_killed(trio: Trio) -> None:
    """Its successor serves nobody either."""
    trio.owner.kill()
    left = [trio.beside, trio.third]
    successor = settled_owner(trio.deployment, left)
    client = Http(trio.third if successor is trio.beside else trio.beside)
    only_2101_comes_back(client)
    assert owns_nothing(client.sidecar)


def test_the_sidecar_that_served_everything_is_killed(trio: Trio) -> None:
    trio.beside.kill()
    client = Http(trio.third)
    only_2101_comes_back(client)
    assert owns_nothing(trio.third)


def test_the_sidecar_that_served_everything_is_killed_and_restarted(trio: Trio) -> None:
    trio.beside.kill()
    trio.beside.start()
    only_2101_comes_back(trio.client)
    assert owns_nothing(trio.beside)


def test_the_store_is_killed_and_restarted(trio: Trio) -> None:
    store = trio.deployment.store
    assert store is not None
    store.kill()
    store.start()
    only_2101_comes_back(trio.client)


@pytest.mark.kafka
def test_the_broker_is_killed_and_restarted(at_kafka: KafkaAt, folder: Path) -> None:
    with world(at_kafka, folder, store_settings=GRACE) as deployment:
        trio = all_but_one_are_acked(deployment)
        at_kafka.kill()
        at_kafka.start()
        only_2101_comes_back(trio.client)


# --- brokers with individual acks: everything dies in turn, so that they are filled once

QUIET_S = {"pulsar": 3.0, "rocketmq": 6.0}
"""On RocketMQ longer than it holds a message for a sidecar that was killed."""


@pytest.fixture(
    params=[
        pytest.param("pulsar", marks=pytest.mark.pulsar),
        pytest.param("rocketmq", marks=pytest.mark.rocketmq),
    ]
)
def individual(request: pytest.FixtureRequest) -> BrokerPart:
    if request.param == "rocketmq":
        return RocketMQAt(request.getfixturevalue("rocketmq"))
    made = request.getfixturevalue("own_pulsar")(PulsarOptions(persist_at_once=False))
    return PulsarAt(made)


@pytest.mark.timeout(480)
def test_everything_dies_in_turn(individual: BrokerPart, folder: Path) -> None:
    """2101 is never settled: it comes back from each death, alone, to where nothing is owned."""
    with world(individual, folder, store_settings=GRACE) as deployment:
        trio = all_but_one_are_acked(deployment)
        store = deployment.store
        assert store is not None

        trio.owner.kill()
        left = [trio.beside, trio.third]
        successor = settled_owner(deployment, left)
        client = Http(trio.third if successor is trio.beside else trio.beside)
        quiet_s = QUIET_S[individual.adapter]
        only_2101_comes_again(client, quiet_s, attempt=2)

        client.sidecar.kill()
        client.sidecar.start()
        only_2101_comes_again(client, quiet_s, attempt=3)

        store.kill()
        store.start()
        only_2101_comes_again(client, quiet_s, attempt=4)

        individual.kill()
        individual.start()
        # A broker that is back gives its partitions to whom it likes.
        successor = settled_owner(deployment, left)
        client = Http(trio.third if successor is trio.beside else trio.beside)
        lease = only_2101_comes_again(client, quiet_s, attempt=5)
        assert client.settle([lease]) == ["acked"]


def only_2101_comes_again(client: Http, quiet_s: float, attempt: int) -> str:
    """Leaves it under a lease that ends soon after the last look for others; returns that."""
    lease_ms = int(quiet_s * 1000) + LEASE_MS
    found = client.receive_until(bool, 90, lease_ms=lease_ms)
    found += client.quiet(quiet_s)
    assert messages(found) == [STUCK]
    assert found[0]["attempt"] == attempt
    assert owns_nothing(client.sidecar)
    return str(found[0]["lease"])
