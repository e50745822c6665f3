"""Spans on their way to a collector: retries, refusals, bounds (I8)."""

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ackd.telemetry.spans import SpanEvent
from tests.support.otlp import read_line, spans
from tests.support.wait import wait_until, wait_until_async
from tests.unit.telemetry.acked import acks, hidden, metric, traces


class Collector:
    """An OTLP/HTTP receiver that reads with the official messages. `answers`: status, body."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.spans: list[str] = []
        self.tokens: set[str | None] = set()
        self.asked = 0
        self.retry_after = ""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                collector.asked += 1
                collector.tokens.add(self.headers["Authorization"])
                assert self.path == "/v1/traces"
                assert self.headers["Content-Type"] == "application/json"
                data = read_line(body)
                status, answer = collector.answers.pop(0) if collector.answers else (200, b"{}")
                if status == 200:
                    for scope in data.resource_spans[0].scope_spans:
                        collector.spans += [span.name for span in scope.spans]
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                if status != 200 and collector.retry_after:
                    self.send_header("Retry-After", collector.retry_after)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


async def test_a_collector_gets_everything_once(collector: Collector, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("quite-secret\n")
    made = traces(tmp_path, files=False, otlp_url=collector.url, otlp_token_file=token)
    await made.start()
    made.add(SpanEvent.ACK, acks(200))
    await made.stop()
    assert collector.spans.count("process orders") == 200
    assert collector.tokens == {"Bearer quite-secret"}
    assert metric(made, "written", "otlp") == len(collector.spans)
    assert not hidden(tmp_path), "no files without `files`"


async def test_a_collector_that_is_busy_is_asked_again(collector: Collector) -> None:
    collector.answers = [(503, b""), (429, b"")]
    made = traces(Path("/nowhere"), files=False, otlp_url=collector.url)
    await made.start()
    made.add(SpanEvent.ACK, acks(10))
    made.flush()
    await wait_until_async(lambda: _got(collector, 10), "the spans to arrive")
    await made.stop()
    assert collector.spans.count("process orders") == 10
    assert metric(made, "failed", "otlp") == 0


async def test_a_collector_says_how_long_to_wait(collector: Collector) -> None:
    collector.answers, collector.retry_after = [(503, b"")], "2"
    made = traces(Path("/nowhere"), files=False, otlp_url=collector.url)
    started = time.monotonic()
    await made.start()
    made.add(SpanEvent.ACK, acks(1))
    made.flush()
    await wait_until_async(lambda: _got(collector, 1), "the spans to arrive")
    assert time.monotonic() - started >= 2.0
    collector.answers, collector.retry_after = [(429, b"")], "Fri, 31 Dec 1999 23:59:59 GMT"
    made.add(SpanEvent.ACK, acks(1, 1))
    made.flush()
    await wait_until_async(lambda: _got(collector, 2), "the others to arrive")
    await made.stop()
    assert metric(made, "failed", "otlp") == 0


async def _got(collector: Collector, count: int) -> bool:
    return collector.spans.count("process orders") >= count


async def test_what_a_collector_refuses_is_counted(collector: Collector) -> None:
    partial = ExportTraceServiceResponse()
    partial.partial_success.rejected_spans = 3
    collector.answers = [(400, b""), (200, MessageToJson(partial).encode())]
    made = traces(Path("/nowhere"), files=False, otlp_url=collector.url, flush_ms=60_000)
    await made.start()
    made.flush()
    made.add(SpanEvent.ACK, acks(9))
    made.flush()
    await made.stop()
    assert metric(made, "failed", "otlp") == 1 + 3, "the start, and three of nine"


async def test_without_a_collector_files_are_written_all_the_same(tmp_path: Path) -> None:
    made = traces(tmp_path, otlp_url="http://127.0.0.1:9/v1/traces", buffer_max=100)
    await made.start()
    for part in range(10):
        made.add(SpanEvent.ACK, acks(50, part * 50))
        made.flush()
        wait_until(
            lambda: made.exports.exporters[0]._put == made.exports.exporters[0]._taken, "the file"
        )
    await made.stop()
    assert sum(each["ackd.event"] == "ack" for each in spans(tmp_path)) == 500
    assert metric(made, "full", "otlp") + metric(made, "failed", "otlp") == 500 + 3
