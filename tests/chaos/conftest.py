"""Fixtures of the fault tests."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.world import KafkaAt
from tests.support import kafka as kafka_support
from tests.support.kafka import Kafka, KafkaOptions
from tests.support.paths import CACHE, remove_run_dir, run_dir
from tests.support.require import require


@pytest.fixture(scope="session")
def rough_kafka() -> Iterator[Kafka]:
    """A Kafka with *default* group time-outs for all fault tests: each leaves it running.

    Only the wait for more members of a new group is off: it is no time-out of a dead one, and every
    test here starts a new group.
    """
    require(kafka_support.missing())
    at_once = {"group.initial.rebalance.delay.ms": "0"}
    with Kafka(KafkaOptions(fast_groups=False, proxied=True, properties=at_once)) as started:
        yield started


@pytest.fixture
def at_kafka(rough_kafka: Kafka) -> Iterator[KafkaAt]:
    """The rough Kafka as a part, whole again when the test ends."""
    part = KafkaAt(rough_kafka)
    yield part
    for proxy in rough_kafka.proxies:
        proxy.heal()
    part.thaw() if rough_kafka.node.process.running else part.start()


@pytest.fixture
def figure() -> Callable[[str, float], None]:
    """Keep a measured figure in `.cache/chaos/figures.json`, which docs/benchmarks.md quotes."""

    def keep(name: str, value: float) -> None:
        path = CACHE / "chaos" / "figures.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**figures, name: value}, indent=2, sort_keys=True) + "\n")

    return keep


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for unix sockets below it."""
    path = run_dir("chaos")
    yield path
    remove_run_dir(path)
