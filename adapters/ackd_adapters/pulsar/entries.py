"""When entries are due that a producer delayed (`deliverAfter`, `deliverAt`).

The client library gives a reader such a message at once, and does not report its time. So a second
reader of the same partition, in Pulsar's own protocol (`wire.py`), follows the first one and reads
the metadata of each entry. It begins with the first message outside of a batch: clients send what
is delayed one by one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Final

from ackd.errors import BrokerError
from ackd_adapters.pulsar.numbering import Position
from ackd_adapters.pulsar.wire import FLOW, READER, ClusterAccess, Wire, reader_on

PERMITS: Final = 1_000
"""Messages that the broker may send ahead; they wait in the sockets, not in memory."""
Going = Callable[[], bool]
Place = tuple[int, int]


class EntryFollower:
    """Follows one partition. Blocks; for the one thread of a session.

    `topic`: the full name of what holds the partition.
    """

    def __init__(self, access: ClusterAccess, topic: str) -> None:
        self._access = access
        self._topic = topic
        self._wire: Wire | None = None
        self._next: Place = (-1, -1)
        self._permits = 0

    def due(self, wanted: Sequence[Position], until: float, going: Going) -> dict[Place, int]:
        """Due times in ms of those of the entries (in order of the log) that were delayed. An entry
        that is gone has none. Raises BrokerError, also when it takes until `until` (monotonic).
        """
        places = [(each.ledger, each.entry) for each in wanted]
        try:
            return self._due(places, until, going)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """At once; a later question begins anew."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _due(self, places: list[Place], until: float, going: Going) -> dict[Place, int]:
        asked, last = set(places), places[-1]
        found: dict[Place, int] = {}
        wire = self._following(places[0])
        while self._next <= last:
            head = wire.next_head(until, going)
            if head is None:
                if not going():
                    return found
                raise BrokerError("the broker does not send the entries in time")
            self._permit(wire, head.messages)
            place = (head.ledger, head.entry)
            self._next = (head.ledger, head.entry + 1)
            if head.deliver_at_ms and place in asked:
                found[place] = head.deliver_at_ms
        return found

    def _following(self, first: Place) -> Wire:
        """A reader that is at this entry or not far before it."""
        ledger, entry = first
        near = self._next[0] == ledger and 0 <= entry - self._next[1] <= PERMITS
        if self._wire is None or not near:
            self.close()
            self._wire = reader_on(
                self._topic,
                self._access,
                after=(ledger, entry - 1),
                name=f"ackd-delays-{uuid.uuid4().hex[:10]}",
            )
            self._next = first
            self._permits = 0
            self._permit(self._wire, PERMITS)
        return self._wire

    def _permit(self, wire: Wire, messages: int) -> None:
        self._permits += messages
        if self._permits >= PERMITS // 2:
            wire.tell(FLOW, {1: READER, 2: self._permits})
            self._permits = 0
