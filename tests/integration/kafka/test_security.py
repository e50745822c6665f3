"""Passwords, certificates and rights: what works, and what is told when it doesn't."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError, ConfigError
from ackd.ports import Broker, Failure, NotStored, Outgoing
from ackd_adapters.kafka import KafkaOptions, adapter
from tests.integration.kafka.conftest import Connect, Join
from tests.support import kafka as kafka_support
from tests.support.kafka import PLAIN_PASSWORD, SCRAM_PASSWORD, TLS_USER, USER, Kafka
from tests.support.kafka import KafkaOptions as BrokerOptions
from tests.support.kafka.fill import store
from tests.support.require import require

pytestmark = pytest.mark.kafka
QUICK = {"socket.timeout.ms": "2000"}


@pytest.fixture(scope="module")
def secured() -> Iterator[Kafka]:
    """A Kafka with TLS and SASL listeners, and rights for both users on what is called `ours`."""
    require(kafka_support.missing())
    with Kafka(BrokerOptions(security=True)) as started:
        for user in (USER, TLS_USER):
            started.allow(user, topics="ours", groups="ours")
        started.create_topic("ours", partitions=1)
        started.create_topic("theirs", partitions=1)
        yield started


@pytest.fixture
def password(tmp_path: Path) -> Path:
    """A file with the right SCRAM password and what editors leave behind it."""
    path = tmp_path / "password"
    path.write_text(f"{SCRAM_PASSWORD}\n\n")
    return path


def scram(secured: Kafka, password: Path) -> dict[str, object]:
    """Options of a connection with the user's password, without TLS."""
    return {
        "bootstrap_servers": secured.secure_bootstrap("sasl_plain"),
        "security_protocol": "sasl_plaintext",
        "sasl_username": USER,
        "sasl_password_file": password,
    }


async def works(broker: Broker, join: Join) -> None:
    """Publish, fetch, join and commit."""
    where = TopicPartition("ours", 0)
    (stored,) = await store(broker, Outgoing("ours", None, b"secret", (), 0))
    reader = await join(broker, ["ours"], "ours")
    reader.fetch_from(where, stored.offset)
    await reader.until(lambda: reader.records[where] and reader.assigned, "fetched and assigned")
    await reader.consumer.close()


@pytest.mark.parametrize("listener", ["sasl_plain", "sasl_tls"])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
async def test_sasl_works(
    secured: Kafka,
    connect: Connect,
    join: Join,
    password: Path,
    listener: str,
    mechanism: str,
) -> None:
    assert secured.certs is not None
    if mechanism == "PLAIN":
        await asyncio.to_thread(password.write_text, PLAIN_PASSWORD)
    broker = await connect(
        bootstrap_servers=secured.secure_bootstrap(listener),
        security_protocol="sasl_ssl" if listener == "sasl_tls" else "sasl_plaintext",
        sasl_mechanism=mechanism,
        sasl_username=USER,
        sasl_password_file=password,
        tls_ca_file=secured.certs.ca if listener == "sasl_tls" else None,
    )
    await works(broker, join)


async def test_mutual_tls_works(secured: Kafka, connect: Connect, join: Join) -> None:
    assert secured.certs is not None
    broker = await connect(
        bootstrap_servers=secured.secure_bootstrap("tls"),
        security_protocol="ssl",
        tls_ca_file=secured.certs.ca,
        tls_cert_file=secured.certs.client_cert,
        tls_key_file=secured.certs.client_key,
    )
    await works(broker, join)


async def refused(options: KafkaOptions) -> tuple[str, set[str]]:
    """Start against a broker that won't have us: what the error says, and the open conditions."""
    broker = adapter.open("refused", options)
    try:
        with pytest.raises(BrokerError) as caught:
            await broker.start()
        return caught.value.detail, {condition.code for condition in broker.conditions()}
    finally:
        await broker.close()


async def refused_tls(secured: Kafka, authority: Path) -> tuple[str, set[str]]:
    """The same on the TLS listener, trusting this authority, without a certificate of our own."""
    return await refused(
        KafkaOptions(
            bootstrap_servers=secured.secure_bootstrap("tls"),
            security_protocol="ssl",
            tls_ca_file=authority,
            request_timeout_ms=3000,
            properties=QUICK,
        )
    )


