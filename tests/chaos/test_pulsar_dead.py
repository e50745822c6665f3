"""The `-DLQ` topic that a bare consumer of Pulsar filled, listed and redriven by ackd (R29)."""

from pathlib import Path

import pulsar as client_library
import pytest

from ackd.engine.retry.external_dead_letters import REASON
from tests.chaos.test_redrive import BASE, ask, dead
from tests.chaos.world import Http, world
from tests.support.pulsar import Pulsar, bare
from tests.support.pulsar.part import PulsarAt
from tests.support.wait import wait_until

pytestmark = [pytest.mark.pulsar, pytest.mark.slow, pytest.mark.timeout(300)]

OLD = "old"
COUNT = 3
LONG_MS = 240_000


def give_up_all(broker: Pulsar, topic: str, count: int) -> None:
    """A bare consumer with a dead letter policy fails until the client gives all up."""
    with bare.client(broker.url) as made:
        policy = client_library.ConsumerDeadLetterPolicy(
            max_redeliver_count=2, initial_subscription_name="keep"
        )
        consumer = bare.join(
            made, topic, OLD, dead_letter_policy=policy, negative_ack_redelivery_delay_ms=100
        )
        bare.produce(made, topic, count)

        def over() -> bool:
            for message in bare.drain(consumer, quiet_ms=500):
                consumer.negative_acknowledge(message)
            return broker.admin.backlog(f"public/default/{topic}", OLD) == 0

        wait_until(over, "the client has given all up", timeout_s=90)
        consumer.close()


def test_r29_what_a_bare_consumer_gave_up_is_listed_and_redriven_once(
    pulsar: Pulsar, folder: Path
) -> None:
    with world(PulsarAt(pulsar, batch=16), folder, lease_ms=LONG_MS) as found:
        found.subscription = {**found.subscription, "dead_letter_topic": f"{found.topic}-{OLD}-DLQ"}
        give_up_all(pulsar, found.topic, COUNT)
        sidecar = found.sidecar()
        client = Http(sidecar)
        first = client.receive_until(lambda got: len(got) >= COUNT, 90)
        assert client.settle([each["lease"] for each in first]) == ["acked"] * COUNT
        # One that ackd gives up lies in the same topic.
        with bare.client(pulsar.url) as made:
            bare.produce(made, found.topic, 1)
        [own] = client.receive_until(bool, 60)
        assert client.settle([own["lease"]], "dead", reason="no such customer") == ["dead"]
        wait_until(lambda: dead(sidecar) == COUNT + 1, "all to be listed", timeout_s=60)
        listed = ask(sidecar, "GET", f"{BASE}?max=1000")["messages"]
        names = {each["id"] for each in first}
        assert {each["message"] for each in listed if each["reason"] == REASON} == names
        assert {each["message"] for each in listed} == names | {own["id"]}
        began = ask(sidecar, "POST", f"{BASE}:redrive", {"confirm": "orders"})
        again = client.receive_until(lambda got: len(got) >= COUNT + 1, 90)
        assert {each["id"] for each in again} == names | {own["id"]}
        assert {each["attempt"] for each in again} == {1}
        assert {each["json"]["msg"] for each in again} == {"m0", "m1", "m2"}
        assert set(client.settle([each["lease"] for each in again])) == {"acked"}
        assert client.quiet(2) == []
        assert dead(sidecar) == 0
        ended = ask(sidecar, "GET", f"/v1/operations/{began['id']}")
        assert (ended["state"], ended["moved"], ended["failed"]) == ("done", COUNT + 1, 0)
