"""A campaign's world, small: the log says what was started, broken and found."""

from pathlib import Path

import pytest

from ackd_torture.checker import BROKEN
from tests.campaign import log
from tests.campaign.brokers import Brokers
from tests.campaign.plan import drawn
from tests.campaign.world import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

NUMBER = 119
"""The local queue behind Sentinel, with orderly restarts."""
KILLS = 3


def test_a_world_is_judged_and_written_down(tmp_path: Path) -> None:
    plan = drawn(NUMBER, KILLS, 200)
    assert (plan.broker, plan.store, plan.restarts) == ("local", "sentinel", True)
    brokers = Brokers()
    try:
        judged = run(plan, brokers, tmp_path / "kept")
    finally:
        brokers.close()
    path = tmp_path / "log.ndjson"
    log.append(path, log.line(plan, judged, "revision", "now"))
    [entry] = log.read([path])
    assert entry["verdict"] == "kept", entry
    assert (entry["kills"], entry["plan"]["seed"]) == (KILLS, NUMBER)
    assert sum(entry["done"].values()) == KILLS + entry["other_faults"]
    assert entry["messages"] > 100
    assert not any(entry[word] for word in BROKEN)
