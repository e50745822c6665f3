"""Brings signatures into force in ackd's own topics, and keeps the keys of copies in the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.retry.dead_letter_reader import open_log
from ackd.errors import BrokerError, StoreError

LOG = logging.getLogger("ackd.engine")

LOOK_MS = 1_000
SYNC_MS = 30_000
"""How often a sidecar looks whether the store still has the keys. After a possible rollback it does
so at once.
"""


class SignedLogs:
    """One sidecar notes where each log ends once all of them sign: what is before may be unsigned.

    A topic that does not exist yet has nothing before. `topics`: for retry copies and for dead
    letters. `winner`: names the sidecar that does what
    each of them could do; `all_sign`: whether all living sidecars sign their copies.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        topics: tuple[str, str],
        winner: Callable[[str], str],
        all_sign: Callable[[], bool],
    ) -> None:
        self._state = state
        self._context = context
        self._topics = dict(zip(topics, ("retry", "dead"), strict=True))
        self._winner = winner
        self._all_sign = all_sign
        self._synced = ""
        self._sync_ms = context.clock.monotonic_ms() + SYNC_MS

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self._sync_if_due()
                await self._begin_if_due()
            except (StoreError, BrokerError) as error:
                LOG.info(
                    "%s: ackd can't note since when copies are signed, and tries again: %s",
                    self._state.name,
                    error.detail,
                )
            await asyncio.sleep(LOOK_MS / 1000)

    async def _sync_if_due(self) -> None:
        run, now_ms = self._context.store.run, self._context.clock.monotonic_ms()
        keys = self._state.copy_keys
        keys.begins(soon=self._all_sign())
        lacks = not all(keys.in_force(topic) for topic in self._topics)
        if lacks or run != self._synced or now_ms >= self._sync_ms:
            await keys.sync()
            self._synced, self._sync_ms = run, now_ms + SYNC_MS

    async def _begin_if_due(self) -> None:
        keys, me = self._state.copy_keys, self._context.identity
        for topic, what in self._topics.items():
            mine = not keys.in_force(topic) and self._winner(f"signed {topic}") == me
            if mine and self._state.cluster and self._all_sign():
                await self._begin(topic, what)

    async def _begin(self, topic: str, what: str) -> None:
        keys, state = self._state.copy_keys, self._state
        if await state.broker.partitions(topic) is None:
            await keys.begin(topic, b"", {})
            return
        async with open_log(state, self._context, topic, f"{what}-ends") as log:
            ends = {number: (await log.range(number))[1] for number in log.partitions}
            await keys.begin(topic, log.topic_id if log.partitions else b"", ends)
        LOG.info(
            "%s: copies in %s have to be signed from these offsets on: %s", state.name, topic, ends
        )
