"""The metrics of dead letters: which sidecar shows them, and what while nothing is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NoReturn

import pytest

from ackd.core.ids import TopicPartition
from ackd.core.origin import Origin
from ackd.engine.base.tasks import Tasks
from ackd.engine.operations import dead_letter_depth
from ackd.engine.operations.archive import AnyDocument, KeepRight, OperationJob
from ackd.engine.operations.dead_letter_gauges import LOG_EVERY_MS, LOOK_EVERY_MS, DeadLetterGauges
from ackd.engine.operations.operation_runner import Operations
from ackd.engine.operations.subscription_dead_letters import SubscriptionDeadLetters
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.partition.partition import Policy
from ackd.errors import NotSupportedError
from ackd.ports import Record
from tests.unit.engine.operation_stage import DEAD_LETTER_TOPIC, OperationStage
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World

LOOK_S = LOOK_EVERY_MS // 1_000
BEFORE_S = 1
"""A test begins so long after the first look, and with it each `a_look` ends so long after one."""
LETTER = RetryCopy(Origin("cluster", TOPIC_ID, TOPIC, 0, 0), NAME, *(9, 7, 5, 4, 0, 900, 800))


def no_work(document: AnyDocument, keep_right: KeepRight) -> OperationJob:
    raise NotImplementedError(document, keep_right)


class Scene(OperationStage):
    """A subscription whose letters are looked at every half minute."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        operations = Operations(
            world.state, world.context, self.control.end_halt, self.marks, no_work
        )
        letters = SubscriptionDeadLetters(world.state, world.context, self.marks, operations)
        self.gauges = DeadLetterGauges(
            {NAME: letters}, {NAME: world.partitions}, world.metrics, world.clock
        )

    def letters(self, *ages_s: int) -> None:
        """The topic has letters that were dead-lettered so long ago."""
        now_ms, headers = self.world.clock.wall_ms(), retry_copy_headers(LETTER, ())
        self.broker.logs[TopicPartition(DEAD_LETTER_TOPIC, 0)] = [
            Record(offset, b"k", b"v", headers, now_ms - age_s * 1_000)
            for offset, age_s in enumerate(ages_s)
        ]

    def unreadable(self, count: int) -> None:
        """After its letters the topic has so many records that are none."""
        log = self.broker.logs.setdefault(TopicPartition(DEAD_LETTER_TOPIC, 0), [])
        end = len(log)
        log += [
            Record(offset, b"k", b"v", (("ackd-subscription", b"x"),), 0)
            for offset in range(end, end + count)
        ]

    def shown_unreadable(self) -> float | None:
        return self.world.metrics.registry.get_sample_value(
            "ackd_dead_letters_unreadable", {"subscription": NAME}
        )

    def shown_uncounted(self) -> float | None:
        return self.world.metrics.registry.get_sample_value(
            "ackd_dead_letters_uncounted", {"subscription": NAME}
        )

    def shown(self) -> tuple[float | None, float | None]:
        """Depth, and age in seconds; None: not shown."""
        registry = self.world.metrics.registry
        names = "ackd_dead_letter_depth", "ackd_oldest_dead_letter_age_seconds"
        depth, age = (registry.get_sample_value(each, {"subscription": NAME}) for each in names)
        return depth, age


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    scene, tasks = Scene(world), Tasks("gauges")
    tasks.start(scene.gauges.run(), "gauges")
    await asyncio.sleep(BEFORE_S)
    yield scene
    await tasks.stop()


async def a_look() -> None:
    """Let the next look happen: it shows what is a look's time older, but for `BEFORE_S`."""
    await asyncio.sleep(LOOK_S)


async def test_the_owner_of_a_partition_0_shows_depth_and_age(scene: Scene) -> None:
    scene.letters(40, 100, 5)
    await scene.world.owns(0)
    await a_look()
    assert scene.shown() == (3, 100 + LOOK_S - BEFORE_S)


