"""Applications under stress: publishers, and consumers that work well, badly, late or not at all.

Everything random comes from one seed. `run` starts all clients, and `drain` lets consumers finish
what is left (by then every fault must be healed), waits a while longer for anything that should not
come, and writes the word `DRAINED`, by which the checker may call things lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from ackd_torture.client import FINISHED, AppClient, ItemResult, ReceivedMessage, SentItem, Tally
from ackd_torture.history import EventKind, Recorder, now_us, read

ACK_TRIES_MAX = 60
BATCH_MAX = 500
GIVES_UP = frozenset({"ack", "dead"})
# Share of receives after which a consumer goes to another sidecar without need.
ROAM = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mood:
    """How consumers treat messages: shares of all, the rest is finished at once.

    `forget` is a worker that crashes, `overdue` one that acks after its deadline, `dead` one that
    gives a message up.
    """

    retry: float = 0.04
    extend: float = 0.04
    forget: float = 0.02
    overdue: float = 0.02
    release: float = 0.01
    dead: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """What the clients do. `rate_per_s` is of all publishers together; 0 publishers is allowed.

    `backlog`: so many messages are there before the work begins. `publish_max`: so many go in one
    publish, which is not repeated when its answer is lost. `keys`: how many different keys
    messages have, 0 = each one its own. `ordering`: the order that the subscription promises
    ("key", "partition"), to be judged; empty = none.
    """

    urls: Sequence[str]
    topic: str
    sub: str
    folder: Path
    seed: int
    name: str = "w"
    publishers: int = 2
    consumers: int = 4
    rate_per_s: int = 200
    batch_max: int = 32
    lease_ms: int = 3_000
    wait_ms: int = 1_000
    work_ms_max: int = 100
    value_bytes: int = 200
    backlog: int = 0
    publish_max: int = 1
    keys: int = 0
    ordering: str = ""
    mood: Mood = field(default_factory=Mood)
    token: str = ""


class Workload:
    """All clients of one run. Use `running()`, break things inside it, then `drain()`."""

    def __init__(self, plan: WorkloadPlan) -> None:
        self.plan = plan
        self.tally = Tally()
        self._publishing = True
        self._publishers: list[asyncio.Task[None]] = []
        self._consuming = True
        self._gentle = False
        self._serial = 0
        self._clients = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Clients work inside; leaving it stops them all."""
        if self.plan.ordering:
            path = self.plan.folder / f"{self.plan.name}-order.ndjson"
            with Recorder(path, "order") as recorder:
                recorder.note(EventKind.ORDERED, sub=self.plan.sub, note=self.plan.ordering)
        limit = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        async with (
            aiohttp.ClientSession(connector=limit, auto_decompress=False) as session,
            asyncio.TaskGroup() as group,
        ):
            if self.plan.backlog:
                await self._fill(session)
            for number in range(self.plan.publishers):
                publisher = self._publish(session, f"{self.plan.name}-p{number}")
                self._publishers.append(group.create_task(publisher))
            for number in range(self.plan.consumers):
                group.create_task(self._consume(session, f"{self.plan.name}-c{number}", number))
            try:
                yield
            finally:
                self._publishing = self._consuming = False

    def stop_publishing(self) -> None:
        """No new messages from now on."""
        self._publishing = False

    async def drain(self, within_s: float, calm_s: float, others: Sequence[Path] = ()) -> bool:
        """Finish everything, then look `calm_s` longer. False when something is left over.

        `others` are histories of workers that have ended: what they acked, or died while acking,
        counts as finished. Should the latter come back within `calm_s`, it is finished again.
        A publisher that repeats its last request is waited for: what is confirmed later than the
        end can't be judged.
        """
        self.stop_publishing()
        self._gentle = True
        elsewhere = acked_by(others)
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        calm_from = loop.time()
        while loop.time() < end:
            if self._still_publishing() or self.tally.unfinished() - elsewhere:
                calm_from = loop.time()
            elif loop.time() - calm_from >= calm_s:
                break
            await asyncio.sleep(0.05)
        left = self.tally.unfinished() - elsewhere
        if self._still_publishing():
            return False
        with Recorder(self.plan.folder / f"{self.plan.name}-drain.ndjson", "drain") as recorder:
            recorder.note(EventKind.DRAINED, sub=self.plan.sub, count=len(left))
        return not left

    def _still_publishing(self) -> bool:
        return not all(each.done() for each in self._publishers)

    # --- clients

    def _client(self, session: aiohttp.ClientSession, name: str) -> AppClient:
        plan = self.plan
        self._clients += 1
        recorder = Recorder(plan.folder / f"{name}.ndjson", name)
        rng = random.Random(f"{plan.seed}/{name}")  # noqa: S311  a seed is the point
        return AppClient(
            session, plan.urls, recorder, sub=plan.sub, rng=rng, tally=self.tally, token=plan.token
        )

    async def _fill(self, session: aiohttp.ClientSession) -> None:
        """Publish messages before the run, so that it begins with a backlog."""
        plan = self.plan
        name = f"{plan.name}-backlog"
        client = self._client(session, name)
        rng = random.Random(f"{plan.seed}/{name}/keys")  # noqa: S311  a seed is the point
        names = [(f"{plan.seed}-{name}-{n}", self._key(rng)) for n in range(plan.backlog)]
        for start in range(0, len(names), BATCH_MAX):
            some = names[start : start + BATCH_MAX]
            await client.publish_all(plan.topic, some, "x" * plan.value_bytes)

    def _key(self, rng: random.Random) -> str:
        return f"key-{rng.randrange(self.plan.keys)}" if self.plan.keys else ""

    async def _publish(self, session: aiohttp.ClientSession, name: str) -> None:
        plan = self.plan
        client = self._client(session, name)
        rng = random.Random(f"{plan.seed}/{name}/pace")  # noqa: S311  a seed is the point
        pause_s = plan.publishers * plan.publish_max / max(plan.rate_per_s, 1)
        number = 0
        while self._publishing:
            number += 1
            started_us, _ = now_us()
            # Several runs may follow each other on one topic: the seed is part of the name.
            msg, pad = f"{plan.seed}-{name}-{number}", "x" * plan.value_bytes
            if plan.publish_max > 1:
                some = [(f"{msg}-{n}", self._key(rng)) for n in range(plan.publish_max)]
                await client.publish_all(plan.topic, some, pad)
            else:
                await client.publish(plan.topic, msg, pad, self._key(rng))
            client.elsewhere()
            spent_s = (now_us()[0] - started_us) / 1e6
            await asyncio.sleep(max(0.0, pause_s * rng.uniform(0.5, 1.5) - spent_s))

    async def _consume(self, session: aiohttp.ClientSession, name: str, number: int) -> None:
        plan = self.plan
        client = self._client(session, name)
        rng = random.Random(f"{plan.seed}/{name}/mood")  # noqa: S311  a seed is the point
        worker = ConsumingApp(client, plan, rng, style=("joined", "batch", "single")[number % 3])
        async with asyncio.TaskGroup() as group:
            while self._consuming:
                await worker.step(group, gentle=self._gentle)
            await worker.finish()


