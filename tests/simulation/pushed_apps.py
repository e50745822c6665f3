"""Applications that ackd calls, one beside each sidecar: they answer as the table of docs/guides/
push.md knows it, late, not at all, or after they have settled by themselves.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from ackd.api.messages import Delivery, SettleItem, SettleVerb
from ackd.push.call import Failed, PushAnswer, PushFailure
from tests.simulation.apps import App, Habits, Told
from tests.simulation.pushed import Call, Listening
from tests.simulation.sidecar import Sidecar
from tests.simulation.world import MS, World

PAUSING: Final = (429, 503)
PAUSES_S: Final = (0, 0, 1, 2)
"""A pause of 0 s lasts for 0.1 s."""
KEPT: Final = ("extend", "note", "shorten", "again", "release")
"""Styles of those who answer first, and settle later by themselves."""
DO: Final = {**dict.fromkeys(KEPT, "extend"), "retry": "retry", "dead": "dead"}
"""What an answer says of a message; all other styles are an ack."""
SOON: Final = {"Ackd-Delay-Ms": "50"}


class PushedApp(App, Listening):
    """Takes calls while it is `up`. `busy`, `cut`, `slow`: how likely it asks for a pause, the
    connection breaks after it has acted, and it takes its time.
    """

    def __init__(
        self, world: World, sidecar: Sidecar, others: list[Sidecar], habits: Habits, told: Told
    ) -> None:
        self.up = True
        self.busy = self.cut = self.slow = 0.0
        self.sidecar = sidecar
        self._calls: dict[Call, None] = {}
        super().__init__(world, f"pushed-{sidecar.name}", others, habits, told)

    async def _live(self) -> None:
        """It asks for nothing."""

    # --- what goes wrong

    def restart(self) -> None:
        """It dies with the calls that run, and comes back."""
        calls, self._calls = list(self._calls), {}
        for call in calls:
            self._break(call)
        super().restart()

    def go(self) -> None:
        """It dies, and nobody listens until `mend`."""
        self.up = False
        self.restart()

    def mend(self) -> None:
        """All is well from now on."""
        self.up, self.busy, self.cut, self.slow = True, 0.0, 0.0, 0.0

    def _break(self, call: Call) -> None:
        """Nobody knows what became of it. What ackd does now, the application expects."""
        for each in call.deliveries:
            self._told.asked(SettleItem(each.lease, SettleVerb.RETRY))
        self._reply(call, PushFailure(Failed.BROKEN, "the connection is gone"))

    def _reply(self, call: Call, result: PushAnswer | PushFailure) -> None:
        latency_us = self._random.randint(50, 2 * MS)
        self.world.after(latency_us, call.process.resolve, call.future, result, None)

    # --- calls

    def take(self, call: Call) -> None:
        """A call has arrived."""
        self._calls[call] = None
        self.process.loop.spawn(self._serve(call), "push")

    async def _serve(self, call: Call) -> None:
        for each in call.deliveries:
            self._told.delivered(call.process, each, call.begun_us)
        if not self.calm and self._random.random() < self.busy:
            await self._pause(call)
            return
        if not self.calm and self._random.random() < self.slow:
            await asyncio.sleep(self._random.uniform(0.3, 6))
        styles = [await self._act(each) for each in call.deliveries]
        if not self.calm and (self._random.random() < self.cut or "forget" in styles):
            if self._calls.pop(call, 0) is None:
                self._break(call)
            return
        if call.batch:
            self._answer_items(call, styles)
        else:
            self._answer_one(call, styles[0])
        for style, each in zip(styles, call.deliveries, strict=True):
            if style in KEPT:
                self.process.loop.spawn(self._do(style, self.sidecar, each), "kept")

    async def _act(self, delivery: Delivery) -> str:
        """Work on one message. Some settle it themselves before they answer."""
        random, lease_s = self._random, self._habits.lease_ms / 1000
        style = self._style()
        match style:
            case "slow" | "stale":
                await asyncio.sleep(random.uniform(0.7, 4) * lease_s)
            case "twice":
                await self._settle(self.sidecar, SettleItem(delivery.lease, SettleVerb.ACK))
            case "forget":
                await asyncio.sleep(random.uniform(0, 3) * lease_s)
            case _:
                await asyncio.sleep(random.uniform(0, 0.2))
        return style

    # --- answers

    async def _pause(self, call: Call) -> None:
        """It asks for one."""
        random = self._random
        await asyncio.sleep(random.uniform(0, 0.02))
        headers = {"Retry-After": str(random.choice(PAUSES_S))}
        self._answer(call, PushAnswer(random.choice(PAUSING), headers, b""), ["retry"])

    def _answer_one(self, call: Call, style: str) -> None:
        """One of the ways to say the same."""
        random, do = self._random, DO.get(style, "ack")
        said = {"Ackd-Do": do}
        choices: dict[str, list[tuple[int, dict[str, str]]]] = {
            "ack": [(200, {}), (204, {}), (500, said)],
            "retry": [(404, {}), (503, {}), (302, {}), (200, said), (200, {**said, **SOON})],
            "dead": [(200, said), (500, said)],
            "extend": [(202, {})],
        }
        status, headers = random.choice(choices[do])
        self._answer(call, PushAnswer(status, headers, b""), [do])

    def _answer_items(self, call: Call, styles: list[str]) -> None:
        """Each by itself. ackd retries what is not named, and everything if nobody can read it."""
        random = self._random
        dos = [DO.get(style, "ack") for style in styles]
        if "retry" in dos and random.random() < 0.3:
            answer = random.choice([PushAnswer(500, {}, b""), PushAnswer(200, {}, b"[")])
            self._answer(call, answer, ["retry"] * len(dos))
            return
        items = [
            {"lease": each.lease, "do": do}
            for each, do in zip(call.deliveries, dos, strict=True)
            if do != "retry" or random.random() < 0.5
        ]
        self._answer(call, PushAnswer(200, {}, json.dumps({"items": items}).encode()), dos)

    def _answer(self, call: Call, answer: PushAnswer, dos: list[str]) -> None:
        """`dos`: what it means for each message, or for all of them."""
        if self._calls.pop(call, 0) is not None:
            return  # it is broken
        dos = dos if len(dos) > 1 else dos * len(call.deliveries)
        for each, do in zip(call.deliveries, dos, strict=True):
            self._told.asked(SettleItem(each.lease, SettleVerb(do)))
            if do == "ack":
                call.acked.append(each.lease)
        self._reply(call, answer)
