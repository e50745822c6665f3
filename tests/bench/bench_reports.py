"""Time, CPU and memory of a report of many made-up lives: `python -m tests.bench.bench_reports`.

Each step runs in a process of its own, cold, as a user's would; memory is the largest of the whole
process tree, so Java counts. Traces are kept below `.cache/bench/reports` and made once a size.
DuckDB and Polars do the same beside it where they are installed: see `reports_beside`.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from ackd_reports.generate import GenerationPlan, generate
from tests.support.paths import REPO

SAMPLE_S = 0.2


def measured(command: list[str], out: Path | None = None) -> dict[str, float]:
    """Run it; wall and CPU seconds and peak memory in MB of its process tree. `out`: what it
    printed.
    """
    begun = time.monotonic()
    with (out or Path(os.devnull)).open("wb") as stream:
        process = subprocess.Popen(command, cwd=REPO, stdout=stream)
    seen: dict[int, float] = {}
    peak = 0
    ended = threading.Event()
    while not ended.wait(SAMPLE_S) and process.poll() is None:
        resident = 0
        with suppress(psutil.Error):
            root = psutil.Process(process.pid)
            for each in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    times = each.cpu_times()
                    seen[each.pid] = times.user + times.system
                    resident += each.memory_info().rss
        peak = max(peak, resident)
    return {
        "exit": float(process.wait()),
        "wall_s": round(time.monotonic() - begun, 1),
        "cpu_s": round(sum(seen.values()), 1),
        "peak_mb": round(peak / 1e6),
    }


def main() -> int:
    """Measure; prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--beside", default="duckdb,polars", help="engines to compare with")
    parser.add_argument("--inputs", default="json,parquet", help="what these read")
    parser.add_argument("--copies", type=int, help="a report of a lake so many times as large, too")
    arguments = parser.parse_args()
    folder = REPO / ".cache" / "bench" / "reports" / str(arguments.messages)
    traces = folder / "traces"
    if not (folder / "made").exists():
        made = generate(traces, GenerationPlan(messages=arguments.messages, hours=48, streams=24))
        (folder / "made").write_text(f"{made.spans}\n")
    out = folder / f"out-{time.time_ns()}"
    ackd = [sys.executable, "-m", "ackd", "report", "make", "--until", "last"]
    ackd += ["--master", arguments.master]
    lake = ["--lake", str(out / "lake"), "--out", str(out)]
    found: dict[str, object] = {
        "messages": arguments.messages,
        "spans": int((folder / "made").read_text()),
        "files_mb": round(sum(each.stat().st_size for each in traces.iterdir()) / 1e6, 1),
        "lake_from_json_and_report": measured([*ackd, str(traces), *lake]),
        "report_from_lake": measured([*ackd, *lake]),
        "lake_mb": round(_size(out / "lake") / 1e6, 1),
    }
    if arguments.copies:
        found["from_larger_lake"] = _larger(ackd, out, arguments.copies)
    counts = json.loads((out / "report.json").read_text())["totals"]
    wanted = counts["messages"], counts["acked"]
    for engine in [each for each in arguments.beside.split(",") if each]:
        for kind, path in (("json", traces), ("parquet", out / "lake")):
            # Polars stops at the first broken line, and these have some.
            if kind not in arguments.inputs.split(",") or (engine, kind) == ("polars", "json"):
                continue
            said = out / f"{engine}-{kind}.json"
            beside = [sys.executable, "-m", "tests.bench.reports_beside", engine, kind, str(path)]
            found[f"{engine}_from_{kind}"] = measured(beside, said)
            told = json.loads(said.read_text() or "{}")
            same = (told.get("messages"), told.get("acked")) == wanted
            found[f"{engine}_from_{kind}_counts"] = "equal" if same else told
    print(json.dumps(found, indent=1))  # noqa: T201  what a benchmark is for
    return 0


def _larger(ackd: list[str], out: Path, copies: int) -> dict[str, float]:
    """A report of a lake with as many copies of each life; making that lake is not measured."""
    lake, report = out / "larger-lake", out / "larger"
    command = [sys.executable, "-m", "tests.bench.many_lives", str(out / "lake"), str(copies)]
    subprocess.run([*command, str(lake)], cwd=REPO, check=True)
    took = measured([*ackd, "--lake", str(lake), "--out", str(report)])
    totals = json.loads((report / "report.json").read_text())["totals"]
    return took | {"messages": totals["messages"], "lake_mb": round(_size(lake) / 1e6, 1)}


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


if __name__ == "__main__":
    sys.exit(main())
