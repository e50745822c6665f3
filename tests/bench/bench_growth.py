"""What a message costs while few and while very many others are leased or wait for a retry."""

import random
import time
import urllib.request
from pathlib import Path
from typing import Any

from ackd_torture.parts import EmbeddedStore, Sidecar
from tests.bench.bench_http import produce, sidecar_on
from tests.bench.bench_window import SMALL_BYTES, Talk
from tests.bench.measure import cpu_us
from tests.support.kafka import Kafka

STEPS = (1_000, 10_000, 100_000)
SAMPLE = 2_000
BATCH = 100
LONG_MS = 3_600_000
SOON_MS = 4_000
LIMIT_S = 300.0


class Cost:
    """CPU time of sidecar and store for a number of messages."""

    def __init__(self, sidecar: int, store: int) -> None:
        self._pids = sidecar, store
        self._before = [cpu_us(each) for each in self._pids]

    def each(self, count: int) -> dict[str, float]:
        """Microseconds a message since it was made."""
        spent = [cpu_us(pid) - was for pid, was in zip(self._pids, self._before, strict=True)]
        return {
            "sidecar_us": round(spent[0] / count, 1),
            "store_us": round(spent[1] / count, 2),
        }


def growth(kafka: Kafka, folder: Path) -> dict[str, object]:
    """Costs at 1,000, 10,000 and 100,000 leased messages, then at as many that wait."""
    return {
        "leased": _grown(kafka, folder, "bench-growth-leased", wait=False),
        "waiting": _grown(kafka, folder, "bench-growth-waiting", wait=True),
    }


def _grown(kafka: Kafka, folder: Path, topic: str, *, wait: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    stuck = {} if wait else {"stuck_after_ms": LONG_MS, "span_max": 1_000_000}
    with sidecar_on(kafka, folder, topic, 1, **stuck) as sidecar:
        sidecar.start()
        talk = Talk(sidecar)
        pids = sidecar.pid, EmbeddedStore(sidecar).pid
        held: list[str] = []
        for step in STEPS:
            produce(kafka, topic, step - len(held), SMALL_BYTES)
            cost = Cost(*pids)
            grown = step - len(held)
            new = collect(talk, grown)
            held += new
            row: dict[str, object] = {"open": step, "grant": cost.each(grown)}
            if wait:
                cost = Cost(*pids)
                settle(talk, new, {"do": "retry", "delay_ms": LONG_MS})
                _until_moved(sidecar, step)
                row["send back"] = cost.each(grown)
            else:
                row |= _leased(talk, pids, held)
            produce(kafka, topic, SAMPLE, SMALL_BYTES)
            cost = Cost(*pids)
            settle(talk, collect(talk, SAMPLE), {"do": "ack"})
            row["grant and ack"] = cost.each(SAMPLE)
            rows.append(row)
    return rows


def _leased(talk: Talk, pids: tuple[int, int], held: list[str]) -> dict[str, object]:
    """Extend some anywhere in the window; then let those run out and come again."""
    chosen = random.Random(1).sample(range(len(held)), min(SAMPLE, len(held)))
    leases = [held[at] for at in chosen]
    cost = Cost(*pids)
    settle(talk, leases, {"do": "extend", "lease_ms": LONG_MS})
    row: dict[str, object] = {"extend": cost.each(len(leases))}
    cost = Cost(*pids)
    settle(talk, leases, {"do": "extend", "lease_ms": SOON_MS})
    again = collect(talk, len(leases))
    row["extend, expire, grant"] = cost.each(len(leases))
    for at, lease in zip(chosen, again, strict=True):
        held[at] = lease
    return row


def collect(talk: Talk, count: int) -> list[str]:
    end = time.monotonic() + LIMIT_S
    leases: list[str] = []
    while len(leases) < count:
        most = min(BATCH, count - len(leases))
        leases += [each["lease"] for each in talk.receive(most, LONG_MS, 2_000)]
        if time.monotonic() > end:
            raise RuntimeError(f"only {len(leases)} of {count} messages came")
    return leases


def settle(talk: Talk, leases: list[str], item: dict[str, Any]) -> None:
    for at in range(0, len(leases), BATCH):
        items = [{"lease": each, **item} for each in leases[at : at + BATCH]]
        statuses = {each["status"] for each in talk.post("/v1/settle", {"items": items})["results"]}
        if statuses & {"lost", "invalid", "unavailable"}:
            raise RuntimeError(f"not settled: {statuses}")


def _until_moved(sidecar: Sidecar, count: int) -> None:
    end = time.monotonic() + LIMIT_S
    while (moved := _moved(sidecar)) < count:
        if time.monotonic() > end:
            raise RuntimeError(f"only {moved} of {count} wait in the retry topic")
        time.sleep(0.5)


def _moved(sidecar: Sidecar) -> float:
    url = f"http://127.0.0.1:{sidecar.admin_port}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(each.split()[-1]) for each in lines if each.startswith("ackd_retry_topic_messages{")
    )
