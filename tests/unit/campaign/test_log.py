"""A campaign's log, and its table."""

from pathlib import Path
from typing import Any

from tests.campaign import log
from tests.campaign.plan import drawn


def entry(number: int, **more: object) -> dict[str, Any]:
    plan = drawn(number, 10, 1_000)
    figures = dict.fromkeys(log.FIGURES, 0)
    return {"plan": plan.facts(), "verdict": "kept", **figures, "kills": 10, **more}


def test_what_is_appended_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "of" / "log.ndjson"
    for number in range(3):
        log.append(path, entry(number))
    assert [each["plan"]["seed"] for each in log.read([path])] == [0, 1, 2]


def test_the_table_has_sums_by_kind_and_of_all() -> None:
    table = log.summary([entry(3, messages=5), entry(3, messages=7, lost=1), entry(0)])
    *_, total = [line for line in table.splitlines() if line.startswith("| ")]
    names = [name.strip() for name in table.splitlines()[0].split("|")[1:-1]]
    sums = dict(zip(names, (cell.strip() for cell in total.split("|")[1:-1]), strict=True))
    assert sums["broker, store, durability"] == "all"
    assert (sums["worlds"], sums["kills"], sums["messages"], sums["lost"]) == ("3", "30", "12", "1")
    assert len(table.splitlines()) == 2 + 2 + 1 + 2


def test_a_world_without_a_verdict_is_told_and_not_counted() -> None:
    plan = drawn(3, 10, 1_000)
    none = log.broken_down(plan, TimeoutError("too long"), "abc", "now")
    assert none["error"] == "TimeoutError: too long"
    inner = ExceptionGroup("several", [ExceptionGroup("more", [ValueError("the cause")])])
    assert log.broken_down(plan, inner, "abc", "now")["error"] == "ValueError: the cause"
    assert none["again"] == 'make campaign ARGS="--world 3 --kills 10 --rate 1000"'
    table = log.summary([none])
    assert table.endswith("Worlds without a verdict: 1.")
    assert "| all |" not in table
