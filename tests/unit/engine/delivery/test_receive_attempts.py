"""A repeated receive gets the leases that the first one got (R21)."""

import asyncio
from dataclasses import replace

import pytest

from ackd.api.messages import Delivery, ReceiveRequest, SettleItem, SettleVerb
from ackd.core.ids import TopicPartition
from ackd.core.lease_token import Token
from ackd.core.ledger.entry import EntryStatus
from ackd.engine.delivery import receive_attempts
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.receive_attempts import (
    BODY_WAIT_MS,
    AnsweredMessages,
    ReceiveAttempts,
)
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.body_spill import BodySpill
from ackd.engine.retry.moved_bodies import MovedBodies
from ackd.engine.settlement.settle import Settler
from ackd.errors import AttemptMismatchError, StoreError
from tests.unit.engine.copies import NoSpill
from tests.unit.engine.retry_stage import RetryStage
from tests.unit.engine.world import LEASE_MS, NAME, TOPIC, TOPIC_ID, World

ASK = ReceiveRequest(max=2)


class Copies:
    """Which copies wait for the end of a lease, by the place of their origin."""

    def __init__(self) -> None:
        self.held: dict[tuple[bytes, int], dict[int, tuple[Partition, int, int]]] = {}


def bodies_of(world: World, copies: Copies) -> MovedBodies:
    spill = BodySpill(world.state, world.context, world.partitions, NoSpill())
    return MovedBodies(copies, spill)


def parts(world: World) -> tuple[ReceiveAttempts, Dispatcher, Settler]:
    dispatcher = world.dispatcher()
    settler = Settler({NAME: world.settles}, world.context)
    attempts = ReceiveAttempts(
        world.state,
        world.context,
        world.partitions,
        dispatcher,
        world.notes,
        settler.look,
        bodies_of(world, Copies()),
    )
    return attempts, dispatcher, settler


@pytest.fixture
async def attempts(world: World) -> ReceiveAttempts:
    """On a partition with five messages."""
    made, dispatcher, _ = parts(world)
    dispatcher.ready(await world.owns(0, range(5)))
    return made


async def test_r21_a_repeat_gets_the_same_leases(world: World, attempts: ReceiveAttempts) -> None:
    first = await attempts.receive("a", ASK)
    again = await attempts.receive("a", ASK)
    assert [each.lease for each in again.messages] == [each.lease for each in first.messages]
    assert (first.replayed, again.replayed) == (False, True)
    assert [each.record for each in again.messages] == [each.record for each in first.messages]
    assert world.partitions.leased() == 2
    other = await attempts.receive("b", ASK)
    assert [each.record.offset for each in other.messages] == [2, 3]


async def test_a_repeat_tells_deadlines_of_now_and_leaves_out_what_is_over(
    world: World, attempts: ReceiveAttempts
) -> None:
    _, _, settler = parts(world)
    one, two = (await attempts.receive("a", ASK)).messages
    await settler.settle([SettleItem(one.lease, SettleVerb.ACK)])
    await settler.settle([SettleItem(two.lease, SettleVerb.EXTEND, lease_ms=2 * LEASE_MS)])
    (again,) = (await attempts.receive("a", ASK)).messages
    assert (again.lease, again.deadline_ms) == (two.lease, two.deadline_ms + LEASE_MS)


async def test_when_all_are_over_it_is_a_new_receive(
    world: World, attempts: ReceiveAttempts
) -> None:
    first = await attempts.receive("a", ASK)
    world.clock.pass_ms(LEASE_MS)
    again = await attempts.receive("a", ASK)
    assert not again.replayed
    assert not {each.lease for each in again.messages} & {each.lease for each in first.messages}


@pytest.mark.parametrize(
    "other",
    [ReceiveRequest(max=3), ReceiveRequest(max=2, lease_ms=5), ReceiveRequest(max=2, bytes_max=9)],
)
async def test_an_id_belongs_to_one_question(
    attempts: ReceiveAttempts, other: ReceiveRequest
) -> None:
    await attempts.receive("a", ASK)
    with pytest.raises(AttemptMismatchError):
        await attempts.receive("a", other)


async def test_a_repeat_while_the_first_one_waits_ends_that(world: World) -> None:
    made, dispatcher, _ = parts(world)
    partition = await world.owns(0)
    waits = ReceiveRequest(wait_ms=60_000)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(made.receive("a", waits))
        await asyncio.sleep(0.1)
        again = group.create_task(made.receive("a", waits))
        await asyncio.sleep(0.1)
        assert first.done()
        world.fetches(partition, [0])
        dispatcher.ready(partition)
    assert first.result().messages == []
    assert [each.record.offset for each in again.result().messages] == [0]


async def test_i7_what_could_not_be_remembered_is_not_delivered(
    world: World, attempts: ReceiveAttempts
) -> None:
    """A repeat would get other messages; so the leases go back, uncounted."""
    world.store.full = True
    with pytest.raises(StoreError):
        await attempts.receive("a", ASK)
    for _ in range(20):
        await asyncio.sleep(0)
    entries = world.partitions.owned[TopicPartition(TOPIC, 0)].ledger.entries
    assert [entries[each].status for each in (0, 1)] == [EntryStatus.READY] * 2


