"""Outboxes and acked keys on the server: `outbox.lua` and `seen.lua`, in words and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from struct import Struct
from typing import Any

from ackd.core.dedup_window import Ask, SeenEntry
from ackd.core.outbox import (
    Asking,
    Bounds,
    Keep,
    Look,
    Post,
    Posted,
    SendResult,
    TakenMessage,
    TakeResult,
)
from ackd.errors import StoreDataError
from ackd.store.keys import Keys
from ackd.store.scripts import OUTBOX, SEEN, Script

Word = str | bytes | int
Run = Callable[[str, Script, Sequence[Word]], Awaitable[Any]]
"""Runs a script on a key, with its arguments."""

_ASK = Struct(">16s8sH")
_TIME = Struct(">Q")
_TIME_BYTES = 6
_PARCEL_WORDS = 4
_LOAD_WORDS = 8
_POSTED_WORDS = 3


class RedisOutboxes:
    """`ackd.ports.Outboxes`."""

    def __init__(self, keys: Keys, run: Run) -> None:
        self._keys = keys
        self._run = run

    async def _ask(self, name: str, *words: Word) -> Any:
        return await self._run(self._keys.outbox(name), OUTBOX, words)

    async def post(self, name: str, posts: Sequence[Post], bounds: Bounds) -> list[Posted]:
        """One script call for all requests."""
        answer = await self._ask(name, "put", *bounds, *_post_words(posts))
        rest = answer[1:]
        if len(rest) != _POSTED_WORDS * len(posts):
            raise StoreDataError("the outbox answered for another number of requests")
        return [_posted(*rest[at : at + _POSTED_WORDS]) for at in range(0, len(rest), 3)]

    async def take(
        self,
        name: str,
        asking: Asking,
        most: int,
        bytes_max: int,
        have: Sequence[int] | None = None,
    ) -> TakeResult:
        more: Sequence[Word] = () if have is None else ("have", *have)
        answer = await self._ask(name, "take", *asking, most, bytes_max, *more)
        term, holder, *numbers = answer[:_LOAD_WORDS]
        words = answer[_LOAD_WORDS:]
        parcels = [
            TakenMessage(
                int(words[at]), _whole(words[at + 1]), words[at + 2] == b"1", words[at + 3]
            )
            for at in range(0, len(words), _PARCEL_WORDS)
        ]
        now_ms, next_ms, waiting, due, failed, size = map(_whole, numbers)
        return TakeResult(
            int(term), holder.decode(), now_ms, next_ms, waiting, due, failed, size, parcels
        )

    async def done(
        self,
        name: str,
        owner: str,
        term: int,
        lease_ms: int,
        sent: Sequence[SendResult],
        keep: Keep,
    ) -> bool:
        words = [word for n, result, failed in sent for word in (n, int(failed), result)]
        return bool(await self._ask(name, "done", owner, term, lease_ms, *keep, *words) == b"1")

    async def release(self, name: str, owner: str, term: int, unsent: Sequence[int]) -> bool:
        return bool(await self._ask(name, "release", owner, term, *unsent) == b"1")

    async def look(self, name: str, number: int) -> Look:
        state, due, in_doubt, result = await self._ask(name, "look", number)
        return Look(state.decode(), _whole(due), in_doubt == b"1", result)

    async def again(self, name: str, number: int) -> bool:
        return bool(await self._ask(name, "again", number) == b"1")


class RedisSeenKeys:
    """`ackd.ports.SeenKeys`."""

    def __init__(self, keys: Keys, run: Run) -> None:
        self._keys = keys
        self._run = run

    async def seen(
        self,
        subscription: str,
        window_ms: int,
        ledgers: Sequence[tuple[bytes, int]],
        asks: Sequence[Ask],
    ) -> list[bool]:
        """One script call for all."""
        places: list[Word] = [word for ledger in ledgers for word in ledger]
        words = ("look", window_ms, len(ledgers), *places, *(_ASK.pack(*ask) for ask in asks))
        answer = await self._run(self._keys.seen(subscription), SEEN, words)
        if len(answer) != len(asks):
            raise StoreDataError("the answer is for another number of keys")
        return [each == ord("1") for each in answer]

    async def remember(
        self, subscription: str, window_ms: int, most: int, entries: Sequence[SeenEntry]
    ) -> int:
        """One script call for all."""
        words = (
            key + origin + _TIME.pack(acked_ms)[-_TIME_BYTES:] for key, origin, acked_ms in entries
        )
        name = self._keys.seen(subscription)
        return int(await self._run(name, SEEN, ("remember", window_ms, most, *words)))


def _post_words(posts: Sequence[Post]) -> Iterator[Word]:
    for ticket, postings in posts:
        yield ticket
        yield len(postings)
        for delay_ms, body in postings:
            yield delay_ms
            yield body


def _posted(first: bytes, when: bytes, why: bytes) -> Posted:
    refused = "" if why == b"replayed" else why.decode()
    return Posted(int(first), int(when), refused, replayed=why == b"replayed")


def _whole(word: bytes) -> int:
    """A score may come with an exponent or as a plain number."""
    return int(float(word))
