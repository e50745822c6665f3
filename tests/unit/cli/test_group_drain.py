"""`ackd release-group` while it waits: whatever ends the wait, the group is delivered again."""

import asyncio
from typing import cast

import pytest

from ackd.cli.offline import group_drain
from ackd.cli.offline.parts import Parts
from ackd.core.ids import LedgerKey
from ackd.engine.base.live import Live, read_live
from ackd.store.memory import MemoryStore
from tests.support.wait import wait_until_async

NAME = "work"


class Group:
    """A subscription without partitions, whose one sidecar never stops."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.name = NAME

    async def sidecars(self) -> list[str]:
        return ["one"]


async def no_keys(parts: Parts) -> list[LedgerKey]:
    del parts
    return []


@pytest.mark.parametrize("at", ["leases", "sidecars"])
async def test_an_exit_that_is_interrupted_changes_nothing(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In either of its two waits: for the leases, and for the sidecars to stop."""
    monkeypatch.setattr(group_drain, "_keys", no_keys)
    monkeypatch.setattr(group_drain, "SPREAD_MS", 3_600_000 if at == "leases" else 0)
    store = MemoryStore()
    await store.start()
    said: list[str] = []
    parts = cast("Parts", Group(store))

    async def live() -> Live | None:
        return read_live(await store.set_live(NAME, b"?", b""))

    async def waits() -> bool:
        words = {"leases": "waiting for its leases", "sidecars": "stop the sidecars"}
        return bool(said) and words[at] in said[-1]

    async with asyncio.TaskGroup() as group:
        draining = group.create_task(group_drain.drain(parts, 3_600_000, said.append))
        await wait_until_async(waits, "the wait")
        held = await live()
        assert held is not None
        assert held.pause is not None
        draining.cancel()
    after = await live()
    assert after is not None
    assert after.pause is None
    assert said[-1] == f"{NAME} is delivered again"
    await store.close()
