"""How many dead letters there are, and how old the oldest is: read once, then only asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from ackd.core.dead_letter_key import dead_key
from ackd.core.ids import TopicPartition
from ackd.core.origin import Origin
from ackd.core.record.operations import Gap
from ackd.core.record.protocol import Finish
from ackd.engine.operations import dead_letter_depth
from ackd.engine.operations.dead_letter_depth import AT_ONCE, LOOK_MS, DeadLetterDepth
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.retry.dead_letter_reader import open_dead_log
from ackd.errors import BrokerError, StoreError
from ackd.ports import Record, TopicInfo
from tests.unit.engine.operation_stage import DEAD_ID, DEAD_LETTER_TOPIC, OperationStage
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World

LETTER = RetryCopy(Origin("cluster", TOPIC_ID, TOPIC, 0, 0), NAME, *(9, 7, 5, 4, 0, 900, 800))


class Scene(OperationStage):
    """A dead-letter topic of two partitions. Each call for the time takes `slow_ms`."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.broker.topics[DEAD_LETTER_TOPIC] = TopicInfo(DEAD_LETTER_TOPIC, DEAD_ID, 2)
        self.depth = DeadLetterDepth(self.marks, self._now_ms)
        self.slow_ms = 0

    def _now_ms(self) -> int:
        self.world.clock.pass_ms(self.slow_ms)
        return self.world.clock.monotonic_ms()

    def letters(self, partition: int, dead_ms: dict[int, int], *, of: str = NAME) -> None:
        """The partition has these dead letters: offset -> when each was dead-lettered."""
        headers = retry_copy_headers(replace(LETTER, subscription=of), ())
        self.broker.logs[TopicPartition(DEAD_LETTER_TOPIC, partition)] = [
            Record(offset, b"k", b"v", headers, at_ms) for offset, at_ms in dead_ms.items()
        ]

    async def gone(self, partition: int, offsets: Iterable[int]) -> None:
        """As a purge leaves them."""
        taken = await self.marks.take(dead_key("cluster", NAME, DEAD_ID, partition), 0)
        ops = [Gap(each, each + 1, Finish.SKIPPED) for each in offsets]
        await self.marks.decide(taken.handle, ops)

    async def look(self) -> bool:
        """Whether it got to the end."""
        async with open_dead_log(self.world.state, self.world.context) as log:
            return await self.depth.look(log)

    def counted(self) -> tuple[int, int | None]:
        return self.depth.count(), self.depth.oldest_ms()


@pytest.fixture
def scene(world: World) -> Scene:
    return Scene(world)


async def test_letters_of_all_partitions_count_and_the_oldest_of_all(scene: Scene) -> None:
    assert scene.counted() == (0, None)
    scene.letters(0, {0: 5_000, 1: 4_000})
    scene.letters(1, {0: 9_000, 1: 3_000, 2: 9_500})
    assert await scene.look()
    assert scene.counted() == (5, 3_000)


async def test_letters_of_another_subscription_do_not_count(scene: Scene) -> None:
    scene.letters(0, {0: 5_000, 1: 3_000}, of="another")
    scene.letters(1, {0: 4_000})
    assert await scene.look()
    assert scene.counted() == (1, 4_000)


async def test_letters_that_were_redriven_or_purged_stop_counting(scene: Scene) -> None:
    scene.letters(0, {0: 3_000, 1: 5_000, 2: 7_000})
    await scene.look()
    await scene.gone(0, [0, 2])
    assert await scene.look()
    assert scene.counted() == (1, 5_000)
    await scene.gone(0, [1])
    await scene.look()
    assert scene.counted() == (0, None)


async def test_letters_that_retention_deleted_stop_counting(scene: Scene) -> None:
    scene.letters(0, {0: 3_000, 1: 5_000, 2: 7_000})
    await scene.look()
    scene.letters(0, {2: 7_000})
    assert await scene.look()
    assert scene.counted() == (1, 7_000)


async def test_the_log_is_read_once_and_later_looks_read_what_came(scene: Scene) -> None:
    """What it has read shows other times now: a look that reads it again would take these."""
    scene.letters(0, {0: 3_000, 1: 5_000})
    await scene.look()
    scene.letters(0, {0: 1, 1: 2, 2: 4_000})
    assert await scene.look()
    assert scene.counted() == (3, 3_000)


async def test_a_topic_that_was_made_again_is_read_anew(scene: Scene) -> None:
    """R1: its offsets are those of other letters."""
    scene.letters(0, {0: 3_000, 1: 5_000, 2: 6_000})
    await scene.look()
    scene.broker.topics[DEAD_LETTER_TOPIC] = TopicInfo(DEAD_LETTER_TOPIC, bytes(16), 2)
    scene.letters(0, {0: 8_000, 1: 9_000})
    assert await scene.look()
    assert scene.counted() == (2, 8_000)
    del scene.broker.topics[DEAD_LETTER_TOPIC]
    assert await scene.look()
    assert scene.counted() == (0, None)


async def test_after_it_has_forgotten_it_reads_from_the_start(scene: Scene) -> None:
    scene.letters(0, {0: 3_000, 1: 5_000})
    await scene.look()
    scene.depth.forget()
    assert scene.counted() == (0, None)
    scene.letters(0, {0: 1_000, 1: 5_000})
    assert await scene.look()
    assert scene.counted() == (2, 1_000)


async def test_a_long_log_takes_several_looks(scene: Scene) -> None:
    """The second one goes on where the first one stopped."""
    scene.letters(0, dict.fromkeys(range(3 * AT_ONCE), 5_000))
    scene.slow_ms = LOOK_MS * 2 // 5  # two reads, and a third would come too late
    assert not await scene.look()
    assert scene.depth.count() == 2 * AT_ONCE
    assert await scene.look()
    assert scene.depth.count() == 3 * AT_ONCE


async def test_i8_it_counts_to_a_bound_and_goes_on_when_letters_have_gone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_depth, "KEPT_MAX", AT_ONCE)
    scene.letters(0, dict.fromkeys(range(AT_ONCE + 7), 5_000))
    assert await scene.look()
    assert (scene.depth.count(), scene.depth.more) == (AT_ONCE, True)
    await scene.gone(0, range(AT_ONCE))
    await scene.look()
    await scene.look()
    assert (scene.depth.count(), scene.depth.more) == (7, False)


@pytest.mark.parametrize("beyond", [0, 1])
async def test_it_is_exact_to_the_bound(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    """The bound may be reached before the last partition is read."""
    monkeypatch.setattr(dead_letter_depth, "KEPT_MAX", AT_ONCE)
    scene.letters(0, dict.fromkeys(range(AT_ONCE), 5_000))
    scene.letters(1, dict.fromkeys(range(beyond), 5_000))
    assert await scene.look()
    assert (scene.depth.count(), scene.depth.more) == (AT_ONCE, bool(beyond))


async def test_what_it_knew_stays_when_broker_or_store_are_away(scene: Scene) -> None:
    scene.letters(0, {0: 3_000, 1: 5_000})
    await scene.look()
    scene.broker.away = True
    with pytest.raises(BrokerError):
        await scene.look()
    scene.broker.away, scene.world.store.away = False, True
    with pytest.raises(StoreError):
        await scene.look()
    assert scene.counted() == (2, 3_000)
