"""Settles: tokens in, results out, in order; what the store did not say is not answered (I7)."""

import asyncio
from dataclasses import dataclass

import pytest

from ackd.api.control import Cancel
from ackd.api.messages import Delivery, SettleItem, SettleResult, SettleVerb, Status
from ackd.core.lease_token import LeaseKeys
from ackd.core.record.operations import Settle
from ackd.core.record.transitions import Outcome
from ackd.engine.settlement.notes import NOTE_BYTES_MAX
from ackd.engine.settlement.settle import RETRY_MS, TRIES, Settler
from ackd.errors import (
    BadLeaseTokenError,
    BadParameterError,
    LeaseLostError,
    StoreError,
    UnknownSubscriptionError,
)
from tests.unit.engine.world import LEASE_MS, NAME, World

ACK, RETRY, EXTEND = SettleVerb.ACK, SettleVerb.RETRY, SettleVerb.EXTEND
DEAD, RELEASE = SettleVerb.DEAD, SettleVerb.RELEASE


@dataclass
class Scene:
    """Three leases of one partition."""

    world: World
    settler: Settler
    leases: list[Delivery]

    async def one(self, do: SettleVerb, at: int = 0, **more: object) -> SettleResult:
        """Settle one lease."""
        item = SettleItem(self.leases[at].lease, do, **more)  # type: ignore[arg-type]
        (result,) = await self.settler.settle([item])
        return result

    def metric(self, do: SettleVerb, status: Status) -> float:
        return self.world.count(
            "ackd_settles_total", subscription=NAME, do=do.value, status=status.value
        )


@pytest.fixture
async def scene(world: World) -> Scene:
    partition = await world.owns(0, [0, 1, 2])
    return Scene(
        world, Settler({NAME: world.settles}, world.context), await world.leases(partition, 3)
    )


@pytest.mark.parametrize(
    ("verb", "status"),
    [
        (ACK, Status.ACKED),
        (RETRY, Status.RETRYING),
        (EXTEND, Status.EXTENDED),
        (DEAD, Status.DEAD),
        (RELEASE, Status.RELEASED),
    ],
)
async def test_each_verb(scene: Scene, verb: SettleVerb, status: Status) -> None:
    assert (await scene.one(verb)).status is status
    assert scene.metric(verb, status) == 1
    assert (await scene.one(ACK, 1)).status is Status.ACKED


async def test_results_come_in_the_order_of_the_items(scene: Scene) -> None:
    items = [
        SettleItem(scene.leases[2].lease, EXTEND, lease_ms=5_000),
        SettleItem("v1.broken", ACK),
        SettleItem(scene.leases[0].lease, ACK),
        SettleItem(scene.leases[1].lease, RETRY, delay_ms=7_000),
    ]
    found = await scene.settler.settle(items)
    now_ms = scene.world.clock.wall_ms()
    assert [each.status for each in found] == [
        Status.EXTENDED,
        Status.INVALID,
        Status.ACKED,
        Status.RETRYING,
    ]
    assert (found[0].deadline_ms, found[3].due_ms) == (now_ms + 5_000, now_ms + 7_000)
    assert isinstance(found[1].error, BadLeaseTokenError)


async def test_a_repeated_ack_changes_nothing_and_a_late_one_counts(scene: Scene) -> None:
    assert (await scene.one(ACK)).status is Status.ACKED
    assert (await scene.one(ACK)).status is Status.ALREADY_ACKED
    scene.world.clock.pass_ms(LEASE_MS + 1)
    late = await scene.one(ACK, 1)
    assert (late.status, late.late) == (Status.ACKED, True)
    assert scene.world.count("ackd_late_acks_total", subscription=NAME) == 1


async def test_a_lease_that_somebody_else_has_is_lost_with_what_an_operator_did(
    scene: Scene,
) -> None:
    await scene.one(RELEASE)
    lost = await scene.one(ACK)
    assert (lost.status, lost.now_state) == (Status.LOST, "ready")
    assert isinstance(lost.error, LeaseLostError)
    assert lost.cancelled is None
    scene.world.cancels.done[0] = cancel = Cancel("orders/0/0", "dead", "wrong file", 1)
    assert (await scene.one(ACK)).cancelled is cancel
    lost_settles = "ackd_lost_settles_total"
    assert scene.world.count(lost_settles, subscription=NAME, do="ack") == 2


@pytest.mark.parametrize("lease_ms", [0, -1, 12 * 3_600_000 + 1])
async def test_an_extension_has_bounds(scene: Scene, lease_ms: int) -> None:
    found = await scene.one(EXTEND, lease_ms=lease_ms)
    assert isinstance(found.error, BadParameterError)
    assert found.status is Status.INVALID
    assert (await scene.one(EXTEND, lease_ms=12 * 3_600_000)).status is Status.EXTENDED


