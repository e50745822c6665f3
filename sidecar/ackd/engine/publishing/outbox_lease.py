"""The lease on an outbox: only who has it sends, and each of its calls to the store extends it.

The store gives a message to the holder of the lease alone. When the lease goes to another sidecar,
what this one had taken is forgotten here; the other one takes it again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ackd.core.outbox import ResultRetention, TakenMessage, TakeRequest, TakeResult
from ackd.engine.publishing.outbox_name import OutboxName
from ackd.engine.publishing.outbox_queue import BATCH_MAX, OutboxQueue
from ackd.ports import Clock, Store

LOG = logging.getLogger("ackd.engine")

LEASE_MS = 3_000
TAKE_BYTES_MAX = 4 * 1024 * 1024


class OutboxLease:
    """`term` 0: this sidecar does not have it. `last`: the store's answer to the last `take`,
    without its messages.
    """

    def __init__(
        self,
        name: str,
        owner: str,
        outbox_name: OutboxName,
        store: Store,
        clock: Clock,
        keep: ResultRetention,
        queue: OutboxQueue,
    ) -> None:
        self._name = name
        self._owner = owner
        self._outbox_name = outbox_name
        self._store = store
        self._clock = clock
        self._keep = keep
        self._queue = queue
        self._questions = 0
        self._valid_until_ms = 0
        self._store_ahead_ms = 0
        self.term = 0
        self.last = TakeResult(0, "", 0, 0, 0, 0, 0, 0)

    @property
    def valid(self) -> bool:
        """Whether this sidecar may send: one that was frozen must not."""
        return bool(self.term) and self._clock.monotonic_ms() < self._valid_until_ms

    def store_now_ms(self) -> int:
        """The store's time, by which messages are due."""
        return self._clock.monotonic_ms() + self._store_ahead_ms

    def one_more_due(self) -> None:
        """A message was accepted here that is due at once: the next `take` will count it."""
        self.last = self.last._replace(due=self.last.due + 1)

    async def take(self, room: int, *, resync: bool) -> Sequence[TakenMessage]:
        """Ask for the lease, or extend it, and take messages for which there is room.

        `resync`: a call's answer was lost, so the store is told what this sidecar has. Raises
        StoreError.
        """
        begin_ms = self._clock.monotonic_ms()
        have = self._queue.numbers() if resync else None
        self._questions += 1
        request = TakeRequest(self._owner, self.term, self._questions, LEASE_MS)
        answer = await self._store.outboxes.take(
            self._outbox_name.name, request, min(room, BATCH_MAX), TAKE_BYTES_MAX, have
        )
        self.last = answer._replace(messages=())
        self._store_ahead_ms = answer.now_ms - self._clock.monotonic_ms()
        if answer.term != self.term:
            self._lost()
            self.term = answer.term
            if answer.term:
                LOG.info(
                    "outbox of %s: this sidecar sends its messages now (term %d)",
                    self._name,
                    answer.term,
                )
        self._valid_until_ms = begin_ms + LEASE_MS
        return answer.messages

    async def confirm(self) -> None:
        """Report what was sent to the store. What it does not answer is reported again.

        Raises StoreError.
        """
        begin_ms, results = self._clock.monotonic_ms(), list(self._queue.results.values())
        if not results or not self.term:
            return
        if not await self._store.outboxes.done(
            self._outbox_name.name, self._owner, self.term, LEASE_MS, results, self._keep
        ):
            self._lost()
            return
        self._valid_until_ms = begin_ms + LEASE_MS
        self._queue.confirmed(results)

    async def release(self) -> None:
        """Give the lease back, with what was never sent. Raises StoreError."""
        if not self.term:
            return
        unsent = self._queue.never_sent()
        term, self.term = self.term, 0
        self._queue.clear()
        await self._store.outboxes.release(self._outbox_name.name, self._owner, term, unsent)

    def _lost(self) -> None:
        """Another sidecar has the lease: drop what was taken under the last term."""
        if self._queue.numbers():
            LOG.warning(
                "outbox of %s: another sidecar sends now; what this one had taken may come twice",
                self._name,
            )
        self._queue.clear()
        self.term = 0
