"""Targets of the short form, and mistakes that are told all at once."""

from pathlib import Path

import pytest

from ackd_reports.durations import duration_text, duration_us
from ackd_reports.targets import Target, TargetsError
from ackd_reports.targets_file import load
from ackd_reports.windows import Rolling
from ackd_reports.words import DAY_US, MICRO

TOML = """
[[target]]
name = "orders in time"
measure = "time_to_ack"
within = "30s"
objective = 0.99
window = "28d"
topic = "orders"
"""


def test_a_target_in_words(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(TOML)
    only = (("topic", "orders"),)
    wanted = Target("orders in time", "time_to_ack", 0.99, 30 * MICRO, Rolling(28 * DAY_US), only)
    assert load(path) == (wanted,)
    assert wanted.sentence() == (
        "99 % of messages are acked within 30 s of being published (topic orders)"
    )


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(
        '[[target]]\nname = "a"\nmeasure = "speed"\nobjective = 1\ncolour = "red"\n'
        '[[target]]\nname = "a"\nmeasure = "wait"\nobjective = 0.9\nwithin = "soon"\n'
        '[[target]]\nname = "b"\nmeasure = "delivered"\nobjective = 0.9\nwithin = "3s"\n'
        'time_zone = "UTC"\nleast_messages = 0\nfinished_within = "0s"\n'
    )
    with pytest.raises(TargetsError) as found:
        load(path)
    told = str(found.value)
    parts = ("colour", "'speed'", "objective = 1", '"soon"', "delivered has no duration")
    for part in (*parts, "time_zone: only with calendar", "least_messages = 0", "above 0"):
        assert part in told, part
    assert all(line.startswith(str(path)) for line in told.splitlines())


def test_an_empty_file_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("")
    with pytest.raises(TargetsError, match="no target"):
        load(path)


@pytest.mark.parametrize(
    ("text", "duration"),
    [("250ms", 250_000), ("30s", 30 * MICRO), ("1h30m", 5400 * MICRO), ("4w", 28 * DAY_US)],
)
def test_durations(text: str, duration: int) -> None:
    assert duration_us(text) == duration


@pytest.mark.parametrize("text", ["", "5", "s", "1h 30m", "-3s", "1y"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        duration_us(text)


def test_durations_for_people() -> None:
    told = [
        duration_text(us) for us in (0, 12_340, 1_500_000, 90 * MICRO, 3600 * MICRO, 3 * DAY_US)
    ]
    assert told == ["0 ms", "12.3 ms", "1.5 s", "90 s", "1 h", "3 d"]
