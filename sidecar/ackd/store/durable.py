"""Wait until a write is as durable as configured (R11), and report what a server can't promise.

Every success waits, also `already_acked` and reads of leases: these state something durable, and
another sidecar may have made the write a moment ago. It is enough to wait after one's own call on
the same connection, because every script call writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ackd.config.schema import Durability
from ackd.errors import StoreSetupError
from ackd.ports import Condition
from ackd.store.connect import Link, StoreServer
from ackd.store.exchange import Answer, Command

REDIS_MIN = (6, 2)
VALKEY_MIN = (7, 2)
WAITAOF_MIN = (7, 2)
MEMORY_WARN_PERCENT = 90


@dataclass(frozen=True, slots=True)
class Barrier:
    """The configured durability, as commands to send after a call. `timeout_ms`: bound on the whole
    call.
    """

    durability: Durability
    replicas_min: int
    timeout_ms: int
    failover: bool
    """The store can fail over (Sentinel, Cluster)."""

    @property
    def wait_ms(self) -> int:
        """How long the server may wait, in ms: less than a call may take, so that its answer
        arrives. A server checks such waits ten times a second.
        """
        return max(self.timeout_ms - 200, self.timeout_ms // 2)

    def commands(self, server: StoreServer, *, by_replica: bool = False) -> list[Command]:
        """The commands to send after a call.

        `by_replica`: one replica must confirm terms and heartbeats if the store can fail over. So
        an owner on a cut-off primary stops granting before its successor starts.
        """
        if self.durability == "replicated":
            return [("WAIT", self.replicas_min, self.wait_ms)]
        commands: list[Command] = []
        if self.durability == "always" and server.version >= WAITAOF_MIN:
            commands.append(("WAITAOF", 1, 0, self.wait_ms))
        if by_replica and self.failover:
            commands.append(("WAIT", 1, self.wait_ms))
        return commands

    def shortfall(self, commands: Sequence[Command], answers: Sequence[Answer]) -> str:
        """Say in a sentence which durability was not reached; empty if all was."""
        for command, answer in zip(commands, answers, strict=True):
            what = "replicas" if command[0] == "WAIT" else "disk"
            if isinstance(answer, Exception):
                return f"written, but not confirmed by {what}: {answer}"
            reached, least = answer[0] if isinstance(answer, list) else answer, int(command[1])
            if reached < least:
                return f"written, but not confirmed by {what} in time ({reached} of {least})"
        return ""

    async def check_server(self, link: Link) -> None:
        """Raise StoreSetupError if the server of a new connection can't give the durability."""
        server = link.server
        if server is None:
            return
        least = VALKEY_MIN if server.valkey else REDIS_MIN
        if server.version < least:
            have, want = (".".join(map(str, version)) for version in (server.version, least))
            raise StoreSetupError(f"the store's version is {have}; ackd needs {want} or newer")
        if self.durability != "always":
            return
        persistence, fsync = await link.ask(
            [("INFO", "persistence"), ("CONFIG", "GET", "appendfsync")]
        )
        if "aof_enabled:1" not in _decoded(persistence):
            raise StoreSetupError("durability = always needs appendonly yes at the store")
        if server.version < WAITAOF_MIN and _config(fsync) != "always":
            raise StoreSetupError(
                "durability = always needs appendfsync always at a store older than 7.2, and the "
                "right to read it (CONFIG GET appendfsync)"
            )


async def look(link: Link, barrier: Barrier) -> list[Condition]:
    """Ask a server for its configuration, and return what an operator should change there."""
    memory, persistence, replication, least = await link.ask(
        [
            ("INFO", "memory"),
            ("INFO", "persistence"),
            ("INFO", "replication"),
            ("CONFIG", "GET", "min-replicas-to-write"),
        ]
    )
    found = [*_memory(_fields(memory)), *_replicas(_fields(replication), _config(least), barrier)]
    if _fields(persistence).get("aof_enabled") != "1":
        found.append(
            Condition(
                "store-no-aof",
                "the store has no append-only file (appendonly yes): a restart of it loses acks",
            )
        )
    return found


def _memory(fields: Mapping[str, str]) -> list[Condition]:
    found = []
    policy = fields.get("maxmemory_policy", "noeviction")
    limit = int(fields.get("maxmemory", "0"))
    if policy != "noeviction":
        found.append(
            Condition(
                "store-eviction",
                f"the store's maxmemory-policy is {policy}: it may throw acks away (R14); "
                "ackd needs noeviction",
            )
        )
    used = int(fields.get("used_memory", "0"))
    if limit and used * 100 > limit * MEMORY_WARN_PERCENT:
        found.append(
            Condition(
                "store-memory", f"the store uses {used} of {limit} bytes; then it refuses acks"
            )
        )
    return found


def _replicas(fields: Mapping[str, str], least: str | None, barrier: Barrier) -> list[Condition]:
    have = int(fields.get("connected_slaves", "0"))
    if barrier.durability == "replicated":
        if have < barrier.replicas_min:
            return [
                Condition(
                    "store-replicas",
                    f"{have} replicas of {barrier.replicas_min} that each ack waits for",
                )
            ]
        return []
    if barrier.failover and have and least == "0":
        return [
            Condition(
                "store-split-brain",
                "after a failover the old primary may go on taking acks that are then lost: set "
                "min-replicas-to-write (and min-replicas-max-lag) or durability = replicated",
            )
        ]
    return []


def _decoded(answer: Answer) -> str:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else ""


def _fields(answer: Answer) -> dict[str, str]:
    lines = (line.partition(":") for line in _decoded(answer).splitlines())
    return {name: value for name, _, value in lines}


def _config(answer: Answer) -> str | None:
    """Return a setting of the server; None if this user may not read it."""
    if isinstance(answer, list) and len(answer) > 1:
        return _decoded(answer[1])
    return None
