"""Drains a subscription from outside: sidecars deliver nothing new, open leases end.

The drain pauses the whole group (`ackd.engine.base.live`), so every sidecar learns of it, even one
that starts later. The command writes the pause into the store itself and needs no admin port.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec.structs import replace

from ackd.api.control import Pause
from ackd.cli.offline.parts import OWNER, Parts
from ackd.core.ids import LedgerKey
from ackd.core.record.protocol import CallStatus, Open
from ackd.core.record.transitions import State
from ackd.engine.base.live import Live, read_live, write_live
from ackd.engine.cluster.members import UNCONFIRMED_MS
from ackd.engine.retry.own_topic import retry_topic
from ackd.errors import StoreError

REASON = "ackd release-group"
TRIES = 10
SPREAD_MS = UNCONFIRMED_MS + 500
"""After this time every sidecar either knows of the pause or may no longer deliver (R11)."""
POLL_MS = 500
_NEVER_THERE = b"?"

Say = Callable[[str], None]


async def drain(parts: Parts, most_ms: int, say: Say) -> str:
    """Pause the group and wait until no lease is open, then until its sidecars have stopped.

    Returns the reason if that takes longer than `most_ms`, else an empty text. On such a reason,
    and when somebody interrupts it, `drain` ends its own pause. Raises StoreError, BrokerError.
    """
    if not await parts.sidecars():
        return ""
    mine, blocked = await _pause(parts), "interrupted"
    start_ms = _now_ms()
    end_ms = start_ms + most_ms
    say(f"{parts.name} is paused; waiting for its leases to end")
    try:
        # `blocked` stays "interrupted" unless both waits return.
        blocked = await _rest(parts, start_ms + SPREAD_MS, end_ms) or await _stopped(
            parts, end_ms, say
        )
    finally:
        if blocked and mine:
            await _change(parts, lambda live: replace(live, pause=None))
            say(f"{parts.name} is delivered again")
    return blocked


async def _rest(parts: Parts, from_ms: int, end_ms: int) -> str:
    """Wait until no lease is open; returns how many still are at `end_ms`, else an empty text."""
    keys = await _keys(parts)
    while True:
        await asyncio.sleep(POLL_MS / 1000)
        open_ones = sum([await _leases(parts, key) for key in keys])
        if not open_ones and _now_ms() >= from_ms:
            return ""
        if _now_ms() >= max(end_ms, from_ms):
            return f"{open_ones} leases are still open"


async def _stopped(parts: Parts, end_ms: int, say: Say) -> str:
    """Wait for the sidecars to stop; returns which still run at `end_ms`, else an empty text."""
    say("no lease is open any more: stop the sidecars now (SIGTERM)")
    while sidecars := await parts.sidecars() or await parts.members():
        if _now_ms() >= end_ms:
            return f"stop the sidecars first (SIGTERM drains them): {', '.join(sidecars)}"
        await asyncio.sleep(POLL_MS / 1000)
    return ""


async def _keys(parts: Parts) -> list[LedgerKey]:
    """Keys of all records that may have leases: those of the topics and of the retry topic."""
    keys = [key for _, key in parts.partitions()]
    consumer = parts.reading(retry_topic(parts.broker, parts.name, parts.settings).name)
    await consumer.start()
    try:
        infos = await consumer.topics()
    finally:
        await consumer.close()
    keys += [parts.key(info, number) for info in infos for number in range(info.partitions)]
    return keys


async def _leases(parts: Parts, key: LedgerKey) -> int:
    """How many leases of a record have not ended yet, by the store's clock."""
    look = Open(key, OWNER, rollback_epoch=0, incarnation=0, grace_ms=0, peek=True)
    snapshot = await parts.store.open(look)
    if snapshot.verdict is not CallStatus.OK:
        return 0
    now_ms = snapshot.now_ms
    return sum(slot.state is State.LEASED and slot.when_ms > now_ms for slot in snapshot.slots)


async def _pause(parts: Parts) -> bool:
    """Pause the group. False if it was paused already, without a time at which that ends."""
    made = False

    def edit(live: Live) -> Live:
        nonlocal made
        made = live.pause is None or live.pause.until_ms is not None
        now_ms = time.time_ns() // 1_000_000
        return replace(live, pause=Pause("group", REASON, now_ms)) if made else live

    await _change(parts, edit)
    return made


async def _change(parts: Parts, edit: Callable[[Live], Live]) -> None:
    """Edit the group's live settings by compare-and-set, as sidecars do. Raises StoreError."""
    there = await parts.store.set_live(parts.name, _NEVER_THERE, b"")
    for _ in range(TRIES):
        live = read_live(there)
        if live is None:
            raise StoreError(f"the live settings of {parts.name} can't be read by this version")
        edited = edit(live)
        if edited is live:
            return
        data = write_live(replace(edited, version=live.version + 1))
        before, there = there, await parts.store.set_live(parts.name, there, data)
        if there == data and before != data:
            return
    raise StoreError("the live settings are being changed by others all the time")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
