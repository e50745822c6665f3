"""What happened to an unfinished message: its deliveries, and how each ended.

A history is one of the texts of a message (`texts`), packed, the newest event first. Beyond a bound
on events or bytes the oldest are dropped. `store/texts.lua` makes the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ackd.core.record.settles import OF_OUTCOME
from ackd.core.record.transitions import Outcome, State

EVENTS_MAX = 32
HISTORY_BYTES_MAX = 4_096
"""Bound on the history of one message, packed."""
HOLDER_BYTES_MAX = 100
REASON_BYTES_MAX = 200
"""Of a reason the history keeps so much; the first and the last one are kept whole beside it."""
ENDED = frozenset(
    outcome
    for outcome, rule in OF_OUTCOME.items()
    if rule.ends and rule.state is not State.FINISHED
)
"""Outcomes of settles that end a delivery, but not the message."""
EVENTS = ENDED | {Outcome.GRANTED}
_HEAD = Struct(">BH6s7sBH")


class DeliveryEvent(NamedTuple):
    """A delivery (GRANTED), or its end by a settle. `holder`: who got or settled the lease, as
    told by a sidecar; `at_ms`: on the store's clock.
    """

    outcome: Outcome
    attempt: int
    at_ms: int
    fence: int
    holder: bytes = b""
    reason: bytes = b""

    def packed(self) -> bytes:
        holder, reason = self.holder[:HOLDER_BYTES_MAX], self.reason[:REASON_BYTES_MAX]
        head = _HEAD.pack(
            self.outcome,
            self.attempt,
            self.at_ms.to_bytes(6, "big"),
            self.fence.to_bytes(7, "big"),
            len(holder),
            len(reason),
        )
        return head + holder + reason


def with_event(history: bytes, event: DeliveryEvent) -> bytes:
    """Add an event, unless the newest one is the same: a settle may be repeated."""
    newest = next(events(history), None)
    if newest is not None and (newest.outcome, newest.fence) == (event.outcome, event.fence):
        return history
    history = event.packed() + history
    end = 0
    for _ in range(EVENTS_MAX):
        following = _end(history, end)
        if following > HISTORY_BYTES_MAX:
            break
        end = following
        if end >= len(history):
            break
    return history[:end]


def _end(history: bytes, at: int) -> int:
    *_, holder, reason = _HEAD.unpack_from(history, at)
    return at + _HEAD.size + int(holder) + int(reason)


def events(history: bytes) -> Iterator[DeliveryEvent]:
    """Unpack a history, the newest event first."""
    at = 0
    while at < len(history):
        outcome, attempt, at_ms, fence, holder, _ = _HEAD.unpack_from(history, at)
        middle, end = at + _HEAD.size + holder, _end(history, at)
        yield DeliveryEvent(
            Outcome(outcome),
            attempt,
            int.from_bytes(at_ms, "big"),
            int.from_bytes(fence, "big"),
            history[middle - holder : middle],
            history[middle:end],
        )
        at = end
