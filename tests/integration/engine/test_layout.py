"""Two builds on one store: which of them may serve, before and after the new layout is in force.

The older build reads layout 1; the newer one reads 1 and 2, and writes 2 only when that is final.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from ackd.api.messages import Delivery, SettleItem, SettleVerb, Status
from ackd.core.store_layout import Layouts
from ackd.engine.cluster.store_layout import finalize
from ackd.errors import AckdError, StoreLayoutError
from ackd.ports import Member, Store
from ackd.store.build import open_store
from ackd.store.scripts import record_scripts
from tests.integration.engine.together import NAME, Sidecar, Together
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
OLDER, NEWER, NEXT = Layouts(1, 1), Layouts(1, 2), Layouts(2, 3)
for _layouts in (OLDER, NEWER, NEXT):
    record_scripts(_layouts)  # read from files, which a test must not do in its loop


class Load:
    """Publishes, and receives and acks at whichever sidecar serves, until stopped."""

    def __init__(self, publisher: Sidecar) -> None:
        self._publisher = publisher
        self.sidecars: list[Sidecar] = []
        self.acked: Counter[str] = Counter()
        self.refused: list[str] = []
        self.published = 0
        self._over = False

    async def run(self) -> None:
        """Until `over`."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish())
            for number in range(4):
                group.create_task(self._work(number))

    async def _publish(self) -> None:
        while not self._over:
            await self._publisher.publish(20)
            self.published += 20
            await asyncio.sleep(0.05)

    async def _work(self, number: int) -> None:
        while not self._over or sum(self.acked.values()) < self.published:
            await asyncio.sleep(0)
            if not self.sidecars:
                continue
            sidecar = self.sidecars[number % len(self.sidecars)]
            try:
                got = (await sidecar.receive(20, wait_ms=200)).messages
            except AckdError as error:
                self.refused.append(error.type)
                await asyncio.sleep(0.05)
                continue
            await self._ack(number, got)

    async def _ack(self, number: int, got: Sequence[Delivery]) -> None:
        """At any sidecar: one that is stopped meanwhile may answer that it does not know."""
        items = [SettleItem(each.lease, SettleVerb.ACK) for each in got]
        while True:
            sidecar = self.sidecars[number % len(self.sidecars)]
            settled = [each.status for each in await sidecar.runtime.settle(items)]
            if Status.UNAVAILABLE not in settled:
                break
            await asyncio.sleep(0.05)
        assert set(settled) <= {Status.ACKED}
        self.acked.update(each.id for each in got)

    def over(self) -> None:
        """No more is published; the rest is worked off."""
        self._over = True


async def final(together: Together, layouts: Layouts) -> tuple[int, tuple[str, ...]]:
    """Try to put the newest layout of a build in force; the one in force, and who holds it up."""
    store = open_store(together.store, together.folder / "tool", layouts)
    await store.start()
    try:
        done = await finalize(store, lambda: registered(store))
    finally:
        await store.close()
    return done.layout, done.holding


async def registered(store: Store) -> list[tuple[str, Member]]:
    """As `ackd store finalize` finds them, for the one subscription here."""
    members = (await store.heartbeat(NAME, "tool", 0, (), "")).members
    await store.forget(NAME, "tool", 0)
    return [(NAME, each) for each in members if each.name != "tool"]


async def test_the_newer_build_after_the_older_one(together: Together) -> None:
    """Side by side; no new layout while the older one is there; no way back afterwards."""
    older = await together.start("older", layouts=OLDER)
    load = Load(older)
    load.sidecars = [older]
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        newer = await together.start("newer", layouts=NEWER)
        load.sidecars = [older, newer]
        layout, holding = await final(together, NEWER)
        assert (layout, holding) == (1, (f"{NAME}: older (reads 1 to 1)",))
        await newer.ready()  # what was announced was taken back
        load._publisher, load.sidecars = newer, [newer]
        await older.runtime.stop()
        assert await final(together, NEWER) == (2, ())
        back = await together.start("back", layouts=OLDER, wait=False)
        said = await back.says("store-layout")
        assert "the store's layout is 2, this build reads 1 to 1: start a newer build" in said
        with pytest.raises(StoreLayoutError):
            await back.receive(wait_ms=100)
        await asyncio.sleep(0.2)
        load.over()
    assert set(load.acked.values()) == {1}
    assert len(load.acked) == load.published
    assert await back.owned() == []


async def test_the_older_build_after_the_newer_one(together: Together) -> None:
    """A rollback is allowed until the new layout is final; a build that is two ahead is refused."""
    newer = await together.start("newer", layouts=NEWER)
    load = Load(newer)
    load.sidecars = [newer]
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        older = await together.start("older", layouts=OLDER)
        load._publisher, load.sidecars = older, [older]
        await newer.runtime.stop()
        ahead = await together.start("ahead", layouts=NEXT, wait=False)
        said = await ahead.says("store-layout")
        assert "this build reads 2 to 3: start a build that reads both" in said
        with pytest.raises(StoreLayoutError, match="store's layout is 1"):
            await final(together, NEXT)
        load.over()
    assert set(load.acked.values()) == {1}
    assert len(load.acked) == load.published


async def test_a_build_that_nobody_saw_is_refused_by_every_script(together: Together) -> None:
    """It owns partitions when the layout changes; the records tell it, then the store's value."""
    older = await together.start("older", layouts=OLDER)
    await older.publish(8)
    held = await older.collect(8)
    newer = await together.start("newer", layouts=NEWER)
    store = open_store(together.store, together.folder / "tool", NEWER)
    await store.start()
    assert (await finalize(store, nobody)).layout == 2
    await store.close()
    await older.says("store-layout", "start a newer build")

    async def owns_all() -> bool:
        return len(await newer.owned()) == 4

    await wait_until_async(owns_all, "the newer build to have all partitions")
    items = [SettleItem(each.lease, SettleVerb.ACK) for each in held]

    async def moved() -> bool:
        (result,) = await older.runtime.settle(items[:1])
        return isinstance(result.error, StoreLayoutError)

    await wait_until_async(moved, "the older build's settles to be refused")
    results = await newer.runtime.settle(items)
    assert {each.status for each in results} <= {Status.ACKED, Status.ALREADY_ACKED}


async def nobody() -> list[tuple[str, Member]]:
    """Nobody is registered."""
    return []
