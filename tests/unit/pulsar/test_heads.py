"""Questions on connections that stay open: closed by the server, sent on, refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from ackd_adapters.pulsar.heads import Heads
from ackd_adapters.pulsar.rest import Admin, RestError


class Server(BaseHTTPRequestHandler):
    """Answers by the last part of the path, and keeps connections."""

    protocol_version = "HTTP/1.1"
    connections: ClassVar[set[object]] = set()
    tokens: ClassVar[list[str | None]] = []

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base's name
        """Say nothing."""

    def do_HEAD(self) -> None:
        """One question."""
        self.connections.add(self.client_address)
        self.tokens.append(self.headers.get("Authorization"))
        what = self.path.rpartition("/")[2]
        if what == "missing":
            self.send_response(404)
        elif what == "round":
            self.send_response(307)
            self.send_header("Location", self.path)
        elif what in ("else", "plain"):
            self.send_response(307)
            scheme = "https" if what == "plain" else "http"
            self.send_header("Location", f"{scheme}://{self.headers['Host']}/admin/v2/there")
        else:
            self.send_response(200)
            self.send_header("X-Said", what)
        self.send_header("Content-Length", "0")
        self.end_headers()
        if what == "last":
            self.close_connection = True  # without a word


@contextmanager
def served() -> Iterator[Heads]:
    """Asks a server that runs."""
    Server.connections, Server.tokens = set(), []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/"
    heads = Heads(Admin(url, tls=None, token=lambda: "t", timeout_s=20))
    try:
        yield heads
    finally:
        heads.close()
        server.shutdown()
        server.server_close()
        thread.join(20)


def test_a_connection_is_kept_and_made_anew_when_the_server_has_closed_it() -> None:
    with served() as heads:
        assert [heads.ask(each)["x-said"] for each in ("a", "b", "last")] == ["a", "b", "last"]
        assert len(Server.connections) == 1
        assert heads.ask("c")["x-said"] == "c"
        assert len(Server.connections) == 2
        assert set(Server.tokens) == {"Bearer t"}


def test_it_goes_where_it_is_sent_but_not_for_ever_nor_elsewhere_than_by_the_same_scheme() -> None:
    with served() as heads:
        assert heads.ask("else")["x-said"] == "there"
        for path in ("round", "plain"):
            with pytest.raises(RestError, match="led nowhere") as refused:
                heads.ask(path)
            assert refused.value.status_code == 0


def test_refusals_have_their_status_and_nobody_there_has_none() -> None:
    with served() as heads:
        with pytest.raises(RestError) as refused:
            heads.ask("missing")
        assert refused.value.status_code == 404
        assert heads.ask("a")["x-said"] == "a"
    with pytest.raises(RestError) as refused:
        heads.ask("a")
    assert refused.value.status_code == 0
