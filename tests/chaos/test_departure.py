"""The sidecar that owns the only partition stops in order, while its application has a lease open:
the others have the partition at once, and the application is served on until it has settled. Or it
freezes: the others take the partition over, and nothing goes wrong when it wakes.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ackd_torture.child import BrokerPart
from ackd_torture.parts import LocalQueue, Sidecar
from tests.chaos.judged import told
from tests.chaos.working import working
from tests.chaos.world import Http, KafkaAt, ready, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

GAP_S = 1.0
TAKEOVER_S = 3.0
FROZEN_S = 5.0
"""Longer than the others wait for it, and shorter than the session of the broker's group."""
THAWED_S = 3.0
OWNED = "ackd_watermark_offset{"
STEADY_S = 3.0
HELD_S = 4.0
"""How long the application works on after the signal."""
DRAIN_S = 40
SOON_S = 15
"""With its last settle a sidecar ends, long before its time is over."""


@pytest.mark.kafka
def test_nobody_waits_for_the_open_lease_of_one_that_stops_on_kafka(
    at_kafka: KafkaAt, folder: Path
) -> None:
    _one_of_three_stops(at_kafka, folder)


def test_nobody_waits_for_the_open_lease_of_one_that_stops(folder: Path) -> None:
    _one_of_three_stops(LocalQueue(folder), folder)


def _owned(sidecars: list[Sidecar]) -> list[set[str]]:
    """The partitions of each sidecar, as labels of a metric."""
    lines = [told(each, "/metrics").splitlines() for each in sidecars]
    return [{at.rsplit(" ", 1)[0] for at in of if at.startswith(OWNED)} for of in lines]


def _settled_owner(sidecars: list[Sidecar], topic: str) -> Sidecar:
    """Who has the topic's partition when the group has settled after the three starts.

    librdkafka joins a group once a second at most, so a stop in the middle of a rebalance waits for
    rounds that no steady group has.
    """
    before: list[set[str]] = []
    since = time.monotonic()

    def settled() -> bool:
        nonlocal before, since
        owned = _owned(sidecars)
        if owned != before:
            before, since = owned, time.monotonic()
        return time.monotonic() - since > STEADY_S

    wait_until(settled, "no partition changes hands")
    [owner] = [each for each in sidecars if _owns(each, topic)]
    return owner


def _owns(sidecar: Sidecar, topic: str) -> bool:
    """Whether it has the topic's partition."""
    [owned] = _owned([sidecar])
    return any(f'topic="{topic}"' in of for of in owned)


@pytest.mark.kafka
def test_receives_beside_the_others_are_served_while_the_owner_is_frozen(
    at_kafka: KafkaAt, folder: Path, figure: Callable[[str, float], None]
) -> None:
    """SIGSTOP, and default settings. They wait at the owner, over links that stay open. When it
    wakes it believes to be the owner, and has answers to give of before (I2, I3).
    """
    with world(at_kafka, folder) as deployment:
        sidecars = [deployment.sidecar(f"s{each}") for each in (1, 2, 3)]
        with working(sidecars, deployment.topic) as before:
            wait_until(lambda: len({who for _, who, _ in before.came}) == 3, "all get messages")
            frozen = _settled_owner(sidecars, deployment.topic)
        others = [each for each in sidecars if each is not frozen]
        # The publisher turns to the first, so its messages go on coming.
        with working([*others, frozen], deployment.topic) as work:
            wait_until(lambda: len({who for _, who, _ in work.came}) == 3, "all get messages")
            frozen.freeze()
            began = time.monotonic()
            time.sleep(FROZEN_S)
            new_owners = [each for each in others if _owns(each, deployment.topic)]
            frozen.thaw()
            thawed = time.monotonic()
            time.sleep(THAWED_S)
            ended = time.monotonic()
        assert len(new_owners) == 1, "it was taken over while the owner was frozen"
        for each in others:
            gap_s, starved_s = work.gap_s(began, ended, each.name)
            print(f"{each.name}: gap {gap_s:.3f} s, of it starved {starved_s:.3f} s")  # noqa: T201
            figure("frozen owner, longest gap beside another s", round(gap_s - starved_s, 2))
            assert gap_s - starved_s <= TAKEOVER_S
            assert set(work.beside(each.name, began, ended)) == {200}
        assert [at for at, who, _ in work.came if who == frozen.name and at > thawed]
        assert set(work.settled) == {"acked"}
        left = Http(others[0]).quiet(1.0)
        came = [each for _, _, each in [*before.came, *work.came]] + [each["id"] for each in left]
        assert len(came) == len(set(came)), "nothing came twice"
        assert len(came) >= before.published + work.published, "nothing is missing"


def _one_of_three_stops(broker: BrokerPart, folder: Path) -> None:
    with world(broker, folder, lease_ms=60_000) as deployment:
        deployment.drain_ms = DRAIN_S * 1000
        sidecars = [deployment.sidecar(f"s{each}") for each in (1, 2, 3)]
        with working(sidecars, deployment.topic) as work:
            wait_until(lambda: len({who for _, who, _ in work.came}) == 3, "all three get messages")
            leaving = _settled_owner(sidecars, deployment.topic)
            client = Http(leaving)
            [held] = client.receive_until(bool, 30, most=1)
            began = time.monotonic()
            leaving.popen.terminate()  # type: ignore[union-attr]  # it was started
            time.sleep(HELD_S)
            ended = time.monotonic()
            assert "draining" in ready(leaving)
            assert client.settle([held["lease"]]) == ["acked"]
            wait_until(lambda: not leaving.running, "it has stopped", timeout_s=SOON_S)
            assert leaving.popen.returncode == 0  # type: ignore[union-attr]
        gap_s, starved_s = work.gap_s(began, ended)
        print(f"{broker.name}: gap {gap_s:.3f} s, of it starved {starved_s:.3f} s")  # noqa: T201
        assert gap_s - starved_s <= GAP_S
        beside = work.beside(leaving.name, began, ended)
        assert set(beside) == {200}, "its application is served on"
        last_s = max(at for at, who, _ in work.came if who == leaving.name and at <= ended)
        assert last_s > ended - GAP_S, "and gets messages"
        assert set(work.settled) == {"acked"}
        ids = [each for _, _, each in work.came]
        assert len(ids) == len(set(ids)), "nothing came twice"
