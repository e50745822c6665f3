"""Progress notes on the server: beside the record of their partition, under the same hash tag."""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.ids import LedgerKey
from ackd.errors import StoreDataError
from ackd.ports import StoredNote
from ackd.store.codec import decode_error
from ackd.store.connect import Link
from ackd.store.exchange import Answer
from ackd.store.nodes import Node
from ackd.store.scripts import NOTES
from ackd.store.values import SmallValues


class NoteValues(SmallValues):
    """The part of `RedisStore` that is about notes."""

    async def put_notes(self, key: LedgerKey, notes: Sequence[StoredNote], bytes_max: int) -> int:
        """Keep them, and drop the oldest."""
        words: list[str | bytes | int] = [bytes_max]
        for note in notes:
            words += (note.offset, note.fence, note.text)
        return int(await self._notes(key, "put", *words))

    async def notes(self, key: LedgerKey, offsets: Sequence[int]) -> list[bytes | None]:
        """Read them."""
        answer = await self._notes(key, "get", *offsets)
        if not isinstance(answer, list):
            raise StoreDataError("the notes of a partition can't be read")
        return answer

    async def drop_notes(self, key: LedgerKey, offsets: Sequence[int]) -> None:
        """Forget them."""
        await self._notes(key, "drop", *offsets)

    async def errors(
        self, key: LedgerKey, offsets: Sequence[int]
    ) -> list[tuple[bytes, bytes] | None]:
        """Read what was said of failures; `apply` writes it."""
        name = self._keys.errors(key)

        async def ask(node: Node, link: Link) -> Answer:
            return await self._one(node, link, ("HMGET", name, *offsets), NOTES)

        answer = await self._on(name, ask)
        if not isinstance(answer, list):
            raise StoreDataError("the errors of a partition can't be read")
        return [None if each is None else decode_error(each) for each in answer]

    async def _notes(self, key: LedgerKey, what: str, *words: str | bytes | int) -> Answer:
        name, order = self._keys.notes(key)

        async def ask(node: Node, link: Link) -> Answer:
            command = ("EVALSHA", NOTES.sha, 2, name, order, what, *words)
            return await self._one(node, link, command, NOTES)

        return await self._on(name, ask)
