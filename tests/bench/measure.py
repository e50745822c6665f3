"""What a process costs, from /proc; and the small sums that the tables need."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench.load import Job


def cpu_us(pid: int) -> int:
    """CPU time of all living threads of a process, from the scheduler's own nanoseconds."""
    total = 0
    for each in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(each.read_text().split()[0])
    return total // 1000


def rss_mb(pid: int) -> float:
    """Resident memory in MB (10^6 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def folder_bytes(folder: Path) -> int:
    """Sum of the sizes of the files below a folder."""
    return sum(each.stat().st_size for each in folder.glob("**/*") if each.is_file())


def percentile_ms(values_us: Sequence[int], share: float) -> float:
    """Nearest rank, in ms."""
    if not values_us:
        return 0.0
    ordered = sorted(values_us)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000, 2)


@dataclass
class Load:
    """The sum of several client processes."""

    done: int = 0
    requests: int = 0
    bad: int = 0
    seconds: float = 0.0
    took_us: list[int] = field(default_factory=list)
    age_us: list[int] = field(default_factory=list)


def drive(job: Job, processes: int) -> Load:
    """Run a job in several processes, which share its connections and messages."""
    share = asdict(job)
    share["connections"] = max(1, job.connections // processes)
    share["messages"] = job.messages // processes
    began = time.monotonic()
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.bench.load", json.dumps(share)], stdout=subprocess.PIPE
        )
        for _ in range(processes)
    ]
    found = Load()
    for each in running:
        output, _ = each.communicate(timeout=job.seconds + 60)
        if each.returncode != 0:
            raise RuntimeError(f"a load client ended with {each.returncode}")
        facts = json.loads(output)
        found.done += facts["done"]
        found.requests += facts["requests"]
        found.bad += facts["bad"]
        found.took_us += facts["took_us"]
        found.age_us += facts["age_us"]
    found.seconds = time.monotonic() - began
    return found


def median(values: Sequence[float], digits: int = 1) -> float:
    """Of the runs."""
    return round(statistics.median(values), digits)


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "?",
    )
    load = Path("/proc/loadavg").read_text().split()[0]
    cores = len([*Path("/sys/devices/system/cpu").glob("cpu[0-9]*")])
    return {"cpu": model, "cores": cores, "load_1min_at_start": float(load)}
