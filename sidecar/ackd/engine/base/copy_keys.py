"""The keys that sign copies, and from where on copies have to be signed.

Both are one small value of the store, which all sidecars of a subscription share. Unlike the key of
lease tokens, a key of copies is never replaced: a copy may wait for weeks. All keys that ever were
in the store verify; there is more than one only after the store lost the value, and each sidecar
that still knows it writes it back.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Protocol

import msgspec

from ackd.core.ids import TopicPartition
from ackd.engine.base.copy_signature import (
    CopyKind,
    Proof,
    key_id,
    proof,
    signed,
    signing_key,
)
from ackd.errors import StoreError
from ackd.ports import Outgoing, Record
from ackd.unreadable import UNREADABLE

KEY_BYTES = 32
KEYS_MAX = 256
"""Each loss of the value adds one at most."""
TRIES = 16


class Values(Protocol):
    """What is asked of `ackd.ports.Store`."""

    async def get(self, name: str) -> bytes | None: ...
    async def swap(self, name: str, expected: bytes | None, value: bytes) -> bytes | None: ...


class SignedFrom(msgspec.Struct, frozen=True):
    """From which offset of each partition on the copies of a topic have to be signed. A partition
    that is not named, and all of a topic that was made again, have been read from 0 on.
    """

    topic_id: str
    offsets: dict[int, int]

    def of(self, topic_id: bytes, partition: int) -> int:
        return self.offsets.get(partition, 0) if topic_id.hex() == self.topic_id else 0


class _Shared(msgspec.Struct):
    keys: list[str] = []
    signed_from: dict[str, SignedFrom] = {}


class CopyKeys:
    """Signs and verifies the copies of one subscription. Until it is `load`ed it has a key of its
    own, and believes everything.
    """

    def __init__(self) -> None:
        self._shared = _Shared([secrets.token_hex(KEY_BYTES)])
        self._keys = _by_id(self._shared)
        self._store: Values | None = None
        self._name = ""
        self._begins = False

    def begins(self, *, soon: bool) -> None:
        """Whether signatures come into force in a moment where they are not yet, as all living
        sidecars sign. Until then, copies without one wait.
        """
        self._begins = soon

    async def load(self, store: Values, name: str) -> None:
        """Read what the sidecars of the subscription share, or begin it. Nothing is signed before.
        Raises StoreError.
        """
        first = self._store is None
        self._store, self._name = store, f"copy-keys:{name}"
        await self._sync(store, _Shared() if first else self._shared)

    async def sync(self) -> None:
        """Write back what the store has lost, and learn what others have added. Raises
        StoreError.
        """
        if self._store is not None:
            await self._sync(self._store, self._shared)

    async def begin(self, topic: str, topic_id: bytes, ends: Mapping[int, int]) -> None:
        """Signatures come into force in a topic: `ends` are those of its logs, read after `load`.
        Raises StoreError.
        """
        began = {topic: SignedFrom(topic_id.hex(), dict(ends))}
        if self._store is not None:
            await self._sync(self._store, _merged(self._shared, _Shared([], began)))

    def in_force(self, topic: str) -> bool:
        """Whether copies in this topic have to be signed from some offset on."""
        return topic in self._shared.signed_from

    def signed(self, outgoing: Outgoing, kind: CopyKind) -> Outgoing:
        """Sign a record with the first key."""
        return signed(outgoing, kind, bytes.fromhex(self._shared.keys[0]))

    def proof(self, record: Record, kind: CopyKind, tp: TopicPartition, topic_id: bytes) -> Proof:
        """Judge a record that was read from a partition of a topic of ackd's own."""
        found = proof(record, kind, self._keys)
        if found is Proof.SIGNED:
            return found
        since = self._shared.signed_from.get(tp.topic)
        if since is None:
            return Proof.UNDECIDED if self._begins else Proof.EARLIER
        return Proof.EARLIER if record.offset < since.of(topic_id, tp.partition) else found

    def lacks_key_of(self, record: Record) -> bool:
        """Whether the record names a key that is not known here, but perhaps in the store."""
        named = signing_key(record)
        return named is not None and named not in self._keys

    async def _sync(self, store: Values, ours: _Shared) -> None:
        for _ in range(TRIES):
            there = await store.get(self._name)
            merged = _merged(_read(there), ours)
            if not merged.keys:
                merged.keys = list(self._shared.keys)
            data = _encoded(merged)
            if there == data or await store.swap(self._name, there, data) == data:
                self._shared, self._keys = merged, _by_id(merged)
                return
        raise StoreError("the keys of copies change all the time")


def _by_id(shared: _Shared) -> dict[bytes, bytes]:
    keys = [bytes.fromhex(each) for each in shared.keys]
    return {key_id(key): key for key in keys}


def _encoded(shared: _Shared) -> bytes:
    """Encode the value; equal values have equal bytes."""
    began = {
        topic: SignedFrom(each.topic_id, dict(sorted(each.offsets.items())))
        for topic, each in sorted(shared.signed_from.items())
    }
    return msgspec.json.encode(_Shared(shared.keys, began))


def _read(data: bytes | None) -> _Shared:
    """Decode the value; what can't be read is written anew."""
    try:
        return _Shared() if data is None else msgspec.json.decode(data, type=_Shared)
    except UNREADABLE:
        return _Shared()


def _merged(one: _Shared, two: _Shared) -> _Shared:
    """Join the keys; of two beginnings of a topic the earlier one counts."""
    keys = list(dict.fromkeys([*one.keys, *two.keys]))[-KEYS_MAX:]
    began = dict(one.signed_from)
    for topic, other in two.signed_from.items():
        known = began.setdefault(topic, other)
        if known.topic_id == other.topic_id:
            offsets = {
                each: min(known.offsets.get(each, at), at) for each, at in other.offsets.items()
            }
            began[topic] = SignedFrom(known.topic_id, {**known.offsets, **offsets})
    return _Shared(keys, began)
