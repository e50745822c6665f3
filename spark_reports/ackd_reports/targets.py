"""What was promised: targets from a short TOML file or from OpenSLO v1 documents.

TOML, one table a target:

    [[target]]
    name = "orders in time"
    measure = "time_to_ack"     # or wait, work, lease_to_ack, delivered, first_attempt
    within = "30s"              # durations only
    objective = 0.99
    window = "30d"              # for burn rates; default 30d
    topic = "orders"            # optional: system, cluster, topic, group, application

OpenSLO v1 (https://openslo.com): documents of `kind: SLO` whose indicator is a `thresholdMetric`
with `metricSource.type: ackd`; its `spec` names the measure and the same filters. Of the
objectives `op: lte`, `value` (seconds) and `target` or `targetPercent` are read, of time windows
the first rolling one. Documents of other kinds are left out; what cannot be honoured is a
mistake, never ignored.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ackd_reports.words import DURATIONS, MICRO

RATIOS: Final = ("delivered", "first_attempt")
"""delivered: acked and not dead; first_attempt: acked without a second delivery."""
FILTERS: Final = ("system", "cluster", "topic", "group", "application")
TARGETS_MAX: Final = 100
_UNITS: Final = {"ms": 1_000, "s": MICRO, "m": 60 * MICRO, "h": 3600 * MICRO, "d": 86_400 * MICRO}
_UNITS["w"] = 7 * _UNITS["d"]


class TargetsError(ValueError):
    """A file of targets has mistakes; the text names each with its place, on a line of its own."""


@dataclass(frozen=True, slots=True)
class Target:
    """One promise. `within_us` is 0 for ratios; `only` holds filters as (column, value)."""

    name: str
    measure: str
    objective: float
    within_us: int = 0
    window_us: int = 30 * 86_400 * MICRO
    only: tuple[tuple[str, str], ...] = field(default=())

    def sentence(self) -> str:
        """The promise in words, say for a heading of the report."""
        share = f"{100 * self.objective:.6g} % of messages"
        where = ", ".join(f"{name} {value}" for name, value in self.only)
        what = {
            "delivered": "are acked and not given up",
            "first_attempt": "are acked at their first delivery",
            "wait": f"wait at most {duration_text(self.within_us)} for their first lease",
            "work": f"are acked within {duration_text(self.within_us)} of their lease",
            "lease_to_ack": f"are acked within {duration_text(self.within_us)} of the first lease",
            "time_to_ack": f"are acked within {duration_text(self.within_us)} of being published",
        }[self.measure]
        return f"{share} {what}" + (f" ({where})" if where else "")


def duration_us(text: str) -> int:
    """Read "250ms", "30s", "1h30m", "7d"; `ValueError` for anything else."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f'"{text}" is no duration; write 250ms, 30s, 5m, 1h, 7d')
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))


def duration_text(duration: float) -> str:
    """A duration in microseconds, short, for people."""
    for unit, size in (("d", 86_400 * MICRO), ("h", 3600 * MICRO), ("min", 60 * MICRO)):
        if duration >= 2 * size or (duration >= size and duration % size == 0):
            return f"{duration / size:.3g} {unit}"
    if duration >= MICRO:
        return f"{duration / MICRO:.3g} s"
    return f"{duration / 1000:.3g} ms" if duration >= 1 else "0 ms"


def load(path: Path) -> tuple[Target, ...]:
    """Targets of a file, by its ending: .toml, .yaml, .yml or .json (OpenSLO). `TargetsError`."""
    text = path.read_text(encoding="utf-8")
    mistakes: list[str] = []
    targets = (
        _from_toml(text, path, mistakes)
        if path.suffix == ".toml"
        else _from_openslo(text, path, mistakes)
    )
    names = [target.name for target in targets]
    mistakes += [
        f'{path}: two targets are called "{name}"'
        for name in sorted({each for each in names if names.count(each) > 1})
    ]
    if len(targets) > TARGETS_MAX:
        mistakes.append(f"{path}: {len(targets)} targets; at most {TARGETS_MAX}")
    if not targets and not mistakes:
        mistakes.append(f"{path}: no target in it")
    if mistakes:
        raise TargetsError("\n".join(mistakes))
    return tuple(targets)


def _from_toml(text: str, path: Path, mistakes: list[str]) -> list[Target]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TargetsError(f"{path}: no TOML: {error}") from None
    mistakes += [f"{path}: {name}: unknown; only [[target]]" for name in tables if name != "target"]
    found = []
    listed = tables.get("target", [])
    if not isinstance(listed, list):
        raise TargetsError(f"{path}: target: write [[target]], one table each")
    known = {"name", "measure", "within", "objective", "window", *FILTERS}
    for number, table in enumerate(listed, 1):
        place = f"{path}: target {number}"
        if not isinstance(table, dict):
            mistakes.append(f"{place}: not a table")
            continue
        mistakes += [
            f"{place}: {name}: unknown; allowed are {', '.join(sorted(known))}"
            for name in table
            if name not in known
        ]
        target = _target(table, place, mistakes)
        if target is not None:
            found.append(target)
    return found


