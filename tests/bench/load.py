"""A load client that costs little: hand-made HTTP/1.1 on asyncio protocols, no JSON parser.

`python -m tests.bench.load '<job as JSON>'` works until its share is done and prints its figures as
JSON. Leases are cut out of answers by their name, and settles are put together from bytes, so that
a client process needs a fraction of what the sidecar does and two cores can saturate it.
"""

import asyncio
import json
import re
import sys
import time
from dataclasses import dataclass, field

LEASE = re.compile(rb'"lease":"([^"]+)"')
STAMP = re.compile(rb'"at_us":(\d+)')
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
WALL_LIMIT_S = 120.0


@dataclass
class Job:
    """What one client process does. `shape`: `separate` (receive, then settle) or `joined`.

    It stops after `messages` messages were settled, or after `seconds`. `latency` notes how old a
    message is when it arrives, by the `at_us` in its value (monotonic, one machine); the first
    `skip_s` are left out, as what was published before the clients came is older by that.
    """

    port: int
    sub: str
    connections: int
    batch: int
    shape: str
    messages: int
    seconds: float = WALL_LIMIT_S
    wait_ms: int = 500
    latency: bool = False
    skip_s: float = 2.0


@dataclass
class Tally:
    """Figures of one process."""

    done: int = 0
    received: int = 0
    requests: int = 0
    bad: int = 0
    took_us: list[int] = field(default_factory=list)
    age_us: list[int] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """One keep-alive connection with one request under way."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._wanted = -1
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a stream transport is needed")
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Collect one answer."""
        self._buffer += data
        if self._wanted < 0:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            found = LENGTH.search(self._buffer, 0, end)
            self._wanted = end + 4 + (int(found[1]) if found else 0)
        if len(self._buffer) >= self._wanted and self._answer is not None:
            whole = bytes(self._buffer[: self._wanted])
            del self._buffer[: self._wanted]
            self._wanted = -1
            self._answer.set_result(whole)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError())

    async def ask(self, path: str, body: bytes) -> bytes:
        """The whole answer, head and body."""
        if self.transport is None:
            raise ConnectionError("not connected")
        self._answer = asyncio.get_running_loop().create_future()
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return await self._answer


def settle_items(leases: list[bytes]) -> bytes:
    """The list of ack items."""
    return b"[" + b",".join(b'{"lease":"%s","do":"ack"}' % each for each in leases) + b"]"


async def work(job: Job, tally: Tally) -> None:
    """One connection's loop."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", job.port)
    receive = f"/v1/subscriptions/{job.sub}/receive"
    ask = b'{"max":%d,"wait_ms":%d' % (job.batch, job.wait_ms)
    held: list[bytes] = []
    noted_from = time.monotonic() + job.skip_s
    end = time.monotonic() + job.seconds
    while tally.received < job.messages and time.monotonic() < end:
        began = time.monotonic_ns()
        joined = b',"settle":' + settle_items(held) if held else b""
        answer = await connection.ask(receive, ask + joined + b"}")
        tally.requests += 1
        if b" 200 " not in answer[:20]:
            tally.bad += 1
            continue
        tally.done += len(held)
        held = LEASE.findall(answer)
        tally.received += len(held)
        if job.latency and time.monotonic() > noted_from:
            now_us = time.monotonic_ns() // 1000
            tally.age_us += [now_us - int(each) for each in STAMP.findall(answer)]
        if job.shape == "separate" and held:
            settled = await connection.ask("/v1/settle", b'{"items":' + settle_items(held) + b"}")
            tally.requests += 1
            tally.done += settled.count(b'"acked"')
            tally.bad += b" 200 " not in settled[:20]
        if held:
            tally.took_us.append((time.monotonic_ns() - began) // 1000)
        if job.shape == "separate":
            held = []
    if held:
        settled = await connection.ask("/v1/settle", b'{"items":' + settle_items(held) + b"}")
        tally.done += settled.count(b'"acked"')
    if connection.transport is not None:
        connection.transport.close()


async def run(job: Job) -> Tally:
    """All connections of this process."""
    tally = Tally()
    async with asyncio.TaskGroup() as group:
        for _ in range(job.connections):
            group.create_task(work(job, tally))
    return tally


def main() -> None:
    """Work and print."""
    tally = asyncio.run(run(Job(**json.loads(sys.argv[1]))))
    sys.stdout.write(json.dumps(vars(tally)))


if __name__ == "__main__":
    main()
