"""Which test file runs in which lane, by what each took the last time somebody wrote it down.

`seconds.json` has the seconds of every file: mostly waiting for servers, and so about the same on
a fast and a slow machine. A run of `make test` writes what it took to `.cache/tests/seconds.json`;
copy that over the old one when tests have changed a lot. A file that is not in it counts
`UNKNOWN_S`.

As a plugin of pytest (`-p tests.support.lanes`) it writes down what each file takes.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.support.paths import CACHE, REPO

KNOWN = Path(__file__).with_name("seconds.json")
TAKEN = CACHE / "tests" / "seconds.json"
RECORD = "ACKD_TEST_RECORD"
UNKNOWN_S = 10.0
TOGETHER = ("pulsar", "rocketmq", "integration/reports")
"""Files with one of these in their name share a server (or a Spark) that is dear to start."""
ON_EVERY_BROKER = (
    "engine/test_broadcast",
    "engine/test_dead_letters",
    "engine/test_due_in_time",
    "engine/test_even",
    "engine/test_forged_fuzz",
    "engine/test_ordering",
    "engine/test_outbox_at_brokers",
    "engine/test_peers_alike",
    "engine/test_seek",
    "http/test_streams_and_push_through_peers",
    "sqs/test_boto",
)
"""These need all of the servers, and so are together, too."""

_took: defaultdict[str, float] = defaultdict(float)


def known(path: Path = KNOWN) -> dict[str, float]:
    """Seconds by file, relative to `tests`; empty when there is no such record."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def lanes(files: Iterable[str], seconds: Mapping[str, float], count: int) -> list[list[str]]:
    """Each file in one of `count` lanes: the longest first, each to the lane that has the least.

    Within a lane they stand in the order of their names. No lane is empty unless there are fewer
    units than lanes: then there are fewer lanes.
    """
    units: dict[str, list[str]] = {}
    for file in sorted(files):
        units.setdefault(_unit(file), []).append(file)
    costs = {name: sum(seconds.get(e, UNKNOWN_S) for e in unit) for name, unit in units.items()}
    found: list[list[str]] = [[] for _ in range(min(count, len(units)))]
    load = [0.0] * len(found)
    for name in sorted(units, key=lambda each: (-costs[each], each)):
        least = load.index(min(load))
        found[least] += units[name]
        load[least] += costs[name]
    return [sorted(lane) for lane in found]


def _unit(file: str) -> str:
    """Files of one unit are in one lane."""
    if any(name in file for name in ON_EVERY_BROKER):
        return "on every broker"
    return next((word for word in TOGETHER if word in file), file)


def keep(records: Iterable[Path]) -> None:
    """Put what several runs wrote down together, rounded up to whole seconds."""
    total: Counter[str] = Counter()
    for path in records:
        total.update(known(path))
    rounded = {file: int(total[file]) + 1 for file in sorted(total)}
    TAKEN.parent.mkdir(parents=True, exist_ok=True)
    TAKEN.write_text(json.dumps(rounded, indent=1) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what a test, its set-up and its clean-up took."""
    file = (REPO / report.nodeid.partition("::")[0]).relative_to(REPO / "tests")
    _took[str(file)] += report.duration


def pytest_sessionfinish() -> None:
    """Write it down where whoever started this run wants it."""
    if path := os.environ.get(RECORD):
        Path(path).write_text(json.dumps(_took))
