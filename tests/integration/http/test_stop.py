"""A sidecar beside an application in one pod: it is drained, gives back what is left, and hands out
only to an application that is well.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ackd.cli.main import main
from ackd_torture.ports import free_port, give_back
from tests.integration.http.conftest import Sidecar, call, sidecar_in
from tests.support.paths import remove_run_dir, run_dir
from tests.support.wait import wait_until

Json = dict[str, Any]


@contextmanager
def sidecar_with(server: str, more: str = "", drain_ms: int = 60_000) -> Iterator[Sidecar]:
    """One with further settings; started, with an empty topic `orders`."""
    folder = run_dir("stop")
    made = sidecar_in(folder, drain_ms=drain_ms)
    config = folder / "ackd.toml"
    text = config.read_text().replace("[brokers.local]", f"{server}\n{more}\n[brokers.local]", 1)
    config.write_text(text)
    try:
        made.process.start()
        wait_until(
            lambda: all(publish(made, topic) == 201 for topic in ("orders", "images")),
            "the topics are there",
            timeout_s=60,
            ignoring=(OSError,),
        )
        wait_until(made.ready, "the sidecar is ready", timeout_s=60, ignoring=(OSError,))
        yield made
    finally:
        made.process.stop()
        give_back(made.port, made.admin_port)
        remove_run_dir(folder)


def publish(sidecar: Sidecar, topic: str = "orders") -> int:
    return call(sidecar.port, "POST", f"/v1/topics/{topic}/messages", b"1")[0]


def receive(sidecar: Sidecar, most: int = 10) -> Json:
    body = json.dumps({"max": most, "wait_ms": 500}).encode()
    return call(sidecar.port, "POST", "/v1/subscriptions/orders/receive", body)[1]


def some(sidecar: Sidecar, most: int = 10) -> list[Json]:
    """Messages, as soon as there are any."""

    def look() -> list[Json]:
        found: list[Json] = receive(sidecar, most).get("messages", [])
        return found

    found: list[Json] = wait_until(look, "messages are handed out", ignoring=(OSError,))
    return found


def test_what_the_application_holds_is_given_back_uncounted() -> None:
    """SIGTERM with `stop = "release"`: at once, and no attempt was used (I1, I2)."""
    with sidecar_with('stop = "release"') as sidecar:
        publish(sidecar)
        publish(sidecar)
        first = some(sidecar, 1) + some(sidecar, 1) + some(sidecar, 1)
        assert call(sidecar.port, "POST", f"/v1/leases/{first[0]['lease']}/ack")[0] == 200
        start_s = time.monotonic()
        sidecar.process.stop()
        assert time.monotonic() - start_s < 30, "it did not wait for settles as long as drain_ms"
        assert "ackd released 2 leases" in sidecar.process.log()
        sidecar.start()
        again: list[Json] = []
        while len(again) < 2:
            again += some(sidecar)
        assert sorted(m["id"] for m in again) == sorted(m["id"] for m in first[1:])
        assert [m["attempt"] for m in again] == [1, 1]


def test_drain_hands_out_nothing_and_settles_go_on() -> None:
    """What a pod's preStop hook does."""
    with sidecar_with("", drain_ms=500) as sidecar:
        publish(sidecar)
        (held, *_) = some(sidecar, 1)
        assert main(["drain", "--url", sidecar.admin_url]) == 0
        body = b'{"wait_ms": 0}'
        status, problem = call(sidecar.port, "POST", "/v1/subscriptions/orders/receive", body)
        assert (status, problem["type"].rpartition("/")[2]) == (503, "draining")
        assert call(sidecar.admin_port, "GET", "/readyz")[0] == 503
        status, settled = call(sidecar.port, "POST", f"/v1/leases/{held['lease']}/ack")
        assert status == 200, settled


def test_probes_have_a_port_of_their_own() -> None:
    """Nothing else is served there, so that it may be open to other machines."""
    port = free_port()
    try:
        with sidecar_with(f'health_listen = ":{port}"', drain_ms=500) as sidecar:
            assert call(port, "GET", "/livez")[0] == 200
            assert call(port, "GET", "/readyz")[0] == 200
            for method, path in (
                ("GET", "/v1/info"),
                ("POST", "/v1/drain"),
                ("GET", "/openapi.json"),
                ("POST", "/v1/subscriptions/orders/receive"),
            ):
                assert call(port, method, path)[0] == 404, path
            assert call(sidecar.admin_port, "GET", "/v1/info")[0] == 200
    finally:
        give_back(port)


class _App(BaseHTTPRequestHandler):
    """An application with a health address."""

    status = 503

    def do_GET(self) -> None:
        self.send_response(type(self).status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@contextmanager
def application(port: int) -> Iterator[Callable[[], None]]:
    """A running one; call what it gives to end it."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _App)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def end() -> None:
        server.shutdown()
        server.server_close()

    try:
        yield end
    finally:
        end()
        thread.join()


def test_only_a_well_application_gets_messages() -> None:
    """And when nobody listens there any more, its leases end at once, counted."""
    port = free_port()
    more = (
        f'[app]\nhealth_url = "http://127.0.0.1:{port}/healthz"\n'
        'health_every_ms = 100\ndown_leases = "retry"\n'
    )
    _App.status = 503
    try:
        with sidecar_with("", more, drain_ms=500) as sidecar:
            with application(port) as end:
                answer = receive(sidecar)
                assert answer["messages"] == []
                assert "not well" in answer["paused"]["reason"]
                _App.status = 200
                (held, *_) = some(sidecar, 1)
                assert held["attempt"] == 1
                end()
                wait_until(
                    lambda: (
                        call(sidecar.port, "GET", f"/v1/leases/{held['lease']}")[1].get("state")
                        != "leased"
                    ),
                    "the lease of the application that is gone has ended",
                )
                assert receive(sidecar)["messages"] == []
            with application(port):
                (again, *_) = some(sidecar, 1)
                assert (again["id"], again["attempt"]) == (held["id"], 2)
    finally:
        give_back(port)
