"""Messages that other clients delayed: what the adapter tells, and whether it was kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ackd.core.ids import TopicPartition
from ackd.ports import Delay, Record
from tests.simulation.log import is_retry
from tests.simulation.plan import Story
from tests.simulation.world import MS

WAITS_MS: Final = (0, 300, 2_500, 0, 6_000)
AHEAD_MS: Final = 200
"""So far may a store's clock be ahead after a few failovers."""
ATTEMPTS: Final = (0, 0, 2, 1, 0)
SETTINGS: Final = (("foreign_delays", 1), ("stuck_ms", 1_500), ("ordered", 0), ("keys", 0))
AWAY: Final = Story(("kill", "fuse", "net", "rebalance", "broker_net"), SETTINGS)
"""Nothing that was told is forgotten; a delay above `stuck_ms` is sent back."""
FORGOTTEN: Final = Story(("store_failover", "rebalance", "net"), SETTINGS)
"""The store forgets what it was told."""


def delay_of(record: Record) -> Delay | None:
    """The same each time it is read."""
    wait_ms, attempts = (each[record.offset % 5] for each in (WAITS_MS, ATTEMPTS))
    due_ms = record.timestamp_ms + wait_ms if wait_ms else 0
    return Delay(due_ms, attempts) if due_ms or attempts else None


def told(tp: TopicPartition, records: Sequence[Record]) -> dict[int, Delay] | None:
    """As in `Fetched`; never of copies."""
    if is_retry(tp.topic):
        return None
    found = ((record.offset, delay_of(record)) for record in records)
    return {offset: delay for offset, delay in found if delay is not None}


def broken(
    record: Record,
    granted_us: int,
    attempt: int,
    *,
    counted: bool,
    ordered: bool = False,
    jumped_ms: int = 0,
) -> str:
    """What is wrong with a lease, empty when nothing is.

    `counted`: the store has forgotten nothing. `ordered`: the order counts, so nothing waits.
    `jumped_ms`: how far its clock jumped ahead, perhaps while nobody measured that (R23).
    """
    delay = delay_of(record)
    if delay is None:
        return ""
    if granted_us // MS < delay.due_ms - AHEAD_MS - jumped_ms and not ordered:
        return f"I4: leased {delay.due_ms - granted_us // MS} ms before its time"
    if counted and attempt <= delay.attempts:
        return f"I4: attempt {attempt} after {delay.attempts} elsewhere"
    return ""
