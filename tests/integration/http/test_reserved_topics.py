"""Topics that are ackd's own or the broker's: applications publish nothing there."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ackd.config.subscription import SubscriptionSettings
from ackd.engine.retry.own_topic import ReservedTopics, retry_topic
from ackd_adapters.kafka import broker as kafka
from ackd_adapters.local import LocalOptions, adapter
from ackd_adapters.pulsar import broker as pulsar
from ackd_adapters.rocketmq import broker as rocketmq
from tests.integration.http.conftest import CONFIG, Sidecar, call, made_sidecar

NAMES = [
    "ackd.retry.orders",
    "ackd.dead.orders",
    "ackd.retry.of-nobody",
    "ackd.x",
    "__consumer_offsets",
    "__transaction_state",
]
JSON = {"Content_Type": "application/json"}


@pytest.mark.parametrize("topic", NAMES)
def test_a_message_is_refused_in_every_way(sidecar: Sidecar, topic: str) -> None:
    path = f"/v1/topics/{topic}/messages"
    batch = json.dumps({"messages": [{"json": 1}, {"json": 2}]}).encode()
    for headers in ({}, {"Prefer": "respond-async"}, {"Idempotency_Key": f"one-{topic}"}):
        status, answer = call(sidecar.port, "POST", path, b"1", **headers)
        assert (status, answer["type"]) == (422, "/problems/reserved-topic"), headers
    for headers in ({}, {"Prefer": "respond-async"}, {"Idempotency_Key": f"two-{topic}"}):
        status, answer = call(sidecar.port, "POST", f"{path}:batch", batch, **headers, **JSON)
        assert (status, answer["type"]) == (422, "/problems/reserved-topic"), headers
        assert [each["status"] for each in answer["results"]] == ["failed"] * 2


def test_names_that_only_look_alike_are_taken(sidecar: Sidecar) -> None:
    for topic in ("ackd", "ackd-orders", "my.ackd.retry.orders", "_orders"):
        assert call(sidecar.port, "POST", f"/v1/topics/{topic}/messages", b"1")[0] == 201, topic


def test_a_dead_letter_topic_of_another_name_is_refused_too(tmp_path: Path) -> None:
    names = {
        "work": SubscriptionSettings(
            broker="b", topics=("orders",), dead_letter_topic="orders-failed"
        ),
        "other": SubscriptionSettings(broker="b", topics=("orders",), group="shared"),
    }
    broker = adapter.open("b", LocalOptions(path=tmp_path))
    reserved = ReservedTopics(broker, names)
    assert "orders-failed" in reserved
    assert retry_topic(broker, "other", names["other"]).name in reserved
    assert "orders" not in reserved
    assert not reserved.refuses("orders")
    assert all(map(reserved.refuses, ("orders-failed", "ackd.x", "public/default/ackd.x")))
    assert "ackd.x" not in reserved  # a redrive goes back to where another client wrote
    assert "public/default/ackd.retry.work" in reserved


INTERNAL = {
    "kafka": ["__consumer_offsets", "__transaction_state", "__share_group_state"],
    "pulsar": [
        "__change_events",
        "public/default/__transaction_buffer_snapshot",
        "persistent://pulsar/system/transaction_coordinator_assign-partition-0",
        "persistent://pulsar/system/healthcheck",
        "pulsar/system/any",
    ],
    "rocketmq": [
        "%RETRY%orders",
        "%DLQ%orders",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "SCHEDULE_TOPIC_XXXX",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "OFFSET_MOVED_EVENT",
        "SELF_TEST_TOPIC",
    ],
}
ADAPTERS = {
    "kafka": kafka.CAPABILITIES,
    "pulsar": pulsar.CAPABILITIES,
    "rocketmq": rocketmq.CAPABILITIES,
}


@pytest.mark.parametrize(
    ("name", "topic"), [(n, each) for n, of in INTERNAL.items() for each in of]
)
def test_internal_topics_of_every_broker_are_refused(tmp_path: Path, name: str, topic: str) -> None:
    broker = adapter.open("b", LocalOptions(path=tmp_path))
    broker.capabilities = replace(broker.capabilities, reserved=ADAPTERS[name].reserved)
    reserved = ReservedTopics(broker, {})
    assert reserved.refuses(topic)
    assert not reserved.refuses("persistent://public/default/pulsar-system")
    assert not reserved.refuses("orders")


@pytest.fixture(scope="module")
def choosy() -> Iterator[Sidecar]:
    """A sidecar with a list of topics to publish to."""
    publish = '[publish]\ntopics = ["orders", "^invoices-(eu|us)$"]\n'
    with made_sidecar(settings=f"{CONFIG}\n{publish}") as made:
        made.start()
        yield made


@pytest.mark.parametrize("topic", ["images", "orders-2", "my-orders", "invoices-euro", "Orders"])
def test_a_topic_that_is_not_listed_is_refused_in_every_way(choosy: Sidecar, topic: str) -> None:
    path = f"/v1/topics/{topic}/messages"
    batch = json.dumps({"messages": [{"json": 1}]}).encode()
    for headers in ({}, {"Prefer": "respond-async"}, {"Idempotency_Key": f"one-{topic}"}):
        status, answer = call(choosy.port, "POST", path, b"1", **headers)
        assert (status, answer["type"]) == (403, "/problems/topic-not-allowed"), headers
    status, answer = call(choosy.port, "POST", f"{path}:batch", batch, **JSON)
    assert (status, answer["type"]) == (403, "/problems/topic-not-allowed")


def test_topics_that_are_listed_are_published_to_but_never_those_of_ackd(choosy: Sidecar) -> None:
    for topic in ("orders", "invoices-eu", "invoices-us"):
        assert call(choosy.port, "POST", f"/v1/topics/{topic}/messages", b"1")[0] == 201, topic
    status, answer = call(choosy.port, "POST", "/v1/topics/ackd.retry.orders/messages", b"1")
    assert (status, answer["type"]) == (422, "/problems/reserved-topic")
