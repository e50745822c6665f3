"""I8 of a real process: what many clients with huge heads may cost."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import psutil
import pytest

from tests.integration.http.conftest import (
    Sidecar,
    call,
    made_sidecar,
    start_with_topics,
)

CONNECTIONS = 990
FILES = 2 * CONNECTIONS
MIB = 1024 * 1024
FIELD = b"A: %b\r\n" % (b"a" * 8_000)
POLL = b"POST /v1/subscriptions/orders/receive HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=20\r\n"
DEFAULTS = """
state_dir = "{folder}/state"

[server]
listen = "{listen}"
admin_listen = "127.0.0.1:{admin_port}"

[brokers.local]
adapter = "local"

[subscriptions.orders]
topics = ["orders"]

[subscriptions.images]
topics = ["images"]
"""


@contextmanager
def many_files() -> Iterator[None]:
    """As many open files as connections need, here and in the processes that this one starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), max(hard, FILES)))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def own() -> Iterator[Sidecar]:
    """A sidecar of this test alone, so that its memory is."""
    with many_files(), made_sidecar(settings=DEFAULTS) as made:
        start_with_topics(made)
        yield made


@pytest.mark.parametrize("end", [b"", b"\r\n"], ids=["unfinished", "finished"])
def test_huge_heads_take_little_memory(own: Sidecar, end: bytes) -> None:
    """990 clients with a megabyte of headers each took 1.9 GB."""
    process = psutil.Process(own.process.pid)
    before = process.memory_info().rss
    most = 0
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", own.port)))
            client.settimeout(0.2)
            with suppress(OSError):  # it is refused before it has sent all
                client.sendall(POLL + FIELD * 120 + end)
            most = max(most, process.memory_info().rss - before)
        assert call(own.admin_port, "GET", "/livez")[0] == 200
    assert most < 40 * MIB, f"{most / MIB:.0f} MiB"


def test_heads_within_the_bound_take_little_memory(own: Sidecar) -> None:
    """990 long polls with 15 KiB of headers each."""
    process = psutil.Process(own.process.pid)
    before = process.memory_info().rss
    head = POLL + b"A: %b\r\n" % (b"a" * 150) * 95 + b"\r\n"
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", own.port)))
            client.sendall(head)
        assert call(own.port, "GET", "/v1/subscriptions")[0] == 200
        grown = process.memory_info().rss - before
    # Three times what their budget lets in (16 MiB), and 16 KiB for each connection.
    assert grown < 64 * MIB, f"{grown / MIB:.0f} MiB"
