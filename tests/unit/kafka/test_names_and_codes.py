"""Patterns, what error codes mean, what options become."""

import re
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from ackd.config.fields import specs
from ackd.errors import ConfigError
from ackd.ports import ConsumerSpec, Failure
from ackd.ports.own_topics import dead_letter_topic, retry_topic
from ackd_adapters.kafka import KafkaOptions, adapter
from ackd_adapters.kafka.config import (
    OWNED,
    GroupProtocol,
    common,
    fetch_properties,
    member_properties,
    producer_properties,
)
from ackd_adapters.kafka.errors import failure
from ackd_adapters.kafka.names import matching


def test_r25_patterns_pass_over_own_and_internal_topics() -> None:
    existing = ["orders", "orders-eu", "other", "__consumer_offsets", retry_topic("orders")]
    assert matching(("^.*",), existing) == ["orders", "orders-eu", "other"]
    assert matching(("^orders$",), existing) == ["orders"]
    assert matching(("^orders", "plain"), existing) == ["orders", "orders-eu", "plain"]
    # By its name an operator may read what is dead.
    assert matching((dead_letter_topic("orders"),), existing) == [dead_letter_topic("orders")]


@pytest.mark.parametrize(
    ("code", "want"),
    [
        (KafkaError._MSG_TIMED_OUT, Failure.UNKNOWN),
        (KafkaError._PURGE_INFLIGHT, Failure.UNKNOWN),
        (KafkaError._PURGE_QUEUE, Failure.UNKNOWN),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Failure.UNKNOWN),
        (KafkaError.REQUEST_TIMED_OUT, Failure.UNKNOWN),
        (KafkaError.UNKNOWN, Failure.UNKNOWN),
        (KafkaError.NOT_ENOUGH_REPLICAS, Failure.NOT_STORED),
        (KafkaError.MSG_SIZE_TOO_LARGE, Failure.REFUSED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Failure.REFUSED),
        (KafkaError._QUEUE_FULL, Failure.PRESSURE),
        (KafkaError.THROTTLING_QUOTA_EXCEEDED, Failure.PRESSURE),
    ],
)
def test_r20_only_what_is_sure_counts_as_not_stored(code: int, want: Failure) -> None:
    assert failure(code) is want


def test_every_option_is_documented() -> None:
    for each in specs(KafkaOptions):
        assert len(each.doc) > 20, each.name


@pytest.mark.parametrize("static_id", [None, "pod-1"])
def test_clients_get_what_the_adapter_promises(static_id: str | None) -> None:
    options = KafkaOptions(bootstrap_servers="b:1", properties={"client.rack": "r1"})
    spec = ConsumerSpec("g", ("t",), "c", static_id, {"session.timeout.ms": "7000"})
    member = member_properties(options, spec)
    assert member["partition.assignment.strategy"] == "cooperative-sticky"
    assert member.get("group.instance.id") == static_id
    assert member["session.timeout.ms"] == "7000"
    fetch = fetch_properties(options, spec)
    assert "group.instance.id" not in fetch
    assert "session.timeout.ms" not in fetch
    assert fetch["isolation.level"] == "read_committed"
    for consumer in (member, fetch):
        assert consumer["enable.auto.commit"] is False
        assert consumer["auto.offset.reset"] == "error"
    producer = producer_properties(options)
    assert producer["enable.idempotence"] is True
    assert producer["partitioner"] == "murmur2_random"
    for made in (member, fetch, producer):
        assert made["client.rack"] == "r1"


@pytest.mark.parametrize(("protocol", "beat_ms"), [("classic", 500), ("consumer", None)])
def test_members_hear_of_a_rebalance_soon(protocol: GroupProtocol, beat_ms: int | None) -> None:
    spec, name = ConsumerSpec("g", ("t",), "c", None), "heartbeat.interval.ms"
    options = KafkaOptions(bootstrap_servers="b:1", group_protocol=protocol)
    assert member_properties(options, spec).get(name) == beat_ms
    if protocol == "classic":
        seldom = KafkaOptions(bootstrap_servers="b:1", properties={name: "3000"})
        assert member_properties(seldom, spec)[name] == "3000"


@pytest.mark.parametrize(
    ("static_id", "protocol", "session_ms"),
    [(None, "classic", 8_000), ("pod-1", "classic", None), (None, "consumer", None)],
)
def test_a_group_waits_for_a_dead_member_for_seconds(
    static_id: str | None, protocol: GroupProtocol, session_ms: int | None
) -> None:
    """A static member has the client's 45 s for its restart."""
    spec = ConsumerSpec("g", ("t",), "c", static_id)
    options = KafkaOptions(bootstrap_servers="b:1", group_protocol=protocol)
    assert member_properties(options, spec).get("session.timeout.ms") == session_ms
    slow = {"session.timeout.ms": "30000"}
    if protocol == "classic":
        options = KafkaOptions(bootstrap_servers="b:1", properties=slow)
        assert member_properties(options, spec)["session.timeout.ms"] == "30000"


@pytest.mark.parametrize("key", sorted(OWNED))
def test_owned_properties_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)):
        adapter.open("x", KafkaOptions(bootstrap_servers="b:1", properties={key: "1"}))


def test_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(" pass word \r\nsecond line\n")
    options = KafkaOptions(
        bootstrap_servers="b:1",
        security_protocol="sasl_ssl",
        sasl_username="u",
        sasl_password_file=path,
    )
    assert common(options)["sasl.password"] == " pass word "
    assert "pass word" not in repr(options)
