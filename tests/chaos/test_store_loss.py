"""The store's data lost or rolled back: a case of its own, with its own expected counts.

No promise about acked messages can hold without the data. What must hold: nothing is lost (I1), it
is loud, and as little as possible comes again: what the sidecars remember and what the commit
metadata says still counts (design section 8; R9, R10).
"""

import random
from pathlib import Path

import pytest

from ackd.core.record.decide import REPAIR_WAIT_MS
from ackd_torture.run import Course
from tests.chaos.judged import CALM_S, assert_kept, judge, metric, rolled_back, setup_for
from tests.chaos.kept import store_gone_with_the_sidecar
from tests.chaos.world import Http, KafkaAt, offsets, produce, world

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(480)]


def test_store_flushed_while_the_sidecar_lives(at_kafka: KafkaAt, folder: Path) -> None:
    """The sidecar repairs the record from its memory: not one acked message comes again."""
    with world(at_kafka, folder, lease_ms=5_000) as deployment:
        produce(at_kafka.kafka, deployment.topic, 1_000)
        sidecar = deployment.sidecar("s1")
        client = Http(sidecar)
        held = client.receive_until(lambda found: len(found) >= 1_000, 90, lease_ms=120_000)
        by_offset = dict(zip(offsets(held), (each["lease"] for each in held), strict=True))
        kept = {0, 400, 999}
        brief = client.settle([by_offset[at] for at in kept], "extend", lease_ms=5_000)
        assert set(brief) == {"extended"}
        done = [lease for at, lease in by_offset.items() if at not in kept]
        assert set(client.settle(done)) == {"acked"}
        assert deployment.store is not None
        assert deployment.store.ask("FLUSHALL").startswith(b"+OK")
        again = client.receive_until(lambda found: len(found) >= len(kept), 90, lease_ms=30_000)
        again += client.quiet(5.0)
        assert set(offsets(again)) == kept
        assert len(again) == len(kept)
        loud = metric(sidecar, "ackd_store_data_lost_total")
        assert loud + metric(sidecar, "ackd_possible_rollbacks_total") > 0


def test_store_gone_with_the_sidecar(at_kafka: KafkaAt, folder: Path) -> None:
    store_gone_with_the_sidecar(at_kafka, folder)


def test_store_rolled_back_under_load(at_kafka: KafkaAt, folder: Path) -> None:
    """An old copy of the data is put back, as by a failover to a replica that was behind (R9, R10).

    Living sidecars repeat what they confirmed in the last seconds, so nothing comes again here
    either. They are waited for, but not for ever: what comes again because one of them needed
    longer (on a machine that is busy with something else) counts as excused.
    """
    took_s: list[float] = []
    setup = setup_for(
        at_kafka, folder, f"rollback-{random.randrange(10**6)}", sidecars=2, proxied=False
    )

    verdict = judge(
        setup,
        Course(seed=3, workers=0, calm_s=CALM_S),
        script=rolled_back(folder, took_s),
        name="store-rolled-back",
    )
    assert_kept(verdict)
    (repaired_s,) = took_s
    assert verdict.count("excused") == 0 or repaired_s > REPAIR_WAIT_MS / 1000, repaired_s