async def test_without_a_length_an_extension_is_a_lease_from_now(scene: Scene) -> None:
    scene.world.clock.pass_ms(1_000)
    found = await scene.one(EXTEND)
    assert found.deadline_ms == scene.world.clock.wall_ms() + LEASE_MS


async def test_i8_a_note_has_bounds(scene: Scene) -> None:
    long = await scene.one(EXTEND, note="\u00e4" * (NOTE_BYTES_MAX // 2) + "x")
    assert isinstance(long.error, BadParameterError)
    assert (await scene.one(EXTEND, note="x" * NOTE_BYTES_MAX)).status is Status.EXTENDED


async def test_retries_go_by_the_schedule_and_count_unless_told_otherwise(scene: Scene) -> None:
    scene.world.sets(retry_delays_ms=(1_000, 60_000))
    now_ms = scene.world.clock.wall_ms()
    assert (await scene.one(RETRY)).due_ms == now_ms + 1_000
    assert (await scene.one(RETRY, 1, count=False, delay_ms=0)).due_ms == now_ms
    partition = scene.world.partitions.all()[0]
    partition.ledger.tick(scene.world.clock.monotonic_ms())
    again = await scene.world.leases(partition)
    assert (again[0].record.offset, again[0].attempt) == (1, 1)


async def test_while_the_breaker_is_open_a_retry_uses_no_attempt_up(scene: Scene) -> None:
    scene.world.sets(circuit_breaker_failures=1)
    await scene.one(RETRY, 2, delay_ms=0)
    assert scene.world.breaker.on
    await scene.one(RETRY, 1, delay_ms=0)
    partition = scene.world.partitions.all()[0]
    partition.ledger.tick(scene.world.clock.monotonic_ms())
    again = await scene.world.leases(partition, 2)
    assert sorted((each.record.offset, each.attempt) for each in again) == [(1, 1), (2, 2)]
    scene.world.breaker.stop()


@pytest.mark.parametrize(("count", "opens"), [(True, True), (False, False)])
async def test_the_breaker_hears_of_counted_settles(
    scene: Scene, *, count: bool, opens: bool
) -> None:
    scene.world.sets(circuit_breaker_failures=1)
    await scene.one(RETRY, count=count)
    assert scene.world.breaker.on is opens
    scene.world.breaker.stop()


async def test_tokens_of_others_are_told_apart(scene: Scene) -> None:
    keys = scene.world.context.keys
    stranger = keys.signer("another", bytes(16), 0).token(0, 1, 1, 1)
    old = LeaseKeys({2: b"x" * 16}, 2).signer(NAME, bytes(16), 0).token(0, 1, 1, 1)
    found = await scene.settler.settle([SettleItem(stranger, ACK), SettleItem(old, ACK)])
    assert isinstance(found[0].error, UnknownSubscriptionError)
    assert (found[0].status, found[1].status) == (Status.INVALID, Status.LOST)


# --- what the store does not say


async def test_i7_without_an_answer_it_is_unavailable(scene: Scene) -> None:
    scene.world.store.lost = True
    assert (await scene.one(ACK)).status is Status.UNAVAILABLE
    assert scene.metric(ACK, Status.UNAVAILABLE) == 1
    scene.world.store.lost = False
    assert (await scene.one(ACK)).status is Status.ACKED


async def test_a_record_that_is_being_taken_over_is_asked_again(scene: Scene) -> None:
    record = scene.world.data.records.pop(scene.world.handle().key)
    began_ms = scene.world.clock.monotonic_ms()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(scene.one(ACK))
        await asyncio.sleep(3.5 * RETRY_MS / 1000)
        assert not asked.done()
        scene.world.data.records[scene.world.handle().key] = record
    assert asked.result().status is Status.ACKED
    assert scene.world.clock.monotonic_ms() - began_ms == 4 * RETRY_MS


@pytest.mark.parametrize(("there", "status"), [(True, Status.UNAVAILABLE), (False, Status.LOST)])
async def test_after_two_seconds_it_is_503_or_lost_if_the_topic_is_gone(
    scene: Scene, *, there: bool, status: Status
) -> None:
    del scene.world.data.records[scene.world.handle().key]
    if not there:
        scene.world.consumer.known = [
            type(each)(each.topic, b"another identit", each.partitions)
            for each in scene.world.consumer.known
        ]
    began_ms = scene.world.clock.monotonic_ms()
    found = await scene.one(ACK)
    assert found.status is status
    assert scene.world.clock.monotonic_ms() - began_ms == TRIES * RETRY_MS


async def test_r10_only_what_the_repair_does_not_concern_is_answered_at_once(
    scene: Scene,
) -> None:
    """Each item gets its own answer, in the order of the request, and its own reason."""
    world = scene.world
    record, now_ms = world.data.records[world.handle().key], world.clock.wall_ms()
    granted = dict(record.slots)
    record.slots.clear()  # a rollback forgot the grants
    record.rollback_epoch, record.repair_until_ms = 99, now_ms + 60_000
    items = [
        SettleItem(scene.leases[0].lease, RETRY, reason="too blue", delay_ms=7_000),
        SettleItem(scene.leases[1].lease, ACK),
        SettleItem("v1.broken", ACK),
        SettleItem(scene.leases[2].lease, DEAD, reason="too red"),
    ]
    async with asyncio.TaskGroup() as group:
        settled = group.create_task(scene.settler.settle(items))
        await asyncio.sleep(2.5 * RETRY_MS / 1000)
        assert not settled.done()
        record.slots.update({each: granted[each] for each in (0, 2)})  # as the owner knew them
    found = settled.result()
    assert [each.status for each in found] == [
        Status.RETRYING,
        Status.ACKED,
        Status.INVALID,
        Status.DEAD,
    ]
    assert found[0].due_ms == now_ms + 3 * RETRY_MS + 7_000
    first, *later = [call for call in world.store.asked if isinstance(call.ops[0], Settle)]
    assert [op.offset for op in first.ops] == [0, 1, 2]
    assert [[op.offset for op in call.ops] for call in later] == [[0, 2]] * 3
    told = await world.store.texts(world.handle().key, [0, 1, 2])
    assert [None if each is None else each.last for each in told] == [b"too blue", None, b"too red"]
    assert [
        scene.metric(do, status)
        for do, status in ((RETRY, Status.RETRYING), (ACK, Status.ACKED), (DEAD, Status.DEAD))
    ] == [1, 1, 1]


async def test_i1_a_look_that_is_repeated_stays_a_look(scene: Scene) -> None:
    """While another sidecar takes the record over, and while it is being repaired."""
    world = scene.world
    record = world.data.records.pop(world.handle().key)
    async with asyncio.TaskGroup() as group:
        looked = group.create_task(scene.settler.look(scene.leases[0].lease))
        await asyncio.sleep(2.5 * RETRY_MS / 1000)
        world.data.records[world.handle().key] = record
    assert looked.result().state == "leased"
    granted = dict(record.slots)
    record.slots.clear()  # a rollback forgot the grants
    record.rollback_epoch, record.repair_until_ms = 99, world.clock.wall_ms() + 60_000
    async with asyncio.TaskGroup() as group:
        looked = group.create_task(scene.settler.look(scene.leases[0].lease))
        await asyncio.sleep(2.5 * RETRY_MS / 1000)
        assert not looked.done()
        record.slots.update(granted)  # as the owner knew them
    assert looked.result().state == "leased"
    assert not record.over(0)
    settles = [op for call in world.store.asked for op in call.ops if isinstance(op, Settle)]
    assert settles == []


# --- whom it tells


async def test_copies_that_wait_for_a_lease_are_told(scene: Scene) -> None:
    scene.world.claims.waits = {1}
    await scene.one(DEAD, 1, reason="too blue")
    await scene.one(RELEASE, 0)
    await scene.one(ACK, 0)  # lost: nobody is told
    assert scene.world.claims.told == [(1, Outcome.DEAD), (0, Outcome.RELEASED)]
    assert scene.world.claims.reasons == ["too blue"]


async def test_what_is_submitted_meanwhile_joins_the_same_call(scene: Scene) -> None:
    asked: list[int] = []

    def submitted() -> None:
        asked.append(len(scene.world.store.asked))
        scene.world.partitions.all()[0].tell()

    items = [SettleItem(each.lease, ACK) for each in scene.leases]
    before = len(scene.world.store.asked)
    await scene.settler.settle(items, submitted)
    assert asked == [before]
    assert len(scene.world.store.asked) == before + 1


# --- looking


async def test_a_look_changes_nothing(scene: Scene) -> None:
    view = await scene.settler.look(scene.leases[0].lease)
    assert (view.state, view.attempt) == ("leased", 1)
    await scene.one(RETRY, delay_ms=5_000)
    view = await scene.settler.look(scene.leases[0].lease)
    assert (view.state, view.due_ms) == ("retrying", scene.world.clock.wall_ms() + 5_000)
    assert (await scene.one(ACK, 1)).status is Status.ACKED


async def test_i7_a_look_without_an_answer_is_an_error(scene: Scene) -> None:
    scene.world.store.away = True
    with pytest.raises(StoreError):
        await scene.settler.look(scene.leases[0].lease)
    with pytest.raises(BadLeaseTokenError):
        await scene.settler.look("v1.broken")