@pytest.mark.parametrize("beyond", [0, 1])
async def test_a_depth_that_is_a_lower_bound_says_so(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    monkeypatch.setattr(dead_letter_depth, "KEPT_MAX", 2)
    monkeypatch.setattr(dead_letter_depth, "AT_ONCE", 1)
    scene.letters(*[5] * (2 + beyond))
    await scene.world.owns(0)
    await a_look()
    assert (scene.shown()[0], scene.shown_uncounted()) == (2, beyond)


async def test_without_letters_it_shows_zeros(scene: Scene) -> None:
    await scene.world.owns(0)
    await a_look()
    assert scene.shown() == (0, 0)


async def test_a_letter_of_a_clock_that_is_ahead_has_no_negative_age(scene: Scene) -> None:
    scene.letters(-3_600)
    await scene.world.owns(0)
    await a_look()
    assert scene.shown() == (1, 0)


async def test_who_owns_no_partition_0_shows_nothing(scene: Scene) -> None:
    """Each letter would be counted several times, in the sum over the sidecars."""
    scene.letters(40)
    policy = Policy(None, 0, retry_copies=True)
    await scene.world.owns(1)
    await scene.world.owns(0, policy=policy, topic=(RETRY_TOPIC, RETRY_ID))
    await a_look()
    assert scene.shown() == (None, None)


async def test_a_new_owner_shows_them_and_the_old_one_forgets_them(scene: Scene) -> None:
    """It counts anew if the partition comes back: the letter has another time meanwhile."""
    scene.letters(40)
    partition = await scene.world.owns(0)
    await a_look()
    assert scene.shown()[0] == 1
    scene.world.partitions.remove(partition)
    await a_look()
    assert scene.shown() == (None, None)
    scene.letters(7)
    await scene.world.owns(0)
    await a_look()
    assert scene.shown() == (1, 7 + LOOK_S - BEFORE_S)


async def test_records_that_are_no_dead_letters_are_counted_and_logged_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy of another subscription is a dead letter, if not one of this subscription."""
    scene.letters(40)
    scene.unreadable(2)
    scene.broker.writes(DEAD_LETTER_TOPIC, replace(LETTER, subscription="others"))
    await scene.world.owns(0)
    await a_look()
    assert (scene.shown()[0], scene.shown_unreadable()) == (1, 2)
    scene.unreadable(1)
    await a_look()
    await a_look()
    assert scene.shown_unreadable() == 3
    lines = [each.getMessage() for each in caplog.records if "no dead letters" in each.getMessage()]
    assert len(lines) == 1, "one an hour at most"
    assert "2 records" in lines[0]
    await asyncio.sleep(LOG_EVERY_MS / 1000)
    lines = [each.getMessage() for each in caplog.records if "no dead letters" in each.getMessage()]
    assert ["3 records" in each for each in lines] == [False, True], "and none without new ones"


async def test_a_look_that_fails_for_no_known_reason_leaves_no_old_figures(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.letters(40)
    await scene.world.owns(0)
    await a_look()
    assert scene.shown()[0] == 1

    def fail(*_: object) -> NoReturn:
        raise KeyError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(SubscriptionDeadLetters, "count", fail)
        await a_look()
        assert (*scene.shown(), scene.shown_unreadable()) == (None, None, None)
    await a_look()
    assert scene.shown()[0] == 1


async def test_when_nobody_looks_any_more_nothing_is_shown(world: World) -> None:
    scene, tasks = Scene(world), Tasks("gauges")
    scene.letters(40)
    await world.owns(0)
    tasks.start(scene.gauges.run(), "gauges")
    await asyncio.sleep(BEFORE_S)
    assert scene.shown()[0] == 1
    await tasks.stop()
    assert (*scene.shown(), scene.shown_unreadable()) == (None, None, None)


async def test_while_the_broker_or_the_store_is_away_the_last_values_stay(scene: Scene) -> None:
    scene.letters(40)
    await scene.world.owns(0)
    await a_look()
    found = scene.shown()
    scene.letters(40, 40)
    scene.broker.away = True
    await a_look()
    assert scene.shown() == found
    scene.broker.away, scene.world.store.away = False, True
    await a_look()
    assert scene.shown() == found
    scene.world.store.away = False
    await a_look()
    assert scene.shown()[0] == 2


async def test_a_broker_whose_dead_letters_cannot_be_read_ends_no_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As RocketMQ; other subscriptions of the sidecar may be on another broker."""

    def refuse(*_: object) -> NoReturn:
        raise NotSupportedError("can't be read without being in the group")

    scene.letters(40)
    await scene.world.owns(0)
    with monkeypatch.context() as unreadable:
        unreadable.setattr(scene.broker, "consumer", refuse)
        await a_look()
        assert scene.shown() == (None, None)
    await a_look()
    assert scene.shown()[0] == 1


async def test_what_is_not_counted_to_the_end_is_not_shown(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the letters would look like a depth."""
    scene.letters(40, 40)
    await scene.world.owns(0)
    with monkeypatch.context() as no_time:
        no_time.setattr(dead_letter_depth, "LOOK_MS", 0)
        await a_look()
        assert scene.shown() == (None, None)
    await a_look()
    assert scene.shown()[0] == 2
