"""The store's data of before messages were sent back is put back (I2, I7, R10).

Leases that are extended for long are forwarded while the store's data is copied, others are taken
and forwarded after that. Then the copy comes back: what their holders are told of an ack has to be
true.

2,000 messages in all. `ACKD_TEST_SET_BACK_S=120` lets that much time pass between the copy and its
return; the test itself takes no longer than its steps.
"""

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.chaos.judged import metric
from tests.chaos.world import Http, KafkaAt, World, offsets, produce, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(480)]

HALF = 1_000
PAUSE_S = float(os.environ.get("ACKD_TEST_SET_BACK_S", "0"))
PAUSE_MS = int(PAUSE_S * 1000)
BEFORE, AFTER = {5, 377, 750}, {1_005, 1_480, 1_999}
"""Offsets of leases that are taken before the copy, and after it."""


def _take(
    deployment: World, client: Http, keep: set[int], lease_ms: int
) -> tuple[dict[int, str], list[str]]:
    """Take new messages; the leases that are extended for long, and all others."""
    produce(deployment.broker.kafka, deployment.topic, HALF)  # type: ignore[attr-defined]
    held = client.receive_until(lambda found: len(found) >= HALF, 90, lease_ms=60_000)
    leases = dict(zip(offsets(held), (each["lease"] for each in held), strict=True))
    long = {at: leases.pop(at) for at in keep}
    assert set(client.settle(list(long.values()), "extend", lease_ms=lease_ms)) == {"extended"}
    return long, list(leases.values())


def _set_back(deployment: World, *, orderly: bool) -> tuple[Http, dict[int, str]]:
    """Until the store of before is there again."""
    store, sidecar = deployment.store, deployment.sidecar("s1")
    assert store is not None
    client, copy = Http(sidecar), deployment.folder / "copy"
    long, others = _take(deployment, client, BEFORE, 600_000 + PAUSE_MS)
    wait_until(lambda: b"aof_pending_bio_fsync:0" in store.ask("INFO", "persistence"), "the disk")
    shutil.copytree(store.folder, copy)
    assert set(client.settle(others)) == {"acked"}
    more, others = _take(deployment, client, AFTER, 90_000 + PAUSE_MS)
    long |= more
    assert set(client.settle(others)) == {"acked"}

    def all_sent_back() -> bool:
        held = 'ackd_claims_total{outcome="held"'  # their copies are stored, and wait
        return metric(sidecar, held) >= len(long)

    wait_until(all_sent_back, "all to be sent back", timeout_s=90)
    time.sleep(PAUSE_S)  # by hand only: how far the store goes back
    if orderly:
        assert sidecar.terminate() == 0
    store.kill()
    shutil.rmtree(store.folder)
    shutil.copytree(copy, store.folder)
    store.start()
    if orderly:
        sidecar.start()
    return Http(sidecar), long


@pytest.mark.parametrize("orderly", [False, True], ids=["living", "stopped"])
def test_i7_leases_of_before_are_told_the_truth(
    at_kafka: KafkaAt, folder: Path, *, orderly: bool
) -> None:
    """An ack that counts is the end of its message; one that is told `lost` may come again.

    A living sidecar knows all of them. After a stop what the old data knows is enough for those
    whose leases live in there.
    """
    with world(
        at_kafka,
        folder,
        lease_ms=2_000,
        stuck_after_ms=3_000,
        stuck_min_age_ms=500,
        commit_interval_ms=100,
    ) as deployment:
        client, long = _set_back(deployment, orderly=orderly)
        came = (
            client.quiet(8.0) if orderly else []
        )  # until the copies have asked for their messages
        told: dict[int, str] = {}
        for at, lease in long.items():
            (told[at],) = client.settle([lease])
        sure = BEFORE if orderly else BEFORE | AFTER
        assert {at: told[at] for at in sure} == dict.fromkeys(sure, "acked")
        assert set(told.values()) <= {"acked", "lost"}
        came += client.quiet(8.0)
        acked = {at for at, status in told.items() if status == "acked"}
        assert not acked & set(offsets(came)), "I2: acked ones come again"
        lost = set(told) - acked
        # A copy is not delivered before the end of the lease under which it was made.
        within_s = 150 + PAUSE_S
        came += client.receive_until(lambda found: lost <= set(offsets(came + found)), within_s)
        assert set(offsets(came)) == lost, "I1: what is told lost comes, and nothing else"