async def test_after_a_restart_the_body_is_waited_for(world: World) -> None:
    made, dispatcher, _ = parts(world)
    dispatcher.ready(await world.owns(0, [0]))
    (first,) = (await made.receive("a", ReceiveRequest())).messages
    restarted, _, _ = parts(world)
    partition = await world.owns(0)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(restarted.receive("a", ReceiveRequest()))
        await asyncio.sleep(BODY_WAIT_MS / 2_000)
        world.fetches(partition, [0])
    assert [each.lease for each in asked.result().messages] == [first.lease]
    again, _, _ = parts(world)
    await world.owns(0)
    with pytest.raises(StoreError, match="no sidecar has fetched"):
        await again.receive("a", ReceiveRequest())


async def test_the_owner_is_asked_for_what_is_not_here(world: World) -> None:
    """The repeat came to another sidecar. Its owner may need a moment to fetch the message."""
    made, dispatcher, _ = parts(world)
    dispatcher.ready(await world.owns(0, [0, 1]))
    first = await made.receive("a", ASK)
    world.partitions.remove(world.partitions.all()[0])
    asked: list[str] = []

    async def owner(_: Token, lease: str) -> Delivery | None:
        asked.append(lease)
        return None if len(asked) < 3 else replace(first.messages[0], attempt=0, deadline_ms=0)

    settler = Settler({NAME: world.settles}, world.context)
    elsewhere = ReceiveAttempts(
        world.state,
        world.context,
        world.partitions,
        dispatcher,
        world.notes,
        settler.look,
        bodies_of(world, Copies()),
        owner,
    )
    again = await elsewhere.receive("a", ASK)
    assert again.messages[0] == first.messages[0]
    assert set(asked) == {each.lease for each in first.messages}


async def test_a_message_that_cannot_be_had_takes_no_other_with_it(world: World) -> None:
    made, dispatcher, _ = parts(world)
    partition = await world.owns(0, [0, 1])
    dispatcher.ready(partition)
    one, _ = (await made.receive("a", ASK)).messages
    restarted, _, _ = parts(world)
    again = await world.owns(0)
    world.fetches(again, [0])
    found = (await restarted.receive("a", ASK)).messages
    assert [each.lease for each in found] == [one.lease]
    assert await restarted.leased(one.lease) == replace(one, attempt=0, deadline_ms=0)
    assert await restarted.leased("v1.of another key") is None


async def test_r4_the_message_of_a_lease_that_moved_is_had_from_its_copy(world: World) -> None:
    """Under the name of its origin, as it was answered first; not after it is gone there."""
    stage = RetryStage(world)
    await stage.begin()
    retry_copy = await stage.moves()
    stage.arrives(3, retry_copy)
    slot = stage.origin_record(0).slot
    signer = world.context.keys.signer(NAME, TOPIC_ID, 0)
    lease = signer.token(0, slot.fence, retry_copy.rollback_epoch, slot.attempt)
    copies = Copies()
    settler = Settler({NAME: world.settles}, world.context)
    made = ReceiveAttempts(
        world.state,
        world.context,
        world.partitions,
        world.dispatcher(),
        world.notes,
        settler.look,
        bodies_of(world, copies),
    )
    world.partitions.remove(stage.origin)
    assert await made.leased(lease) is None
    copies.held[TOPIC_ID, 0] = {0: (stage.copies, 3, 0)}
    found = await made.leased(lease)
    assert found is not None
    assert (found.lease, found.id, found.record.value) == (lease, f"{TOPIC}/0/0", b"v")
    stage.copies.close()
    assert await made.leased(lease) is None


async def test_a_repeat_needs_no_partition_here(world: World, attempts: ReceiveAttempts) -> None:
    """It is another sidecar's by now, or the messages came from there."""
    first = await attempts.receive("a", ASK)
    world.partitions.remove(world.partitions.all()[0])
    again = await attempts.receive("a", ASK)
    assert again.replayed
    assert again.messages == first.messages


async def test_i8_answered_messages_are_kept_for_a_time_and_within_bounds(
    attempts: ReceiveAttempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old, *_), (message, *_) = [(await attempts.receive(name, ASK)).messages for name in ("a", "b")]
    kept = AnsweredMessages()
    kept.keep([old], 0, 10)
    kept.keep([message], 9, 20)
    assert (kept.find(old.lease), kept.find(message.lease)) == (old, message)
    kept.keep([], 10, 10)
    assert (kept.find(old.lease), kept.find(message.lease)) == (None, message)
    monkeypatch.setattr(receive_attempts, "KEPT_MAX", 1)
    kept.keep([old], 10, 20)
    assert (kept.find(old.lease), kept.find(message.lease)) == (old, None)
    monkeypatch.setattr(receive_attempts, "KEPT_BYTES_MAX", 0)
    kept.keep([], 10, 10)
    assert kept.find(old.lease) is None
    kept.forget(old.lease)


async def test_nothing_is_remembered_of_an_empty_answer(
    world: World, attempts: ReceiveAttempts
) -> None:
    for _ in range(3):
        await attempts.receive(f"take {_}", ASK)
    assert (await attempts.receive("a", ASK)).messages == []
    assert "attempt:work:a" not in world.data.values
    assert "attempt:work:take 0" in world.data.values
