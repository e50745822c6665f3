"""Look through all keys below a prefix, for operators: whose they are, and how large.

It walks through the servers' keys (SCAN), which no serving sidecar does. It reads while sidecars
work, and deletes a record only if nobody changed it since it was read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from ackd.core.bitmap import CHUNK_BYTES, ChunkedBitmap
from ackd.core.ids import LedgerKey
from ackd.errors import StoreError, StoreSetupError
from ackd.ports import Member, Store
from ackd.store import codec
from ackd.store.connect import Link
from ackd.store.exchange import Answer, Command
from ackd.store.keys import Keys
from ackd.store.nodes import Node
from ackd.store.redis import RedisStore
from ackd.store.scripts import FORGET, FORGET_IDS, MEMBERS

SCAN_COUNT = 1_000
BATCH = 200
SAMPLES = 50
"""MEMORY USAGE measures this many elements of a collection and estimates the rest."""

HEAD, BITS, SLOTS, ODD, ORIGINS, JOURNAL, TEXTS, OTHER = (
    "head",
    "finished bits",
    "lease slots",
    "exceptions",
    "origin records",
    "journal",
    "notes and reasons",
    "other",
)
_KINDS = {
    "m": HEAD,
    "b": BITS,
    "s": SLOTS,
    "x": ODD,
    "p": ORIGINS,
    "q": ORIGINS,
    "j": JOURNAL,
    "t": TEXTS,
    "o": TEXTS,
}
_TAG_PARTS = 4


@dataclass(slots=True)
class FoundKeys:
    """One record, or, with `key` None, the other keys under one name: `members:orders`, or the
    first word of a value's name.

    `sizes`: bytes by kind of key. `head`: the packed head, by which `forget` sees a change.
    """

    name: str
    key: LedgerKey | None = None
    keys: list[bytes] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    head: tuple[bytes, bytes] = (b"", b"")
    layout: int = 0
    epoch: int = 0
    watermark: int = 0
    owner: str = ""

    @property
    def size(self) -> int:
        return sum(self.sizes.values())


class Survey:
    """Lists and deletes the keys of one connected store."""

    def __init__(self, store: Store) -> None:
        if not isinstance(store, RedisStore):
            raise StoreSetupError("the memory store keeps nothing that could be looked at")
        self._topology, self._keys = store.topology, store.keys

    async def everything(self) -> list[FoundKeys]:
        """List all records, then everything else, each in the order of names. Raises StoreError."""
        found: dict[str, FoundKeys] = {}
        for node in self._topology.nodes():
            async with node.aux_link() as link:
                async for names in self._scan(link):
                    await self._measure(link, names, found)
        records = [each for each in found.values() if each.key is not None]
        for each in records:
            await self._read_head(each)
        rest = [each for each in found.values() if each.key is None]
        return sorted(records, key=lambda each: each.key or ()) + sorted(
            rest, key=lambda each: each.name
        )

    async def _scan(self, link: Link) -> AsyncIterator[list[bytes]]:
        cursor, pattern = b"0", self._keys.pattern
        while True:
            (answer,) = await link.ask([("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)])
            cursor, names = _checked(answer)
            yield names
            if cursor == b"0":
                return

    async def _measure(self, link: Link, names: list[bytes], found: dict[str, FoundKeys]) -> None:
        for start in range(0, len(names), BATCH):
            part = names[start : start + BATCH]
            asked: list[Command] = [("MEMORY", "USAGE", key, "SAMPLES", SAMPLES) for key in part]
            sizes = await link.ask(asked)
            for key, size in zip(part, sizes, strict=True):
                if isinstance(size, int):  # else it is gone meanwhile
                    self._note(key, size, found)

    def _note(self, name: bytes, size: int, found: dict[str, FoundKeys]) -> None:
        group, key, kind = read_name(name.decode(errors="replace"), self._keys)
        there = found.setdefault(group, FoundKeys(group, key))
        if name not in there.keys:  # SCAN may tell a key twice
            there.keys.append(name)
            there.sizes[kind] = there.sizes.get(kind, 0) + size

    async def _read_head(self, found: FoundKeys) -> None:
        if found.key is None:
            return
        name = self._keys.ledger(found.key)
        answer = await self._ask(name, ("HMGET", name, "c", "h", "o"))
        cold, hot, owner = answer
        if cold and hot:
            found.head = (cold, hot)
            found.layout, found.epoch, found.watermark = codec.decode_cold(cold)
            found.owner = (owner or b"").decode()

    async def finished(self, found: FoundKeys) -> ChunkedBitmap:
        """Read which offsets above a record's watermark are finished. This takes several reads, so
        it is exact only while nobody writes. Raises StoreError.
        """
        bits = ChunkedBitmap()
        for name in found.keys:
            chunk = name.rpartition(b":")[2]
            if chunk[:1] == b"b":
                data = await self._ask(name.decode(), ("GET", name))
                if data:
                    bits.load(int(chunk[1:]), data.ljust(CHUNK_BYTES, b"\0"))
        return bits

    async def members(self) -> dict[str, list[Member]]:
        """List the sidecars of every subscription, living or not. Raises StoreError."""
        found: dict[str, list[Member]] = {}
        for subscription in await self._subscriptions():
            name = self._keys.members(subscription)
            node = self._topology.node(name)
            async with node.aux_link() as link:
                now, entries, beats = map(
                    _checked,
                    await link.ask(
                        [
                            ("TIME",),
                            ("HGETALL", name),
                            ("ZRANGE", self._keys.beats(subscription), 0, -1, "WITHSCORES"),
                        ]
                    ),
                )
            now_us = int(now[0]) * 1_000_000 + int(now[1])
            seen_us = dict(zip(beats[::2], map(int, beats[1::2]), strict=True))
            there = []
            for each, packed in zip(entries[::2], entries[1::2], strict=True):
                version, member = codec.decode_member(each, packed)
                silent_ms = (now_us - seen_us.get(each, version)) // 1000
                there.append(replace(member, silent_ms=silent_ms))
            found[subscription] = sorted(there, key=lambda member: member.name)
        return found

    async def _subscriptions(self) -> list[str]:
        names: dict[str, None] = {}
        for node in self._topology.nodes():
            async with node.aux_link() as link:
                async for keys in self._scan(link):
                    for key in keys:
                        group, _, _ = read_name(key.decode(errors="replace"), self._keys)
                        if group.startswith("members:"):
                            names[group.removeprefix("members:")] = None
        return list(names)

    # --- removing

    async def forget(self, found: FoundKeys) -> bool:
        """Delete a record. False: somebody changed it since it was read. Raises StoreError."""
        if found.key is None:
            raise StoreError(f"{found.name} is no record")
        name = self._keys.ledger(found.key)
        others = [key for key in found.keys if key != name.encode()]
        keys: list[str | bytes] = [name, *others]
        command = ("EVAL", FORGET.source, len(keys), *keys, *found.head)
        if int(await self._ask(name, command)) != 1:
            return False
        epoch = self._keys.value(f"leader-epoch:{found.key.text()}")
        await self._ask(epoch, ("UNLINK", epoch))
        return True

    async def forget_logs(self, subscription: str, topic_id: bytes) -> None:
        """Delete the generations of a topic's logs, the numbers of its brokers, the ids. Only for a
        topic that has no record left: with a record, a message at an offset that was used before
        would count as finished (I1). Raises StoreError.
        """
        keys = self._keys
        prefix, left = keys.places(subscription, topic_id), 1
        while left:
            left = int(await self._ask(prefix, ("EVAL", FORGET_IDS.source, 1, prefix, 0)))
        logs = keys.log_generations(subscription, topic_id)
        for name in (logs, keys.sources(subscription, topic_id)):
            await self._ask(name, ("UNLINK", name))

    async def drop_shared(self, subscription: str) -> None:
        """Delete what the sidecars of a subscription share: start positions, and settings that they
        agreed on. Raises StoreError.
        """
        keys = self._keys
        shared = (keys.members, keys.beats, keys.boots, keys.live, keys.bucket, keys.ready)
        names = [*(name(subscription) for name in shared), *keys.changes(subscription)]
        names += [keys.value(f"{word}:{subscription}") for word in ("start", "settings")]
        for name in names:
            await self._ask(name, ("UNLINK", name))

    async def boots(self, subscription: str) -> list[str]:
        """List the names that have a boot number, whether their sidecars live or not. Raises
        StoreError.
        """
        name = self._keys.boots(subscription)
        answer: Sequence[bytes] = await self._ask(name, ("HKEYS", name))
        return [each.decode() for each in answer]

    async def drop_name(self, subscription: str, identity: str, boot: int) -> None:
        """Forget a sidecar: its boot number, and its heartbeat if that is still of this boot. A
        later boot number is larger in any case. Raises StoreError.
        """
        name = self._keys.members(subscription)
        command = ("EVAL", MEMBERS.source, 1, name, "forget", identity, boot, "")
        await self._ask(name, command)
        name = self._keys.boots(subscription)
        await self._ask(name, ("HDEL", name, identity))

    async def _ask(self, name: str, command: Command) -> Answer:
        node: Node = self._topology.node(name)
        async with node.aux_link() as link:
            return _checked((await link.ask([command]))[0])


def read_name(name: str, keys: Keys) -> tuple[str, LedgerKey | None, str]:
    """Split a key's name into its group, the record that it belongs to, and its kind."""
    rest = name.removeprefix(keys.base)
    if not rest.startswith("{"):
        word = unquote(rest.removeprefix("value:")).partition(":")[0]
        return f"value:{word}", None, OTHER
    tag, _, tail = rest[1:].partition("}:")
    parts = tag.split(":")
    if len(parts) == _TAG_PARTS and parts[3].isdecimal():
        try:
            topic_id = bytes.fromhex(parts[2])
        except ValueError:
            return tag, None, OTHER
        key = LedgerKey(unquote(parts[0]), unquote(parts[1]), topic_id, int(parts[3]))
        return key.text(), key, _KINDS.get(tail[:1], OTHER)
    return unquote(tag), None, OTHER


def _checked(answer: Answer) -> Answer:
    if isinstance(answer, Exception):
        raise StoreError(f"the store refuses: {answer}")
    return answer
