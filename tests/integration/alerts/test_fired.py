"""Alerts that fire at a real Prometheus which scrapes a real sidecar that is in trouble."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from ackd_torture.ports import free_port, give_back
from tests.conftest import RedisFactory
from tests.integration.http.conftest import Sidecar, call
from tests.support.paths import remove_run_dir, run_dir
from tests.support.proc import Process
from tests.support.prometheus import Prometheus, missing
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary
from tests.support.require import require
from tests.support.wait import wait_until

CONFIG = """
state_dir = "{folder}/state"

[server]
listen = "127.0.0.1:{port}"
admin_listen = "127.0.0.1:{admin_port}"
drain_ms = 200

[store]
url = "{url}"
timeout_ms = 3000
grace_ms = 500

[brokers.local]
adapter = "local"

[subscriptions.orders]
topics = ["orders"]
start = "earliest"
"""
BASE = "/v1/subscriptions/orders"
MANY = 15
LEASE_MS = 400


@pytest.fixture
def server(own_redis: RedisFactory) -> RedisServer:
    """The store's."""
    require(missing())
    return own_redis(RedisOptions(binary(Flavour.VALKEY)))


@pytest.fixture
def sidecar(server: RedisServer) -> Iterator[Sidecar]:
    """Ready, with an empty topic."""
    folder: Path = run_dir("alerts")
    port, admin_port = free_port(), free_port()
    file = folder / "ackd.toml"
    file.write_text(CONFIG.format(folder=folder, port=port, admin_port=admin_port, url=server.url))
    argv: list[str | Path] = [sys.executable, "-m", "ackd", "serve", "--config", file]
    process = Process(argv, log_path=folder / "log")
    started = Sidecar(process, f"127.0.0.1:{port}", port, admin_port, folder)
    try:
        started.start()
        yield started
        assert process.running, process.log()
    finally:
        process.kill()  # gently it would wait for leases that are still out
        give_back(port, admin_port)
        remove_run_dir(folder)


@pytest.fixture
def prometheus(sidecar: Sidecar) -> Iterator[Prometheus]:
    """It has scraped the sidecar, and no alert fires."""
    with Prometheus(sidecar.admin_port) as started:
        wait_until(lambda: started.value("ackd_store_up"), "a scrape")
        wait_until(lambda: started.firing() == {}, "no alert fires")
        yield started


def take(sidecar: Sidecar, count: int) -> list[str]:
    """Publish so many messages and lease them."""
    for number in range(count):
        status, _ = call(sidecar.port, "POST", "/v1/topics/orders/messages", b"%d" % number)
        assert status == HTTPStatus.CREATED
    return receive(sidecar, count)


def receive(sidecar: Sidecar, count: int) -> list[str]:
    """Leases of so many messages, for a minute."""
    leases: list[str] = []

    def enough() -> bool:
        body = {"max": count - len(leases), "wait_ms": 500, "lease_ms": 60_000}
        _, answer = call(sidecar.port, "POST", f"{BASE}/receive", json.dumps(body).encode())
        leases.extend(message["lease"] for message in answer["messages"])
        return len(leases) == count

    wait_until(enough, f"{count} leases")
    return leases


def settle(sidecar: Sidecar, leases: list[str], do: str, **more: object) -> list[str]:
    """What became of each."""
    items = [{"lease": lease, "do": do, **more} for lease in leases]
    raw = json.dumps({"items": items}).encode()
    return [each["status"] for each in call(sidecar.port, "POST", "/v1/settle", raw)[1]["results"]]


def let_run_out(sidecar: Sidecar, prometheus: Prometheus, leases: list[str]) -> None:
    """End these leases by their deadline; nobody has the messages then."""
    before = prometheus.value("ackd_lease_expiries_total")
    settled = settle(sidecar, leases, "extend", lease_ms=LEASE_MS)
    assert settled == ["extended"] * len(leases)
    wait_until(
        lambda: prometheus.value("ackd_lease_expiries_total") >= before + len(leases),
        f"{len(leases)} leases run out",
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_alerts_fire_for_what_happens(
    server: RedisServer, sidecar: Sidecar, prometheus: Prometheus
) -> None:
    def fires(*names: str) -> None:
        wait_until(lambda: set(names) <= prometheus.firing().keys(), f"{names} fire", timeout_s=60)

    # The first event of each kind counts: its series was there before, at 0.
    assert settle(sidecar, take(sidecar, 1), "dead") == ["dead"]
    fires("AckdDeadLettersGrow")
    # Acks behind the deadline; those of messages that somebody else has had meanwhile are lost.
    late = take(sidecar, MANY)
    let_run_out(sidecar, prometheus, late)
    assert settle(sidecar, late, "ack") == ["acked"] * MANY
    lost = take(sidecar, MANY)
    let_run_out(sidecar, prometheus, lost)
    receive(sidecar, MANY)
    assert settle(sidecar, lost, "ack") == ["lost"] * MANY
    fires("AckdLateAcks", "AckdLostSettles", "AckdLeasesExpire")
    assert call(sidecar.admin_port, "POST", f"{BASE}/pause", b"{}")[0] == HTTPStatus.OK
    fires("AckdPausedForLong")
    assert call(sidecar.admin_port, "POST", f"{BASE}/resume", b"{}")[0] == HTTPStatus.OK
    wait_until(lambda: "AckdPausedForLong" not in prometheus.firing(), "the pause is over")
    # The store dies, and another run of it comes back.
    server.kill()
    fires("AckdStoreAway", "AckdNotReady")
    told = prometheus.firing()["AckdStoreAway"]
    assert told["labels"]["severity"] == "page"
    assert "does not reach its store" in told["annotations"]["summary"]
    server.start()
    fires("AckdStoreRestarted", "AckdPossibleRollback")
    wait_until(lambda: "AckdStoreAway" not in prometheus.firing(), "the store is back")
    # What did not happen is not told.
    wrong = {"AckdBrokerAway", "AckdNoOwner", "AckdClockSkew", "AckdExpiredByRetention"}
    assert not wrong & prometheus.firing().keys()


@pytest.mark.slow
def test_somebody_is_told_when_no_sidecar_is_left(sidecar: Sidecar, prometheus: Prometheus) -> None:
    """Every other rule is silent then: it has no series to judge."""
    sidecar.process.kill()
    wait_until(lambda: {"AckdNoSidecar"} == prometheus.firing().keys(), "it alone fires")
    sidecar.start()
    wait_until(lambda: "AckdNoSidecar" not in prometheus.firing(), "it runs again")
