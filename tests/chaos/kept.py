"""What is promised over the end of a sidecar or of the store's data, on whatever broker."""

import shutil
import time
from pathlib import Path

from ackd_torture.child import BrokerPart
from tests.chaos.world import Http, offsets, world

COUNT = 40
DELAY_MS = 6_000
MANY = 1_000


def kept_over_a_kill(broker: BrokerPart, folder: Path) -> None:
    """One of two sidecars is killed. At the other, its open leases are settled, what it was told to
    retry comes when it is due, nothing that was acked comes, and it takes over: it hands out what
    is published then. While the store is away nothing is called settled (I7).
    """
    with world(broker, folder, lease_ms=60_000) as deployment:
        one = Http(deployment.sidecar("s1"))
        one.publish(deployment.topic, COUNT)
        held = one.receive_until(lambda got: len(got) >= COUNT, 90)
        assert len(held) == COUNT
        leases = [each["lease"] for each in held]
        other = Http(deployment.sidecar("s2"))
        assert set(one.settle(leases[:10])) == {"acked"}
        began = time.monotonic()
        assert set(one.settle(leases[10:20], "retry", delay_ms=DELAY_MS)) == {"retrying"}
        deployment.sidecar("s1").kill()
        assert set(other.settle(leases[20:30])) == {"acked"}
        again = other.receive_until(lambda got: len(got) >= 10, 90)
        assert time.monotonic() - began >= DELAY_MS / 1000 - 0.001
        assert sorted(each["id"] for each in again) == sorted(each["id"] for each in held[10:20])
        assert {each["attempt"] for each in again} == {2}
        other.publish(deployment.topic, 5, first=COUNT)
        new = other.receive_until(lambda got: len(got) >= 5, 90)
        assert sorted(each["json"]["msg"] for each in new) == [f"m{COUNT + n}" for n in range(5)]
        assert deployment.store is not None
        deployment.store.kill()
        left = [*leases[30:], *(each["lease"] for each in (*again, *new))]
        status, answer = other.post(
            "/v1/settle", {"items": [{"lease": lease, "do": "ack"} for lease in left]}
        )
        assert status == 503, answer
        deployment.store.start()
        assert set(other.settle(left)) <= {"acked", "already_acked"}
        assert other.quiet(2.0) == []


def store_gone_with_the_sidecar(broker: BrokerPart, folder: Path) -> None:
    """Nobody remembers but the broker: the committed position and the ranges in its metadata."""
    with world(broker, folder, lease_ms=60_000, commit_interval_ms=100) as deployment:
        sidecar = deployment.sidecar("s1")
        client = Http(sidecar)
        client.publish(deployment.topic, MANY)
        held = client.receive_until(lambda found: len(found) >= MANY, 90)
        by_offset = dict(zip(offsets(held), (each["lease"] for each in held), strict=True))
        stuck = {100, 500}
        done = [lease for at, lease in by_offset.items() if at not in stuck]
        assert set(client.settle(done)) == {"acked"}
        assert sidecar.terminate() == 0, "an orderly stop commits the progress"
        assert deployment.store is not None
        deployment.store.kill()
        shutil.rmtree(deployment.store.folder)
        deployment.store.start()
        sidecar.start()
        again = Http(sidecar).receive_until(lambda found: len(found) >= len(stuck), 90)
        again += Http(sidecar).quiet(4.0)
        assert set(offsets(again)) == stuck, "I1: both come; the ranges keep the other 998 away"
