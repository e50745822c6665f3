"""Call `outbox.lua` and `seen.lua`: pack their arguments into words, unpack their replies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from struct import Struct
from typing import Any

from ackd.core.dedup_window import Ask, DedupEntry
from ackd.core.outbox import (
    Bounds,
    EnqueueRequest,
    EnqueueResult,
    MessageStatus,
    ResultRetention,
    SendResult,
    TakenMessage,
    TakeRequest,
    TakeResult,
)
from ackd.errors import StoreDataError
from ackd.store.keys import Keys
from ackd.store.scripts import OUTBOX, SEEN, Script

Word = str | bytes | int
Run = Callable[[str, Script, Sequence[Word]], Awaitable[Any]]
"""Runs a script on one key of the server with these arguments, and returns its raw reply."""

_ASK = Struct(">16s8sH")
_TIME = Struct(">Q")
_TIME_BYTES = 6
_TAKEN_WORDS = 4
_LOAD_WORDS = 8
_RESULT_WORDS = 3


class RedisOutboxes:
    """`ackd.ports.Outboxes` on a server. Each method is one script call, which is atomic."""

    def __init__(self, keys: Keys, run: Run) -> None:
        self._keys = keys
        self._run = run

    async def _ask(self, name: str, *words: Word) -> Any:
        return await self._run(self._keys.outbox(name), OUTBOX, words)

    async def enqueue(
        self, name: str, requests: Sequence[EnqueueRequest], bounds: Bounds
    ) -> list[EnqueueResult]:
        answer = await self._ask(name, "enqueue", *bounds, *_enqueue_words(requests))
        rest = answer[1:]
        if len(rest) != _RESULT_WORDS * len(requests):
            raise StoreDataError("the outbox answered for another number of requests")
        return [_enqueue_result(*rest[at : at + _RESULT_WORDS]) for at in range(0, len(rest), 3)]

    async def take(
        self,
        name: str,
        request: TakeRequest,
        most: int,
        bytes_max: int,
        have: Sequence[int] | None = None,
    ) -> TakeResult:
        more: Sequence[Word] = () if have is None else ("have", *have)
        answer = await self._ask(name, "take", *request, most, bytes_max, *more)
        term, holder, *numbers = answer[:_LOAD_WORDS]
        words = answer[_LOAD_WORDS:]
        messages = [
            TakenMessage(
                int(words[at]), _whole(words[at + 1]), words[at + 2] == b"1", words[at + 3]
            )
            for at in range(0, len(words), _TAKEN_WORDS)
        ]
        now_ms, next_ms, waiting, due, failed, size = map(_whole, numbers)
        return TakeResult(
            int(term), holder.decode(), now_ms, next_ms, waiting, due, failed, size, messages
        )

    async def done(
        self,
        name: str,
        owner: str,
        term: int,
        lease_ms: int,
        sent: Sequence[SendResult],
        keep: ResultRetention,
    ) -> bool:
        words = [word for n, result, failed in sent for word in (n, int(failed), result)]
        return bool(await self._ask(name, "done", owner, term, lease_ms, *keep, *words) == b"1")

    async def release(self, name: str, owner: str, term: int, unsent: Sequence[int]) -> bool:
        return bool(await self._ask(name, "release", owner, term, *unsent) == b"1")

    async def status(self, name: str, number: int) -> MessageStatus:
        state, due, in_doubt, result = await self._ask(name, "status", number)
        return MessageStatus(state.decode(), _whole(due), in_doubt == b"1", result)

    async def again(self, name: str, number: int) -> bool:
        return bool(await self._ask(name, "again", number) == b"1")


class RedisDedupKeys:
    """`ackd.ports.DedupKeys` on a server. Each method is one script call for all keys."""

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
        places: list[Word] = [word for ledger in ledgers for word in ledger]
        words = ("look", window_ms, len(ledgers), *places, *(_ASK.pack(*ask) for ask in asks))
        answer = await self._run(self._keys.seen(subscription), SEEN, words)
        if len(answer) != len(asks):
            raise StoreDataError("the answer is for another number of keys")
        return [each == ord("1") for each in answer]

    async def remember(
        self, subscription: str, window_ms: int, most: int, entries: Sequence[DedupEntry]
    ) -> int:
        words = (
            key + origin + _TIME.pack(acked_ms)[-_TIME_BYTES:] for key, origin, acked_ms in entries
        )
        name = self._keys.seen(subscription)
        return int(await self._run(name, SEEN, ("remember", window_ms, most, *words)))


def _enqueue_words(requests: Sequence[EnqueueRequest]) -> Iterator[Word]:
    for idempotency_key, messages in requests:
        yield idempotency_key
        yield len(messages)
        for delay_ms, body in messages:
            yield delay_ms
            yield body


def _enqueue_result(first: bytes, when: bytes, why: bytes) -> EnqueueResult:
    refused = "" if why == b"replayed" else why.decode()
    return EnqueueResult(int(first), int(when), refused, replayed=why == b"replayed")


def _whole(word: bytes) -> int:
    """Parse a score of a sorted set: servers write `1.5e+12` or a plain number."""
    return int(float(word))
