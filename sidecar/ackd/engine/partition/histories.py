"""Reads a message's history: one entry for each delivery, the oldest first."""

from __future__ import annotations

import msgspec

from ackd.api.past_deliveries import PastDelivery
from ackd.core.record.delivery_events import DeliveryEvent, events
from ackd.core.record.protocol import MessageTexts
from ackd.core.record.settles import OF_OUTCOME
from ackd.core.record.transitions import Outcome
from ackd.unreadable import UNREADABLE

HEADER_BYTES_MAX = 6_000
"""Bound on the history in a dead letter's header."""
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(list[PastDelivery])


def past_deliveries(history: bytes, *, leased: bool = False) -> list[PastDelivery]:
    """Join what began and ended deliveries. `leased`: the last one has not ended."""
    found: list[PastDelivery] = []
    fence = 0
    for event in reversed(list(events(history))):
        if event.outcome is Outcome.GRANTED:
            found.append(PastDelivery(event.attempt, _text(event.holder), event.at_ms))
        else:
            if not found or fence != event.fence:
                found.append(PastDelivery(event.attempt, _text(event.holder)))
            end = OF_OUTCOME[event.outcome].status.value
            found[-1].ended(end, event.at_ms, _text(event.reason))
        fence = event.fence
    if leased and found and found[-1].ended_ms is None:
        found[-1].goes_on()
    return found


def holder_of(texts: MessageTexts | None, fence: int | None = None) -> str:
    """Return who has the open lease; empty if it is not known. `fence`: which lease that is."""
    newest: DeliveryEvent | None = None if texts is None else next(events(texts.history), None)
    if newest is None or newest.outcome is not Outcome.GRANTED or fence not in (None, newest.fence):
        return ""
    return _text(newest.holder)


def history_header(history: bytes) -> bytes:
    """Write the deliveries of a dead letter, without the oldest beyond the bound."""
    found = past_deliveries(history)
    while found:
        header = _ENCODER.encode(found)
        if len(header) <= HEADER_BYTES_MAX:
            return header
        del found[0]
    return b""


def read_history(header: bytes) -> list[PastDelivery]:
    """Read what `history_header` wrote; nothing of what somebody else may have written."""
    if not header or len(header) > HEADER_BYTES_MAX:
        return []
    try:
        return _DECODER.decode(header)
    except UNREADABLE:
        return []


def _text(data: bytes) -> str:
    return data.decode("utf-8", "ignore")
