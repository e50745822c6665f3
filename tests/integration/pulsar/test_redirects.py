"""A broker that does not own a topic sends questions and changes on to the one that does."""

import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ackd_adapters.pulsar.rest import Admin, Rest, table
from tests.support.pulsar import Pulsar

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(240)]


def test_changes_are_made_at_the_broker_that_owns_the_topic(pulsar: Pulsar) -> None:
    asked: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        """Sends everything to the real broker."""

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(self.command)
            self.send_response(307)
            self.send_header("Location", f"{pulsar.web_url}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 -- as the base class calls them

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as front:
        threading.Thread(target=front.serve_forever, args=(0.02,), daemon=True).start()
        rest = Rest(Admin(f"http://127.0.0.1:{front.server_address[1]}", None, None, 30.0))
        path = f"persistent/public/default/moved-{uuid.uuid4().hex[:8]}"
        try:
            rest.ask("PUT", f"{path}/partitions", 2)
            assert table(rest.ask("GET", f"{path}/partitions"))["partitions"] == 2
            rest.ask("POST", f"{path}/partitions", 4)
            assert table(rest.ask("GET", f"{path}/partitions"))["partitions"] == 4
            rest.ask("DELETE", f"{path}/partitions")
        finally:
            rest.close()
            front.shutdown()
    assert asked == ["PUT", "GET", "POST", "GET", "DELETE"]
