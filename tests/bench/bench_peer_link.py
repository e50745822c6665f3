"""What a link between two sidecars costs: `python -m tests.bench.bench_peer_link`.

Two processes on this machine, in the clear and with TLS, on both event loops. Round trips are of
100 bytes, one after the other; throughput is of frames that hold 32 messages of 1 KiB, with little
more than 1 MiB unsent. CPU is that of the one process that asks or sends. Medians of all rounds.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import trustme
import uvloop

from ackd.config.peers import PeerSettings
from ackd.config.units import KIB, MIB
from ackd.peer.network import TcpPeers
from ackd.ports import PeerLink
from ackd.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ROUNDS = 5
TRIPS = 2000
FRAMES = 2000
SMALL = bytes(100)
BATCH = bytes(32 * KIB)
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def key() -> bytes:
    """The secret of both."""
    return b"the secret of one store"


class Echo:
    """Sends small frames back, and one byte for each `FRAMES` large ones."""

    def __init__(self) -> None:
        self.frames = 0

    def opened(self, link: PeerLink) -> None:
        """Nothing: the other side begins."""

    def received(self, link: PeerLink, frame: bytes) -> None:
        """Answer."""
        if len(frame) == len(SMALL):
            link.send(frame)
            return
        self.frames += 1
        if self.frames % FRAMES == 0:
            link.send(b"x")

    def writable(self, link: PeerLink) -> None:
        """Nothing: what it sends is small."""

    def closed(self, link: PeerLink) -> None:
        """Nothing."""


class Asker(Echo):
    """Waits for answers and for room."""

    def __init__(self) -> None:
        super().__init__()
        self.link: PeerLink | None = None
        self.answer: asyncio.Future[None] | None = None
        self.room: asyncio.Future[None] | None = None

    def opened(self, link: PeerLink) -> None:
        """Keep the link."""
        self.link = link

    def received(self, link: PeerLink, frame: bytes) -> None:
        """Go on."""
        if self.answer is not None:
            self.answer.set_result(None)

    def writable(self, link: PeerLink) -> None:
        """Go on."""
        if self.room is not None:
            self.room.set_result(None)
            self.room = None

    def expect(self) -> asyncio.Future[None]:
        """The next frame."""
        self.answer = asyncio.get_running_loop().create_future()
        return self.answer


async def trips(user: Asker, link: PeerLink) -> None:
    """Ask and wait, one after the other."""
    for _ in range(TRIPS):
        answer = user.expect()
        link.send(SMALL)
        await answer


async def flood(user: Asker, link: PeerLink) -> None:
    """Send batches until the other side has them all."""
    answer = user.expect()
    for _ in range(FRAMES):
        link.send(BATCH)
        if link.unsent > MIB:
            user.room = asyncio.get_running_loop().create_future()
            await user.room
    await answer


async def serve(settings: PeerSettings, pipe: Connection) -> None:
    """The other process: answers until it is told to end."""
    peers = TcpPeers("other", settings, Metrics())
    pipe.send(await peers.start(Echo(), key))
    await asyncio.to_thread(pipe.recv)
    await peers.stop()


def other_process(loop: str, settings: PeerSettings, pipe: Connection) -> None:
    """Run `serve` on the loop of this name."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(serve(settings, pipe))


async def ask(settings: PeerSettings, address: str) -> dict[str, float]:
    """Medians of all rounds."""
    user, peers = Asker(), TcpPeers("one", settings, Metrics())
    await peers.start(user, key)
    await peers.connect("other", address)
    link = user.link
    if link is None:
        return {}
    rounds: list[tuple[float, float, float, float]] = []
    for _ in range(ROUNDS):
        start, cpu = time.perf_counter(), time.process_time()
        await trips(user, link)
        middle, cpu_middle = time.perf_counter(), time.process_time()
        await flood(user, link)
        end, cpu_end = time.perf_counter(), time.process_time()
        rounds.append((middle - start, cpu_middle - cpu, end - middle, cpu_end - cpu_middle))
    await peers.stop()
    trip_s, trip_cpu_s, flood_s, flood_cpu_s = map(statistics.median, zip(*rounds, strict=True))
    return {
        "round trip, us": trip_s / TRIPS * 1e6,
        "CPU of a round trip, us": trip_cpu_s / TRIPS * 1e6,
        "MB/s": FRAMES * len(BATCH) / flood_s / 1e6,
        "CPU of a sent batch, us": flood_cpu_s / FRAMES * 1e6,
    }


def measure(loop: str, settings: PeerSettings) -> dict[str, float]:
    """One pair of processes."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=other_process, args=(loop, settings, there))
    process.start()
    try:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            return runner.run(ask(settings, here.recv()))
    finally:
        here.send("end")
        process.join()


def with_tls(folder: Path) -> PeerSettings:
    """Settings with a certificate that both sides use."""
    authority = trustme.CA()
    leaf = authority.issue_cert("sidecar.example")
    cert, secret, trusted = (folder / name for name in ("tls.crt", "tls.key", "ca.crt"))
    leaf.cert_chain_pems[0].write_to_path(cert)
    leaf.private_key_pem.write_to_path(secret)
    authority.cert_pem.write_to_path(trusted)
    return PeerSettings(tls_cert_file=cert, tls_key_file=secret, tls_ca_file=trusted)


def main() -> None:
    """Print a table."""
    with TemporaryDirectory() as folder:
        kinds = {"in the clear": PeerSettings(), "TLS": with_tls(Path(folder))}
        for loop in LOOPS:
            for kind, settings in kinds.items():
                for name, value in measure(loop, settings).items():
                    sys.stdout.write(f"{loop:8} {kind:13} {name:25} {value:9.1f}\n")


if __name__ == "__main__":
    main()
