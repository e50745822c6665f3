"""The story of the demo: what is started, what goes wrong, and what must not happen.

Everything is real: `ackd serve` in a process of its own, worker processes that know nothing of the
demo, signals. A listening post between them writes the history that is judged at the end.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from ackd_demo.board import Board, Screen
from ackd_torture.checker import Verdict, check
from ackd_torture.child import BrokerPart, Child
from ackd_torture.history import EventKind, Recorder, histories, load, now_us
from ackd_torture.listen import ListeningPost
from ackd_torture.parts import Sidecar, SidecarPlan, Value

ORDERS = 60
LEASE_MS = 3_000
STEP_S = 20.0
# Longer than any work of the demo takes.
HUNG_US = 1_000_000
HERE = Path(__file__).parent
ITEMS = ("tea", "bread", "apples", "a lamp", "nails", "ink", "soap", "a kite")


class StoryError(Exception):
    """Something that had to happen did not; the text says what."""


class _OrderBody(msgspec.Struct):
    name: str


_ORDER = msgspec.json.Decoder(_OrderBody)


def _name_of(value: bytes) -> str:
    return _ORDER.decode(value).name


@dataclass(slots=True)
class Story:
    """One run. `folder` is removed by the caller. `traces`: where they shall go, if anywhere."""

    screen: Screen
    board: Board
    folder: Path
    broker: BrokerPart
    orders: int = ORDERS
    orphan: str = ""
    traces: Path | None = None

    async def play(self) -> Verdict:
        """Run it; the verdict of the checker. Everything started is stopped in any case."""
        plan = SidecarPlan(
            broker=self.broker,
            store_url="embedded",
            topic="orders",
            subscription={"lease_ms": LEASE_MS, "payload": "json"},
            server={"drain_ms": 1_000},
            sections=self._sections(),
        )
        sidecar = Sidecar("ackd", plan, self.folder)
        recorder = Recorder(self.folder / "history" / "post.ndjson", "post")
        post = ListeningPost(sidecar.url, recorder, LEASE_MS, _name_of, self.board.note)
        workers: list[Child] = []
        try:
            await self._start(sidecar, post)
            await self._publish(post.url)
            await self._hang(post.url, workers)
            await self._kill_a_worker(post.url, workers)
            await self._kill_the_sidecar(sidecar)
            await self._finish()
            recorder.note(EventKind.DRAINED, sub="orders")
        finally:
            for each in workers:
                await asyncio.to_thread(each.stop)
            await post.stop()
            await asyncio.to_thread(sidecar.stop)
            await asyncio.to_thread(self.broker.stop)
            recorder.close()
        return check(load(histories(self.folder)))

    async def _start(self, sidecar: Sidecar, post: ListeningPost) -> None:
        tell = self.screen.tell
        if self.broker.adapter != "local":
            tell(f"starting {self.broker.name}")
        await asyncio.to_thread(self.broker.start)
        await asyncio.to_thread(self.broker.create_topic, "orders", 4)
        start_us, _ = now_us()
        await asyncio.to_thread(sidecar.start)
        took_s = (now_us()[0] - start_us) / 1e6
        queue = "a queue on disk" if self.broker.adapter == "local" else self.broker.name
        tell(f"ackd runs (pid {sidecar.pid}, ready in {took_s:.1f} s): {queue}, its own store")
        await post.start()

    async def _publish(self, url: str) -> None:
        async with aiohttp.ClientSession() as session:
            for number in range(1, self.orders + 1):
                item = ITEMS[number % len(ITEMS)]
                body = msgspec.json.encode({"name": f"order-{number}", "item": item})
                async with session.post(
                    f"{url}/v1/topics/orders/messages",
                    data=body,
                    headers={
                        "content-type": "application/json",
                        "idempotency-key": f"order-{number}",
                    },
                ) as answer:
                    if not answer.ok:
                        text = await answer.text()
                        raise StoryError(f"publishing was answered {answer.status}: {text}")
        self.screen.tell(f"{self.orders} orders are published")

    async def _hang(self, url: str, workers: list[Child]) -> None:
        tell, board = self.screen.tell, self.board
        workers.append(self._python("python-1", url, HANG_AT="5"))
        workers.append(self._second(url))
        names = f"{workers[0].name} ({HERE.name}/worker.py) and {workers[1].name}"
        tell(f"two workers start: {names}")
        await self._until(lambda: self._stuck("python-1") != "", "python-1 hangs")
        stuck = self._stuck("python-1")
        done = board.count("done")
        tell(f"python-1 hangs on {stuck}: no ack, and no word about it", "yellow")
        again = board.orders[stuck]
        await self._until(lambda: again.deliveries > 1, f"{stuck} is handed out again")
        went_on = board.count("done") - done
        tell(
            f"its lease of {LEASE_MS / 1000:.0f} s ran out: {stuck} went to {again.worker} "
            f"(attempt {again.attempt}); {went_on} other orders were finished meanwhile",
            "magenta",
        )

    async def _kill_a_worker(self, url: str, workers: list[Child]) -> None:
        tell, board = self.screen.tell, self.board
        await asyncio.to_thread(workers[0].kill)
        workers[0] = self._python("python-2", url, WORK_S="0.5")
        await self._until(lambda: board.held_by("python-2") != "", "python-2 gets an order")
        # In the middle of its work, not at its border.
        await asyncio.sleep(0.1)
        self.orphan = board.held_by("python-2")
        await asyncio.to_thread(workers[0].kill)
        tell(f"kill -9 of python-2 in the middle of {self.orphan or 'its work'}", "red")
        workers[0] = self._python("python-3", url)
        tell("python-3 takes its place")

    async def _kill_the_sidecar(self, sidecar: Sidecar) -> None:
        tell, board = self.screen.tell, self.board
        enough = self.orders * 2 // 3
        await self._until(lambda: board.count("done") >= enough, f"{enough} orders are done")
        await self._until(lambda: board.count("working", "again") > 0, "somebody works")
        acked, held = board.count("done"), board.count("working", "again")
        await asyncio.to_thread(sidecar.kill)
        tell(f"kill -9 of ackd itself: {acked} orders are acked, {held} leases are open", "red")
        before = board.deliveries
        start_us, _ = now_us()
        await asyncio.to_thread(sidecar.launch)
        await self._until(lambda: board.deliveries > before, "an order after the restart")
        took_s = (now_us()[0] - start_us) / 1e6
        tell(f"ackd is back: the next order was handed out {took_s:.1f} s after its new start")

    async def _finish(self) -> None:
        tell = self.screen.tell
        await self._until(self.board.all_done, "all orders are done", 40.0)
        orphan = self.board.orders.get(self.orphan)
        if orphan is not None and orphan.deliveries > 1:
            tell(f"{self.orphan}, whose worker was killed, came again; {orphan.worker} did it")
        calm_s = LEASE_MS / 1000 + 1.0
        tell(f"all {self.orders} orders are acked; waiting {calm_s:.0f} s for what must not come")
        await asyncio.sleep(calm_s)

    # --- small things

    def _sections(self) -> dict[str, dict[str, Value]]:
        if self.traces is None:
            return {}
        traces: dict[str, Value] = {"files": True, "folder": str(self.traces)}
        # Little is lost by the kill.
        return {"traces": {**traces, "application": "demo", "flush_ms": 200}}

    def _python(self, name: str, url: str, **more: str) -> Child:
        return self._worker(name, [sys.executable, str(HERE / "worker.py")], url, **more)

    def _second(self, url: str) -> Child:
        if shutil.which("curl") is None:
            self.screen.tell("there is no curl here, so the second worker is Python as well")
            return self._python("python-b", url)
        return self._worker("curl", ["sh", str(HERE / "worker.sh")], url)

    def _worker(self, name: str, argv: list[str], url: str, **more: str) -> Child:
        temp = self.folder / "temp"
        temp.mkdir(exist_ok=True)
        settings = {"WORKER": name, "TMPDIR": str(temp), "WORK_S": "0.25", **more}
        words = [f"{key}={value}" for key, value in settings.items()]
        child = Child(name, ["env", *words, *argv, url, "orders"], self.folder / f"{name}.log")
        child.start()
        return child

    def _stuck(self, worker: str) -> str:
        """The order that a worker has had in hand for longer than any work takes."""
        name = self.board.held_by(worker)
        if name and now_us()[0] - self.board.orders[name].since_us > HUNG_US:
            return name
        return ""

    async def _until(self, true: Callable[[], bool], what: str, within_s: float = STEP_S) -> None:
        end_us = now_us()[0] + int(within_s * 1e6)
        while not true():
            if now_us()[0] > end_us:
                raise StoryError(f"this did not happen within {within_s:.0f} s: {what}")
            await asyncio.sleep(0.02)
