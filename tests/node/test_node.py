"""The sidecar in real pods: jobs end, and nothing is lost or comes twice when pods come and go."""

import contextlib
import http.client
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.checker import BROKEN, Verdict
from tests.node.conftest import Shops
from tests.node.shop import SIDECAR, Shop
from tests.support.k8s.api import ApiError, Json
from tests.support.node.node import NAME, Cgroup
from tests.support.paths import CACHE
from tests.support.proc import Process
from tests.support.wait import wait_until

pytestmark = [pytest.mark.node, pytest.mark.slow]
IDLE_S = 20.0
IDLE_MB_MAX = 60
FILL = """
import os, sys
with open(sys.argv[1], "w") as group:
    group.write(str(os.getpid()))
held = []
while True:
    held.append(bytearray(b"x" * 1_000_000))
"""
FIGURES = CACHE / "node" / "figures.json"


def assert_kept(verdict: Verdict) -> None:
    """Every promise: nothing lost (I1), nothing acked again (I2), one holder (I3), and so on."""
    broken = {
        word: [finding.text for finding in verdict.findings[word][:5]]
        for word in BROKEN
        if verdict.count(word)
    }
    assert verdict.kept, json.dumps({"drained": verdict.drained, **broken}, indent=1)


def keep(name: str, **figures: object) -> None:
    """Figures for the documentation."""
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    FIGURES.write_text(json.dumps({**known, name: figures}, indent=1))


def counted(shop: Shop, verdict: Verdict) -> dict[str, object]:
    """What a run was, in figures."""
    return {
        "published": verdict.confirmed,
        "deliveries": verdict.deliveries,
        "acked": verdict.acked,
        "lost": verdict.count("lost"),
        "acked_then_redelivered": verdict.count("acked_then_redelivered"),
        "redelivered": verdict.redelivered,
        "highest_attempt": shop.attempts(),
    }


def running_pods(shop: Shop, count: int) -> list[Json]:
    """Wait for a Deployment's pods."""
    pods = shop.wait_settled()
    assert len(pods) == count
    return pods


@pytest.mark.timeout(300)
def test_a_job_completes_and_its_sidecar_is_told_last(shops: Shops) -> None:
    """The Job is Complete although its sidecar never ends by itself; its acks are kept."""
    shop = shops("a-job")
    shop.publish(40)
    shop.create("Job", env={"PLAN": shop.plan(), "UNTIL": "40"}, backoffLimit=0)
    path = f"/apis/batch/v1/namespaces/{shop.name}/jobs/app"

    def complete() -> bool:
        conditions = shop.api.get(path).get("status", {}).get("conditions", [])
        true = {each["type"] for each in conditions if each["status"] == "True"}
        assert "Failed" not in true, shop.told()
        return "Complete" in true

    wait_until(complete, "the Job is complete", timeout_s=180, interval_s=0.2)
    (pod,) = shop.pods()
    sidecar = shop.container(pod, SIDECAR)["state"]["terminated"]
    app = shop.container(pod, "app")["state"]["terminated"]
    assert (sidecar["exitCode"], app["exitCode"]) == (0, 0)
    assert sidecar["finishedAt"] >= app["finishedAt"] >= app["startedAt"] >= sidecar["startedAt"]
    verdict = shop.drain(calm_s=0)
    assert_kept(verdict)
    assert verdict.acked == 40


@pytest.mark.timeout(300)
def test_what_an_idle_sidecar_takes(shops: Shops) -> None:
    """From the process' start to ready, and its memory and CPU while nothing is to do."""
    shop = shops("idle")
    env = {"PLAN": shop.plan(consumers=1, wait_ms=20_000)}
    shop.create("Deployment", env=env, replicas=1)
    ready_at = _first_ready(shop)
    (pod,) = running_pods(shop, 1)
    process = shop.process(pod, SIDECAR)
    ready_s = ready_at - process.create_time()
    before, start = process.cpu_times(), time.monotonic()
    time.sleep(IDLE_S)  # what is measured is time
    after, spent_s = process.cpu_times(), time.monotonic() - start
    cpu_s = after.user + after.system - before.user - before.system
    memory = process.memory_full_info()
    figures = {
        "ready_s": round(ready_s, 2),
        "rss_mb": round(memory.rss / 1e6, 1),
        "uss_mb": round(memory.uss / 1e6, 1),
        "working_set_mb": round(Cgroup.of(process).working_set() / 1e6, 1),
        "cpu_millicores": round(1000 * cpu_s / spent_s, 1),
        "cpu_to_ready_s": round(before.user + before.system, 2),
        "load_average": round(os.getloadavg()[0], 1),
    }
    keep("idle", **figures)
    print(figures)  # noqa: T201  the point of it
    assert figures["uss_mb"] < IDLE_MB_MAX, figures
    assert figures["cpu_millicores"] < 100, figures


