"""The layout in force: one small value in the store, which every sidecar follows.

A sidecar registers (with a heartbeat that says which layouts it reads) and reads the value *after*
that; `finalize` announces first and reads the registrations *after* that. So `finalize` sees an
older build that comes at the same moment, or that build sees the announcement, and no sidecar
serves on a store that it can't read.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from ackd.core.store_layout import InForce
from ackd.engine.cluster.members import FORGET_MS, read_note
from ackd.errors import StoreDataError, StoreError, StoreLayoutError
from ackd.ports import Clock, Member, Store

LOG = logging.getLogger("ackd.engine")

KEY = "layout"
LOOK_EVERY_MS = 5_000


def read_in_force(data: bytes | None) -> InForce:
    """Decode the value; without one the first layout is in force. Raises StoreDataError."""
    if data is None:
        return InForce()
    try:
        return msgspec.json.decode(data, type=InForce)
    except msgspec.DecodeError as error:
        raise StoreDataError(f"the store's layout can't be read: {error}") from error


class LayoutInForce:
    """One sidecar's knowledge of the layout in force."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known = InForce()
        self._looked_ms: int | None = None

    async def look(self) -> bool:
        """Read the value, and write records in that layout from now on. True if records must be
        rewritten in it.

        Raises StoreError, StoreLayoutError.
        """
        found = read_in_force(await self._store.get(KEY))
        self._looked_ms = self._clock.monotonic_ms()
        refusal = found.refusal(self._store.layouts)
        if refusal:
            raise StoreLayoutError(refusal)
        before, self._known = self._known, found
        self._store.write_layout(found.layout)
        if found.layout == before.layout:
            return False
        LOG.info("records are written in layout %d from now on", found.layout)
        return True

    def again(self) -> None:
        """Make the next check due at once."""
        self._looked_ms = None

    @property
    def due(self) -> bool:
        """Whether it is time to read the value again."""
        now_ms, looked_ms = self._clock.monotonic_ms(), self._looked_ms
        return looked_ms is None or now_ms - looked_ms >= LOOK_EVERY_MS


@dataclass(frozen=True, slots=True)
class Finalized:
    """The result of `finalize`. `holding`: registered sidecars that can't read the layout, as
    `subscription: name (reads 1 to 1)`; with any, nothing was changed.
    """

    before: int
    layout: int
    holding: tuple[str, ...] = ()


Registered = Callable[[], Awaitable[Sequence[tuple[str, Member]]]]


async def finalize(store: Store, registered: Registered, *, dry_run: bool = False) -> Finalized:
    """Put the newest layout of this build in force, unless an older sidecar is registered.

    `registered`: (subscription, member) of the whole store. Sidecars rewrite records when they see
    the new layout, or when they open them. The next call finishes or undoes one that was
    interrupted. Raises StoreError, StoreLayoutError (this build is too old for the store itself).
    """
    there = await store.get(KEY)
    now = read_in_force(there)
    refusal = now.refusal(store.layouts)
    newest = store.layouts.newest
    if refusal:
        raise StoreLayoutError(refusal)
    if dry_run:
        holding = _older(await registered(), newest)
        return Finalized(now.layout, now.layout if holding else newest, holding)
    announced = await _write(store, there, InForce(now.layout, newest))
    holding = _older(await registered(), newest)
    if holding:
        await _write(store, announced, InForce(now.layout, now.layout))
        return Finalized(now.layout, now.layout, holding)
    await _write(store, announced, InForce(newest, newest))
    return Finalized(now.layout, newest)


async def _write(store: Store, expected: bytes | None, value: InForce) -> bytes:
    data = msgspec.json.encode(value)
    if await store.swap(KEY, expected, data) != data:
        raise StoreError("another process is changing the layout at this moment")
    return data


def _older(registered: Sequence[tuple[str, Member]], newest: int) -> tuple[str, ...]:
    """Name sidecars that can't read a layout. One that has left, or was silent for an hour, does
    not count.
    """
    found = []
    for subscription, member in registered:
        note = read_note(member.note)
        oldest, best = note.layouts
        if best < newest and not note.left and member.silent_ms < FORGET_MS:
            found.append(f"{subscription}: {member.name} (reads {oldest} to {best})")
    return tuple(found)
