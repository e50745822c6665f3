"""Repeats of a deduplication key are acked without delivery; whatever fails delivers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from ackd.api.messages import Delivery, ReceiveRequest
from ackd.config.dedup import DedupSettings
from ackd.core.dedup_window import Ask, DedupEntry
from ackd.core.record.operations import Settle
from ackd.core.record.transitions import Verb
from ackd.engine.base.tasks import Tasks
from ackd.engine.delivery.dedup import Dedup
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError
from ackd.ports import Record
from ackd.store.memory_outbox import MemoryDedupKeys
from tests.unit.engine.world import NAME, TestStore, World

WINDOW_MS = 60_000


class SilentKeys(MemoryDedupKeys):
    """A deduplication window that fails, or does not even fail while it `hangs`."""

    hangs = False

    async def seen(
        self,
        subscription: str,
        window_ms: int,
        ledgers: Sequence[tuple[bytes, int]],
        asks: Sequence[Ask],
    ) -> list[bool]:
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        raise StoreError("no window")

    async def remember(
        self, subscription: str, window_ms: int, most: int, entries: Sequence[DedupEntry]
    ) -> int:
        raise StoreError("no window")


class Forgetful(TestStore):
    """A store whose deduplication window does not answer while `silent`."""

    silent = hangs = False

    @property
    def dedup_keys(self) -> MemoryDedupKeys:
        if not self.silent:
            return super().dedup_keys
        keys = SilentKeys({}, lambda: 0)
        keys.hangs = self.hangs
        return keys


@dataclass
class Scene:
    """`got`: the keys of what each answer delivered."""

    world: World
    store: Forgetful
    dedup: Dedup
    tasks: Tasks
    got: list[list[str]] = field(default_factory=list)

    async def brings(self, *keys: str, number: int = 0) -> Partition:
        """A partition with messages of these keys, in order."""
        wiring = self.world.events.wiring()
        seen = (self.dedup.on_reply, *wiring.observers)
        partition = await self.world.owns(number, wiring=replace(wiring, observers=seen))
        intake = partition.ledger.intake
        bodies = [
            Record(offset, key.encode() or None, b"", (), 0) for offset, key in enumerate(keys)
        ]
        intake.fetched(intake.session, bodies)
        return partition

    def asks(self, partition: Partition, *messages: Delivery) -> None:
        """Check granted messages; the answer comes later."""

        def then(fresh: list[Delivery]) -> None:
            self.got.append([(each.record.key or b"-").decode() for each in fresh])

        self.dedup.check(partition, partition.epoch, list(messages), then)

    async def settled(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)

    async def acks(self, partition: Partition, message: Delivery) -> None:
        token = self.world.context.keys.open(message.lease)
        op = Settle(Verb.ACK, token.offset, token.fence, token.rollback_epoch, token.attempt)
        await self.world.flusher.submit(partition.handle, [op])
        await self.settled()

    def skipped(self, why: str) -> float:
        return self.world.count("ackd_dedup_skipped_total", subscription=NAME, reason=why)


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    """Deduplication by the message's key, running."""
    world.sets(dedup=DedupSettings(key="key", window_ms=WINDOW_MS))
    store = Forgetful(world.clock, world.data)
    object.__setattr__(world.context, "store", store)
    scene = Scene(world, store, Dedup(world.state, world.context), Tasks("dedup"))
    scene.tasks.start(scene.dedup.run(), "run")
    yield scene
    await scene.tasks.stop()


async def test_r18_a_key_that_was_acked_is_not_delivered_again(scene: Scene) -> None:
    partition = await scene.brings("a", "a", "b")
    one, two, other = await scene.world.leases(partition, 3)
    scene.asks(partition, one)
    await scene.settled()
    await scene.acks(partition, one)
    scene.asks(partition, two, other)
    await scene.settled()
    assert scene.got == [["a"], ["b"]]
    assert partition.ledger.over(1)  # acked without delivery
    assert not partition.ledger.over(2)
    assert scene.dedup.repeats == 1
    assert scene.world.count("ackd_dedup_repeats_total", subscription=NAME) == 1


async def test_r18_two_that_are_in_flight_at_once_are_both_delivered(scene: Scene) -> None:
    partition = await scene.brings("a", "a")
    scene.asks(partition, *await scene.world.leases(partition, 2))
    await scene.settled()
    assert scene.got == [["a", "a"]]


