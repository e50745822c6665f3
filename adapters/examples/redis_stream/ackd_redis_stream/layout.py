"""How everything stands in Redis, and the scripts that change it in one step.

Keys, each behind `<prefix>:`
  cluster           text: a random name, the cluster's identity (rule R1)
  topics            hash: topic -> `<identity, hex>:<partitions>`
  log:<id>:<p>      stream of a partition. An entry's id is `0-<offset + 1>`, given by the server
                    (`0-*`, Redis 7). Fields: t = time in ms; k, v, h = key, value, headers if any
  at:<group>        hash: `<id>/<p>` -> `<offset>|<metadata>`
  beat:<group>      zset: member -> when it was last seen, ms of the server's clock
  want:<group>      hash: member -> the topics that it reads, JSON
  held:<group>      hash: `<id>/<p>` -> member

A topic's identity is part of all names below it, so one that is made again begins with nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ackd.errors import BrokerError
from ackd.ports import Headers, Outgoing, Record

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

PUBLISH: Final = """
-- KEYS topics, stream; ARGV topic, its row, name and value of each field
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return '' end
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
return redis.call('XADD', KEYS[2], '0-*', 't', string.format('%.0f', ms), unpack(ARGV, 3))
"""

BEAT: Final = """
-- KEYS beat, want, held; ARGV member, session_ms, its topics. Returns want and held, without those
-- of the dead.
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZADD', KEYS[1], ms, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ms - ARGV[2])
for _, member in ipairs(redis.call('HKEYS', KEYS[2])) do
  if not redis.call('ZSCORE', KEYS[1], member) then redis.call('HDEL', KEYS[2], member) end
end
local held = redis.call('HGETALL', KEYS[3])
for at = 1, #held, 2 do
  if not redis.call('ZSCORE', KEYS[1], held[at + 1]) then
    redis.call('HDEL', KEYS[3], held[at])
  end
end
return { redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3]) }
"""

LEAVE: Final = """
-- KEYS beat, want, held; ARGV member, then partitions to give back (none: all, and the membership)
local given = { unpack(ARGV, 2) }
if #given == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
  given = redis.call('HKEYS', KEYS[3])
end
for _, place in ipairs(given) do
  if redis.call('HGET', KEYS[3], place) == ARGV[1] then redis.call('HDEL', KEYS[3], place) end
end
"""

COMMIT: Final = """
-- KEYS beat, at; ARGV member, then place and position of each. Refused for one who is no member.
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
redis.call('HSET', KEYS[2], unpack(ARGV, 2))
return 1
"""


class Topic(NamedTuple):
    """A topic as the hash `topics` has it: one row of text."""

    identity: str
    partitions: int

    @classmethod
    def parse(cls, row: bytes | None) -> Topic | None:
        """None for a topic that is not there."""
        if row is None:
            return None
        identity, _, partitions = row.decode().partition(":")
        return cls(identity, int(partitions))

    def row(self) -> str:
        return f"{self.identity}:{self.partitions}"

    def place(self, partition: int) -> str:
        """The name of a partition in the group's hashes. Raises BrokerError when there is none."""
        if not 0 <= partition < self.partitions:
            raise BrokerError(f"there is no partition {partition}")
        return f"{self.identity}/{partition}"


def fields(message: Outgoing) -> list[bytes]:
    """Names and values of an entry's fields; what is null is absent."""
    found: list[bytes] = []
    if message.key is not None:
        found += [b"k", message.key]
    if message.value is not None:
        found += [b"v", message.value]
    if message.headers:
        # Latin-1 has a letter for every byte.
        rows = [
            [name, None if value is None else value.decode("latin-1")]
            for name, value in message.headers
        ]
        found += [b"h", json.dumps(rows).encode()]
    return found


def record(entry_id: bytes, found: Mapping[bytes, bytes]) -> Record:
    """A message as it was read."""
    return Record(
        offset_of(entry_id),
        found.get(b"k"),
        found.get(b"v"),
        _headers(found.get(b"h")),
        int(found[b"t"]),
    )


def offset_of(entry_id: bytes) -> int:
    """Offset of a stream entry, whose id is `0-<offset + 1>`."""
    return int(entry_id.partition(b"-")[2]) - 1


def entry_id(offset: int) -> str:
    """Stream entry id of an offset, the inverse of `offset_of`."""
    return f"0-{offset + 1}"


def _headers(packed: bytes | None) -> Headers:
    if packed is None:
        return ()
    return tuple(
        (name, None if value is None else value.encode("latin-1"))
        for name, value in json.loads(packed)
    )
