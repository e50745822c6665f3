"""Records on behalf of an operation: looked at without a change, taken over, mended (R1, R14)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Advance, ForgetOriginRecords, Gap, Op, RemakeChunk
from ackd.core.record.protocol import CallStatus, Open, Snapshot
from ackd.engine.ownership.records import Records, remade
from ackd.errors import StoreDataError, StoreError
from ackd.store.flusher import LedgerHandle
from tests.unit.engine.operation_stage import OperationStage
from tests.unit.engine.world import NAME, TOPIC_ID, World

KEY = LedgerKey("cluster", NAME, TOPIC_ID, 0)
FAR = 100_000
"""In another chunk of finished offsets than the watermark."""


@pytest.fixture
async def records(world: World) -> Records:
    world.partitions.registered(3)
    return OperationStage(world).records


async def owned_by_another(world: World, *ops: Op) -> LedgerHandle:
    """Another sidecar has the record, and did this."""
    handle = world.handle()
    await world.flusher.open(Open(KEY, "pod-9#1", 1, 1, 0, create_at=4), handle)
    if ops:
        assert (await world.flusher.submit(handle, ops)).verdict is CallStatus.OK
    return handle


async def test_a_look_changes_nothing(world: World, records: Records) -> None:
    assert await records.peek(KEY) is None
    assert KEY not in world.data.records
    other = await owned_by_another(world, Gap(6, 8))
    found = await records.peek(KEY)
    assert found is not None
    assert (found.watermark, found.term) == (4, other.term)
    reply = await world.flusher.submit(other, [Advance(5)])
    assert reply.verdict is CallStatus.OK


async def test_taking_fences_the_former_owner(world: World, records: Records) -> None:
    """R1."""
    other = await owned_by_another(world)
    taken = await records.take(KEY, None)
    assert taken is not None
    handle, snapshot = taken
    assert snapshot.watermark == 4
    assert handle.term > other.term
    assert world.data.records[KEY].owner == world.partitions.me.text()
    assert (await world.flusher.submit(other, [Advance(5)])).verdict is CallStatus.FENCED
    assert (await records.decide(handle, [Advance(5)])).verdict is CallStatus.OK


async def test_an_absent_record_is_made_only_if_it_is_said_where(
    world: World, records: Records
) -> None:
    assert await records.take(KEY, None) is None
    assert KEY not in world.data.records
    taken = await records.take(KEY, 12)
    assert taken is not None
    assert taken[1].watermark == 12
    assert world.data.records[KEY].incarnation & 1


async def test_a_call_that_the_store_does_not_decide_is_an_error(
    world: World, records: Records
) -> None:
    taken = await records.take(KEY, 0)
    assert taken is not None
    await owned_by_another(world)
    with pytest.raises(StoreError, match="FENCED"):
        await records.decide(taken[0], [Advance(5)])
    world.store.away = True
    with pytest.raises(StoreError):
        await records.peek(KEY)


async def test_r14_what_the_store_has_lost_is_made_again_with_the_take(
    world: World, records: Records
) -> None:
    """Else the record would stay unusable: a call that needs a lost chunk is refused."""
    await owned_by_another(world, Gap(FAR, FAR + 2))
    record = world.data.records[KEY]
    (lost,) = record.finished.chunks
    del record.finished.chunks[lost]
    taken = await records.take(KEY, None)
    assert taken is not None
    handle, snapshot = taken
    assert snapshot.lost_chunks == []
    assert world.count("ackd_store_data_lost_total") == 1
    asked = [op for call in world.store.asked for op in call.ops]
    assert RemakeChunk(lost) in asked
    assert (await records.decide(handle, [Gap(FAR, FAR + 1)])).verdict is CallStatus.OK


@pytest.mark.parametrize(
    ("chunks", "origins", "ops"),
    [
        ([], False, []),
        ([3, 5], False, [RemakeChunk(3), RemakeChunk(5)]),
        ([], True, [ForgetOriginRecords(7)]),
        ([3], True, [RemakeChunk(3), ForgetOriginRecords(7)]),
    ],
)
async def test_r14_losses_become_operations_and_are_counted_once(
    world: World, records: Records, chunks: list[int], ops: list[Op], *, origins: bool
) -> None:
    await owned_by_another(world)
    snapshot = await records.peek(KEY)
    assert snapshot is not None
    lossy = replace(snapshot, lost_chunks=chunks, lost_origins=origins)
    assert remade(world.context, lossy) == ops
    assert world.count("ackd_store_data_lost_total") == bool(ops)


async def test_a_record_that_can_not_be_used_is_an_error_of_its_data(
    world: World, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Say of a layout that this version does not know."""

    async def unknown(request: Open) -> Snapshot:
        del request
        return Snapshot(CallStatus.LAYOUT)

    monkeypatch.setattr(world.store, "open", unknown)
    with pytest.raises(StoreDataError, match="LAYOUT"):
        await records.peek(KEY)
    with pytest.raises(StoreDataError, match="LAYOUT"):
        await records.take(KEY, None)
