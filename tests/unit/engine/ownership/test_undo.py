"""Where a partition was before a reset is known for a day, and no longer (R8)."""

from __future__ import annotations

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ids import LedgerKey
from ackd.core.record.protocol import CallStatus, Snapshot
from ackd.engine.ownership import undo
from tests.unit.engine.world import NAME, TOPIC_ID, World

KEY = LedgerKey("cluster", NAME, TOPIC_ID, 0)


def snapshot(watermark: int, *finished: tuple[int, int]) -> Snapshot:
    bits = ChunkedBitmap()
    for start, end in finished:
        bits.add_range(start, end)
    chunks = {index: bytes(chunk) for index, chunk in bits.chunks.items()}
    return Snapshot(CallStatus.OK, epoch=2, watermark=watermark, slots=[], chunks=chunks)


def test_the_watermark_that_is_kept_has_passed_what_is_finished() -> None:
    """The stored one lags: its owner moves it with its next call."""
    found = undo.window(snapshot(3, (3, 6), (8, 9)))
    assert (found.offset, found.finished, found.epoch) == (6, [(8, 9)], 2)


async def test_it_is_kept_for_a_day(world: World) -> None:
    store = world.context.store
    await undo.keep(store, KEY, snapshot(3, (8, 9)))
    world.clock.pass_ms(undo.KEEP_MS - 1)
    assert await undo.kept(store, KEY) == undo.Window(3, [(8, 9)], 2)
    assert await undo.kept(store, KEY._replace(partition=1)) is None
    world.clock.pass_ms(1)
    assert await undo.kept(store, KEY) is None


async def test_what_another_version_wrote_is_nothing_to_undo(world: World) -> None:
    await world.store.put(f"undo:{KEY.text()}", b'{"offset": "three"}')
    assert await undo.kept(world.context.store, KEY) is None
