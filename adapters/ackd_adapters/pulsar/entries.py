"""When entries are due that a producer delayed (`deliverAfter`, `deliverAt`).

The client library gives a reader such a message at once, and does not report its time. So a second
reader of the same partition, in Pulsar's own protocol (`wire.py`), follows the first one and reads
the metadata of each entry. It begins with the first message outside of a batch: clients send what
is delayed one by one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

from ackd.errors import BrokerError
from ackd_adapters.pulsar.heads import Place
from ackd_adapters.pulsar.wire import FLOW, READER, ClusterAccess, Wire, reader_on

PERMITS: Final = 1_000
"""Messages that the broker may send ahead; they wait in the sockets and in one buffer."""
NOWHERE: Final = (-1, -1)
Going = Callable[[], bool]


class EntryFollower:
    """Follows one partition. Blocks; for the one thread of a session.

    `topic`: the full name of what holds the partition.
    """

    def __init__(self, access: ClusterAccess, topic: str) -> None:
        self._access = access
        self._topic = topic
        self._wire: Wire | None = None
        self._next = NOWHERE
        self._ahead: dict[Place, int] = {}
        self._ahead_from = NOWHERE
        self._permits = 0

    def due(self, first: Place, last: Place, until: float, going: Going) -> dict[Place, int]:
        """Due times in ms of the entries from `first` to `last` that were delayed. An entry that
        is gone has none. Raises BrokerError, also when it takes until `until` (monotonic).
        """
        try:
            self._read(first, last, until, going)
        except BaseException:
            self.close()
            raise
        found = {place: due_ms for place, due_ms in self._ahead.items() if first <= place <= last}
        self._ahead = {place: due_ms for place, due_ms in self._ahead.items() if place > last}
        self._ahead_from = (last[0], last[1] + 1)
        return found

    def close(self) -> None:
        """At once; a later question begins anew."""
        wire, self._wire = self._wire, None
        self._next = self._ahead_from = NOWHERE
        self._ahead = {}
        if wire is not None:
            wire.close()

    def _read(self, first: Place, last: Place, until: float, going: Going) -> None:
        """Read to `last`, and what has arrived behind it."""
        wire = self._following(first)
        while self._next <= last:
            heads = wire.next_heads(until, going)
            if heads is None:
                if not going():
                    return
                raise BrokerError("the broker does not send the entries in time")
            self._permit(wire, heads.messages)
            self._next = (heads.last[0], heads.last[1] + 1)
            self._ahead |= heads.due_ms

    def _following(self, first: Place) -> Wire:
        """A reader that has read this entry, or is at it, or not far before it."""
        ledger, entry = first
        near = self._next[0] == ledger and 0 <= entry - self._next[1] <= PERMITS
        read = self._ahead_from <= first < self._next
        if self._wire is None or not (near or read):
            self.close()
            self._wire = reader_on(
                self._topic,
                self._access,
                after=(ledger, entry - 1),
                name=f"ackd-delays-{uuid.uuid4().hex[:10]}",
            )
            self._next = self._ahead_from = first
            self._permits = 0
            self._permit(self._wire, PERMITS)
        return self._wire

    def _permit(self, wire: Wire, messages: int) -> None:
        self._permits += messages
        if self._permits >= PERMITS // 2:
            wire.tell(FLOW, {1: READER, 2: self._permits})
            self._permits = 0
