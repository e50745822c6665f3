"""A hundred thousand messages wait with random delays: who is due comes in time, wherever it is
(I4), and the bodies of the others are not in memory.
"""

import http.client
import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.parts import Sidecar
from tests.chaos.judged import metric
from tests.chaos.world import Http, KafkaAt, produce, world
from tests.support.limits import limit
from tests.support.wait import wait_until

pytestmark = [pytest.mark.alone, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

SEED = 2101
COUNT = int(os.environ.get("ACKD_TEST_WAITING", "100000"))
DUE = COUNT // 50
WITHIN_MS = 10_000
"""So long it takes until all that are to come in this test are due."""
LATER_MS = (1_800_000, 36_000_000)
LEASE_MS = 1_200_000
BODY = 1_024
BATCH = 500
LATE_P99_MS = limit(250, busy=2_000)
RESIDENT_BYTES_EACH = 2_500
RESIDENT_MIB = 100 + 64
"""The process itself, and what it may fetch ahead (`window_bytes_max`)."""


def wall_ms() -> int:
    """Unix time."""
    return time.time_ns() // 1_000_000


def resident_mib(pid: int) -> float:
    """Memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(each for each in status.splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def test_i4_those_that_are_due_come_in_time_while_very_many_wait(
    at_kafka: KafkaAt, folder: Path, figure: Callable[[str, float], None]
) -> None:
    """Default settings; settled in random order."""
    rng = random.Random(SEED)
    with world(at_kafka, folder) as deployment:
        produce(at_kafka.kafka, deployment.topic, COUNT, pad=BODY)
        sidecar = deployment.sidecar("s1")
        client = Http(sidecar, timeout_s=60)
        place = all_leased(client)
        leases = sorted(place)
        rng.shuffle(leases)
        soon, later = leases[:DUE], leases[DUE:]
        retry(client, place, [(lease, rng.randint(*LATER_MS)) for lease in later])
        wait_until(
            lambda: (
                metric(sidecar, "ackd_retry_topic_messages{") >= len(later) and settled(sidecar)
            ),
            "all to wait",
            timeout_s=300,
        )
        memory = resident_mib(sidecar.pid)
        in_memory = metric(sidecar, "ackd_window_bytes{")
        figure(f"memory_with_{COUNT}_waiting_mib", round(memory, 1))
        figure(f"bodies_in_memory_with_{COUNT}_waiting_mib", round(in_memory / 2**20, 2))
        spilled = metric(sidecar, "ackd_spilled_bytes{")
        figure(f"spilled_with_{COUNT}_waiting_mib", round(spilled / 2**20, 1))
        assert in_memory <= 2 * DUE * (BODY + 1_000)  # those that are leased have theirs there
        assert memory < RESIDENT_MIB + COUNT * RESIDENT_BYTES_EACH / 2**20
        delays = [(lease, 4_000 + rng.randrange(WITHIN_MS)) for lease in soon]
        due = retry(client, place, delays)
        late = sorted(arrivals(sidecar, due))
        assert len(late) == DUE
        figure(f"retry_lateness_p50_with_{COUNT}_waiting_ms", late[len(late) // 2])
        figure(f"retry_lateness_p99_with_{COUNT}_waiting_ms", late[len(late) * 99 // 100])
        assert late[0] >= -2
        assert late[len(late) * 99 // 100] <= LATE_P99_MS


def settled(sidecar: Sidecar) -> bool:
    """No body waits for its place on the disk any more."""
    return metric(sidecar, "ackd_window_bytes{") <= 2 * DUE * (BODY + 1_000)


def all_leased(client: Http) -> dict[str, str]:
    """Receive all; ids by lease."""
    place: dict[str, str] = {}
    while len(place) < COUNT:
        for each in client.receive(lease_ms=LEASE_MS):
            place[str(each["lease"])] = str(each["id"])
    return place


def retry(
    client: Http, place: Mapping[str, str], delays: Sequence[tuple[str, int]]
) -> dict[str, int]:
    """Let these wait; when each is due, by its id."""
    due: dict[str, int] = {}
    for at in range(0, len(delays), BATCH):
        some = delays[at : at + BATCH]
        items = [{"lease": lease, "do": "retry", "delay_ms": delay} for lease, delay in some]
        status, answer = client.post("/v1/settle", {"items": items})
        assert status == 200
        for (lease, _), result in zip(some, answer["results"], strict=True):
            assert result["status"] == "retrying", result
            due[place[lease]] = int(result["due_ms"])
    return due


def arrivals(sidecar: Sidecar, due: Mapping[str, int]) -> list[int]:
    """How late each came, in ms; four receivers that ack."""
    late: dict[str, int] = {}
    end_ms = max(due.values()) + 30_000

    def receive() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", sidecar.port, timeout=60)

        def post(path: str, body: Mapping[str, object]) -> Any:
            kind = {"content-type": "application/json"}
            connection.request("POST", path, json.dumps(body).encode(), kind)
            return json.loads(connection.getresponse().read())

        while len(late) < len(due) and wall_ms() < end_ms:
            answer = post("/v1/subscriptions/orders/receive", {"max": 100, "wait_ms": 1_000})
            now_ms, messages = wall_ms(), answer["messages"]
            for each in messages:
                assert each["id"] not in late, each
                late[each["id"]] = now_ms - due[each["id"]]
            if messages:
                items = [{"lease": each["lease"], "do": "ack"} for each in messages]
                post("/v1/settle", {"items": items})
        connection.close()

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(receive) for _ in range(4)]:
            each.result()
    return list(late.values())
