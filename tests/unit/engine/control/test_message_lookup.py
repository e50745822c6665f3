"""One message by its id: what records say, what owners add, and what its dead letter changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ackd.api.dead_letters import DeadLetter, DeadView
from ackd.api.messages import InFlight, MessageView
from ackd.api.past_deliveries import PastDelivery
from ackd.core.dead_letter_key import dead_key
from ackd.core.ids import TopicPartition
from ackd.core.log_generations import partition_of
from ackd.core.record.copies import ORIGIN_KEEP_MS
from ackd.core.record.maintenance import EXCEPTIONS_KEEP_MS
from ackd.core.record.operations import (
    Advance,
    FinishOrigin,
    Gap,
    MoveToRetry,
    PlaceCopy,
    ReplayAck,
    Settle,
)
from ackd.core.record.protocol import Finish
from ackd.core.record.transitions import Verb
from ackd.engine.control.inspect import Inspector, SeenMessage
from ackd.engine.control.message_lookup import SEARCHES_MAX, Answers, MessageLookup
from ackd.engine.operations.dead_letter_records import DeadLetterRecords
from ackd.engine.operations.subscription_dead_letters import LetterSearch
from ackd.engine.retry.own_topic import RetryTopic
from ackd.errors import BrokerError, PressureError, StoreError, UnknownMessageError
from ackd.ports import Record
from tests.unit.engine.control.test_inspect import Silent
from tests.unit.engine.retry_stage import RETRY_TOPIC, RetryStage
from tests.unit.engine.world import ME, NAME, TOPIC, World

DEAD_KEY = dead_key("cluster", NAME, bytes(range(32, 48)), 0)
NO_LETTER = LetterSearch(None, 0, None, complete=True)


class Scene(RetryStage):
    """This sidecar owns both partitions, unless `forgets`. `others`: what other owners answer;
    `letter`: what a search of the dead-letter topic finds.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        silent: Any = Silent()
        self.others: Answers = ({}, {})
        self.letter = NO_LETTER
        self.searched: list[str] = []
        self.gate: asyncio.Event | None = None
        topic = RetryTopic(world.state, world.context)
        parts = world.state, world.context, world.partitions
        self.inspector = Inspector(*parts, silent, silent, silent, None, silent, topic)
        self.lookup = MessageLookup(
            world.state,
            world.context,
            world.topics,
            world.partitions,
            world.membership,
            self.inspector,
            RETRY_TOPIC,
            self._find,
        )

    async def _find(self, message: str) -> LetterSearch:
        self.searched.append(message)
        if self.gate is not None:
            await self.gate.wait()
        return self.letter

    async def sees(self, offset: int = 0) -> MessageView:
        async def ask() -> Answers:
            return self.others

        return await self.lookup.of(f"{TOPIC}/0/{offset}", ask)

    def forgets(self) -> None:
        """Another sidecar owns everything from now on."""
        for partition in self.world.partitions.all():
            self.world.partitions.remove(partition)

    async def does(self, *ops: Any) -> None:
        await self.world.flusher.submit(self.origin.handle, list(ops))


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    scene = Scene(world)
    await scene.begin()
    scene.start(scene.claims)
    yield scene
    await scene.tasks.stop()


def letter(*, reason: str = "no disk") -> LetterSearch:
    view = DeadView("0-4", f"{TOPIC}/0/0", "dead", 3, reason, "a", "b", 5_000, 0, 0, None)
    found = DeadLetter(
        view, Record(4, None, b"", (), 0), (), [PastDelivery(3, "pod-9", end="dead")]
    )
    return LetterSearch(DEAD_KEY, 4, found, complete=True)


async def test_a_message_that_waits_for_a_receive_says_so(scene: Scene) -> None:
    found = await scene.sees(1)
    assert (found.state, found.attempt, found.owner) == ("ready", 0, ME)
    assert (found.released_by, found.since_ms) == ("the next receive gets it", None)
    assert scene.searched == []


