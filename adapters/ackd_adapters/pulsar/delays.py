"""Finds out when messages with a client-set delay are due: from their retry letter, or from the
metadata of their entry (`entries.py`).

A reader gets a message that was published with `deliverAfter` or `deliverAt` at once, and the
client does not report its time. Only a message outside of a batch can have one: the clients send
delayed messages one by one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from ackd.errors import BrokerError
from ackd.ports import Delay, Record
from ackd_adapters.pulsar.config import PulsarOptions
from ackd_adapters.pulsar.entries import EntryFollower, Going
from ackd_adapters.pulsar.heads import Place
from ackd_adapters.pulsar.letters import DEAD, bounded, holds_letters, letter
from ackd_adapters.pulsar.names import is_own

LOG: Final = logging.getLogger("ackd.pulsar")
Alone = tuple[int, Place]
"""A message outside of a batch: its offset, and where it is."""
Found = dict[int, Delay]
AGAIN_S: Final = 0.2
"""Constant: messages wait for the answer."""
TRY_S: Final = 1.0
"""How long one try may take when others were in vain."""


class Delays:
    """When the messages of one session of a partition are due. Blocks; for the session's thread.

    `in_vain`: why messages come without their due times at present; empty when they have them. The
    next ones do not wait then: one try, and they go on.
    """

    def __init__(
        self, options: PulsarOptions, topic: str, entries: Callable[[], EntryFollower]
    ) -> None:
        self._make = entries
        self._entries: EntryFollower | None = None
        self._letters = holds_letters(topic)
        self._asks = options.honor_client_delays and not is_own(topic) and not topic.endswith(DEAD)
        self._wait_s = options.client_delays_wait_ms / 1000
        self.wanted = self._letters or self._asks
        self.in_vain = ""

    def find(self, records: Sequence[Record], places: Sequence[Alone], going: Going) -> Found:
        """Due times by offset. `places`: of the messages outside of batches, in order. A
        message whose question is not answered in time has no due time. The call ends soon once
        `going` returns False. Raises BrokerError.
        """
        found: Found = {}
        if self._letters:
            parsed = ((record.offset, letter(record)) for record in records)
            found = {offset: delay for offset, delay in parsed if delay is not None}
            places = [each for each in places if each[0] not in found or not found[each[0]].due_ms]
        if self._asks and places:
            now_ms = time.time_ns() // 1_000_000
            for offset, due_ms in self._due(places, going).items():
                if due_ms > now_ms:
                    attempts = found[offset].attempts if offset in found else 0
                    found[offset] = Delay(bounded(due_ms), attempts)
        return found

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._entries is not None:
            self._entries.close()

    def _due(self, asked: Sequence[Alone], going: Going) -> dict[int, int]:
        """Again and again for a while."""
        if self._entries is None:
            self._entries = self._make()
        first, last = asked[0][1], asked[-1][1]
        until = time.monotonic() + (0 if self.in_vain else self._wait_s)
        while True:
            try:
                least = time.monotonic() + TRY_S
                found = self._entries.due(first, last, max(until, least), going)
            except BrokerError as error:
                if going() and time.monotonic() + AGAIN_S < until:
                    time.sleep(AGAIN_S)
                    continue
                if going():
                    self.in_vain = error.detail
                    LOG.warning("ackd delivers %d messages without delay: %s", len(asked), error)
                return {}
            if going():
                self.in_vain = ""
            return {offset: found[at] for offset, at in asked if at in found} if found else {}
