"""Questions to the admin interface over connections that are kept."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ackd_adapters.pulsar.rest import KEPT_MAX, Admin, Json, Rest, RestError


class Served(ThreadingHTTPServer):
    """Notes each request with the number of its connection. `closes`: it ends connections after an
    answer without a word, as servers do with those that are idle.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str, str | None]] = []
        self.connections: list[int] = []
        self.bodies: list[bytes] = []
        self.opened = 0
        self.closes = False
        self.together = threading.Barrier(1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Answers as its path says."""

    protocol_version = "HTTP/1.1"
    server: Served

    def setup(self) -> None:
        super().setup()
        self.server.opened += 1
        self.number = self.server.opened

    def answer(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        self.server.bodies.append(self.rfile.read(size))
        token = self.headers.get("Authorization")
        self.server.requests.append((self.command, self.path, token))
        self.server.connections.append(self.number)
        self.server.together.wait(30)
        status, body = 200, json.dumps({"path": self.path}).encode()
        if self.path.endswith("/none"):
            status, body = 404, b"there is none"
        if self.path.endswith(("/elsewhere", "/around")):
            status, body = 307, b""
        self.send_response(status)
        if status == 307:
            there = "there" if self.path.endswith("/elsewhere") else "around"
            self.send_header("Location", f"{self.server.url}/admin/v2/{there}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.server.closes:
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 -- as the base class calls them

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def served() -> Iterator[Served]:
    """A server in a thread."""
    with Served() as made:
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def rest(served: Served) -> Iterator[Rest]:
    """Asks it."""
    made = Rest(Admin(served.url, None, lambda: "secret", 5.0))
    yield made
    made.close()


def test_questions_share_a_connection_and_changes_do_not(served: Served, rest: Rest) -> None:
    for _ in range(3):
        assert rest.table("a/stats?x=1") == {"path": "/admin/v2/a/stats?x=1"}
    rest.ask("PUT", "a/properties", {"b": "c"})
    rest.table("a/stats")
    assert served.connections == [1, 1, 1, 2, 1]
    assert {token for _, _, token in served.requests} == {"Bearer secret"}


def test_a_refusal_is_told_and_keeps_the_connection(served: Served, rest: Rest) -> None:
    for _ in range(2):
        with pytest.raises(RestError, match="GET none: 404 there is none") as caught:
            rest.table("none")
        assert caught.value.status_code == 404
    assert served.connections == [1, 1]


def test_a_connection_that_was_ended_meanwhile_costs_no_question(
    served: Served, rest: Rest
) -> None:
    served.closes = True
    for _ in range(5):
        assert rest.table("a") == {"path": "/admin/v2/a"}
    assert served.connections == [1, 2, 3, 4, 5]


def test_another_broker_is_asked_where_the_first_one_says(served: Served, rest: Rest) -> None:
    assert rest.table("elsewhere") == {"path": "/admin/v2/there"}
    assert {token for _, _, token in served.requests} == {"Bearer secret"}


@pytest.mark.parametrize(("method", "body"), [("PUT", {"a": "b"}), ("POST", 7), ("DELETE", None)])
def test_a_change_is_made_where_the_first_broker_says(
    served: Served, rest: Rest, method: str, body: Json
) -> None:
    """With its body, and by whom."""
    assert rest.ask(method, "elsewhere", body) == {"path": "/admin/v2/there"}
    paths = [(method, "/admin/v2/elsewhere", "Bearer secret"), (method, "/admin/v2/there")]
    assert [each[: len(path)] for each, path in zip(served.requests, paths, strict=True)] == paths
    sent = b"" if body is None else json.dumps(body).encode()
    assert served.bodies == [sent, sent]
    assert {token for _, _, token in served.requests} == {"Bearer secret"}


def test_brokers_that_send_each_other_round_are_an_error(rest: Rest) -> None:
    with pytest.raises(RestError, match="PUT around: redirected more than 5 times"):
        rest.ask("PUT", "around", {})


def test_a_few_connections_are_kept_and_ended(served: Served, rest: Rest) -> None:
    """Many threads at once get one each; no more than the bound wait for the next question."""
    count = KEPT_MAX + 3
    served.together = threading.Barrier(count)
    threads = [threading.Thread(target=rest.table, args=("a",)) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    served.together = threading.Barrier(1)
    assert sorted(served.connections) == list(range(1, count + 1))
    assert len(rest._kept) == KEPT_MAX
    rest.close()
    rest.table("a")
    assert not rest._kept, "a thread may still ask while the adapter is closed"


def test_nobody_there_is_an_error_without_a_status() -> None:
    gone = Rest(Admin("http://127.0.0.1:1", None, None, 1.0))
    with pytest.raises(RestError) as caught:
        gone.table("a")
    assert caught.value.status_code == 0


def test_a_silent_broker_is_waited_for_once(served: Served) -> None:
    """Not again over another connection: the time-out is of the question."""
    rest = Rest(Admin(served.url, None, None, 0.5))
    assert rest.table("a")
    served.together = threading.Barrier(2)
    with pytest.raises(RestError, match="timed out"):
        rest.table("a")
    assert len(served.requests) == 2
    served.together.abort()
    rest.close()


def test_a_proxy_of_the_environment_is_asked(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", served.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr(urllib.request, "_opener", None)  # it has read the environment before
    rest = Rest(Admin("http://pulsar.example:8080", None, None, 5.0))
    assert rest.table("a") == {"path": "http://pulsar.example:8080/admin/v2/a"}
