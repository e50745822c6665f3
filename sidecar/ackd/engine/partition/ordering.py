"""Ordered subscriptions: the key and the position that order a message (I6, R19).

The ledger (`ackd.core.ledger.order`) decides which message may go. This file tells it what it
cannot know: the key of a message, and which key queue of which origin record a retry copy is in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ackd.config.subscription import Ordering
from ackd.core.ids import LedgerKey
from ackd.core.ledger.order import PARTITION, OrderPosition, key_hash
from ackd.core.record.operations import CloseOrigin, CopyRef, Op
from ackd.engine.base.spill_file import Held, Stub
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_of
from ackd.ports import Record

KEYS_MAX = 10_000
PositionOf = Callable[[Held], OrderPosition | None]
Signed = Callable[[Record], bool]
"""Whether ackd certainly wrote a record of the retry topic."""


class OriginRecordRef(NamedTuple):
    """An origin record in a key queue, which leaves the queue when its copy is finished."""

    key: LedgerKey
    incarnation: int
    offset: int
    generation: int

    def left(self, partition: int, offset: int) -> Op:
        """Return the operation that removes the origin record from its key queue. The copy at
        this partition and offset of the retry topic is finished.
        """
        return CloseOrigin(self.offset, self.generation, finished=CopyRef(partition, offset))


def origin_key(retry_copy: RetryCopy) -> LedgerKey:
    """Name the record that holds the origin record of a copy (one that was not redriven)."""
    origin_record = retry_copy.origin_record
    return LedgerKey(
        origin_record.cluster,
        retry_copy.subscription,
        origin_record.topic_id,
        origin_record.partition,
    )


def position_of(
    ordering: Ordering,
    subscription: str,
    *,
    retry_copies: bool,
    signed: Signed = lambda _: True,
) -> PositionOf | None:
    """Return the function that gives messages of a partition their order position; None =
    unordered.

    `ordering = "key"` does not order a message without a key. A spilled body got its position when
    it came.
    """
    if retry_copies:
        # Also when the order was switched off meanwhile: a blocked key keeps its queue.
        return _CopyOrdering(subscription, signed).position
    if ordering == "none":
        return None
    return _of_key if ordering == "key" else _of_partition


def _of_key(body: Held) -> OrderPosition | None:
    key = None if isinstance(body, Stub) else body.key
    return None if key is None else OrderPosition(key_hash(key), body.offset)


def _of_partition(body: Held) -> OrderPosition | None:
    return OrderPosition(PARTITION, body.offset)


class _CopyOrdering:
    """Orders copies by their origins, whatever the order in which they were stored.

    A copy that is not `signed` has no position, so that its end takes no origin record out of a
    queue. If it is genuine after all, its origin record keeps the order, and leaves the queue when
    somebody asks for it (`KeyQueues`).
    """

    def __init__(self, subscription: str, signed: Signed) -> None:
        self._subscription = subscription
        self._signed = signed
        self._keys: dict[LedgerKey, LedgerKey] = {}

    def position(self, body: Held) -> OrderPosition | None:
        """Return the order position of a copy; None if its message was unordered."""
        retry_copy = None if isinstance(body, Stub) else retry_copy_of(body, self._subscription)
        if retry_copy is None or not retry_copy.order_key or retry_copy.redriven is not None:
            return None
        if isinstance(body, Stub) or not self._signed(body):
            return None
        key = origin_key(retry_copy)
        if len(self._keys) >= KEYS_MAX:
            self._keys.clear()  # forged copies can name any number of records
        key = self._keys.setdefault(key, key)  # one for all: there are few records, many copies
        origin_record = OriginRecordRef(
            key, retry_copy.incarnation, retry_copy.origin.offset, retry_copy.generation
        )
        ordering_key = (key, retry_copy.incarnation, retry_copy.order_key)
        return OrderPosition(ordering_key, retry_copy.origin.offset, origin_record)
