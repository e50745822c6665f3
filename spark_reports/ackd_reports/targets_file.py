"""Targets from a file: short TOML, or OpenSLO v1.

TOML, one table a target:

    [[target]]
    name = "orders in time"
    measure = "time_to_ack"     # or wait, work, lease_to_ack, delivered, first_attempt
    within = "30s"              # durations only
    objective = 0.99
    window = "30d"              # of compliance, budget and burn rates; default 30d
    topic = "orders"            # optional: system, cluster, topic, group, application

`docs/operate/reports.md` has the rest.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from ackd_reports.openslo import targets_of
from ackd_reports.targets import Target, TargetsError, target_of

TARGETS_MAX: Final = 100


def load(path: Path) -> tuple[Target, ...]:
    """Targets of a file, by its ending: .toml, .yaml, .yml or .json (OpenSLO). `TargetsError`."""
    text = path.read_text(encoding="utf-8")
    mistakes: list[str] = []
    targets = (
        _from_toml(text, path, mistakes)
        if path.suffix == ".toml"
        else targets_of(text, str(path), mistakes)
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
        # Two SLOs may share an indicator with a mistake.
        raise TargetsError("\n".join(dict.fromkeys(mistakes)))
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
    for number, table in enumerate(listed, 1):
        place = f"{path}: target {number}"
        if not isinstance(table, dict):
            mistakes.append(f"{place}: not a table")
            continue
        target = target_of(table, place, mistakes)
        if target is not None:
            found.append(target)
    return found
