"""The key that signs leases: from a file, or one for all sidecars of a store (R27)."""

import asyncio
from pathlib import Path

import pytest

from ackd.core.lease_token import LeaseKeys, UnknownKeyError
from ackd.engine.cluster.lease_keys import NAME, agree, key_number, load_keys
from ackd.errors import ConfigError
from ackd.store.memory import MemoryStore
from tests.unit.engine.world import World

OLD, NEW = b"o" * 16, b"n" * 16


def read(file: Path) -> LeaseKeys:
    """As a sidecar does before it serves."""
    return asyncio.run(load_keys(MemoryStore(), file))


async def test_all_sidecars_of_a_store_sign_with_the_key_of_the_first(world: World) -> None:
    one = await load_keys(world.store, None)
    two = await load_keys(world.store, None)
    assert two.key == one.key
    lease = one.signer("work", bytes(16), 0).token(1, 2, 3, 4)
    assert two.open(lease).offset == 1


def test_a_file_has_the_key_and_perhaps_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(OLD + b"\n")
    before = read(file)
    lease = before.signer("work", bytes(16), 0).token(1, 2, 3, 4)
    file.write_bytes(NEW + b"\n" + OLD + b"\n" + b"third\n")
    after = read(file)
    assert (after.key, after.open(lease).offset) == (NEW, 1)
    file.write_bytes(NEW)
    with pytest.raises(UnknownKeyError):
        read(file).open(lease)


def test_of_two_keys_of_one_number_the_first_one_signs(tmp_path: Path) -> None:
    same = next(k for i in range(9_999) if key_number(k := b"%016d" % i) == key_number(NEW))
    file = tmp_path / "key"
    file.write_bytes(NEW + b"\n" + same)
    assert read(file).key == NEW


@pytest.mark.parametrize("content", [b"", b"\n\n", b"k" * 15, NEW + b"\nshort"])
def test_a_file_without_a_good_key_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="at least 16 bytes"):
        read(file)
    with pytest.raises(ConfigError, match="lease_key_file"):
        read(tmp_path / "none")


async def test_r27_after_a_loss_one_key_is_put_back_and_the_others_adopt_it(world: World) -> None:
    one = await load_keys(world.store, None)
    world.data.values.clear()
    two = await load_keys(world.store, None)
    lease = one.signer("work", bytes(16), 0).token(1, 2, 3, 4)
    world.data.values.clear()
    assert not await agree(world.store, one)  # it was the first
    assert not await agree(world.store, one)
    assert await agree(world.store, two)
    assert (two.key, two.open(lease).offset) == (one.key, 1)


def test_a_key_from_a_file_is_nobody_elses(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(NEW)
    keys = read(file)
    store = MemoryStore()
    store.data.values[NAME] = (OLD, None)
    assert not asyncio.run(agree(store, keys))
    assert keys.key == NEW


def test_keys_differ_in_their_numbers() -> None:
    assert len({key_number(bytes([each]) * 16) for each in range(8)}) > 6
