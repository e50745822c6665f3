"""What 100,000 open messages cost in memory, how late deadlines are among them, and the start."""

import http.client
import json
import random
import time
from pathlib import Path
from typing import Any

from ackd.malloc import TRIM_S
from ackd_torture.parts import LocalQueue, Sidecar, SidecarPlan
from tests.bench.bench_http import produce, sidecar_on
from tests.bench.measure import percentile_ms, rss_mb
from tests.support.kafka import Kafka

OPEN = 100_000
SMALL_BYTES = 32
DUE = 5_000
LATE_LIMIT_S = 60.0


class Talk:
    """One plain connection."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", sidecar.port, timeout=60)

    def post(self, path: str, body: dict[str, object]) -> Any:
        """The decoded answer; anything but 200 is an error."""
        kind = {"content-type": "application/json"}
        self._connection.request("POST", path, json.dumps(body), kind)
        answer = self._connection.getresponse()
        raw = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {raw[:300]!r}")
        return json.loads(raw)

    def receive(self, most: int, lease_ms: int, wait_ms: int) -> list[dict[str, Any]]:
        """Messages."""
        body: dict[str, object] = {"max": most, "lease_ms": lease_ms, "wait_ms": wait_ms}
        return list(self.post("/v1/subscriptions/bench/receive", body)["messages"])


def window(kafka: Kafka, folder: Path) -> dict[str, object]:
    """Open 100,000 messages above a head that stays, then let some of their leases run out."""
    with sidecar_on(kafka, folder, "bench-window", 1) as sidecar:
        produce(kafka, "bench-window", OPEN + 1, SMALL_BYTES)
        sidecar.start()
        talk = Talk(sidecar)
        empty_mb = rss_mb(sidecar.pid)
        held: list[dict[str, Any]] = []
        end = time.monotonic() + 240
        while len(held) < OPEN + 1:
            held += talk.receive(1000, 3_600_000, 2_000)
            if time.monotonic() > end:
                raise RuntimeError(f"only {len(held)} messages are open")
        time.sleep(3.0 + TRIM_S)
        open_mb = rss_mb(sidecar.pid)
        late = deadlines(talk, [each["lease"] for each in held])
        return {
            "open": OPEN,
            "rss_before_mb": round(empty_mb, 1),
            "rss_open_mb": round(open_mb, 1),
            "rss_after_expiries_mb": round(rss_mb(sidecar.pid), 1),
            "deadlines": late,
        }


def deadlines(talk: Talk, leases: list[str]) -> dict[str, object]:
    """Give 5,000 of them, anywhere in the window, deadlines within 3 to 8 s; see when they come."""
    rng = random.Random(1)
    due: dict[str, int] = {}
    now_ms = time.time_ns() // 1_000_000
    chosen = rng.sample(leases, DUE)
    for at in range(0, DUE, 1000):
        part = chosen[at : at + 1000]
        items = [
            {"lease": each, "do": "extend", "lease_ms": rng.randint(4_000, 9_000)} for each in part
        ]
        results = talk.post("/v1/settle", {"items": items})["results"]
        due |= {e: r["deadline_ms"] for e, r in zip(part, results, strict=True)}
    if min(due.values()) < now_ms:
        raise RuntimeError("deadlines passed before the measurement began")
    ends = sorted(due.values())
    late_us: list[int] = []
    came = 0
    end = time.monotonic() + LATE_LIMIT_S
    while came < DUE and time.monotonic() < end:
        messages = talk.receive(1000, 3_600_000, 2_000)
        granted_ms = [each["deadline_ms"] - 3_600_000 for each in messages]
        # Deadlines run out in order, and whoever is due first is handed out first.
        for each_ms in granted_ms:
            late_us.append(max(0, each_ms - ends[came]) * 1000)
            came += 1
    return {
        "due": DUE,
        "came": came,
        "p50_ms": percentile_ms(late_us, 0.5),
        "p99_ms": percentile_ms(late_us, 0.99),
        "max_ms": percentile_ms(late_us, 1.0),
    }


def start(kafka: Kafka, folder: Path) -> dict[str, object]:
    """From the start of the process to ready: with the local queue, and on Kafka."""
    found: dict[str, object] = {}
    plan = SidecarPlan(broker=LocalQueue(folder), store_url="embedded", topic="bench", sub="bench")
    local = Sidecar("bench-start-local", plan, folder)
    try:
        times = [timed(local) for _ in range(3)]
        found["local_s"] = sorted(times)[1]
    finally:
        local.stop()
    with sidecar_on(kafka, folder, "bench-start", 8) as sidecar:
        found["kafka_first_time_s"] = timed(sidecar)
        found["kafka_again_s"] = sorted(timed(sidecar) for _ in range(3))[1]
    return found


def timed(sidecar: Sidecar) -> float:
    """Start once (an orderly stop first, if it runs)."""
    if sidecar.running:
        sidecar.terminate()
    began = time.monotonic()
    sidecar.launch()
    sidecar.wait_ready()
    return round(time.monotonic() - began, 2)
