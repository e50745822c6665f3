"""`make bench`: everything that is measured, as a table and as JSON in `.cache/bench`.

`--quick` takes a tenth of the messages and one run: to see that the bench works, not for figures.
`--only throughput,latency` takes some parts: those below, and
`beside`, which is Pulsar and RocketMQ beside their bare clients, on brokers of its own.
"""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.bench_beside import beside
from tests.bench.bench_durability import durability
from tests.bench.bench_growth import growth
from tests.bench.bench_http import baseline, latency, throughput
from tests.bench.bench_keys import keys
from tests.bench.bench_outbox import outbox
from tests.bench.bench_traces import traces
from tests.bench.bench_window import start, window
from tests.bench.measure import machine
from tests.support import kafka as kafka_support
from tests.support.kafka import Kafka, KafkaOptions
from tests.support.paths import CACHE, remove_run_dir, run_dir

PARTS = (
    "baseline",
    "throughput",
    "latency",
    "window",
    "start",
    "growth",
    "keys",
    "outbox",
    "traces",
    "durability",
)
BESIDE = "beside"


def table(found: dict[str, object], rows: list[dict[str, object]]) -> Table:
    """Throughput with the bare server beside it."""
    floor = found.get("baseline_us")
    shown = Table(title="receive + settle, CPU us per message", title_justify="left")
    names = ("partitions", "shape", "batch", "messages_per_s", "sidecar_us", "aim_us")
    for name in (*names, "bare_us", "ratio", "store_us", "aof_bytes", "p50_ms", "p99_ms"):
        shown.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        bare = floor.get(f"{row['shape']} {row['batch']}") if isinstance(floor, dict) else None
        cost = row["sidecar_us"]
        ratio = round(cost / bare, 1) if bare and isinstance(cost, float) else ""
        row |= {"bare_us": bare, "ratio": ratio}
        cells = [str(row[name] if row[name] is not None else "") for name in names]
        cells += [str(bare or ""), str(ratio)]
        cells += [str(row[name]) for name in ("store_us", "aof_bytes", "p50_ms", "p99_ms")]
        shown.add_row(*cells)
    return shown


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join((*PARTS, BESIDE)))
    parser.add_argument("--partitions", default="8,100")
    arguments = parser.parse_args()
    wanted = set(arguments.only.split(","))
    runs, scale = (1, 0.1) if arguments.quick else (arguments.runs, 1.0)
    console = Console(width=140)
    if missing := kafka_support.missing():
        sys.exit(missing)
    folder = run_dir("bench")
    found: dict[str, object] = {"machine": machine(), "quick": arguments.quick}
    try:
        if "baseline" in wanted:
            found["baseline_us"] = baseline(folder, runs, scale)
        if BESIDE in wanted:
            found[BESIDE] = beside(folder, runs, scale)
        if not wanted <= {"baseline", BESIDE}:
            on_kafka(arguments, wanted, folder, found, console)
    finally:
        remove_run_dir(folder)
    return shown(console, found)


def on_kafka(
    arguments: argparse.Namespace,
    wanted: set[str],
    folder: Path,
    found: dict[str, object],
    console: Console,
) -> None:
    """All parts that want one, on the same broker."""
    runs, scale = (1, 0.1) if arguments.quick else (arguments.runs, 1.0)
    rows: list[dict[str, object]] = []
    with Kafka(KafkaOptions(heap_mb=512)) as kafka:
        if "throughput" in wanted:
            for partitions in map(int, arguments.partitions.split(",")):
                done = throughput(kafka, folder, partitions, runs, scale)
                rows += [row.medians() for row in done]
            console.print(table(found, rows))
            found["throughput"] = rows
        if "latency" in wanted:
            seconds = 4.0 if arguments.quick else 15.0
            found["publish_to_lease"] = latency(kafka, folder, 1_000, seconds)
            traced = latency(kafka, folder, 1_000, seconds, traced=True)
            found["publish_to_lease_traced"] = traced
        if "window" in wanted:
            found["window"] = window(kafka, folder)
        if "growth" in wanted:
            found["growth"] = growth(kafka, folder)
        if "keys" in wanted:
            found["keys"] = keys(kafka, folder, scale)
        if "traces" in wanted:
            found["traces"] = traces(kafka, folder, runs, scale)
        if "outbox" in wanted:
            found["outbox"] = outbox(kafka, folder)
        if "durability" in wanted:
            found["durability"] = durability(kafka, folder, runs, scale)
        if "start" in wanted:
            found["start_to_ready"] = start(kafka, folder)


def shown(console: Console, found: dict[str, object]) -> int:
    """Print all and write it down."""
    path = CACHE / "bench" / "http.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    rest = {name: value for name, value in found.items() if name != "throughput"}
    console.print_json(json.dumps(rest))
    console.print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
