"""Ordered subscriptions: what must go one after the other (I6, R19).

Who may go is decided in the ledger (`ackd.core.ledger.order`); here is what it cannot
know: what a key is, and which line of which home a copy stands in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ackd.config.subscription import Ordering
from ackd.core.ids import LedgerKey
from ackd.core.ledger.order import PARTITION, OrderPosition, key_hash
from ackd.core.record.operations import CloseOrigin, CopyRef, Op
from ackd.engine.base.spill_file import Held, Stub
from ackd.engine.partition.copy_headers import RetryCopy, carrier_of

KEYS_MAX = 10_000
PlaceOf = Callable[[Held], OrderPosition | None]


class OriginRecordRef(NamedTuple):
    """The home of a copy that stands in the line of its key, for when the copy is over."""

    key: LedgerKey
    incarnation: int
    offset: int
    generation: int

    def left(self, partition: int, offset: int) -> Op:
        """The copy at this place of the retry topic is finished: its home leaves the line."""
        return CloseOrigin(self.offset, self.generation, finished=CopyRef(partition, offset))


def home_key(carrier: RetryCopy) -> LedgerKey:
    """The record that has the home of a copy (one that was not redriven)."""
    home = carrier.home
    return LedgerKey(home.cluster, carrier.subscription, home.topic_id, home.partition)


def place_of(ordering: Ordering, subscription: str, *, carriers: bool) -> PlaceOf | None:
    """How messages of a partition are lined up; None = in no order.

    A message without a key is bound to no order by `key`. A body that lies elsewhere was lined up
    when it came.
    """
    if carriers:
        # Also when the order was switched off meanwhile: what is parked stays in its line.
        return _Copies(subscription).place
    if ordering == "none":
        return None
    return _of_key if ordering == "key" else _of_partition


def _of_key(body: Held) -> OrderPosition | None:
    key = None if isinstance(body, Stub) else body.key
    return None if key is None else OrderPosition(key_hash(key), body.offset)


def _of_partition(body: Held) -> OrderPosition | None:
    return OrderPosition(PARTITION, body.offset)


class _Copies:
    """Copies go in the order of their origins, whatever the order in which they were stored."""

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._keys: dict[LedgerKey, LedgerKey] = {}

    def place(self, body: Held) -> OrderPosition | None:
        """Where a copy stands; None if its message was in no order."""
        carrier = None if isinstance(body, Stub) else carrier_of(body, self._subscription)
        if carrier is None or not carrier.order_key or carrier.redriven is not None:
            return None
        key = home_key(carrier)
        if len(self._keys) >= KEYS_MAX:
            self._keys.clear()  # forged copies name as many as they like
        key = self._keys.setdefault(key, key)  # one for all: there are few records, many copies
        home = OriginRecordRef(key, carrier.incarnation, carrier.origin.offset, carrier.generation)
        chain = (key, carrier.incarnation, carrier.order_key)
        return OrderPosition(chain, carrier.origin.offset, home)
