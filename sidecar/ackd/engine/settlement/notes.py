"""Progress notes: the text of a worker's last extend, for the application that gets the message
next.

The store keeps a note beside the record of the lease under which the worker wrote it: the record of
the message, or that of its retry copy. A delivered copy gets its own note, else the note of the
message. Until a worker writes the first note of a subscription, no sidecar looks for any: the live
value, which every sidecar reads, says that there are some.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from ackd.api.messages import Delivery
from ackd.core.ids import LedgerKey
from ackd.core.lease import Token
from ackd.engine.base.context import Context
from ackd.engine.base.state import SubscriptionState
from ackd.engine.base.tasks import Tasks
from ackd.engine.cluster.members import HEARTBEAT_MS
from ackd.engine.cluster.membership import Membership
from ackd.errors import StoreError
from ackd.ports import StoredNote

LOG = logging.getLogger("ackd.engine")

NOTE_BYTES_MAX = 4096
KNOWN_MAX = 10_000
"""Most messages whose notes this sidecar remembers, to drop them with the ack. The notes of other
messages stay until the store's bound drops them.
"""
HEARD_MS = 2 * HEARTBEAT_MS


class NotePlace(NamedTuple):
    """Record and offset under which the store keeps a note."""

    key: LedgerKey
    offset: int


class ProgressNotes:
    """Writes, reads and drops the notes of one subscription."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        membership: Membership,
        announce: Callable[[], Awaitable[None]],
    ) -> None:
        self._state = state
        self._membership = membership
        self._announce = announce
        self._context = context
        self._known: OrderedDict[NotePlace, tuple[NotePlace, ...]] = OrderedDict()
        self._tasks = Tasks(f"notes.{state.name}")

    # --- writing

    async def write(self, texts: Sequence[tuple[Token, bytes]]) -> None:
        """Keep the notes that came with live leases. Raises StoreError."""
        await self._begin()
        by_key: dict[LedgerKey, list[StoredNote]] = {}
        for token, text in texts:
            place = self._place(token)
            by_key.setdefault(place.key, []).append(StoredNote(place.offset, token.fence, text))
            self._remember(place, place)
        bytes_max = self._state.settings.notes_bytes_max
        store, name = self._context.store, self._state.name
        dropped = await asyncio.gather(
            *(store.put_notes(key, notes, bytes_max) for key, notes in by_key.items())
        )
        self._context.metrics.notes.at(name).inc(len(texts))
        if sum(dropped):
            LOG.warning("%s: %d notes dropped, notes_bytes_max is reached", name, sum(dropped))
            self._context.metrics.notes_dropped.at(name).inc(sum(dropped))

    async def _begin(self) -> None:
        """Before the first note ever, tell every sidecar that there are notes to look for."""
        if self._state.live.notes:
            return
        await self._announce()
        if self._membership.view.alive:
            await asyncio.sleep(HEARD_MS / 1000)

    def _place(self, token: Token) -> NotePlace:
        key = LedgerKey(self._state.cluster, self._state.name, token.topic_id, token.partition)
        return NotePlace(key, token.offset)

    def _remember(self, of: NotePlace, *places: NotePlace) -> None:
        self._known[of] = tuple(dict.fromkeys((*self._known.pop(of, ()), *places)))
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    # --- reading

    @property
    def used(self) -> bool:
        """Whether the subscription may have notes."""
        return self._state.live.notes

    async def attach(self, messages: Sequence[Delivery]) -> None:
        """Attach its note to each message that has one. Raises StoreError."""
        places = {message.lease: self._places(message) for message in messages}
        wanted: dict[LedgerKey, list[int]] = {}
        for each in places.values():
            for place in each:
                wanted.setdefault(place.key, []).append(place.offset)
        store = self._context.store
        answers = await asyncio.gather(*(store.notes(*each) for each in wanted.items()))
        found: dict[NotePlace, bytes] = {}
        for (key, offsets), notes in zip(wanted.items(), answers, strict=True):
            for offset, note in zip(offsets, notes, strict=True):
                if note is not None:
                    found[NotePlace(key, offset)] = note
        if found:
            for message in messages:
                there = [place for place in places[message.lease] if place in found]
                if there:
                    message.note = found[there[0]].decode(errors="replace")
                    self._remember(places[message.lease][0], *there)

    def _places(self, message: Delivery) -> list[NotePlace]:
        """Return where notes of a message may be, the newest first."""
        token = self._context.keys.open(message.lease)
        places = [self._place(token)]
        origin = message.origin
        if origin is not None:
            name = self._state.name
            key = LedgerKey(origin.cluster, name, origin.topic_id, origin.partition)
            places.append(NotePlace(key, origin.offset))
        return places

    # --- forgetting

    def acked(self, tokens: Iterable[Token]) -> None:
        """Drop the notes of acked leases. If that fails, the store's bound drops them later."""
        if not self._known:
            return
        over: dict[LedgerKey, list[int]] = {}
        for token in tokens:
            for place in self._known.pop(self._place(token), ()):
                over.setdefault(place.key, []).append(place.offset)
        if over:
            self._tasks.start(self._drop(over), "drop")

    async def _drop(self, over: dict[LedgerKey, list[int]]) -> None:
        try:
            for key, offsets in over.items():
                await self._context.store.drop_notes(key, offsets)
        except StoreError as error:
            LOG.debug("%s: notes not dropped: %s", self._state.name, error.detail)

    async def stop(self) -> None:
        """Cancel the drops that are under way."""
        await self._tasks.stop()
