"""The proxy's faults are the faults that they are called."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ackd_torture.ports import free_port, give_back
from tests.support.proxy import Proxy


def _echo(listener: socket.socket) -> None:
    """Answer every chunk with itself, a thread for each connection, until the listener closes."""

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while chunk := connection.recv(65536):
                    connection.sendall(chunk)
            except OSError:
                return

    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy before an echo server."""
    port = free_port()
    listener = socket.create_server(("127.0.0.1", port))
    thread = threading.Thread(target=_echo, args=(listener,))
    thread.start()
    proxy = Proxy(port)
    proxy.start()
    yield proxy
    proxy.stop()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(60)
    give_back(port)


def connect(proxy: Proxy) -> socket.socket:
    """A client connection with a short time-out."""
    client = socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
    client.settimeout(0.3)
    return client


def call(client: socket.socket, data: bytes) -> bytes:
    """Send and read as much as was sent."""
    client.sendall(data)
    got = b""
    while len(got) < len(data):
        chunk = client.recv(65536)
        if not chunk:
            break
        got += chunk
    return got


def test_bytes_pass_unchanged(proxy: Proxy) -> None:
    data = bytes(range(256)) * 2000
    with connect(proxy) as client:
        client.settimeout(60)
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        got = b""
        while len(got) < len(data):
            got += client.recv(65536)
        sender.join(60)
    assert got == data
    assert proxy.accepted == 1


def test_end_of_stream_passes(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b"last"
        assert client.recv(100) == b""


def test_cut_resets_and_serves_new_connections(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert call(client, b"x") == b"x"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connect(proxy) as client:
        assert call(client, b"y") == b"y"


def test_refuse_until_heal(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert call(client, b"x") == b"x"
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    with connect(proxy) as client:
        assert call(client, b"y") == b"y"


def test_freeze_keeps_the_connection_and_holds_bytes_back(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert call(client, b"x") == b"x"
        proxy.freeze()
        client.sendall(b"late")
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.heal()
        client.settimeout(60)
        assert client.recv(100) == b"late"


def test_freeze_down_lets_the_request_through() -> None:
    received = threading.Event()
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                if connection.recv(10) == b"do":
                    received.set()
                    connection.sendall(b"done")
                    with contextlib.suppress(ConnectionResetError):
                        connection.recv(10)

        thread = threading.Thread(target=serve)
        thread.start()
        own = Proxy(port)
        own.start()
        own.freeze("down")
        with connect(own) as client:
            client.sendall(b"do")
            assert received.wait(60)
            with pytest.raises(TimeoutError):
                client.recv(1)
            own.cut()
        thread.join(60)
        own.stop()
    give_back(port)


def test_delay_is_added_in_each_direction(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.settimeout(60)
        proxy.delay(1_000)
        start = time.monotonic()
        assert call(client, b"x") == b"x"
        assert time.monotonic() - start >= 2
        proxy.delay(30_000)
        proxy.heal()
        start = time.monotonic()
        assert call(client, b"y") == b"y"
        assert time.monotonic() - start < 30
