"""A sidecar that serves a dead one's partitions before the group has assigned them is ready, and
says what it waits for.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from ackd_torture.parts import Sidecar
from tests.chaos.world import Http, KafkaAt, produce, ready, world
from tests.support.limits import limit
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

WORD = "waiting for the group: "
SESSION_S = 8.0
GROUP_S = 30.0
"""A group keeps a dead member for 8 s by ackd's default, and has rebalances to make after that;
with the client's own default it would be 45 s.
"""

EMPTY_S = 30.0
"""Two sessions of 8 s: the dead member's, and that of the one whose leave got lost; with the
client's own default two times 45 s.
"""

FIRST_S = limit(3, busy=15)


def said(sidecar: Sidecar) -> str:
    """What readiness says of the subscription."""
    answer: Any = json.loads(ready(sidecar))
    [found] = [each for each in answer["reasons"] if each["name"] == "subscription:orders"]
    return str(found["detail"]) if found["ok"] else f"not ready: {found['detail']}"


def reset_when_empty(at_kafka: KafkaAt, topic: str) -> None:
    """Kafka's own tools set the position of partition 0 to 0, which they do in an empty group."""
    group, admin = f"{topic}-group", at_kafka.kafka.admin()
    start = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])

    def reset() -> bool:
        try:
            found = admin.alter_consumer_group_offsets([start])[group].result(10)
        except KafkaException:
            return False
        return all(each.error is None for each in found.topic_partitions)

    wait_until(reset, "the group is empty", timeout_s=60)


def test_readiness_says_so_from_a_kill_until_the_group_has_let_the_dead_member_go(
    at_kafka: KafkaAt, folder: Path
) -> None:
    with world(at_kafka, folder, partitions=2) as deployment:
        produce(at_kafka.kafka, deployment.topic, 200)
        dead, other = deployment.sidecar("s1"), deployment.sidecar("s2")
        wait_until(lambda: said(dead) == said(other) == "", "the group has settled", timeout_s=90)
        dead.kill()
        # While the group still counts on the dead one, or it would not say so.
        wait_until(
            lambda: said(other).startswith(WORD), "it has taken over, early", timeout_s=SESSION_S
        )
        began_s = time.monotonic()
        client = Http(other)
        found = client.receive_until(lambda got: len(got) == 200, 30, lease_ms=120_000)
        assert set(client.settle([each["lease"] for each in found])) == {"acked"}
        wait_until(lambda: said(other) == "", "the group has assigned all", timeout_s=90)
        assert time.monotonic() - began_s < GROUP_S


def test_kafkas_tools_can_reset_the_group_soon_after_a_kill_and_an_orderly_stop(
    at_kafka: KafkaAt, folder: Path, figure: Callable[[str, float], None]
) -> None:
    """The one that stops leaves while the group waits for the dead one: that leave may get lost."""
    with world(at_kafka, folder, partitions=2) as deployment:
        produce(at_kafka.kafka, deployment.topic, 20)
        dead, other = deployment.sidecar("s1"), deployment.sidecar("s2")
        wait_until(lambda: said(dead) == said(other) == "", "the group has settled", timeout_s=90)
        dead.kill()
        killed_s = time.monotonic()
        wait_until(
            lambda: said(other).startswith(WORD), "it has taken over, early", timeout_s=SESSION_S
        )
        other.stop()
        reset_when_empty(at_kafka, deployment.topic)
        took_s = time.monotonic() - killed_s
        figure("kill and orderly stop, until the group can be reset s", round(took_s, 1))
        print(f"reset {took_s:.1f} s after the kill")  # noqa: T201
        assert took_s < EMPTY_S
        began_s = time.monotonic()
        other.launch()
        Http(other).receive_until(bool, FIRST_S, wait_ms=200)
        first_s = time.monotonic() - began_s
        figure("first message of a sidecar that starts after a reset s", round(first_s, 1))
        print(f"first message {first_s:.1f} s after the start")  # noqa: T201


def test_r8_a_reset_while_the_only_member_is_lost_is_no_secret_to_it(
    at_kafka: KafkaAt, folder: Path
) -> None:
    """It stands still until the group is empty, goes on with what it owns, and gets that assigned
    again: what somebody committed meanwhile wins, though nobody else had the partitions.
    """
    with world(at_kafka, folder) as deployment:
        produce(at_kafka.kafka, deployment.topic, 20)
        lost = deployment.sidecar("s1")
        client = Http(lost)
        first = client.receive_until(lambda got: len(got) == 20, 60, lease_ms=120_000)
        assert set(client.settle([each["lease"] for each in first])) == {"acked"}
        wait_until(lambda: said(lost) == "", "the group has settled", timeout_s=90)
        lost.freeze()
        try:
            reset_when_empty(at_kafka, deployment.topic)
        finally:
            lost.thaw()
        again = client.receive_until(lambda got: len(got) == 20, 60, wait_ms=200)
        assert {each["id"] for each in again} == {each["id"] for each in first}
