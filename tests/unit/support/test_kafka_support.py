"""The Kafka of the tests does what the fault tests believe that it does."""

import os
import signal
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.conftest import KafkaFactory
from tests.support.kafka import PLAIN_PASSWORD, SCRAM_PASSWORD, TLS_USER, USER, Kafka, KafkaOptions
from tests.support.paths import REPO, RUN
from tests.support.wait import wait_until

pytestmark = pytest.mark.kafka


def produce(settings: dict[str, str], topic: str, count: int) -> None:
    """Send `count` messages to partition 0 and see each one confirmed."""
    confirmed: list[int | None] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            confirmed.append(message.offset())
        else:
            errors.append(error)

    producer = Producer({"linger.ms": 0, "log_level": 0, "message.timeout.ms": 60_000, **settings})
    for number in range(count):
        producer.produce(
            topic,
            str(number).encode(),
            partition=0,
            on_delivery=delivered,
        )
    producer.flush(90)
    assert not errors
    assert len(confirmed) == count


def high_watermark(bootstrap: str, topic: str) -> int:
    """The next offset of partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "log_level": 0})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1]
    finally:
        consumer.close()


def test_data_survives_kill_and_restart(own_kafka: KafkaFactory) -> None:
    broker = own_kafka(KafkaOptions())
    topic = broker.create_topic("t")
    produce({"bootstrap.servers": broker.bootstrap}, topic, 50)
    broker.node.kill()
    with pytest.raises(KafkaException):
        broker.admin().list_topics(timeout=1)
    broker.node.start()
    broker.wait_topic(topic, 1)
    assert high_watermark(broker.bootstrap, topic) == 50


def test_proxy_carries_all_traffic_and_can_be_refused(own_kafka: KafkaFactory) -> None:
    broker = own_kafka(KafkaOptions(proxied=True))
    topic = broker.create_topic("t")
    produce({"bootstrap.servers": broker.proxied_bootstrap}, topic, 10)
    proxy = broker.proxies[0]
    assert proxy.accepted >= 2  # the bootstrap and the broker that it advertised
    proxy.refuse()
    lost: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.proxied_bootstrap,
            "message.timeout.ms": 500,
            "log_level": 0,
        }
    )
    producer.produce(topic, b"x", on_delivery=lambda error, _: lost.append(error))
    producer.flush(60)
    assert lost[0] is not None
    proxy.heal()
    produce({"bootstrap.servers": broker.proxied_bootstrap}, topic, 1)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_leadership_moves_when_one_of_three_is_killed(own_kafka: KafkaFactory) -> None:
    cluster = own_kafka(KafkaOptions(nodes=3, heap_mb=256))
    topic = cluster.create_topic("t")
    leader = cluster.leader(topic, 0)
    produce({"bootstrap.servers": cluster.bootstrap, "acks": "all"}, topic, 5)
    leader.kill()
    wait_until(
        lambda: cluster.leader(topic, 0) is not leader,
        "another leader",
        timeout_s=60,
        ignoring=(KafkaException, StopIteration),
    )
    produce({"bootstrap.servers": cluster.bootstrap, "acks": "all"}, topic, 5)
    leader.start()
    cluster.wait_ready()
    assert high_watermark(cluster.bootstrap, topic) == 10


@pytest.mark.timeout(240)
def test_tls_and_sasl_listeners_let_in_only_whom_they_should(own_kafka: KafkaFactory) -> None:
    broker = own_kafka(KafkaOptions(security=True))
    certs = broker.certs
    assert certs is not None
    topic = broker.create_topic("t")
    broker.allow(USER, topics=topic)
    broker.allow(TLS_USER, topics=topic)
    scram = {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": SCRAM_PASSWORD,
    }
    produce(
        {
            "bootstrap.servers": broker.secure_bootstrap("sasl_tls"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(certs.ca),
            **scram,
        },
        topic,
        3,
    )
    produce(
        {
            "bootstrap.servers": broker.secure_bootstrap("sasl_plain"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PLAIN_PASSWORD,
        },
        topic,
        3,
    )
    produce(
        {
            "bootstrap.servers": broker.secure_bootstrap("tls"),
            "security.protocol": "SSL",
            "ssl.ca.location": str(certs.ca),
            "ssl.certificate.location": str(certs.client_cert),
            "ssl.key.location": str(certs.client_key),
        },
        topic,
        3,
    )
    with pytest.raises(AssertionError):
        produce(
            {
                "bootstrap.servers": broker.secure_bootstrap("sasl_tls"),
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(certs.ca),
                "message.timeout.ms": "1000",
                **scram,
                "sasl.password": "wrong",
            },
            topic,
            1,
        )
    assert high_watermark(broker.bootstrap, topic) == 9


def test_broker_and_data_go_when_the_starter_is_killed(kafka: Kafka) -> None:
    assert kafka.node.process.running  # so the installation is there
    script = (
        "import time; from tests.support.kafka import Kafka; k = Kafka().start();"
        "print(k.node.process.pid, flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script], cwd=REPO, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        broker_pid = int(child.stdout.readline())
        assert list(RUN.glob(f"{child.pid}-*"))
        child.send_signal(signal.SIGKILL)
        child.wait(60)
    wait_until(lambda: not _alive(broker_pid), "the broker is gone")
    wait_until(lambda: not list(RUN.glob(f"{child.pid}-*")), "its data is gone")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
