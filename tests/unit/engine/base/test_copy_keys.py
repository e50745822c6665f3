"""All sidecars of a subscription verify what any of them signed, whatever the store loses."""

from __future__ import annotations

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.base.copy_keys import CopyKeys
from ackd.engine.base.copy_signature import CopyKind, Proof
from ackd.errors import StoreError
from ackd.ports import Outgoing, Record
from tests.unit.engine.world import NAME, World

TOPIC, TOPIC_ID = "ackd.retry.work", bytes(range(16))
VALUE = f"copy-keys:{NAME}"


async def loaded(world: World) -> CopyKeys:
    keys = CopyKeys()
    await keys.load(world.store, NAME)
    return keys


def copy(keys: CopyKeys, offset: int) -> Record:
    sent = keys.signed(Outgoing(TOPIC, b"k", b"v", (("ackd-attempt", b"1"),)), CopyKind.RETRY)
    return Record(offset, sent.key, sent.value, sent.headers, 1)


def judged(keys: CopyKeys, record: Record, partition: int = 0, topic_id: bytes = TOPIC_ID) -> Proof:
    return keys.proof(record, CopyKind.RETRY, TopicPartition(TOPIC, partition), topic_id)


def bare(offset: int) -> Record:
    return Record(offset, b"k", b"v", (("ackd-attempt", b"1"),), 1)


async def test_all_sidecars_sign_with_the_key_of_the_first(world: World) -> None:
    one, two = await loaded(world), await loaded(world)
    assert judged(two, copy(one, 5)) is Proof.SIGNED
    assert judged(one, copy(two, 5)) is Proof.SIGNED


async def test_what_is_before_the_end_of_then_is_believed(world: World) -> None:
    one, two = await loaded(world), await loaded(world)
    assert judged(one, bare(5)) is Proof.EARLIER
    one.begins(soon=True)
    assert judged(one, bare(5)) is Proof.UNDECIDED
    await one.begin(TOPIC, TOPIC_ID, {0: 5, 1: 9})
    await two.begin(TOPIC, TOPIC_ID, {0: 7, 1: 8, 2: 1})  # it did not know; the earlier ones count
    await one.sync()
    for keys in (one, two):
        assert judged(keys, bare(4)) is Proof.EARLIER
        assert judged(keys, bare(5)) is Proof.NOT_SIGNED
        assert judged(keys, bare(7), 1) is Proof.EARLIER
        assert judged(keys, bare(8), 1) is Proof.NOT_SIGNED
        assert judged(keys, bare(0), 3) is Proof.NOT_SIGNED  # a partition that was added later
        assert judged(keys, bare(0), topic_id=b"?" * 16) is Proof.NOT_SIGNED  # made again
        assert judged(keys, copy(one, 100)) is Proof.SIGNED


async def test_after_a_loss_each_key_that_somebody_knows_is_put_back(world: World) -> None:
    one = await loaded(world)
    await one.begin(TOPIC, TOPIC_ID, {0: 5})
    world.data.values.clear()
    two = await loaded(world)
    early = copy(one, 9)
    assert judged(two, early) is Proof.EARLIER  # it knows of nothing yet
    assert two.lacks_key_of(early)
    await two.begin(TOPIC, TOPIC_ID, {0: 20})
    assert judged(two, copy(one, 21)) is Proof.BAD
    await one.sync()
    await two.sync()
    assert judged(two, early) is Proof.SIGNED
    assert not two.lacks_key_of(early)
    assert judged(one, copy(two, 9)) is Proof.SIGNED
    assert judged(two, bare(6)) is Proof.NOT_SIGNED  # the earlier end counts
    three = await loaded(world)
    assert judged(three, early) is judged(three, copy(two, 30)) is Proof.SIGNED


async def test_a_value_that_cannot_be_read_is_written_anew(world: World) -> None:
    one = await loaded(world)
    world.data.values[VALUE] = (b"garbage", None)
    await one.sync()
    assert judged(await loaded(world), copy(one, 5)) is Proof.SIGNED


async def test_nothing_changes_while_the_store_is_away(world: World) -> None:
    one = await loaded(world)
    world.store.away = True
    with pytest.raises(StoreError):
        await one.begin(TOPIC, TOPIC_ID, {0: 5})
    assert not one.in_force(TOPIC)
    assert judged(one, copy(one, 5)) is Proof.SIGNED