def _target(table: Mapping[str, object], place: str, mistakes: list[str]) -> Target | None:
    """One target of the short form; None with the mistakes noted."""
    before = len(mistakes)
    measure = table.get("measure")
    if measure not in (*DURATIONS, *RATIOS):
        allowed = ", ".join((*DURATIONS, *RATIOS))
        mistakes.append(f"{place}: measure = {measure!r}; allowed are {allowed}")
    objective = table.get("objective")
    # 1 would be a budget of nothing, in which every burn rate is infinite.
    if (
        isinstance(objective, bool)
        or not isinstance(objective, int | float)
        or not 0 < objective < 1
    ):
        mistakes.append(f"{place}: objective = {objective!r}; a number above 0 and below 1")
    within = 0
    if measure in DURATIONS:
        within = _duration(table.get("within"), f"{place}: within", mistakes)
    elif "within" in table:
        mistakes.append(f"{place}: within: {measure} has no duration")
    window = _duration(table.get("window", "30d"), f"{place}: window", mistakes)
    name = table.get("name")
    if not isinstance(name, str) or not name.strip():
        mistakes.append(f"{place}: name = {name!r}; a text")
    only = []
    for column in FILTERS:
        value = table.get(column)
        if value is not None and not isinstance(value, str):
            mistakes.append(f"{place}: {column} = {value!r}; a text")
        elif value is not None:
            only.append((column, value))
    if len(mistakes) > before:
        return None
    return Target(str(name), str(measure), float(str(objective)), within, window, tuple(only))


def _duration(value: object, place: str, mistakes: list[str]) -> int:
    try:
        found = duration_us(value if isinstance(value, str) else repr(value))
    except ValueError as error:
        mistakes.append(f"{place}: {error}")
        return 0
    if found <= 0:
        mistakes.append(f"{place}: must be above 0")
    return found


def _from_openslo(text: str, path: Path, mistakes: list[str]) -> list[Target]:
    import yaml  # noqa: PLC0415 -- only this form needs it

    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        raise TargetsError(f"{path}: no YAML: {error}") from None
    found: list[Target] = []
    for number, document in enumerate(documents, 1):
        place = f"{path}: document {number}"
        if not isinstance(document, dict) or document.get("apiVersion") != "openslo/v1":
            mistakes.append(f"{place}: apiVersion must be openslo/v1")
        elif document.get("kind") == "SLO":
            found += _from_slo(document, place, mistakes)
    return found


def _from_slo(document: Mapping[str, object], place: str, mistakes: list[str]) -> list[Target]:
    spec = _mapping(document.get("spec"))
    name = _mapping(document.get("metadata")).get("name")
    threshold = _mapping(
        _mapping(_mapping(spec.get("indicator")).get("spec")).get("thresholdMetric")
    )
    source = _mapping(threshold.get("metricSource"))
    if source.get("type") != "ackd":
        mistakes.append(
            f"{place}: spec.indicator.spec.thresholdMetric.metricSource.type must be ackd"
            " (the indicator inside the SLO, not by reference)"
        )
        return []
    if spec.get("budgetingMethod", "Occurrences") != "Occurrences":
        mistakes.append(f"{place}: spec.budgetingMethod: only Occurrences")
    windows = spec.get("timeWindow")
    window = "30d"
    if isinstance(windows, list) and windows:
        first = _mapping(windows[0])
        window = str(first.get("duration"))
        if first.get("isRolling") is False:
            mistakes.append(f"{place}: spec.timeWindow: only rolling windows")
    objectives = spec.get("objectives")
    if not isinstance(objectives, list) or not objectives:
        mistakes.append(f"{place}: spec.objectives: at least one")
        return []
    found = []
    for number, each in enumerate(objectives, 1):
        at = f"{place}: spec.objectives {number}"
        objective = _mapping(each)
        table: dict[str, object] = dict(_mapping(source.get("spec")))
        table["measure"] = table.pop("metric", table.get("measure"))
        table |= {"name": _objective_name(name, objective, objectives), "window": window}
        percent = objective.get("targetPercent")
        table["objective"] = (
            percent / 100 if isinstance(percent, int | float) else objective.get("target")
        )
        if table["measure"] in DURATIONS:
            if objective.get("op", "lte") != "lte":
                mistakes.append(f"{at}: op = {objective.get('op')!r}; only lte")
            table["within"] = f"{objective.get('value')}s"
        target = _target(table, at, mistakes)
        if target is not None:
            found.append(target)
    return found


def _objective_name(
    name: object, objective: Mapping[str, object], objectives: list[object]
) -> object:
    """Several objectives of one SLO need names of their own."""
    own = objective.get("displayName")
    if isinstance(own, str):
        return own
    return name if len(objectives) == 1 else f"{name} {objective.get('value', '')}".strip()


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
