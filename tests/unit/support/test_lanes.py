"""The spread of test files over lanes: all of them, evenly, and the same each time."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.support import lanes as module
from tests.support.lanes import ON_EVERY_BROKER, UNKNOWN_S, keep, known, lanes
from tests.support.paths import REPO


def test_the_longest_first_each_to_the_lane_that_has_the_least() -> None:
    seconds = {"a": 7.0, "b": 5.0, "c": 4.0, "d": 3.0, "e": 1.0}
    assert lanes("edcba", seconds, 2) == [["a", "d"], ["b", "c", "e"]]
    assert lanes("abcde", seconds, 2) == lanes("edcba", seconds, 2)


def test_a_file_nobody_measured_counts_something() -> None:
    assert lanes(["new", "x"], {"x": 3 * UNKNOWN_S, "new2": 0.0}, 2) == [["x"], ["new"]]
    names = [f"{n}" for n in range(8)]
    assert [len(lane) for lane in lanes(names, {}, 4)] == [2, 2, 2, 2]


def test_what_shares_a_server_stays_together() -> None:
    files = ["integration/pulsar/test_a.py", "contract/test_pulsar.py", "unit/test_b.py"]
    assert lanes(files, {}, 2) == [sorted(files[:2]), [files[2]]]
    files = [f"integration/{name}.py" for name in (*ON_EVERY_BROKER, "engine/test_send_back")]
    assert lanes(files, {}, 2) == [sorted(files[:-1]), [files[-1]]]
    assert [each for each in files if not (REPO / "tests" / each).exists()] == []


def test_no_lane_is_empty() -> None:
    assert lanes(["one"], {}, 4) == [["one"]]
    assert lanes([], {}, 4) == []


def test_records_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAKEN", tmp_path / "new" / "seconds.json")
    for name, record in (("1", {"a": 1.5, "b": 0.2}), ("2", {"a": 0.6})):
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    keep(sorted(tmp_path.glob("*.json")))
    assert known(module.TAKEN) == {"a": 3, "b": 1}
    assert known(tmp_path / "none.json") == {}


def test_what_a_file_took_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "record.json"
    monkeypatch.setattr(module, "_took", Counter())
    monkeypatch.setenv(module.RECORD, str(record))
    for name, file, duration in (("one", "a", 1.5), ("two", "a", 2.0), ("one", "b", 0.25)):
        nodeid = f"tests/{file}/test_it.py::test_{name}"
        report = pytest.TestReport(
            nodeid, ("", 0, ""), {}, "passed", None, "call", duration=duration
        )
        module.pytest_runtest_logreport(report)
    module.pytest_sessionfinish()
    assert known(record) == {"a/test_it.py": 3.5, "b/test_it.py": 0.25}
