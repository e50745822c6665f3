"""The verdict for people (a table) and for machines (JSON, which the documentation quotes)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ackd_torture.checker import BROKEN, WORDS, Verdict, percentile

SHOWN_MAX = 10
MEANING = {
    "lost": "confirmed to its publisher, never delivered",
    "stranded": "delivered, never finished",
    "unexpected": "delivered, never published",
    "acked_then_redelivered": "delivered after its ack was answered",
    "double_leases": "two holders at once",
    "ended_early": "a lease that ended before its deadline",
    "false_yes": "a yes that was not true",
    "out_of_order": "delivered before an earlier one of its key was over",
    "duplicated": "one message in several places at the broker",
    "recovered": "its publisher had no clear answer; it came",
    "excused": "acked, then the store's data was destroyed; came again",
}


def spread(values_us: list[int]) -> dict[str, float | int]:
    """Count and percentiles in milliseconds."""
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    figures = {name: round(percentile(values_us, at) / 1000, 1) for name, at in shares.items()}
    return {"count": len(values_us), **figures}


def as_json(verdict: Verdict, about: Mapping[str, object]) -> dict[str, object]:
    """Everything of a run. `about`: seed, set-up, faults, versions."""
    resumed: dict[str, list[int]] = defaultdict(list)
    for note, after_us in verdict.resumed_us:
        resumed[note].append(after_us)
    return {
        "kept": verdict.kept,
        "about": dict(about),
        "attempted": verdict.attempted,
        "confirmed": verdict.confirmed,
        "unclear": verdict.unclear,
        "delivered": verdict.delivered,
        "deliveries": verdict.deliveries,
        "redelivered": verdict.redelivered,
        "acked": verdict.acked,
        "acks_unclear": verdict.acks_unclear,
        "replays": verdict.replays,
        "ordering_keys": verdict.ordering_keys,
        "clocks_apart_ms": round(verdict.clocks_apart_us / 1000, 1),
        "drained": verdict.drained,
        **{word: verdict.count(word) for word in WORDS},
        "deadline_lateness_ms": spread(verdict.lateness_us),
        "deadline_lateness_near_faults_ms": spread(verdict.lateness_faults_us),
        "resumed_ms": {note: spread(values) for note, values in sorted(resumed.items())},
        "cases": {
            word: [{"msg": e.msg, "id": e.id, "sub": e.sub, "text": e.text} for e in found[:100]]
            for word, found in verdict.findings.items()
            if found and word not in {"recovered", "excused"}
        },
    }


def save(path: Path, verdict: Verdict, about: Mapping[str, object]) -> None:
    """Write the verdict and the facts of the run to a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(verdict, about), indent=2) + "\n")


def show(console: Console, verdict: Verdict, about: Mapping[str, object]) -> None:
    """Print the table and the first cases of each broken promise."""
    title = ", ".join(f"{name} {value}" for name, value in about.items())
    table = Table(title=title, title_justify="left", show_edge=False)
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("meaning", style="dim")
    table.add_row("published", str(verdict.confirmed), f"confirmed, of {verdict.attempted} tried")
    table.add_row("delivered", str(verdict.delivered), f"in {verdict.deliveries} deliveries")
    table.add_row("redelivered", str(verdict.redelivered), "retried, expired, given back")
    unclear = f"and {verdict.acks_unclear} acks sent that were never answered"
    table.add_row("acked", str(verdict.acked), unclear if verdict.acks_unclear else "")
    for word in WORDS:
        count = verdict.count(word)
        colour = "red" if word in BROKEN and count else "green" if word in BROKEN else "yellow"
        text = f"[{colour}]{count}[/]" if count or word in BROKEN else "0"
        table.add_row(word.replace("_", " "), text, MEANING[word])
    late = spread(verdict.lateness_us)
    table.add_row("deadline lateness p99", f"{late['p99']} ms", f"of {late['count']} calm ones")
    apart = f"{verdict.clocks_apart_us / 1000:.1f} ms"
    table.add_row("clocks apart", apart, "ackd's from the clients', at least; judged the milder")
    console.print(table)
    for word in BROKEN:
        for finding in verdict.findings[word][:SHOWN_MAX]:
            console.print(f"[red]{word}[/] {finding.msg} at {finding.id}: {finding.text}")
    if not verdict.drained:
        console.print("[red]not drained[/]: the run did not come to an end; loss was not judged")
    if not verdict.judged:
        console.print("[red]nothing was delivered[/]: does a sidecar answer there?")
    if verdict.kept:
        console.print("[green]every promise kept[/]")
    else:
        console.print(f"[red]{'a promise was broken' if verdict.broken else 'nothing is shown'}[/]")
