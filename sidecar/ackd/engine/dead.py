"""Dead letters: the copy first, durable in the dead-letter topic, then the original is finished.

The slot's state DEAD is the commit point (rule R2): from there on the old token is lost, whoever
crashes. The copy carries (origin, generation); a repeat after a lost answer has the same one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ackd.core.effects import SendDead
from ackd.core.entry import UNKNOWN_RTERM
from ackd.core.states import Outcome, Verb
from ackd.core.wire import Finish, Op, Verdict
from ackd.engine.context import Context
from ackd.engine.partition import Partition
from ackd.engine.tasks import Tasks
from ackd.errors import BrokerError, StoreError
from ackd.ports import Headers, Outgoing, Record, Stored, Trouble

if TYPE_CHECKING:
    from ackd.engine.subscription import Subscription

LOG = logging.getLogger("ackd.engine")

RETRY_MS = 5_000
RETRY_MS_MAX = 60_000
TROUBLE = "dead-letter-topic"
REASON_BYTES_MAX = 1_024


def dead_headers(partition: Partition, effect: SendDead, record: Record, reason: str) -> Headers:
    """Where the message comes from and why it is here, before its own headers."""
    key, tp = partition.key, partition.tp
    origin = f"{key.cluster}/{tp.topic}/{tp.partition}/{effect.offset}"
    own = (
        ("ackd-origin", origin.encode()),
        ("ackd-generation", str(effect.fence).encode()),
        ("ackd-subscription", partition.key.subscription.encode()),
        ("ackd-attempt", str(effect.attempt).encode()),
        ("ackd-published-ms", str(record.timestamp_ms).encode()),
        ("ackd-reason", reason.encode()[:REASON_BYTES_MAX]),
    )
    return own + record.headers


class DeadLetters:
    """Sends the copies of one subscription, one at a time, as long as it takes."""

    def __init__(self, subscription: Subscription, context: Context) -> None:
        self._subscription = subscription
        self._context = context
        self._queue: dict[tuple[Partition, int], SendDead] = {}
        self._wake = asyncio.Event()
        self._tasks = Tasks(f"dead.{subscription.name}")
        self._topic_ready = False
        group = subscription.settings.group or subscription.name
        self.topic = subscription.broker.dead_topic(group)

    def send(self, partition: Partition, effect: SendDead) -> None:
        """Queue a copy; the message stays unfinished until it is stored."""
        self._queue[partition, effect.offset] = effect
        self._wake.set()

    def __len__(self) -> int:
        return len(self._queue)

    async def run(self) -> None:
        """Send until cancelled; a failure is tried again from 5 s on."""
        pause_ms = RETRY_MS
        while True:
            await self._wake.wait()
            self._wake.clear()
            for (partition, offset), effect in list(self._queue.items()):
                try:
                    await self._send(partition, effect)
                except (BrokerError, StoreError) as error:
                    LOG.warning("dead letter %s %d not stored: %s", partition.tp, offset, error)
                    self._subscription.troubles[TROUBLE] = Trouble(TROUBLE, error.detail)
                    await asyncio.sleep(pause_ms / 1000)
                    pause_ms = min(pause_ms * 2, RETRY_MS_MAX)
                    self._wake.set()
                    break
                self._queue.pop((partition, offset), None)
                self._subscription.troubles.pop(TROUBLE, None)
                pause_ms = RETRY_MS

    async def _send(self, partition: Partition, effect: SendDead) -> None:
        entry = partition.ledger.entries.get(effect.offset)
        if partition.closed or entry is None or entry.fence != effect.fence:
            return
        if entry.rterm == UNKNOWN_RTERM:
            partition.reload()  # it tells of the dead letter again, and of the term
            return
        reason = Finish.DEAD
        if entry.body is None:
            reason = Finish.VANISHED
            self._context.metrics.vanished.at(self._subscription.name).inc()
        else:
            await self._store_copy(partition, effect, entry.body)
        op = Op(Verb.FINISH, effect.offset, effect.fence, entry.rterm, entry.attempt, reason)
        reply = await self._context.flusher.submit(partition.handle, [op])
        if reply.verdict is not Verdict.OK:
            raise StoreError(f"finishing a dead letter: {reply.verdict.name}")
        if reply.results[0].outcome is not Outcome.DONE:
            partition.reload()  # a rejoin gave the slot another term meanwhile: see what it is now
            return
        partition.reasons.pop(effect.offset, None)
        partition.ledger.dead_sent(effect.offset)
        partition.perform()

    async def _store_copy(self, partition: Partition, effect: SendDead, record: Record) -> None:
        if not self._topic_ready:
            await self._subscription.broker.ensure_topic(self.topic, _TOPIC_SETTINGS)
            self._topic_ready = True
        reason = partition.reasons.get(effect.offset, "")
        headers = dead_headers(partition, effect, record, reason)
        copy = Outgoing(self.topic, record.key, record.value, headers)
        (result,) = await self._subscription.broker.publish([copy])
        if not isinstance(result, Stored):
            self._topic_ready = False
            raise BrokerError(f"{result.code}: {result.detail}")


_TOPIC_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": str(14 * 86_400_000),
}
"""Never compacted (it eats copies of one key), kept for two weeks (rule R25)."""
