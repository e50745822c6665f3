"""Records in a retry topic that are no copies of this subscription's messages (rule R25)."""

from __future__ import annotations

import logging

from ackd.core.ids import message_id
from ackd.engine.base.context import Context
from ackd.engine.base.copy_signature import SIGNATURE, Proof
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.copy_headers import not_by_ackd
from ackd.engine.partition.partition import Partition
from ackd.ports import Record

LOG = logging.getLogger("ackd.engine")


ASIDE = 1
"""The fence of a record that was put aside, by which its next owner knows it. Real fences are
microseconds since 1970.
"""


def not_genuine(body: Record) -> str:
    """Return the reason of the dead letter of a copy that nothing speaks for."""
    if any(name == SIGNATURE for name, _ in body.headers):
        return f"{Proof.BAD.value}: its signature does not fit, and no message knows it as its copy"
    return f"{Proof.NOT_SIGNED.value}: no message knows it as its copy"


class Strangers:
    """Counts them, logs the first, and puts aside what ackd can't have written."""

    def __init__(self, state: SubscriptionState, context: Context) -> None:
        self._state = state
        self._context = context
        self._warned = False

    def put_aside(self, partition: Partition, offset: int, body: Record) -> bool:
        """Make the record a dead letter, at once and undelivered, if no ackd can have written it.

        Its reason is read from its headers again when the letter is written, whoever does that.
        """
        why = not_by_ackd(body)
        if why:
            self.not_genuine(partition, offset, why)
        return bool(why)

    def not_genuine(self, partition: Partition, offset: int, why: str) -> None:
        """Make the record a dead letter of its own, undelivered, for this reason."""
        if partition.closed:
            return
        place = message_id(*partition.tp, offset)
        self._count("aside", f"ackd makes the record {place} a dead letter: {why}")
        partition.copies.put_aside(offset, why)
        partition.tell(*partition.copies.place_dead(offset, ASIDE, 0, 0))

    def delivered(self, partition: Partition, offset: int, why: str) -> None:
        """Note a copy of another subscription, or of a message that is unknown here: it is
        delivered as a message of its own.
        """
        place, what = message_id(*partition.tp, offset), "no copy that ackd knows"
        sentence = f"the record {place} is {what} ({why[:300]}), so ackd delivers it as a message"
        self._count("foreign", sentence)

    def _count(self, outcome: str, sentence: str) -> None:
        self._context.metrics.claims.at(self._state.name, outcome).inc()
        if not self._warned:
            self._warned = True
            LOG.warning("%s: %s; further ones are only counted", self._state.name, sentence)
