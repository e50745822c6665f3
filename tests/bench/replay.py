"""What calls cost inside a sidecar: `python -m tests.bench.replay`, no sockets, store or broker.

The production engine and HTTP side under clients that always ask again, with a store that always
says yes (see `replay_parts`). CPU time of this process, least of some rounds; it can be compared
between two versions even on a busy machine. `--count N` runs N messages once, by a clock that only
the work moves on, for counting instructions:
`valgrind --tool=callgrind --dump-before=time_tzset python -m tests.bench.replay --count 1000`; each
second file of its output is one shape.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import selectors
import statistics
import sys
import time
from pathlib import Path

from ackd.cli.common import run_loop
from ackd.config.schema import BrokerSettings, ServerSettings, Settings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.base.tasks import Tasks
from ackd.engine.runtime import Runtime
from ackd.http.routes import ROUTES
from ackd.http.server.app import App
from ackd.http.server.auth import TokenFile
from ackd.http.server.service import Service, limits_of
from ackd.ports import Clock
from ackd.serve import GC_THRESHOLDS
from tests.bench.replay_parts import TOPIC, Client, Decided, Log

CONNECTIONS = 16
SHAPES = (("separate", 32), ("separate", 10), ("separate", 1), ("joined", 32), ("joined", 1))
MESSAGES = {32: 8_000, 10: 4_000, 1: 1_000}


class StepLoop(asyncio.SelectorEventLoop):
    """Time passes when nothing else is to be done, and a little with each look at it."""

    LOOK_S = 2e-6

    def __init__(self) -> None:
        self._now_s = 1_000.0
        super().__init__(StepSelector(self))

    def time(self) -> float:
        """Seconds."""
        self._now_s += self.LOOK_S
        return self._now_s

    def skip(self, pause_s: float) -> None:
        """Nothing to do for so long."""
        self._now_s += pause_s


class StepSelector(selectors.DefaultSelector):
    """Never waits."""

    def __init__(self, loop: StepLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is there now."""
        self._loop.skip(timeout or 0.0)
        return super().select(0)


class LoopClock:
    """`ackd.ports.Clock` by the loop's time."""

    def monotonic_ms(self) -> int:
        """As the loop says."""
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        """As good as any."""
        return self.monotonic_ms()


class Replay:
    """A sidecar in this process, and its clients."""

    def __init__(self, partitions: int, clock: Clock | None = None) -> None:
        settings = Settings(
            identity="replay",
            state_dir=Path("/nonexistent"),
            brokers={"main": BrokerSettings(adapter="local")},
            subscriptions={
                "bench": SubscriptionSettings(
                    broker="main",
                    topics=(TOPIC,),
                    group="bench",
                    start="earliest",
                    retry_topic=False,
                    lease_ms=60_000,
                    in_flight_max=300_000,
                )
            },
        )
        self.store = Decided()
        brokers = {"main": Log(partitions)}
        self.runtime = Runtime(settings, store=self.store, brokers=brokers, clock=clock)
        server = ServerSettings()
        tasks = Tasks("replay")
        service = Service(
            self.runtime,
            server,
            self.runtime.metrics,
            spawn=lambda work: tasks.start(work, "abandon"),
        )
        self.app = App("data", service, TokenFile(None), limits_of(server), ROUTES)

    async def start(self) -> None:
        """Until every partition is owned."""
        await self.runtime.start()
        while not all(reason.ok for reason in self.runtime.readiness()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    def clients(self, shape: str, batch: int) -> list[Client]:
        """Connections that ask in one way."""
        return [Client(self.app.server(), shape, batch) for _ in range(CONNECTIONS)]


async def work(clients: list[Client], count: int) -> int:
    """Let the clients ack so many messages together; returns how many it were."""
    before = sum(each.done for each in clients)
    for each in clients:
        each.go(max(count // len(clients), 1))
    for each in clients:
        await each.resting.wait()
    return sum(each.done for each in clients) - before


async def measure(shape: str, batch: int, given: argparse.Namespace) -> None:
    """One shape."""
    replay = Replay(given.partitions, LoopClock() if given.count else None)
    await replay.start()
    clients = replay.clients(shape, batch)
    if given.count:
        await work(clients, given.count // 4)
        time.tzset()
        done = await work(clients, given.count)
        time.tzset()
        sys.stdout.write(f"{shape} {batch}: {done} messages\n")
        return
    await work(clients, MESSAGES[batch] // 4)
    costs: list[float] = []
    profile = cProfile.Profile()
    calls, done = replay.store.calls, 0
    for _ in range(given.rounds):
        if given.profile:
            profile.enable()
        start_ns = time.process_time_ns()
        count = await work(clients, MESSAGES[batch])
        costs.append((time.process_time_ns() - start_ns) / count / 1000)
        done += count
    if given.profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(60)
    per_call = done / max(replay.store.calls - calls, 1)
    sys.stdout.write(
        f"{shape:9}{batch:3}: least {min(costs):6.1f} us, median {statistics.median(costs):6.1f} us"
        f" a message; {per_call:.1f} messages a store call\n"
    )


def main() -> None:
    """Measure the shapes that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(f"{shape}-{batch}" for shape, batch in SHAPES))
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    for name in given.only.split(","):
        shape, _, batch = name.partition("-")
        if given.count:
            with asyncio.Runner(loop_factory=StepLoop) as runner:
                runner.run(measure(shape, int(batch), given))
        else:
            run_loop(measure(shape, int(batch), given))


if __name__ == "__main__":
    main()
