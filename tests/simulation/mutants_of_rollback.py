"""Planted mistakes about what a store forgot in a failover (R10)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ackd.core import home, upkeep
from ackd.core.states import Verb
from ackd.engine import memory
from ackd.engine.claims import Claims
from ackd.engine.memory import Memory
from ackd.engine.partition import Partition


@contextmanager
def no_repair() -> Iterator[None]:
    async def repair(self: Partition, found: object, lost: object = ()) -> None:
        del self, found, lost

    async def replay(self: Memory, by_key: object) -> None:
        del self, by_key

    with patch.object(Partition, "repair", repair), patch.object(Memory, "_replay_all", replay):
        yield


def no_homes() -> Any:
    return patch.dict(upkeep.VERBS, {Verb.RESTORE: lambda *_: 0})


def no_patience() -> Any:
    return patch.object(memory, "UNOPENED_WAIT_MS", memory.REPLAY_WAIT_MS)


def homes_are_passed() -> Any:
    return patch.object(
        home, "decides", lambda record, op, phase, _: home.parked(record, op.offset, phase)
    )


def late_acks_overtake_claims() -> Any:
    return patch.object(home, "perhaps_claimed", lambda *_: False)


def unanswered_is_unknown() -> Any:
    """A claim of a record that nobody has re-opened yet counts as one of a record that is gone."""

    async def gone(*_: object) -> bool:
        return True

    return patch.object(Claims, "_is_gone", gone)
