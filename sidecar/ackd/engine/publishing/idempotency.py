"""Remembers answers by idempotency key (draft-ietf-httpapi-idempotency-key-header-07).

A batch may succeed in part: the known results are kept, and a repeat publishes only the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ackd.api.messages import Accepted, Published, PublishRequest
from ackd.api.quotas import Quota
from ackd.config.schema import PublishSettings
from ackd.engine.base.context import Context
from ackd.errors import (
    AckdError,
    IdempotencyMismatchError,
    IdempotencyRunningError,
    OutcomeUnknownError,
    PressureError,
)
from ackd.ports import Stored

RUNNING_EXTRA_MS = 5_000
IN_OUTBOX = -1


class KnownKey(msgspec.Struct, array_like=True):
    """A result: topic, partition and offset, or (in the outbox) broker, `IN_OUTBOX` and number."""

    name: str
    partition: int
    number: int
    due_ms: int = 0


class RememberedPublish(msgspec.Struct, omit_defaults=True):
    """What the store keeps under an idempotency key.

    `until_ms` (Unix time): a request is running until then; after it, its sidecar has died.
    `results`: one for each message, None = not published. `boxed`: the whole request goes into the
    outbox, which recognizes repeats of it by itself.
    """

    fingerprint: bytes
    until_ms: int = 0
    results: list[KnownKey | None] | None = None
    boxed: bool = False


@dataclass(slots=True)
class KeyClaim:
    """The right to publish the messages without a result. `known`: results by message, None =
    publish.
    """

    name: str
    fingerprint: bytes
    known: list[Stored | Accepted | None]
    boxed: bool = False


class Answers:
    """The answers that one sidecar keeps in the store for one broker."""

    def __init__(self, broker: str, settings: PublishSettings, context: Context) -> None:
        self._broker = broker
        self._settings = settings
        self._context = context
        self._kept: dict[str, int] = {}

    async def begin(self, request: PublishRequest, *, boxed: bool) -> Published | KeyClaim:
        """The first answer again, or a claim.

        Raises IdempotencyMismatchError, IdempotencyRunningError, OutcomeUnknownError (once, when
        the sidecar of the first request died), PressureError, StoreError.
        """
        name = f"idem:{self._broker}:{request.idempotency_key}"
        full_ms = self._full_ms()
        if full_ms:
            there = await self._context.store.get(name)
            if there is None:
                raise PressureError(
                    "too many idempotency keys are kept (publish.idempotency_max)",
                    retry_after_s=-(-full_ms // 1000),
                )
            return await self._again(name, there, request)
        entry = RememberedPublish(request.fingerprint, self._until_ms(), boxed=boxed)
        counted = name in self._kept
        self._count(name)
        there = await self._context.store.put_new(name, _write(entry), self._keep_ms)
        if there is not None:
            if not counted:
                self._kept.pop(name, None)  # of another sidecar, which counts it
            return await self._again(name, there, request)
        return KeyClaim(name, request.fingerprint, [None] * len(request.messages), boxed)

    def kept(self) -> int:
        """How many keys this sidecar keeps now."""
        self._drop_old()
        return len(self._kept)

    def quota(self) -> Quota:
        """How many further keys this sidecar may keep now."""
        most, full_ms = self._settings.idempotency_max, self._full_ms()
        left = max(most - len(self._kept), 0)
        return Quota("keys", "requests", most, left, self._keep_ms, full_ms)

    async def _again(
        self, name: str, there: bytes, request: PublishRequest
    ) -> Published | KeyClaim:
        entry = msgspec.json.decode(there, type=RememberedPublish)
        if entry.fingerprint != request.fingerprint:
            raise IdempotencyMismatchError
        known = [_result(each) for each in entry.results or [None] * len(request.messages)]
        if entry.boxed and entry.results is None:
            return KeyClaim(name, entry.fingerprint, known, boxed=True)
        if entry.until_ms > self._context.clock.wall_ms():
            raise IdempotencyRunningError
        if entry.until_ms:
            await self._leave(name, entry.fingerprint, known)
            raise OutcomeUnknownError("a request with this key was cut off by a crash")
        results: list[Stored | Accepted | AckdError] = [each for each in known if each is not None]
        if len(results) == len(known):
            return Published(results, replayed=True)
        entry.until_ms = self._until_ms()
        claimed = _write(entry)
        if await self._context.store.swap(name, there, claimed) != claimed:
            raise IdempotencyRunningError
        return KeyClaim(name, entry.fingerprint, known)

    async def end(self, claim: KeyClaim, results: Sequence[Stored | Accepted | AckdError]) -> None:
        """Store the successful results. What is in doubt was answered 504, and a repeat tries it
        again.
        """
        known = [None if isinstance(each, AckdError) else each for each in results]
        await self._leave(claim.name, claim.fingerprint, known)

    async def undo(self, claim: KeyClaim) -> None:
        """Give the claim up: nothing was published."""
        await self._leave(claim.name, claim.fingerprint, claim.known)

    async def _leave(
        self, name: str, fingerprint: bytes, known: Sequence[Stored | Accepted | None]
    ) -> None:
        store = self._context.store
        if known and all(each is None for each in known):
            await store.delete(name)
            self._kept.pop(name, None)
            return
        self._count(name)
        kept = [None if each is None else _known(each) for each in known]
        await store.put(name, _write(RememberedPublish(fingerprint, results=kept)), self._keep_ms)

    def _count(self, name: str) -> None:
        """Count a key that is written now, behind those that were written before."""
        self._kept.pop(name, None)
        self._kept[name] = self._context.clock.monotonic_ms() + self._keep_ms

    def _full_ms(self) -> int:
        """Return when there is room for another key that this sidecar keeps in the store (I8); 0 =
        now.

        A key that is asked for again counts once.
        """
        now_ms = self._drop_old()
        if len(self._kept) < self._settings.idempotency_max:
            return 0
        return self._kept[next(iter(self._kept))] - now_ms

    def _drop_old(self) -> int:
        """Forget keys whose time is over; returns the time now."""
        now_ms = self._context.clock.monotonic_ms()
        while self._kept:
            oldest = next(iter(self._kept))
            if self._kept[oldest] > now_ms:
                break
            del self._kept[oldest]
        return now_ms

    @property
    def _keep_ms(self) -> int:
        return self._settings.idempotency_ms

    def _until_ms(self) -> int:
        return self._context.clock.wall_ms() + self._settings.timeout_ms + RUNNING_EXTRA_MS


def _write(entry: RememberedPublish) -> bytes:
    return msgspec.json.encode(entry)


def _known(result: Stored | Accepted) -> KnownKey:
    if isinstance(result, Stored):
        return KnownKey(result.topic, result.partition, result.offset)
    return KnownKey(result.broker, IN_OUTBOX, result.number, result.due_ms)


def _result(known: KnownKey | None) -> Stored | Accepted | None:
    if known is None:
        return None
    if known.partition == IN_OUTBOX:
        return Accepted(known.name, known.number, known.due_ms)
    return Stored(known.name, known.partition, known.number)