def _first_ready(shop: Shop) -> float:
    """When `/readyz` of its only pod said yes first (Unix time, seconds)."""

    def address() -> str:
        return next((str(each["status"].get("podIP", "")) for each in shop.pods()), "")

    where = wait_until(address, "the pod has an address", timeout_s=120, interval_s=0.05)

    def ready() -> bool:
        connection = http.client.HTTPConnection(where, 7082, timeout=5)
        with contextlib.closing(connection):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200

    wait_until(ready, "the sidecar is ready", timeout_s=120, ignoring=(OSError,))
    return time.time_ns() / 1e9


@pytest.mark.timeout(600)
def test_roll_outs_and_no_pods_at_all_under_load(shops: Shops) -> None:
    """What applications hold when their pods end is given back uncounted: two attempts are all
    there are, so messages would be dead letters after the second roll-out if it were counted.
    """
    shop = shops("rolls", lease_ms=60_000, attempts_max=2)
    # It goes at once with whatever it has in hand.
    plan = shop.plan(consumers=6, batch_max=20, work_ms_max=3_000)
    env = {"PLAN": plan, "ON_TERM": "drop"}
    shop.create("Deployment", env=env, replicas=2)
    shop.wait_settled()
    with shop.load(rate_per_s=40):
        wait_until(lambda: shop.acked() > 20, "work", timeout_s=120, interval_s=0.2)
        for revision in ("one", "two"):
            shop.roll_out(revision)
        shop.scale(0)
        before = shop.acked()
        time.sleep(2)  # there is nobody to work meanwhile
        assert shop.acked() == before
        shop.scale(2)
        shop.roll_out("three")
    verdict = shop.drain(calm_s=6)
    assert_kept(verdict)
    keep("roll_outs", **counted(shop, verdict))
    assert verdict.redelivered > 0, "nothing was in hand at any end"
    assert shop.attempts() == 1


@pytest.mark.timeout(900)
def test_kills_out_of_memory_and_a_drained_node(shops: Shops) -> None:
    """Sidecar and application are killed with leases open; then the node is emptied."""
    shop = shops("kills", lease_ms=5_000, attempts_max=1000)
    plan = shop.plan(consumers=4, batch_max=10, work_ms_max=500)
    shop.create("Deployment", env={"PLAN": plan}, replicas=2)
    pods = running_pods(shop, 2)
    with shop.load(rate_per_s=30):
        wait_until(lambda: shop.acked() > 20, "work", timeout_s=120, interval_s=0.2)
        for name, other in ((SIDECAR, "app"), ("app", SIDECAR)):
            others = shop.container(pods[0], other)["restartCount"]
            shop.process(pods[0], name).send_signal(signal.SIGKILL)
            _wait_restarted(shop, pods[0], name)
            assert shop.container(pods[0], other)["restartCount"] == others
            _wait_work(shop)
        _out_of_memory(shop, pods[1])
        _wait_work(shop)
        _drain_node(shop)
        _wait_work(shop)
    verdict = shop.drain(calm_s=8)
    assert_kept(verdict)
    keep("kills", **counted(shop, verdict))


def _wait_work(shop: Shop) -> None:
    before = shop.acked()
    wait_until(lambda: shop.acked() > before + 20, "work", timeout_s=180, interval_s=0.2)


def _wait_restarted(shop: Shop, pod: Json, name: str, times: int = 1) -> Json:
    def again() -> Json:
        found = shop.container(pod, name)
        there = found.get("restartCount", 0) >= times and found.get("ready") is True
        return found if there else {}

    return wait_until(again, f"{name} runs again", timeout_s=180, interval_s=0.2)


def _out_of_memory(shop: Shop, pod: Json) -> None:
    """Something fills the memory of the sidecar's container; the kernel takes the sidecar."""
    victim = shop.process(pod, SIDECAR)
    # It takes who has this number highest, whoever allocates.
    Path(f"/proc/{victim.pid}/oom_score_adj").write_text("1000")
    group = Cgroup.of(victim).folder / "cgroup.procs"
    filler = Process([sys.executable, "-c", FILL, group], log_path=shop.folder / "filler.log")
    filler.start()
    try:
        found = _wait_restarted(shop, pod, SIDECAR)
    finally:
        filler.kill()
    assert found["lastState"]["terminated"]["reason"] == "OOMKilled", found


def _drain_node(shop: Shop) -> None:
    """As `kubectl drain`: no new pods, and each one is evicted."""
    node = f"/api/v1/nodes/{NAME}"
    kind = "application/merge-patch+json"
    shop.api.call("PATCH", node, {"spec": {"unschedulable": True}}, kind)
    old = {str(each["metadata"]["name"]) for each in shop.pods()}
    for name in old:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": shop.name},
        }
        shop.api.call("POST", f"/api/v1/namespaces/{shop.name}/pods/{name}/eviction", eviction)

    def empty() -> bool:
        return not old & {str(each["metadata"]["name"]) for each in shop.pods()}

    wait_until(empty, "the node is empty", timeout_s=180, interval_s=0.2, ignoring=(ApiError,))
    shop.api.call("PATCH", node, {"spec": {"unschedulable": None}}, kind)
    shop.wait_settled()