class ConsumingApp:
    """One application: receives, works, settles. Long and late work goes on beside new receives."""

    def __init__(
        self, client: AppClient, plan: WorkloadPlan, rng: random.Random, style: str
    ) -> None:
        self._client = client
        self._plan = plan
        self._rng = rng
        self._style = style
        self._carry: list[SentItem] = []

    async def step(self, group: asyncio.TaskGroup, *, gentle: bool) -> None:
        """One receive and what follows from it."""
        plan, rng = self._plan, self._rng
        most = 1 if self._style == "single" else rng.randint(1, plan.batch_max)
        carry, self._carry = self._carry, []
        messages, settled = await self._client.receive(most, plan.wait_ms, plan.lease_ms, carry)
        await self._repeat_unsure(carry, settled)
        if rng.random() < ROAM:
            self._client.elsewhere()
        prompt: list[ReceivedMessage] = []
        for message in messages:
            mood = 1.0 if gentle else rng.random()
            if not self._special(group, message, mood):
                prompt.append(message)
        if prompt:
            await asyncio.sleep(rng.uniform(0, plan.work_ms_max / 1000))
            await self._finish(prompt)

    async def finish(self) -> None:
        """Send what a joined call would have carried."""
        carry, self._carry = self._carry, []
        await self._repeat_unsure(carry, None)

    def _special(self, group: asyncio.TaskGroup, message: ReceivedMessage, dice: float) -> bool:
        """Start what is not simply finished. True when that was done."""
        mood, plan = self._plan.mood, self._plan
        lease_s = plan.lease_ms / 1000
        retry = SentItem(message.lease, "retry", delay_ms=self._rng.randint(0, 500))
        ack = SentItem(message.lease, "ack")
        extend = SentItem(message.lease, "extend", lease_ms=plan.lease_ms)
        choices: list[tuple[float, list[tuple[float, SentItem]]]] = [
            (mood.retry, [(self._rng.uniform(0, 0.2), retry)]),
            (mood.release, [(self._rng.uniform(0, 0.2), SentItem(message.lease, "release"))]),
            (mood.dead, [(self._rng.uniform(0, 0.2), SentItem(message.lease, "dead"))]),
            (mood.extend, [(lease_s * 0.6, extend), (lease_s * 0.6, ack)]),
            (mood.overdue, [(lease_s * self._rng.uniform(0.9, 1.3), ack)]),
        ]
        for share, script in choices:
            if dice < share:
                group.create_task(self._act(script))
                return True
            dice -= share
        if dice < mood.forget:
            self._client.forget([message])
            return True
        return False

    async def _act(self, script: Sequence[tuple[float, SentItem]]) -> None:
        for pause_s, item in script:
            await asyncio.sleep(pause_s)
            result = await self._settle_surely([item])
            if result is None or result[0].status != "extended":
                return

    async def _finish(self, messages: Sequence[ReceivedMessage]) -> None:
        items = [SentItem(message.lease, "ack") for message in messages]
        if self._style == "joined":
            self._carry += items
        else:
            await self._settle_surely(items)

    async def _repeat_unsure(
        self, items: Sequence[SentItem], results: list[ItemResult] | None
    ) -> None:
        """What a joined call did not decide is settled on its own."""
        if results is None:
            left = list(items)
        else:
            pairs = zip(items, results, strict=True)
            left = [item for item, result in pairs if result.status == "unavailable"]
        if left:
            await self._settle_surely(left)

    async def _settle_surely(self, items: Sequence[SentItem]) -> list[ItemResult] | None:
        """Settle, and repeat what was not decided, as an application should after a 503."""
        left = list(items)
        results: list[ItemResult] | None = None
        for _ in range(ACK_TRIES_MAX):
            if self._style == "single" and len(left) == 1:
                one = await self._client.settle_one(left[0])
                results = None if one is None else [one]
            else:
                results = await self._client.settle(left)
            if results is not None:
                pairs = zip(left, results, strict=True)
                left = [item for item, result in pairs if result.status == "unavailable"]
                if not left:
                    return results
            await asyncio.sleep(self._rng.uniform(0.05, 0.3))
        return None


def acked_by(paths: Sequence[Path]) -> set[str]:
    """Names of the messages that some histories acked, or tried to without being answered."""
    names: dict[str, str] = {}
    acked: set[str] = set()
    sure: set[str] = set()
    in_doubt: set[str] = set()
    for path in paths:
        for event in read(path):
            if event.kind is EventKind.DELIVERED:
                names[event.lease] = event.msg
            elif event.kind is EventKind.SETTLE and event.do in GIVES_UP and event.lease in names:
                acked.add(names[event.lease])
            elif event.status in FINISHED and event.lease in names:
                sure.add(names[event.lease])
            elif event.kind is EventKind.SETTLE_UNKNOWN and event.do == "dead":
                in_doubt.add(event.lease)
            elif event.status == "lost" and event.lease in names and event.lease not in in_doubt:
                acked.discard(names[event.lease])
    return acked | sure
