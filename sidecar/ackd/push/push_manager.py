"""All push deliveries of a sidecar: started with it, drained and stopped before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ackd.api.messages import Engine
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.base.tasks import Tasks, Vitals
from ackd.push.call import PushClient
from ackd.push.pusher import Pusher
from ackd.push.signature import read_secrets
from ackd.telemetry.metrics import Metrics


class PushManager:
    """Push deliveries of all subscriptions with a `push.url`. `client` makes the way to one."""

    def __init__(
        self,
        engine: Engine,
        subscriptions: Mapping[str, SubscriptionSettings],
        metrics: Metrics,
        vitals: Vitals | None = None,
        client: Callable[[str], PushClient] = PushClient,
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._subscriptions = {n: each for n, each in subscriptions.items() if each.push.url}
        self._client = client
        self._tasks = Tasks("push", vitals)
        self._pushers: list[Pusher] = []

    async def start(self) -> None:
        """Start delivering. The engine must have started. Raises ConfigError."""
        for name, settings in self._subscriptions.items():
            file = settings.push.signature_file
            secrets = [] if file is None else await asyncio.to_thread(read_secrets, file)
            client = self._client(settings.push.url)
            pusher = Pusher(name, settings, self._engine, self._metrics, client, secrets)
            self._pushers.append(pusher)
            self._tasks.start(pusher.run(), name)

    def drain(self) -> None:
        """Begin no further call. The leases of running calls keep the engine's drain waiting."""
        self._tasks.let_end()
        for pusher in self._pushers:
            pusher.drain()

    async def stop(self) -> None:
        """Cancel running calls: the application keeps their leases until the deadline."""
        await self._tasks.stop()
