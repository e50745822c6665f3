"""What the store's records say of messages is shown; without the store, what is known here."""

from __future__ import annotations

import asyncio

import pytest

from ackd.api.messages import InFlight, SettleItem, SettleVerb
from ackd.core.ledger.entry import EntryStatus
from ackd.engine.control import reported
from ackd.engine.control.reported import Reported, Shown
from ackd.engine.partition.partition import Partition
from ackd.engine.settlement.settle import Settler
from tests.unit.engine.retry_stage import RetryStage
from tests.unit.engine.world import NAME, World


def shown(partition: Partition, offset: int) -> Shown:
    entry = partition.ledger.entries[offset]
    view = InFlight(partition.copies.name_of(offset), "", entry.attempt, "", 0)
    return Shown(partition, offset, entry, view)


async def failed(world: World, reason: str, count: int = 1) -> Partition:
    """So many messages failed for this reason, and only the store knows why."""
    partition = await world.owns(0, range(count + 1))
    leases = await world.leases(partition, count)
    items = [SettleItem(each.lease, SettleVerb.RETRY, reason=reason) for each in leases]
    await Settler({NAME: world.settles}, world.context).settle(items)
    for offset in range(count):
        partition.copies.forget(offset)
    return partition


async def test_the_reason_of_the_last_failure_comes_from_the_record(world: World) -> None:
    partition = await failed(world, "no printer")
    each = shown(partition, 0)
    await Reported(world.context).fill([each])
    assert (each.view.error, each.view.holder) == ("no printer", "")


async def test_why_a_copy_was_not_stored_goes_before_why_the_message_failed(world: World) -> None:
    each = shown(await failed(world, "no printer"), 0)
    each.view.error = "the topic is full"
    await Reported(world.context).fill([each])
    assert each.view.error == "the topic is full"


async def test_without_the_store_it_shows_what_is_known_here(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    partition = await failed(world, "no printer")
    partition.copies.failed_with(0, "heard here")
    await world.leases(partition, holder="pod-7")
    views = [shown(partition, offset) for offset in (0, 1)]
    world.store.away = True
    with caplog.at_level("INFO", "ackd.engine"):
        await Reported(world.context).fill(views)
    assert [(each.view.holder, each.view.error) for each in views] == [
        ("", "heard here"),
        ("pod-7", None),
    ]
    assert "the store is away" in caplog.text


async def test_a_record_without_texts_is_not_asked_for_any(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asks(world, monkeypatch)
    partition = await world.owns(0, range(2))
    await world.leases(partition, holder="pod-7")
    await world.flusher.idle()
    partition.has_texts = False
    each = shown(partition, 0)
    await Reported(world.context).fill([each])
    assert (each.view.holder, asked) == ("pod-7", [])


async def test_i8_a_record_is_read_in_parts_and_answers_keep_their_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reported, "READ_MAX", 2)
    partition = await failed(world, "no printer", 3)
    asked = asks(world, monkeypatch)
    views = [shown(partition, offset) for offset in (3, 2, 1, 0)]
    texts = await Reported(world.context).texts(views)
    assert asked == [[3, 2], [1, 0]]
    assert [each is not None and each.last for each in texts] == [False, *[b"no printer"] * 3]


def asks(world: World, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The offsets of each call for texts, from now on."""
    asked: list[list[int]] = []
    plain = world.store.texts

    async def texts(key: object, offsets: list[int]) -> object:
        asked.append(list(offsets))
        return await plain(key, offsets)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store, "texts", texts)
    return asked


async def test_of_a_copy_that_waits_the_record_of_its_origin_is_asked(world: World) -> None:
    stage = RetryStage(world)
    await stage.begin()
    stage.start(stage.claims)
    stage.arrives(3, await stage.moves())  # the lease of the original lives on
    stage.arrives(4, None)
    await asyncio.sleep(0.1)
    copy = shown(stage.copies, 3)
    assert copy.entry.status is EntryStatus.CLAIMING
    assert copy.waits_for_lease
    assert copy.place() == (stage.origin.key, 0)
    await stage.tasks.stop()


async def test_a_copy_whose_origin_is_not_known_yet_is_asked_for_nowhere(world: World) -> None:
    stage = RetryStage(world)
    await stage.begin()
    stage.start(stage.claims)
    stage.arrives(3, await stage.moves())
    await asyncio.sleep(0.1)
    copy = shown(stage.copies, 3)
    copy.entry.body = None
    assert copy.place() is None
    assert await Reported(world.context).texts([copy]) == [None]
    await stage.tasks.stop()
