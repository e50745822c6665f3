"""Questions about delays that nobody answers: nothing is lost, and nobody waits for ever (I1, I5).

The real admin interface answers, but for those questions while they are made to fail.
"""

import asyncio
import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from ackd.core.ids import TopicPartition
from ackd.ports import ConsumerSpec, Delay, Fetched
from ackd_testing import Reader
from ackd_testing.lab import load, open_broker
from tests.support.pulsar import Pulsar, bare

pytestmark = [pytest.mark.pulsar, pytest.mark.slow, pytest.mark.timeout(240)]

HOUR_MS = 3_600_000
FAILED = 500


class Front(BaseHTTPRequestHandler):
    """Hands everything on, but for questions about entries while `broken`."""

    port: ClassVar[int] = 0
    broken: ClassVar[bool] = False
    asked: ClassVar[int] = 0

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base's name
        """Say nothing."""

    def hand_on(self) -> None:
        """One request and its answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "/entry/" in self.path:
            type(self).asked += 1
            if self.broken:
                self.send_error(FAILED)
                return
        behind = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        kind = {"Content-Type": "application/json"}
        behind.request(self.command, self.path, body or None, kind)
        answer = behind.getresponse()
        text = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower().startswith(("x-pulsar", "content-type")):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        behind.close()

    do_GET = do_PUT = do_POST = do_HEAD = hand_on  # noqa: N815 -- the base's names


@contextmanager
def front(pulsar: Pulsar) -> Iterator[str]:
    """The address of one that runs."""
    Front.port = int(pulsar.web_url.rpartition(":")[2])
    Front.broken, Front.asked = False, 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)


def publish(pulsar: Pulsar, topic: str) -> None:
    """One message that is due in an hour."""
    with bare.client(pulsar.url) as made:
        made.create_producer(topic).send(b"x", deliver_after=timedelta(milliseconds=HOUR_MS))


def delays(reader: Reader) -> dict[int, Delay]:
    """All that were told."""
    return {at: each for event in reader.of(Fetched) for at, each in (event.delays or {}).items()}


async def test_i5_without_an_answer_messages_come_without_their_delay(pulsar: Pulsar) -> None:
    topic = f"delays-{time.time_ns()}"
    code = f"delays of {topic}/0"
    part = TopicPartition(topic, 0)
    await asyncio.to_thread(load, "pulsar")
    await asyncio.to_thread(pulsar.admin.create_topic, f"public/default/{topic}")
    with front(pulsar) as address:
        broker = open_broker(
            "pulsar",
            {
                "service_url": pulsar.url,
                "admin_url": address,
                "batch_messages_max": 1,
                "honor_client_delays": True,
                "client_delays_wait_ms": 3_000,
            },
        )
        await broker.start()
        reader = Reader(broker.consumer(ConsumerSpec("g", (topic,), "test", joins=False)))
        await reader.consumer.start()

        async def comes(count: int) -> None:
            await asyncio.to_thread(publish, pulsar, topic)
            await reader.until(lambda: len(reader.offsets(part)) == count, "it comes", 60)

        reader.fetch_from(part, 0)
        await comes(1)
        due_ms = reader.records[part][0].timestamp_ms + HOUR_MS
        assert abs(delays(reader)[0].due_ms - due_ms) < HOUR_MS // 100
        assert Front.asked == 1
        Front.broken = True
        await comes(2)
        assert delays(reader).keys() == {0}
        assert Front.asked > 2
        assert reader.condition(code) is not None
        Front.asked = 0
        await comes(3)
        assert Front.asked == 1, "it is not waited for again"
        Front.broken = False
        await comes(4)
        assert delays(reader).keys() == {0, 3}
        assert reader.condition(code, cleared=True) is not None
        # Another session asks again.
        before = len(reader.of(Fetched))
        reader.fetch_from(part, 0)
        await reader.until(lambda: len(reader.offsets(part)) == 4, "all again", 60)
        told = [event.delays for event in reader.of(Fetched)[before:]]
        assert {at for each in told for at in each or {}} == {0, 1, 2, 3}
        await broker.close()