async def test_a_message_without_a_key_is_always_delivered(scene: Scene) -> None:
    partition = await scene.brings("", "")
    one, two = await scene.world.leases(partition, 2)
    await scene.acks(partition, one)
    scene.asks(partition, two)
    await scene.settled()
    assert scene.got == [["-"]]


async def test_the_window_begins_with_the_first_ack_and_repeats_do_not_prolong_it(
    scene: Scene,
) -> None:
    partition = await scene.brings("a", "a", "a")
    one, two = await scene.world.leases(partition, 2, lease_ms=10 * WINDOW_MS)
    await scene.acks(partition, one)
    scene.world.clock.pass_ms(WINDOW_MS // 2)
    scene.asks(partition, two)
    await scene.settled()
    scene.world.clock.pass_ms(WINDOW_MS * 3 // 4)
    (three,) = await scene.world.leases(partition)
    scene.asks(partition, three)
    await scene.settled()
    assert scene.got == [[], ["a"]]


async def test_r16_an_ack_at_another_sidecar_counts_when_the_owner_hears_of_it(
    scene: Scene,
) -> None:
    partition = await scene.brings("a", "a")
    one, two = await scene.world.leases(partition, 2)
    token = scene.world.context.keys.open(one.lease)
    ack = Settle(Verb.ACK, 0, token.fence, token.rollback_epoch, token.attempt)
    await scene.world.flusher.submit(scene.world.handle(), [ack])
    partition.tell()
    await scene.settled()
    scene.asks(partition, two)
    await scene.settled()
    assert scene.got == [[]]


async def test_a_retry_counts_nothing(scene: Scene) -> None:
    partition = await scene.brings("a", "a")
    one, two = await scene.world.leases(partition, 2)
    token = scene.world.context.keys.open(one.lease)
    retry = Settle(Verb.RETRY, 0, token.fence, token.rollback_epoch, token.attempt, 1_000)
    await scene.world.flusher.submit(partition.handle, [retry])
    await scene.settled()
    scene.asks(partition, two)
    await scene.settled()
    assert scene.got == [["a"]]


async def test_without_an_answer_of_the_store_it_is_delivered(scene: Scene) -> None:
    partition = await scene.brings("a", "a")
    one, two = await scene.world.leases(partition, 2)
    await scene.acks(partition, one)
    scene.store.silent = True
    scene.asks(partition, two)
    await scene.settled()
    assert (scene.got, scene.skipped("store")) == ([["a"]], 1)


async def test_a_key_that_could_not_be_written_lets_a_repeat_through(scene: Scene) -> None:
    partition = await scene.brings("a", "a")
    one, two = await scene.world.leases(partition, 2)
    scene.store.silent = True
    await scene.acks(partition, one)
    scene.store.silent = False
    scene.asks(partition, two)
    await scene.settled()
    assert (scene.got, scene.skipped("store")) == ([["a"]], 1)


async def test_an_ack_of_a_message_that_is_not_here_is_counted(scene: Scene) -> None:
    """A new owner hears of an ack before it has fetched the message."""
    before = await scene.world.owns(0, [0])
    (message,) = await scene.world.leases(before)
    partition = await scene.brings()
    await scene.acks(partition, message)
    assert scene.skipped("forgotten") == 1


async def test_stopped_it_delivers_what_waits_for_an_answer(scene: Scene) -> None:
    partition = await scene.brings("a", "a")
    one, two = await scene.world.leases(partition, 2)
    scene.store.silent = scene.store.hangs = True
    scene.asks(partition, one)
    await scene.settled()
    assert scene.got == []
    await scene.tasks.stop()
    assert scene.got == [["a"]]
    scene.asks(partition, two)
    assert scene.got == [["a"], ["a"]]


async def test_r21_an_answer_that_comes_after_the_lease_is_not_delivered(scene: Scene) -> None:
    world = scene.world
    await scene.tasks.stop()
    dedup = Dedup(world.state, world.context)
    dispatcher = world.dispatcher(dedup)
    dispatcher.ready(await world.owns(0, [0]))
    waiter = dispatcher.enter(ReceiveRequest(lease_ms=1_000))
    await scene.settled()
    assert waiter.grants == 1  # deduplication is asked
    world.clock.pass_ms(1_000)
    tasks = Tasks("late")
    tasks.start(dedup.run(), "run")
    assert (await dispatcher.answer(waiter)).messages == []
    await tasks.stop()
