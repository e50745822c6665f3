"""The log of a campaign: a JSON line for each world, and what all of them say together."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ackd_torture.checker import BROKEN
from tests.campaign.plan import WorldPlan
from tests.campaign.world import Judged

PROMISES = tuple(sorted(BROKEN))
FIGURES = ("worlds", "kills", "other_faults", "messages", "excused", *PROMISES)


def line(plan: WorldPlan, judged: Judged, revision: str, began: str) -> dict[str, object]:
    """Of a world that came to its verdict."""
    verdict = judged.verdict
    kills = judged.about["kills"]
    assert isinstance(kills, int)
    return {
        **_head(plan, revision, began),
        "verdict": "kept" if verdict.kept else "broken",
        "kills": kills,
        "other_faults": verdict.faults - kills,
        "messages": verdict.confirmed,
        "acked": verdict.acked,
        "per_s": round(judged.flow.finished / judged.flow.seconds),
        "stall_s": round(judged.flow.stall_s, 1),
        "seconds": round(judged.seconds),
        "drained": verdict.drained,
        "excused": verdict.count("excused"),
        **{word: verdict.count(word) for word in PROMISES},
        "done": judged.about["done"],
    }


def broken_down(
    plan: WorldPlan, error: BaseException, revision: str, began: str
) -> dict[str, object]:
    """Of a world without a verdict: a part did not start, or the time was over."""
    while isinstance(error, BaseExceptionGroup):  # the first of those that ended it
        error = error.exceptions[0]
    text = f"{type(error).__name__}: {error}"[:2_000]
    return {**_head(plan, revision, began), "verdict": "none", "error": text}


def _head(plan: WorldPlan, revision: str, began: str) -> dict[str, object]:
    again = (
        f'make campaign ARGS="--world {plan.seed} --kills {plan.kills} --rate {plan.rate_per_s}"'
    )
    return {"began": began, "revision": revision, "plan": plan.facts(), "again": again}


def append(path: Path, entry: Mapping[str, object]) -> None:
    """Write a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """All lines of these files."""
    return [json.loads(text) for path in paths for text in path.read_text().splitlines()]


def summary(entries: Sequence[Mapping[str, Any]]) -> str:
    """A table in Markdown: by broker and kind of store, and all together.

    Worlds without a verdict are counted below it.
    """
    sums: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(FIGURES, 0))
    for entry in entries:
        if entry["verdict"] == "none":
            continue
        plan = entry["plan"]
        for name in (f"{plan['broker']}, {plan['store']}, {plan['durability']}", "all"):
            row = sums[name]
            for figure in FIGURES:
                row[figure] += 1 if figure == "worlds" else entry[figure]
    names = [*sorted(sums.keys() - {"all"}), *(["all"] if sums else [])]
    head = ["broker, store, durability", *(figure.replace("_", " ") for figure in FIGURES)]
    rows = [_row(head), _row(["---", *("---:" for _ in FIGURES)])]
    rows += [_row([name, *(str(sums[name][figure]) for figure in FIGURES)]) for name in names]
    without = sum(entry["verdict"] == "none" for entry in entries)
    return "\n".join([*rows, "", f"Worlds without a verdict: {without}."])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
