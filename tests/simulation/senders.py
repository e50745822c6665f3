"""Simulated applications that publish: most of it for later, each at any sidecar, and again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from ackd.api.messages import Accepted, Published, PublishRequest
from ackd.errors import AckdError
from ackd.ports import Outgoing, Stored
from tests.simulation.outboxes import OUT, PARTITIONS, Deliveries
from tests.simulation.process import Process
from tests.simulation.sidecar import Sidecar, ask
from tests.simulation.world import World

TRIES: Final = 8
TIMEOUT_MS: Final = 6_000
KEYS: Final = 3


class Sender:
    """One application. `calm`: it begins nothing new."""

    def __init__(
        self, world: World, name: str, sidecars: Sequence[Sidecar], told: Deliveries, pause_ms: int
    ) -> None:
        self.calm = False
        self.idle = False
        self._name = name
        self._sidecars = sidecars
        self._told = told
        self._pause_s = pause_ms / 1000
        self._random = world.random(f"sender/{name}")
        self._sent = 0
        self.process = Process(world, name)
        self.process.loop.spawn(self._live(), "live")

    def clean_up(self) -> None:
        """The run is over."""
        self.process.loop.clean_up()

    async def _live(self) -> None:
        while not self.calm:
            await self._publish(self._request())
            await asyncio.sleep(self._random.uniform(0, 2) * self._pause_s)
        self.idle = True

    def _request(self) -> PublishRequest:
        random = self._random
        self._sent += 1
        name = f"{self._name}.{self._sent}"
        later = random.random() < 0.8
        messages = [self._message(f"{name}.{n}") for n in range(random.choice([1, 1, 1, 3, 8]))]
        values = [each.value or b"" for each in messages]
        for value in values:
            self._told.asked[value] = later
        fingerprint = blake2b(b"".join(values), digest_size=16).digest()
        key = name if random.random() < 0.7 else None
        return PublishRequest(messages, key, fingerprint, respond_async=later)

    def _message(self, name: str) -> Outgoing:
        random = self._random
        key = b"k%d" % random.randrange(KEYS) if random.random() < 0.7 else None
        partition = random.randrange(PARTITIONS) if random.random() < 0.2 else None
        delay_ms = random.choice([0, 0, 0, 0, 50, 400, 3_000])
        return Outgoing(OUT, key, name.encode(), (), partition, delay_ms)

    async def _publish(self, request: PublishRequest) -> None:
        """With a key until there is an answer, else once."""
        tries = TRIES if request.idempotency_key is not None else 1
        for _ in range(tries):
            sidecar = self._random.choice(self._sidecars)
            try:
                answer = await ask(
                    self.process,
                    sidecar,
                    lambda engine: engine.publish(None, request),
                    TIMEOUT_MS,
                )
            except (AckdError, ConnectionError, TimeoutError):
                await asyncio.sleep(self._random.uniform(0.02, 0.6))
                continue
            assert isinstance(answer, Published)
            if self._heard(request, answer):
                return
            await asyncio.sleep(self._random.uniform(0.02, 0.6))

    def _heard(self, request: PublishRequest, answer: Published) -> bool:
        """Whether all of it went well."""
        for message, result in zip(request.messages, answer.results, strict=True):
            value = message.value or b""
            if isinstance(result, Stored):
                self._told.told.append((value, result.partition, result.offset))
            elif isinstance(result, Accepted):
                self._told.answered(value, result)
        return not any(isinstance(each, AckdError) for each in answer.results)
