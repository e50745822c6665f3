"""A sidecar that serves a dead one's partitions before the group has assigned them is ready, and
says what it waits for.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.parts import Sidecar
from tests.chaos.world import Http, KafkaAt, produce, ready, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

WORD = "waiting for the group: "
SESSION_S = 45.0
"""Kafka's default: so long a group keeps a dead member."""


def said(sidecar: Sidecar) -> str:
    """What readiness says of the subscription."""
    answer: Any = json.loads(ready(sidecar))
    [found] = [each for each in answer["reasons"] if each["name"] == "subscription:orders"]
    return str(found["detail"]) if found["ok"] else f"not ready: {found['detail']}"


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
        assert time.monotonic() - began_s < SESSION_S + 30
