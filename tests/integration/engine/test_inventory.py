"""What `ackd store` calls left over: deleted topics, sidecars that went."""

from dataclasses import replace

import pytest

from ackd.cli.offline.inventory import Inventory, ask_brokers, refused, select, take
from ackd.config.schema import Settings
from ackd.store.build import open_store
from ackd.store.survey import Survey
from ackd_adapters.local.broker import LocalBroker
from tests.integration.engine.together import NAME, PARTITIONS, Together
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.redis


async def inventory(together: Together, settings: Settings) -> Inventory:
    """As the command takes it."""
    store = open_store(together.store, together.folder / "tool", beside=True)
    await store.start()
    try:
        return await take(Survey(store), settings, await ask_brokers(settings))
    finally:
        await store.close()


async def test_r1_records_of_a_deleted_topic_are_left_over(together: Together) -> None:
    """The topic of the same name that is there now has records of its own, which a sidecar owns."""
    one = await together.start("one")
    await one.publish(8)
    await one.collect(8)
    broker = one.runtime._brokers["b"]
    assert isinstance(broker, LocalBroker)
    before = await inventory(together, one.runtime.settings)
    assert [row.orphan for row in before.rows] == [""] * PARTITIONS
    assert {row.topic for row in before.rows} == {together.topic}
    await broker.delete_topic(together.topic)
    await one.publish(8)

    async def owns_the_new_one() -> Inventory | None:
        found = await inventory(together, one.runtime.settings)
        living = [row for row in found.rows if row.owner == "one"]
        ours = len(found.rows) == 2 * PARTITIONS and len(living) == PARTITIONS
        return found if ours and not any(row.orphan for row in living) else None

    found = await wait_until_async(owns_the_new_one, "the new topic's records")
    assert found is not None
    chosen = select(found.rows, orphans=True, subscription=None, topic_id="", partition=-1)
    assert {row.orphan for row in chosen} == {
        "its topic was deleted, or is no longer one of the subscription's"
    }
    assert [refused(row) for row in chosen] == [""] * PARTITIONS
    kept = select(found.rows, orphans=False, subscription=NAME, topic_id="", partition=-1)
    assert sum(bool(refused(row)) for row in kept) == PARTITIONS


async def test_names_of_sidecars_that_went_are_told(together: Together) -> None:
    one, two = await together.start("one"), await together.start("two")
    await two.runtime.stop()
    found = await inventory(together, one.runtime.settings)
    assert {(e.name, e.state) for e in found.identities} <= {
        ("one", "living"),
        ("two", "left"),
        ("two", "forgotten"),
    }
    assert {e.name for e in found.identities if e.old} == {"two"}


async def test_what_brokers_do_not_say_is_not_judged(together: Together) -> None:
    """A broker that is away makes nothing an orphan."""
    one = await together.start("one")
    settings = one.runtime.settings
    section = replace(settings.brokers["b"], adapter="no-such-adapter")
    found = await inventory(together, replace(settings, brokers={"b": section}))
    assert [row.orphan for row in found.rows] == [""] * PARTITIONS
    assert found.unknown.keys() == {NAME}


async def test_what_a_sidecar_keeps_that_broadcasts_is_not_left_over(together: Together) -> None:
    one = await together.start("one", mode="broadcast")
    await one.publish(4)
    await one.collect(4)
    found = await inventory(together, one.runtime.settings)
    mine = [row for row in found.rows if row.owner == "one"]
    assert [row.orphan for row in mine] == [""] * len(mine)
    assert len(mine) >= PARTITIONS
    assert found.orphans == []
    await one.runtime.stop()
    found = await inventory(together, one.runtime.settings)
    assert [row.orphan for row in found.rows] == [""] * len(found.rows)
    assert found.orphans == []
    plain = replace(one.runtime.settings.subscriptions[NAME], mode="clustering")
    found = await inventory(together, replace(one.runtime.settings, subscriptions={NAME: plain}))
    assert {row.orphan.partition(",")[0] for row in found.rows} == {"it is of one"}
    assert found.orphans == [f"{NAME}@one"]


async def test_subscriptions_of_one_queue_are_all_asked(together: Together) -> None:
    """A broker that several subscriptions use is connected once."""
    one = await together.start("one")
    settings = one.runtime.settings
    two = {NAME: settings.subscriptions[NAME], "second": settings.subscriptions[NAME]}
    found = await ask_brokers(replace(settings, subscriptions=two))
    assert [known.error for known in found.values()] == ["", ""]
    assert all(together.topic in known.topics.values() for known in found.values())
