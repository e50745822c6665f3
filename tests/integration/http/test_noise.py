"""Requests with bytes changed, lost and doubled: an answer below 500, or the line is cut."""

from __future__ import annotations

import re
import socket
from collections import Counter
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.http.conftest import Sidecar, call

# An unfinished request gets no answer before its time-out; nobody waits for that here.
QUIET_S = 0.03
SEEN: Counter[int] = Counter()
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def request(method: str, path: str, body: bytes, *headers: str) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


JSON = "Content-Type: application/json"
CHUNKED = (
    b"POST /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
)
GOOD = (
    request("POST", "/v1/subscriptions/orders/receive", b'{"max":2,"attempt_id":"a"}', JSON),
    request("POST", "/v1/settle", b'{"items":[{"lease":"v1.AA","do":"retry","delay_ms":5}]}', JSON),
    request("POST", "/v1/topics/orders/messages", b"value", "Ackd-Key: k", "Ackd-Header-A: b"),
    request("POST", "/v1/topics/orders/messages:batch", b'{"messages":[{"json":[1]}]}', JSON),
    request("POST", "/v1/leases/v1.AAAA/extend", b'{"lease_ms":5000}', JSON),
    request("GET", "/v1/subscriptions/orders/in-flight?older_ms=1&max=2", b""),
    CHUNKED,
)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A good request in which a few things went wrong; sometimes another one follows."""
    raw = bytearray(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw) - 1)) if raw else 0
        what = draw(st.sampled_from(["change", "cut", "add", "repeat"]))
        if what == "change" and raw:
            raw[at] = draw(st.integers(0, 255))
        elif what == "cut":
            del raw[at : at + draw(st.integers(1, 20))]
        elif what == "add":
            raw[at:at] = draw(st.binary(max_size=20))
        else:
            raw[at:at] = raw[at : at + 30]
    return bytes(raw) + draw(st.sampled_from([b"", *GOOD]))


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(raw=broken())
def test_noise_makes_no_server_error(sidecar: Sidecar, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", sidecar.port), timeout=60) as client:
        client.sendall(raw)
        client.settimeout(QUIET_S)
        said = b""
        with suppress(TimeoutError, ConnectionResetError):
            while piece := client.recv(65536):
                said += piece
    statuses = [int(status) for status in STATUS.findall(said)]
    assert all(status < 500 for status in statuses), said
    SEEN.update(statuses)


def test_sidecar_lives_on_and_logged_no_bug(sidecar: Sidecar) -> None:
    assert call(sidecar.port, "GET", "/v1/subscriptions")[0] == 200
    assert {201, 400, 404, 422} <= set(SEEN), SEEN
    log = sidecar.process.log()
    assert "Traceback" not in log, log[-4000:]
