"""Planted mistakes about the order of keys (I6) and keys that are parked (R19)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from ackd.core.ledger.claims import Carriers
from ackd.core.ledger.entries import Window
from ackd.core.ledger.order import Turns
from ackd.core.ledger.send_back import SendingBack
from ackd.core.record import copies
from ackd.core.record.protocol import Op, Result
from ackd.core.record.state import Record
from ackd.core.record.transitions import Outcome, Verb


def any_of_a_key_may_go() -> Any:
    return patch.object(Turns, "free", lambda *_: True)


def parked_keys_go_on_in_the_window() -> Any:
    """Only the ledger's cache forgets it; the store is not asked at a grant."""
    return patch.object(Turns, "free", Turns.first)


def sent_back_without_its_key() -> Any:
    """A lease of an earlier owner, whose message is not fetched yet."""
    return patch.object(SendingBack, "_key_known", lambda *_: True)


def taken_over_without_the_parked_keys() -> Any:
    original = Window._turns_again

    def turns_again(self: Window[Any], before: Any, _: object) -> None:
        original(self, before, ())

    return patch.object(Window, "_turns_again", turns_again)


def a_claim_looks_at_no_line() -> Any:
    original = copies.claim

    def claim(record: Record, op: Op, now_ms: int) -> Result:
        found = record.homes.get(op.offset)
        if found is None:
            return original(record, op, now_ms)
        key, found.key = found.key, 0
        result = original(record, op, now_ms)
        found.key = key
        return result

    return patch.dict(copies.VERBS, {Verb.CLAIM: claim})


def free_when_the_first_is_claimed() -> Any:
    """Too early: its copy is on its way, or in somebody's hands."""
    original = copies.claim

    def claim(record: Record, op: Op, now_ms: int) -> Result:
        result = original(record, op, now_ms)
        if result.outcome is Outcome.CLAIMED:
            copies.leave(record, op.offset, record.homes[op.offset])
        return result

    return patch.dict(copies.VERBS, {Verb.CLAIM: claim})


def acked_unheard() -> Any:
    """The line of its home is told of a copy only if its claim is known here."""
    return patch.object(Carriers, "_were_claimed", lambda *_: None)


def the_newest_goes_first() -> Any:
    """A follower gets in line before whom it follows."""

    def park(record: Record, key: int, offset: int) -> None:
        record.parked.setdefault(key, []).insert(0, offset)

    return patch.object(copies, "park", park)
