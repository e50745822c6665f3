"""Push in the simulator: ackd calls applications over wires that are slow, cut or lead nowhere.

The pusher, its breaker, its pauses and its answer table are those that ackd ships; only the
connection is simulated. `pushed_apps` has the applications, `push_judge` what they see.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from ackd.api.messages import Delivery
from ackd.config.push import PushSettings
from ackd.ports import Record
from ackd.push.call import Failed, PushAnswer, PushClient, PushFailure
from ackd.push.push_request import PushRequest
from tests.simulation.process import Process
from tests.simulation.world import MS, World

URL: Final = "http://127.0.0.1:8000/orders"

Result = PushAnswer | PushFailure


def drawn(random: Random) -> PushSettings:
    """The settings of a run."""
    return PushSettings(
        url=URL,
        mode=random.choice(["single", "single", "batch"]),
        batch_max=random.choice([1, 3, 10]),
        concurrency=random.choice([1, 2, 4]),
        kept_max=random.choice([2, 100]),
        timeout_ms=random.choice([1_500, 30_000, 30_000]),
        pressure_hold_ms=random.choice([0, 3_000, 600_000]),
        trial_ms=random.choice([50, 200]),
    )


@dataclass(eq=False, slots=True)
class Call:
    """One POST of a sidecar. `batch`: the answer may name each message. `acked`: leases that the
    answer says are done.
    """

    process: Process
    deliveries: list[Delivery]
    batch: bool
    begun_us: int
    future: asyncio.Future[Any]
    acked: list[str] = field(default_factory=list)


class Heard:
    """What a judge hears of calls, each when the sidecar does."""

    def begun(self, call: Call) -> None:
        """A call is on its way."""

    def ended(self, call: Call, result: Result) -> None:
        """An answer, or none."""

    def reached(self, process: Process) -> None:
        """A connection without a message was accepted."""


class Listening:
    """An application's port. `take`: a call has arrived there."""

    up: bool
    take: Callable[[Call], None]


@dataclass(slots=True)
class PushWires:
    """What lies between sidecars and the applications beside them, by the sidecar's name."""

    world: World
    heard: Heard
    apps: Mapping[str, Listening]

    def random(self, process: Process) -> Random:
        """Of one process' connections."""
        return self.world.random(f"push/{process.name}/{process.boot}")


class SimPushClient(PushClient):
    """A sidecar's way to its application."""

    def __init__(self, url: str, wires: PushWires, process: Process) -> None:
        super().__init__(url)
        self._wires = wires
        self._process = process
        self._random = wires.random(process)

    async def start(self) -> None:
        """There is nothing to prepare."""

    async def close(self) -> None:
        """Nor to close."""

    async def there(self) -> bool:
        await asyncio.sleep(self._random.uniform(0.0001, 0.005))
        up = self._wires.apps[self._process.name].up
        if up:
            self._wires.heard.reached(self._process)
        return up

    async def post(self, request: PushRequest, bound: asyncio.Timeout) -> Result:
        wires, process = self._wires, self._process
        now_us, future = wires.world.now_us, process.loop.create_future()
        batch = "Ackd-Lease" not in dict(request.headers)
        call = Call(process, read(request), batch, now_us, future)
        wires.heard.begun(call)
        result: Result
        try:
            async with bound:
                wires.world.after(self._random.randint(50, 2 * MS), self._arrive, call)
                result = await call.future
        except TimeoutError:
            result = PushFailure(Failed.TIMEOUT, "no answer in time")
        wires.heard.ended(call, result)
        return result

    def _arrive(self, call: Call) -> None:
        app = self._wires.apps[self._process.name]
        if app.up:
            app.take(call)
        else:
            refused = PushFailure(Failed.UNREACHABLE, "refused")
            call.process.resolve(call.future, refused, None)


def read(request: PushRequest) -> list[Delivery]:
    """What an application reads of a request, from its bytes."""
    fields = dict(request.headers)
    if "Ackd-Lease" in fields:
        return [
            _delivery(
                fields["Ackd-Lease"], fields["Ackd-Id"], request.body,
                int(fields["Ackd-Attempt"]), int(fields["Ackd-Deadline-Ms"]),
                fields.get("Ackd-Note"),
            )
        ]  # fmt: skip
    return [
        _delivery(
            each["lease"], each["id"], b64decode(each["base64"]), each["attempt"],
            each["deadline_ms"], each.get("note"),
        )
        for each in json.loads(request.body)["messages"]
    ]  # fmt: skip


def _delivery(
    lease: str, name: str, value: bytes, attempt: int, deadline_ms: int, note: str | None
) -> Delivery:
    topic, partition, offset = name.rsplit("/", 2)
    record = Record(int(offset), None, value, (), 0)
    return Delivery(lease, topic, int(partition), record, attempt, 0, 0, deadline_ms, note)
