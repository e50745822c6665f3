"""Delays that other clients gave to messages: from the adapter into the record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from ackd.core.ledger.effects import Effect, StoreForeignDelays
from ackd.core.record.operations import PlaceCopy
from ackd.engine.partition import foreign_delays
from ackd.engine.partition.partition import EffectHandler, Policy
from ackd.ports import Delay
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC
from tests.unit.engine.world import PLAIN, TOPIC, TOPIC_ID, World

OURS = Policy(None, 0, retry_copies=True), (RETRY_TOPIC, RETRY_ID)
THEIRS = PLAIN, (TOPIC, TOPIC_ID)


async def delayed(
    world: World, delays: Mapping[int, Delay], whose: tuple[Policy, tuple[str, bytes]] = THEIRS
) -> list[tuple[int, int, int, int]]:
    """What is written into the record: offset, attempt, due time, first delivery in seconds."""
    written: dict[type[Effect], EffectHandler] = {StoreForeignDelays: foreign_delays.write}
    effects = defaultdict(lambda: world.events.note, written)
    wiring = replace(world.events.wiring(), effects=effects)
    policy, topic = whose
    partition = await world.owns(0, wiring=wiring, policy=policy, topic=topic)
    foreign_delays.reported(partition, partition.ledger.intake.session, delays)
    world.fetches(partition, range(3))
    await world.flusher.idle()
    ops = [op for call in world.store.asked for op in call.ops if isinstance(op, PlaceCopy)]
    return [(op.offset, op.attempt, op.due_ms, op.first_s) for op in ops]


async def test_a_delay_of_another_client_is_in_the_record(world: World) -> None:
    """With the attempts that it had elsewhere. Its age counts from when it is due, so that no
    message TTL ends it before.
    """
    due_ms = world.clock.wall_ms() + 60_000
    assert await delayed(world, {1: Delay(due_ms, 4)}) == [(1, 4, due_ms, due_ms // 1_000)]
    partition = world.partitions.all()[0]
    assert partition.ledger.waiting == 1
    assert partition.ledger.ready == 2


async def test_numbers_of_other_clients_are_cut_to_what_the_record_has_room_for(
    world: World,
) -> None:
    most_ms = foreign_delays.DUE_MS_MAX
    found = await delayed(world, {0: Delay(1 << 60, 1 << 40), 1: Delay(1, -1)})
    assert found == [(0, (1 << 16) - 1, most_ms, most_ms // 1_000)]  # the other is over


async def test_a_delay_that_is_over_delays_nothing(world: World) -> None:
    past_ms = world.clock.wall_ms() - 1
    assert await delayed(world, {0: Delay(past_ms, 0), 1: Delay(0, 0)}) == []
    assert world.partitions.all()[0].ledger.ready == 3


async def test_a_late_answer_of_an_earlier_fetch_session_delays_nothing(world: World) -> None:
    """Its offsets may be other messages by now."""
    partition = await world.owns(0)
    session = partition.ledger.intake.session
    due_ms = world.clock.wall_ms() + 60_000
    foreign_delays.reported(partition, session - 1, {0: Delay(due_ms, 0)})
    world.fetches(partition, range(3))
    assert partition.ledger.ready == 3
    assert world.events.effects == []


async def test_copies_of_ackd_have_no_delay_of_their_own(world: World) -> None:
    """Their origin records say when they are due. An adapter that reads a delay from a copy's
    headers must not hold it back.
    """
    due_ms = world.clock.wall_ms() + 60_000
    assert await delayed(world, {1: Delay(due_ms, 4)}, OURS) == []
