"""Topics that are ackd's own or the broker's: applications publish nothing there."""

import json
from pathlib import Path

import pytest

from ackd.config.subscription import SubscriptionSettings
from ackd.engine.retry.own_topic import ReservedTopics, retry_topic
from ackd_adapters.local import LocalOptions, adapter
from tests.integration.http.conftest import Sidecar, call

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
