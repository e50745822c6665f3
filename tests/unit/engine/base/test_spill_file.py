"""Bodies on the disk: read back as they were, bounded, and long waits don't keep dead bytes."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from ackd.engine.base.spill_file import FileSpill, Stub
from ackd.ports import Record

SEGMENT = 4_096


def record(offset: int, size: int = 100) -> Record:
    value = random.Random(offset).randbytes(size)
    return Record(offset, b"k%d" % offset, value, (("h", b"1"), ("n", None)), 1_000 + offset)


def files(folder: Path) -> dict[str, int]:
    """Sizes by name."""
    return {each.name: each.stat().st_size for each in folder.glob("*")}


def leave(folder: Path) -> None:
    """What a killed run leaves behind."""
    folder.mkdir(parents=True)
    (folder / "7.bodies").write_bytes(b"old")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spill" / "work"


async def test_bodies_come_back_as_they_were(folder: Path) -> None:
    spill = FileSpill(folder, 1 << 20, SEGMENT)
    odd = [Record(1, None, None, (), 0), Record(2, b"", b"", (("", b""),), 5), record(3, 10_000)]
    stubs = await spill.write(odd)
    assert stubs is not None
    assert [each.offset for each in stubs] == [1, 2, 3]
    assert await spill.read(list(reversed(stubs))) == list(reversed(odd))
    assert await spill.read(stubs) == odd
    await spill.close()
    assert not files(folder)


async def test_what_an_earlier_run_left_is_deleted(folder: Path) -> None:
    leave(folder)
    spill = FileSpill(folder, 1 << 20, SEGMENT)
    assert await spill.write([record(1)])
    assert list(files(folder)) == ["1.bodies"]
    await spill.close()


async def test_i8_a_full_spill_refuses_and_takes_again_when_there_is_room(folder: Path) -> None:
    spill = FileSpill(folder, 10_000, SEGMENT)
    kept: list[Stub] = []
    while (stubs := await spill.write([record(len(kept), 900)])) is not None:
        kept += stubs
        assert spill.taken <= 10_000
    assert len(kept) == 10
    for stub in kept[:6]:
        spill.free(stub)
    assert await spill.write([record(100, 900)]) is not None
    assert [each.offset for each in await spill.read(kept[6:])] == [6, 7, 8, 9]
    await spill.close()


async def test_one_long_wait_does_not_keep_a_segment(folder: Path) -> None:
    """1 of 40 stays for ever; the files must not grow with what has passed through them."""
    spill = FileSpill(folder, 1 << 30, SEGMENT)
    kept: list[Stub] = []
    most = 0
    for number in range(2_000):
        stubs = await spill.write([record(number)])
        assert stubs is not None
        if number % 40:
            spill.free(stubs[0])
        else:
            kept += stubs
        most = max(most, spill.taken)
    found = await spill.read(kept)
    assert found == [record(number) for number in range(0, 2_000, 40)]
    live = 50 * 150
    assert most < 2 * live + 4 * SEGMENT
    assert sum(files(folder).values()) == spill.taken
    await spill.close()


async def test_freed_and_foreign_stubs_are_not_read(folder: Path) -> None:
    spill = FileSpill(folder, 1 << 20, SEGMENT)
    stubs = await spill.write([record(1), record(2)])
    assert stubs is not None
    spill.free(stubs[0])
    spill.free(stubs[0])
    assert await spill.write([record(3)])
    for wrong in (stubs[0], Stub(record(9))):
        with pytest.raises(OSError, match="no such body"):
            await spill.read([wrong])
    assert await spill.read([stubs[1]]) == [record(2)]
    await spill.close()


async def test_a_file_that_was_cut_is_an_error(folder: Path) -> None:
    spill = FileSpill(folder, 1 << 20, SEGMENT)
    stubs = await spill.write([record(1)])
    assert stubs is not None
    os.truncate(folder / "1.bodies", 20)
    with pytest.raises(OSError, match="cut off"):
        await spill.read(stubs)
    (folder / "1.bodies").write_bytes(b"\xc1" * 1_000)
    with pytest.raises(OSError, match=r"1\.bodies"):
        await spill.read(stubs)
    await spill.close()


@pytest.mark.parametrize("seed", range(3))
async def test_random_use_against_a_dict(folder: Path, seed: int) -> None:
    source = random.Random(seed)
    spill = FileSpill(folder, 60_000, SEGMENT)
    held: dict[Stub, Record] = {}
    for number in range(1_500):
        action = source.random()
        if action < 0.5:
            batch = [record(number * 10 + i, source.randrange(800)) for i in range(3)]
            stubs = await spill.write(batch)
            if stubs is not None:
                held.update(zip(stubs, batch, strict=True))
        elif held:
            stub = source.choice(list(held))
            if action < 0.8:
                spill.free(stub)
                del held[stub]
            else:
                assert await spill.read([stub]) == [held[stub]]
        assert spill.taken <= 60_000
    stubs = list(held)
    assert await spill.read(stubs) == [held[stub] for stub in stubs]
    await spill.close()


async def test_the_loop_goes_on_meanwhile(folder: Path) -> None:
    spill = FileSpill(folder, 1 << 30)
    ended = asyncio.Event()

    async def count() -> int:
        turns = 0
        while not ended.is_set():
            turns += 1
            await asyncio.sleep(0)
        return turns

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count())
        assert await spill.write([record(number, 1_000) for number in range(5_000)])
        ended.set()
    assert counting.result() > 1
    await spill.close()
