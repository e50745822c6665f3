"""Signatures come into force once, behind what is there, when all sidecars sign (R2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.base.copy_keys import CopyKeys
from ackd.engine.base.copy_signature import CopyKind, Proof
from ackd.engine.base.tasks import Tasks
from ackd.engine.retry import signed_logs as signed_logs_module
from ackd.engine.retry.signed_logs import SYNC_MS, SignedLogs
from ackd.ports import Record
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC
from tests.unit.engine.scripted import ScriptedBroker
from tests.unit.engine.world import ME, NAME, World

DEAD_LETTER_TOPIC = "ackd.dead.work"


class NoTopics(ScriptedBroker):
    """It has no topic of ackd's yet. `asked`: for which it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def partitions(self, topic: str) -> int | None:
        self.asked.append(topic)
        return None


class Stage:
    """The part, and what the other sidecars are."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker = world.state.broker = NoTopics()
        world.state.cluster = "cluster"
        self.winner, self.all_sign = ME, True
        self.logs = SignedLogs(
            world.state,
            world.context,
            (RETRY_TOPIC, DEAD_LETTER_TOPIC),
            lambda _: self.winner,
            lambda: self.all_sign,
        )
        self.tasks = Tasks("signed-logs")

    @property
    def keys(self) -> CopyKeys:
        return self.world.state.copy_keys

    def judged(self) -> Proof:
        record = Record(5, b"k", b"v", (), 1)
        return self.keys.proof(record, CopyKind.RETRY, TopicPartition(RETRY_TOPIC, 0), RETRY_ID)

    async def looks(self) -> None:
        await asyncio.sleep(0.01)


@pytest.fixture
async def stage(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(signed_logs_module, "LOOK_MS", 1)
    stage = Stage(world)
    await stage.keys.load(world.store, NAME)
    yield stage
    await stage.tasks.stop()


async def test_a_topic_that_does_not_exist_yet_has_nothing_before(stage: Stage) -> None:
    stage.tasks.start(stage.logs.run(), "run")
    await stage.looks()
    assert stage.keys.in_force(RETRY_TOPIC)
    assert stage.keys.in_force(DEAD_LETTER_TOPIC)
    assert stage.judged() is Proof.NOT_SIGNED
    assert stage.broker.asked == [RETRY_TOPIC, DEAD_LETTER_TOPIC]


async def test_an_older_build_that_lives_keeps_all_copies_believed(stage: Stage) -> None:
    stage.all_sign = False
    stage.tasks.start(stage.logs.run(), "run")
    await stage.looks()
    assert (stage.broker.asked, stage.judged()) == ([], Proof.EARLIER)
    stage.all_sign = True
    await stage.looks()
    assert stage.judged() is Proof.NOT_SIGNED


async def test_one_sidecar_notes_it_and_the_others_learn_it_from_the_store(stage: Stage) -> None:
    stage.winner = "another"
    stage.tasks.start(stage.logs.run(), "run")
    await stage.looks()
    assert (stage.broker.asked, stage.judged()) == ([], Proof.UNDECIDED)
    other = CopyKeys()
    await other.load(stage.world.store, NAME)
    await other.begin(RETRY_TOPIC, RETRY_ID, {0: 6})
    await stage.looks()
    assert stage.judged() is Proof.EARLIER


async def test_the_store_gets_back_what_it_lost_and_may_be_away(stage: Stage) -> None:
    stage.tasks.start(stage.logs.run(), "run")
    await stage.looks()
    values = stage.world.data.values
    for passed_ms in (SYNC_MS, 0):
        name, value = next(each for each in values.items() if each[0].startswith("copy-keys:"))
        del values[name]
        stage.world.clock.pass_ms(passed_ms)
        stage.world.store.runs_as += "+"
        stage.world.store.away = True
        await stage.looks()
        stage.world.store.away = False
        await stage.looks()
        assert values[name] == value
