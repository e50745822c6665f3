"""Planted mistakes about what a store forgot in a failover (R10)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ackd.core.record import copies, maintenance
from ackd.core.record.transitions import Verb
from ackd.engine.base import replay_log
from ackd.engine.base.replay_log import Memory
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.claims import Claims


@contextmanager
def no_repair() -> Iterator[None]:
    async def repair(self: Partition, found: object, lost: object = ()) -> None:
        del self, found, lost

    async def replay(self: Memory, by_key: object) -> None:
        del self, by_key

    with patch.object(Partition, "repair", repair), patch.object(Memory, "_replay_all", replay):
        yield


def no_homes() -> Any:
    return patch.dict(maintenance.VERBS, {Verb.RESTORE: lambda *_: 0})


def no_patience() -> Any:
    return patch.object(replay_log, "UNOPENED_WAIT_MS", replay_log.REPLAY_WAIT_MS)


def homes_are_passed() -> Any:
    return patch.object(
        copies, "decides", lambda record, op, phase, _: copies.parked(record, op.offset, phase)
    )


def late_acks_overtake_claims() -> Any:
    return patch.object(copies, "perhaps_claimed", lambda *_: False)


def unanswered_is_unknown() -> Any:
    """A claim of a record that nobody has re-opened yet counts as one of a record that is gone."""

    async def gone(*_: object) -> bool:
        return True

    return patch.object(Claims, "_is_gone", gone)