async def test_a_lease_is_told_also_where_its_owner_does_not_answer(scene: Scene) -> None:
    """The store has it; who did not answer is named."""
    await scene.world.leases(scene.origin, 1)
    here = await scene.sees()
    scene.forgets()
    scene.others = {}, {"pod-2": "asleep"}
    there = await scene.sees()
    assert (here.owner, there.owner) == (ME, "")
    assert (there.state, there.attempt, there.missing) == ("leased", 1, {"pod-2": "asleep"})
    assert there.deadline_ms == here.deadline_ms
    assert there.deadline_ms is not None
    scene.world.clock.pass_ms(100_000)
    assert (await scene.sees()).state == "ready"  # its lease has run out


async def test_a_message_of_a_later_log_generation_is_found(scene: Scene) -> None:
    """R1: a log that was cut goes on in a partition that the broker does not tell of."""
    number = partition_of(0, 1)
    partition = await scene.world.owns(number, range(1))

    async def sees() -> MessageView:
        async def ask() -> Answers:
            return {}, {}

        return await scene.lookup.of(f"{TOPIC}/{number}/0", ask)

    with pytest.raises(UnknownMessageError, match="no partition"):
        await sees()
    scene.world.with_broker_side_acks()
    await scene.world.leases(partition, 1)
    found = await sees()
    assert (found.state, found.owner) == ("leased", ME)


async def test_what_the_owner_says_wins_over_the_record(scene: Scene) -> None:
    """It knows why a copy can't be stored. Of a message that moves its copy's owner knows more."""
    await scene.world.leases(scene.origin, 1)
    scene.forgets()
    moving = SeenMessage(InFlight("x", "moving", 1, "", 0, error="full"), "it is stored")
    waits = SeenMessage(InFlight("x", "waiting_for_lease", 1, "app", 2_000), "its lease ends")
    scene.others = {"pod-2": [moving]}, {}
    found = await scene.sees()
    assert (found.state, found.owner, found.error) == ("moving", "pod-2", "full")
    assert found.released_by == "it is stored"
    for answers in ({"pod-2": [moving], "pod-3": [waits]}, {"pod-3": [waits], "pod-2": [moving]}):
        scene.others = answers, {}
        found = await scene.sees()
        assert (found.state, found.owner, found.holder) == ("waiting_for_lease", "pod-3", "app")


async def test_a_message_that_moved_is_found_in_its_copy(scene: Scene) -> None:
    scene.arrives(3, await scene.moves_and_ends())
    await asyncio.sleep(0.1)
    await scene.world.leases(scene.copies)
    found = await scene.sees()
    assert (found.state, found.attempt, found.copy) == ("leased", 2, f"{RETRY_TOPIC}/0/3")
    scene.forgets()
    found = await scene.sees()
    assert (found.state, found.attempt, found.copy) == ("leased", 2, f"{RETRY_TOPIC}/0/3")


@pytest.mark.parametrize(
    ("kept_ms", "over"), [(ORIGIN_KEEP_MS, "finished"), (EXCEPTIONS_KEEP_MS, "acked")]
)
async def test_a_copy_is_found_when_only_its_owner_still_knows_of_it(
    scene: Scene, kept_ms: int, over: str
) -> None:
    """The record forgets where a message went ten minutes after its copy has claimed it, and later
    that it was not acked.
    """
    scene.arrives(3, await scene.moves_and_ends())
    await asyncio.sleep(0.1)
    await scene.world.leases(scene.copies)
    slot = scene.record(scene.origin).slots[0]
    await scene.does(FinishOrigin(0, slot.fence, slot.rollback_epoch, Finish.SENT))
    for _ in range(2):
        scene.world.clock.pass_ms(kept_ms + 60_000)
        await scene.does(Advance(1))
    assert not scene.record(scene.origin).origins
    found = await scene.sees()
    assert (found.state, found.attempt, found.copy) == ("leased", 2, f"{RETRY_TOPIC}/0/3")
    held = await scene.inspector.held(f"{TOPIC}/0/0")
    scene.forgets()
    assert ((await scene.sees()).state, (await scene.sees()).copy) == (over, None)
    scene.others = {"pod-2": held}, {}
    found = await scene.sees()
    assert (found.state, found.attempt, found.owner) == ("leased", 2, "pod-2")
    assert found.copy == f"{RETRY_TOPIC}/0/3"
    scene.others = {}, {"pod-2": "asleep"}
    found = await scene.sees()
    assert (found.state, found.missing) == (over, {"pod-2": "asleep"})