async def test_wrong_password_is_told_and_never_shown(
    secured: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "password"
    path.write_text("wr0ng-passw0rd")
    options = KafkaOptions(
        bootstrap_servers=secured.secure_bootstrap("sasl_plain"),
        security_protocol="sasl_plaintext",
        sasl_username=USER,
        sasl_password_file=path,
        request_timeout_ms=2000,
        properties={"ssl.endpoint.identification.algorithm": "https", **QUICK},
    )
    detail, codes = await refused(options)
    assert "authentication" in detail.lower()
    assert "publish/connection/authentication" in codes
    shown = f"{detail} {codes} {options!r} {caplog.text}"
    assert "wr0ng" not in shown
    assert "endpoint.identification" not in repr(options)
    assert asdict(options)["sasl_password_file"] == path


async def test_foreign_authority_is_told(secured: Kafka) -> None:
    assert secured.certs is not None
    detail, codes = await refused_tls(secured, secured.certs.foreign_ca)
    assert "certificate verify failed" in detail.lower()
    assert "publish/connection/ssl" in codes


async def test_missing_client_certificate_is_told(secured: Kafka) -> None:
    assert secured.certs is not None
    _, codes = await refused_tls(secured, secured.certs.ca)
    assert any(code.startswith("publish/connection/") for code in codes)


async def test_lost_password_of_a_running_consumer_is_trouble_and_its_return_clears_it(
    secured: Kafka, connect: Connect, join: Join, password: Path
) -> None:
    good = await connect(**scram(secured, password), properties=QUICK)
    # Clients read the file when they are made: the consumer gets the wrong one.
    await asyncio.to_thread(password.write_text, "wrong")
    reader = await join(good, ["ours"], "ours")
    await reader.until(
        lambda: (
            reader.condition("member/connection/authentication")
            and reader.condition("fetch/connection/authentication")
        ),
        "both clients say so",
    )
    await reader.consumer.close()
    await asyncio.to_thread(password.write_text, SCRAM_PASSWORD)
    await works(good, join)


async def test_missing_rights_are_told(
    secured: Kafka, connect: Connect, join: Join, password: Path
) -> None:
    broker = await connect(**scram(secured, password))
    (result,) = await broker.publish([Outgoing("theirs", None, b"x", (), 0)])
    assert isinstance(result, NotStored)
    assert (result.failure, result.code) == (Failure.REFUSED, "TOPIC_AUTHORIZATION_FAILED")
    where = TopicPartition("theirs", 0)
    reader = await join(broker, ["theirs"], "ours")
    reader.fetch_from(where, 0)
    await reader.until(
        lambda: (
            reader.condition("topics/not-authorized/theirs")
            and reader.condition("member/topic/topic-authorization-failed/theirs")
        ),
        "both clients say so",
    )
    stranger = await join(broker, ["ours"], "their-group")
    await stranger.until(
        lambda: stranger.condition("member/group/group-authorization-failed"),
        "the group is refused",
    )
    # Given later, they count without a restart.
    await store_as_admin(secured)
    secured.allow(USER, topics="theirs", groups="their-group")
    await reader.until(lambda: reader.records[where], "fetched")
    await reader.until(
        lambda: reader.condition("topics/not-authorized/theirs", cleared=True),
        "and it is over",
    )
    await stranger.until(lambda: stranger.assigned, "assigned")
    assert stranger.condition("member/group/group-authorization-failed", cleared=True)


async def test_topic_that_may_be_seen_but_not_read_is_told(
    secured: Kafka, connect: Connect, join: Join, password: Path
) -> None:
    name = secured.create_topic("visible", partitions=1)
    rule = AclBinding(
        ResourceType.TOPIC,
        name,
        ResourcePatternType.LITERAL,
        f"User:{USER}",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    for future in secured.admin().create_acls([rule]).values():
        future.result(60)
    broker = await connect(**scram(secured, password))
    where = TopicPartition(name, 0)
    reader = await join(broker, ["ours"], "ours")
    reader.fetch_from(where, 0)
    code = f"fetch/topic/topic-authorization-failed/{name}"
    await reader.until(lambda: reader.condition(code), "reading is refused")
    secured.allow(USER, topics=name)
    await reader.until(lambda: reader.condition(code, cleared=True), "and over")
    await reader.until(lambda: reader.ended(where, 0), "read")


async def store_as_admin(secured: Kafka) -> None:
    """One record in the topic of others, by the anonymous super user."""
    broker = adapter.open("admin", KafkaOptions(bootstrap_servers=secured.bootstrap))
    await broker.start()
    await store(broker, Outgoing("theirs", None, b"x", (), 0))
    await broker.close()


def test_every_mistake_in_the_options_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        adapter.open(
            "wrong",
            KafkaOptions(
                bootstrap_servers="x:1",
                security_protocol="sasl_ssl",
                tls_cert_file=tmp_path / "missing.pem",
                group_protocol="consumer",
                properties={"enable.auto.commit": "true", "session.timeout.ms": "1"},
            ),
        )
    for part in (
        "needs sasl_username and sasl_password_file",
        "go together",
        "enable.auto.commit",
        "session.timeout.ms",
    ):
        assert part in caught.value.detail


async def test_file_that_is_missing_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    options = KafkaOptions(
        bootstrap_servers="127.0.0.1:1",
        security_protocol="ssl",
        tls_ca_file=tmp_path / "no-ca.pem",
        tls_cert_file=tmp_path / "no-cert.pem",
        tls_key_file=tmp_path / "no-key.pem",
    )
    with pytest.raises(ConfigError) as caught:
        await adapter.open("wrong", options).start()
    for part in ("no-ca.pem", "no-cert.pem", "no-key.pem"):
        assert part in caught.value.detail


async def test_unknown_property_is_a_mistake_of_the_configuration(kafka: Kafka) -> None:
    broker = adapter.open(
        "wrong",
        KafkaOptions(bootstrap_servers=kafka.bootstrap, properties={"no.such.thing": "1"}),
    )
    with pytest.raises(ConfigError, match=r"no\.such\.thing"):
        await broker.start()
    await broker.close()