async def test_how_a_message_ended(scene: Scene) -> None:
    await scene.does(ReplayAck(0), Gap(1, 2, Finish.SKIPPED))
    await scene.world.leases(scene.origin, 1)
    assert [(await scene.sees(each)).state for each in (0, 1)] == ["acked", "finished"]
    assert scene.searched == [f"{TOPIC}/0/0", f"{TOPIC}/0/1"]
    scene.letter = LetterSearch(None, 0, None, complete=False)
    assert (await scene.sees()).letters_unread


async def dies(scene: Scene) -> None:
    """Message 0 is dead-lettered, and its copy is stored."""
    await scene.world.leases(scene.origin, 1)
    slot = scene.record(scene.origin).slots[0]
    await scene.does(Settle(Verb.DEAD, 0, slot.fence, slot.rollback_epoch, slot.attempt))
    await scene.does(FinishOrigin(0, slot.fence, slot.rollback_epoch, Finish.DEAD))


async def test_a_dead_letter_is_named_with_the_history_that_it_carries(scene: Scene) -> None:
    await dies(scene)
    assert ((await scene.sees()).state, (await scene.sees()).dead_letter) == ("dead", None)
    scene.letter = letter()
    found = await scene.sees()
    assert (found.state, found.dead_letter, found.attempt) == ("dead", "0-4", 3)
    assert (found.error, found.first_error, found.since_ms) == ("no disk", "a", 5_000)
    assert [each.holder for each in found.history] == ["pod-9"]
    scene.letter = letter(reason="")
    assert (await scene.sees()).error == "b"


async def test_a_dead_letter_on_its_way_is_redriving_and_a_purged_one_finished(
    scene: Scene,
) -> None:
    await dies(scene)
    scene.letter = letter()
    taken = await DeadLetterRecords(scene.world.context).take(DEAD_KEY, 0)
    await scene.world.flusher.submit(taken.handle, [PlaceCopy(4), MoveToRetry(4, 1)])
    found = await scene.sees()
    assert (found.state, found.dead_letter) == ("redriving", None)
    await scene.world.flusher.submit(taken.handle, [Gap(5, 6, Finish.SKIPPED)])
    scene.letter = scene.letter._replace(offset=5)
    assert (await scene.sees()).state == "finished"


async def test_what_there_is_not_is_refused(scene: Scene) -> None:
    scene.world.consumer.logs[TopicPartition(TOPIC, 0)] = (2, 10)
    for name in (f"{TOPIC}/0/10", f"{TOPIC}/1/0", "nothing/0/0"):
        with pytest.raises(UnknownMessageError):
            await scene.lookup.of(name, lambda: asyncio.sleep(0, scene.others))
    scene.forgets()
    assert (await scene.sees(9)).state == "ready"
    with pytest.raises(UnknownMessageError, match="has the messages 2 to 9 now"):
        await scene.sees(1)


async def test_i7_what_nobody_can_say_is_an_error(scene: Scene) -> None:
    scene.world.store.away = True
    with pytest.raises(StoreError):
        await scene.sees()
    scene.world.topics.known = {}
    scene.world.consumer.away = True
    with pytest.raises(BrokerError):
        await scene.sees()


async def test_i8_searches_of_the_dead_letter_topic_are_bounded(scene: Scene) -> None:
    await scene.does(ReplayAck(0))
    scene.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(SEARCHES_MAX):
            group.create_task(scene.sees())
        await asyncio.sleep(0.1)
        with pytest.raises(PressureError):
            await scene.sees()
        scene.gate.set()
    assert (await scene.sees()).state == "acked"
