"""A message leaves for another topic: the copy is stored first, then the original ends (I1)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ackd.config.subscription import Ordering
from ackd.core.ids import LedgerKey
from ackd.core.ledger.effects import SendBack, SendDead
from ackd.core.ledger.order import key_hash
from ackd.core.ledger.send_back import Stuck, Why
from ackd.core.record.operations import FinishOrigin, Settle
from ackd.core.record.protocol import (
    NO_TEXTS,
    CallTexts,
    Finish,
    ItemTexts,
    MessageTexts,
)
from ackd.core.record.transitions import State, Verb
from ackd.engine.base.tasks import Tasks
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers, retry_copy_of
from ackd.engine.partition.ordering import position_of
from ackd.engine.partition.partition import Partition, Policy
from ackd.engine.retry import copier as copier_module
from ackd.engine.retry.body_spill import BodySpill
from ackd.engine.retry.copier import DEAD, LONG, RETRY, Copier
from ackd.engine.retry.own_topic import dead_letter_topic, retry_topic
from ackd.errors import BrokerError, StoreError
from ackd.ports import Failure, Headers, Outgoing, PublishResult, Record
from tests.unit.engine.copies import NoSpill
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC, dead_letter
from tests.unit.engine.scripted import ScriptedBroker
from tests.unit.engine.world import LEASE_MS, NAME, TOPIC, TOPIC_ID, World

AGAIN_S = 5.1
"""Just after a copy that failed once is tried again."""
PARTITIONS = 8


class CopyBroker(ScriptedBroker):
    """Its own topics have eight partitions. `waits`: no publish is answered before it is set.
    `tried`: all messages that were to be published.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits = asyncio.Event()
        self.waits.set()
        self.no_topics = False
        self.tried: list[Outgoing] = []

    async def partitions(self, topic: str) -> int | None:
        del topic
        return PARTITIONS

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        self.tried += messages
        await self.waits.wait()
        return await super().publish(messages)

    async def ensure_topic(self, topic: str, settings: object) -> None:
        if self.no_topics:
            raise BrokerError("not allowed to create topics")
        await super().ensure_topic(topic, settings)  # type: ignore[arg-type]


class Scene:
    """A partition whose messages leave for the retry topic or the dead-letter topic."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker = world.state.broker = CopyBroker()
        self.spill = NoSpill()
        state, context = world.state, world.context
        bodies = BodySpill(state, context, world.partitions, self.spill)
        settings = state.settings
        back, dead = (
            retry_topic(self.broker, NAME, settings),
            dead_letter_topic(self.broker, NAME, settings),
        )
        self.back = Copier(state, context, RETRY, back, bodies, lambda *_: None)
        self.dead = Copier(state, context, DEAD, dead, bodies, lambda *_: None)
        self.tasks = Tasks("copies")
        self.partition: Partition

    async def owns(
        self,
        number: int = 0,
        *,
        topic: tuple[str, bytes] = (TOPIC, TOPIC_ID),
        ordering: Ordering = "none",
    ) -> Partition:
        copies = topic[0] == RETRY_TOPIC
        position = position_of(ordering, NAME, retry_copies=copies)
        policy = Policy(None, 0, retry_copies=copies, position_of=position)
        wiring = self.world.events.wiring()
        handlers = {SendBack: self.back.send, SendDead: self.dead.send}
        effects: dict[Any, Any] = defaultdict(lambda: self.world.events.note, handlers)
        wiring = replace(wiring, effects=effects)
        return await self.world.owns(number, policy=policy, wiring=wiring, topic=topic)

    def fetches(self, offsets: Iterable[int], *, key: bytes | None = None, size: int = 1) -> None:
        """Messages whose value starts with their offset."""
        intake = self.partition.ledger.intake
        values = [(each, b"%d" % each + b"." * (size - 1)) for each in offsets]
        intake.fetched(
            intake.session,
            [Record(each, key, value, (("h", b"1"),), 700) for each, value in values],
        )
        self.partition.perform()

    async def moves(self, *offsets: int, key: int = 0) -> None:
        """Lease these messages and ask the store to move them."""
        await self.world.leases(self.partition, len(offsets))
        self.partition.send_back([Stuck(each, Why.AGE, key) for each in offsets])
        await self.world.flusher.idle()

    async def ends(self, offset: int, error: str = "") -> None:
        """Dead-letter a message that is under lease."""
        slot = self.world.data.records[self.partition.key].slots[offset]
        op = Settle(Verb.DEAD, offset, slot.fence, slot.rollback_epoch, slot.attempt)
        texts = CallTexts([ItemTexts(0, last=error.encode())]) if error else NO_TEXTS
        await self.world.flusher.submit(self.partition.handle, [op], texts)

    @property
    def conditions(self) -> dict[str, str]:
        return {name: each.detail for name, each in self.world.state.conditions.items()}

    @property
    def finished(self) -> list[FinishOrigin]:
        asked = self.world.store.asked
        return [op for call in asked for op in call.ops if isinstance(op, FinishOrigin)]

    def copies(self, outcome: str, topic: str = "retry-topic") -> float:
        return self.world.count(
            "ackd_copies_total", subscription=NAME, topic=topic, outcome=outcome
        )


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    scene = Scene(world)
    scene.partition = await scene.owns()
    scene.fetches(range(5))
    scene.tasks.start(scene.back.run(), "back")
    scene.tasks.start(scene.dead.run(), "dead")
    yield scene
    await scene.tasks.stop()


def said(outgoing: Outgoing) -> RetryCopy:
    """What a stored copy says of its message."""
    found = retry_copy_of(Record(0, outgoing.key, outgoing.value, outgoing.headers, 0), NAME)
    assert found is not None
    return found


# --- the copy first


async def test_i1_r2_an_original_is_unfinished_until_its_copy_is_stored(scene: Scene) -> None:
    scene.broker.waits.clear()
    await scene.moves(0)
    await asyncio.sleep(1)
    assert scene.finished == []
    assert scene.partition.ledger.watermark == 0
    assert len(scene.back) == 1
    scene.broker.waits.set()
    await asyncio.sleep(0.01)
    (copy,) = scene.broker.stored
    assert (copy.topic, copy.value) == (RETRY_TOPIC, b"0")
    (op,) = scene.finished
    assert (op.fence, op.reason) == (said(copy).generation, Finish.SENT)
    assert scene.partition.ledger.watermark == 1
    assert (len(scene.back), scene.copies("stored")) == (0, 1)
    assert scene.partition.copies.why(0) == ""  # nothing is remembered of what has left


async def test_what_a_copy_says_of_its_message(scene: Scene) -> None:
    await scene.moves(0, key=9)
    await asyncio.sleep(0.01)
    (copy,) = scene.broker.stored
    found = said(copy)
    assert found.origin.id == "orders/0/0"
    assert (found.incarnation, found.rollback_epoch) == (scene.partition.handle.incarnation, 1)
    assert (found.attempt, found.reason, found.redriven) == (1, "age", None)
    assert (found.first_ms, found.published_ms) == (3_600_000, 700)
    assert found.due_ms == scene.world.clock.wall_ms() // 1_000 * 1_000 + LEASE_MS
    assert copy.headers[-1] == ("h", b"1")


async def test_r19_a_copy_of_an_ordered_message_names_the_queue_of_its_key(scene: Scene) -> None:
    """A dead letter is in no queue."""
    scene.partition = await scene.owns(1, ordering="key")
    scene.fetches([0], key=b"one")
    scene.fetches([1], key=b"two")
    await scene.world.leases(scene.partition, 2)
    await scene.ends(1)
    scene.partition.send_back([Stuck(0, Why.AGE, key_hash(b"one"))])
    await asyncio.sleep(0.01)
    keys = {copy.value: said(copy).order_key for copy in scene.broker.stored}
    assert keys == {b"0": key_hash(b"one"), b"1": 0}


async def test_a_dead_letter_has_both_reasons_and_goes_to_its_own_topic(scene: Scene) -> None:
    await scene.world.leases(scene.partition)
    await scene.ends(0, error="no such customer")
    await asyncio.sleep(0.01)
    (copy,) = scene.broker.stored
    assert copy.topic == "ackd.dead.work"
    found = said(copy)
    assert (found.first_error, found.last_error, found.reason) == ("no such customer",) * 3
    assert [op.reason for op in scene.finished] == [Finish.DEAD]
    assert scene.partition.ledger.watermark == 1
    assert scene.copies("stored", "dead-letter-topic") == 1


async def test_r25_a_copy_of_a_copy_says_what_the_first_said(scene: Scene) -> None:
    """However often it is copied, it stands for the message in its origin."""
    first = RetryCopy(
        replace(dead_letter(3), topic=TOPIC, topic_id=TOPIC_ID),
        NAME,
        *(9, 7, 5, 2, 0, 5_000, 600),
        first_error="early",
        last_error="later",
        redriven=dead_letter(4),
        reset_epoch=3,
    )
    scene.partition = await scene.owns(topic=(RETRY_TOPIC, RETRY_ID))
    intake = scene.partition.ledger.intake
    intake.fetched(intake.session, [Record(0, None, b"0", retry_copy_headers(first, ()), 900)])
    ledger = scene.partition.ledger
    place = scene.partition.copies.place(0, 9, 2, 0, 5)
    await scene.world.flusher.submit(scene.partition.handle, [place])
    assert ledger.ready == 1
    await scene.world.leases(scene.partition)
    await scene.ends(0)
    await asyncio.sleep(0.01)
    (copy,) = scene.broker.stored
    found = said(copy)
    assert (found.origin, found.redriven, found.reset_epoch) == (first.origin, first.redriven, 3)
    assert (found.first_ms, found.published_ms) == (5_000, 600)
    assert (found.first_error, found.last_error) == ("early", "later")
    assert found.generation != first.generation


async def put_aside(scene: Scene, size: int) -> Headers:
    """A record of the retry topic that ackd did not write: its headers."""
    first = RetryCopy(dead_letter(3), NAME, *(9, 7, 5, 2, 0, 5_000, 600))
    forged = (*retry_copy_headers(first, (("own", b"1"),)), ("ackd-attempt", b"2"))
    forged = tuple((name, b"-1" if name == "ackd-due-ms" else value) for name, value in forged)
    scene.partition = await scene.owns(topic=(RETRY_TOPIC, RETRY_ID))
    intake = scene.partition.ledger.intake
    intake.fetched(intake.session, [Record(0, b"k", b"x" * size, forged, 900)])
    scene.partition.tell(*scene.partition.copies.place_dead(0, 0, 0, 0))
    await asyncio.sleep(0.01)
    return forged


async def test_r25_what_ackd_did_not_write_is_kept_whole_in_its_dead_letter(scene: Scene) -> None:
    """Under its own place, with the reason; its headers in ackd's name have another name there."""
    forged = await put_aside(scene, 10)
    (copy,) = scene.broker.stored
    found = said(copy)
    assert found.reason == "not written by ackd: its ackd-due-ms is none of ackd's"
    assert (found.origin, found.attempt) == (scene.partition.copies.origin(0), 0)
    assert (copy.key, copy.value) == (b"k", b"x" * 10)
    kept = tuple((name.replace("ackd-", "said-"), value) for name, value in forged)
    assert copy.headers[-len(kept) :] == kept
    assert scene.partition.ledger.watermark == 1


@pytest.mark.parametrize(("size", "whole"), [(LONG, False), (10, True)])
async def test_r25_what_does_not_fit_there_holds_nothing_up(
    scene: Scene, size: int, *, whole: bool
) -> None:
    """Else whoever writes one of just that length would hold the partition for ever."""
    scene.broker.fails(b"x" * size, Failure.REFUSED)
    await put_aside(scene, size)
    assert scene.partition.ledger.watermark == 0
    await asyncio.sleep(AGAIN_S)
    (copy,) = scene.broker.stored
    assert (copy.value == b"x" * size) is whole
    assert ("bytes did not fit" in said(copy).reason) is not whole
    assert scene.partition.ledger.watermark == 1


async def test_i6_copies_of_a_key_go_to_one_partition_and_dead_letters_anywhere(
    scene: Scene,
) -> None:
    scene.fetches([5, 6], key=b"one")
    await scene.moves(0, 1, 2, 3, 4, 5, 6)
    await asyncio.sleep(0.01)
    places = {copy.value: copy.partition for copy in scene.broker.stored}
    assert places[b"5"] == places[b"6"] is not None
    assert len(set(places.values())) > 1
    scene.fetches([7])
    await scene.world.leases(scene.partition)
    await scene.ends(7)
    await asyncio.sleep(0.01)
    assert scene.broker.stored[-1].partition is None


async def test_a_broker_that_chooses_partitions_itself_is_told_none(scene: Scene) -> None:
    able = replace(scene.broker.capabilities, explicit_partition=False)
    scene.broker.capabilities = able
    await scene.moves(0)
    await asyncio.sleep(0.01)
    assert [copy.partition for copy in scene.broker.stored] == [None]


# --- the broker fails


async def test_r25_a_refused_copy_stays_and_is_tried_again_while_others_go_on(scene: Scene) -> None:
    scene.broker.fails(b"1", Failure.REFUSED)
    await scene.moves(0, 1, 2)
    await asyncio.sleep(0.01)
    assert [copy.value for copy in scene.broker.stored] == [b"0", b"2"]
    assert [op.offset for op in scene.finished] == [0, 2]
    assert scene.partition.ledger.watermark == 1
    assert scene.back.error_of(scene.partition, 1).startswith(Failure.REFUSED.value)
    assert scene.conditions["retry-copies"].startswith("1 copies not stored")
    assert scene.copies("failed") == 1
    await asyncio.sleep(AGAIN_S)
    assert scene.broker.sent == [[b"0", b"1", b"2"], [b"1"]]
    assert scene.partition.ledger.watermark == 3
    assert (scene.conditions, scene.back.error_of(scene.partition, 1)) == ({}, "")


async def test_r2_an_unknown_outcome_is_repeated_with_the_same_generation(scene: Scene) -> None:
    """The copy may be there: of two with one generation only the first is delivered."""
    scene.broker.fails(b"0", Failure.UNKNOWN)
    await scene.moves(0)
    await asyncio.sleep(AGAIN_S)
    first, second = scene.broker.tried
    assert first == second


async def test_i1_a_broker_that_is_away_finishes_nothing_and_waits_grow(scene: Scene) -> None:
    scene.broker.raises = BrokerError("away")
    await scene.moves(0, 1)
    await asyncio.sleep(60)
    assert scene.finished == []
    assert len(scene.broker.sent) == 4  # at 0, 5, 15 and 35 s
    assert len(scene.back) == 2
    scene.broker.raises = None
    await asyncio.sleep(60)
    assert scene.partition.ledger.watermark == 2


async def test_r25_without_a_topic_nothing_is_sent_and_nothing_finished(scene: Scene) -> None:
    scene.broker.no_topics = True
    await scene.moves(0)
    await asyncio.sleep(0.01)
    assert (scene.broker.sent, scene.finished) == ([], [])
    assert "not allowed" in scene.conditions["retry-copies"]
    scene.broker.no_topics = False
    await asyncio.sleep(AGAIN_S)
    assert scene.partition.ledger.watermark == 1


async def test_r25_after_a_refusal_the_topic_is_looked_at_again(scene: Scene) -> None:
    """Somebody may have deleted it."""
    scene.broker.fails(b"0", Failure.REFUSED)
    await scene.moves(0)
    await asyncio.sleep(AGAIN_S)
    assert [topic for topic, _ in scene.broker.made] == [RETRY_TOPIC, RETRY_TOPIC]


# --- the store fails


async def test_r2_a_stored_copy_is_not_stored_again_when_its_original_could_not_be_finished(
    scene: Scene,
) -> None:
    scene.broker.waits.clear()
    await scene.moves(0)
    await asyncio.sleep(0.01)
    scene.world.store.away = True
    scene.broker.waits.set()
    await asyncio.sleep(0.01)
    assert scene.partition.ledger.watermark == 0
    scene.world.store.away = False
    await asyncio.sleep(AGAIN_S)
    assert scene.broker.sent == [[b"0"]]
    assert scene.partition.ledger.watermark == 1


async def test_a_record_that_refuses_is_asked_again(scene: Scene) -> None:
    scene.broker.waits.clear()
    await scene.moves(0)
    await asyncio.sleep(0.01)
    record = scene.world.data.records[scene.partition.key]
    run, record.run = record.run, "another"
    scene.broker.waits.set()
    await asyncio.sleep(0.01)
    assert "MOVED" in scene.back.error_of(scene.partition, 0)
    record.run = run
    await asyncio.sleep(AGAIN_S)
    assert scene.broker.sent == [[b"0"]]
    assert record.over(0)


async def test_a_slot_that_changed_meanwhile_is_read_again(scene: Scene) -> None:
    scene.broker.waits.clear()
    await scene.moves(0)
    await asyncio.sleep(0.01)
    slot = scene.world.data.records[scene.partition.key].slots[0]
    assert slot.state is State.MOVING
    slot.rollback_epoch += 1
    scene.broker.waits.set()
    await asyncio.sleep(0.01)
    assert scene.partition.ledger.watermark == 0
    assert "reload" in scene.world.events.seen
    assert len(scene.back) == 0


async def test_without_the_reasons_no_copy_is_made(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead letter without the reason of its failure would stay so for ever."""

    async def away(key: LedgerKey, offsets: object) -> list[MessageTexts | None]:
        raise StoreError(f"{key}, {offsets}")

    with monkeypatch.context() as patch:
        patch.setattr(scene.world.store, "texts", away)
        await scene.world.leases(scene.partition)
        await scene.ends(0, error="no disk")
        await asyncio.sleep(0.01)
        assert (scene.broker.sent, scene.finished) == ([], [])
    await asyncio.sleep(AGAIN_S)
    assert [said(copy).last_error for copy in scene.broker.stored] == ["no disk"]


# --- no longer to be copied


async def test_a_message_that_was_settled_meanwhile_is_not_copied(scene: Scene) -> None:
    scene.broker.fails(b"0", Failure.REFUSED)
    await scene.moves(0)
    await asyncio.sleep(0.01)
    scene.partition.ledger.finish(0)
    await asyncio.sleep(AGAIN_S)
    assert scene.broker.sent == [[b"0"]]
    assert (len(scene.back), scene.conditions) == (0, {})


async def test_nothing_is_copied_for_a_partition_that_was_given_up(scene: Scene) -> None:
    scene.broker.fails(b"0", Failure.REFUSED)
    await scene.moves(0)
    await asyncio.sleep(0.01)
    scene.partition.closed = True
    await asyncio.sleep(AGAIN_S)
    assert scene.broker.sent == [[b"0"]]
    assert len(scene.back) == 0


async def test_a_later_generation_takes_the_place_of_an_earlier_one(scene: Scene) -> None:
    """The same one again is no second job."""
    scene.broker.waits.clear()
    await scene.moves(0)
    entry = scene.partition.ledger.entry(0)
    assert entry is not None
    scene.back.send(scene.partition, SendBack(0, entry.fence, 1))
    await asyncio.sleep(0.01)
    entry.fence += 1
    scene.back.send(scene.partition, SendBack(0, entry.fence, 1))
    assert len(scene.back) == 1
    scene.broker.waits.set()
    await asyncio.sleep(0.01)
    assert [said(copy).generation for copy in scene.broker.stored][-1] == entry.fence


async def test_r9_without_its_rollback_epoch_a_copy_waits_for_the_record(scene: Scene) -> None:
    scene.broker.fails(b"0", Failure.REFUSED)
    await scene.moves(0)
    await asyncio.sleep(0.01)
    entry = scene.partition.ledger.entry(0)
    assert entry is not None
    entry.rollback_epoch = -1
    await asyncio.sleep(AGAIN_S)
    assert scene.broker.sent == [[b"0"]]
    assert "reload" in scene.world.events.seen


async def test_r7_what_the_log_has_lost_is_finished_without_a_copy(scene: Scene) -> None:
    scene.broker.fails(b"0", *[Failure.REFUSED] * 9)
    await scene.moves(0)
    await asyncio.sleep(0.01)
    entry = scene.partition.ledger.entry(0)
    assert entry is not None
    await asyncio.sleep(LEASE_MS / 1000)
    sent = len(scene.broker.sent)
    entry.body, entry.gone = None, True
    await asyncio.sleep(60)
    assert scene.broker.sent[sent:] == [[]]
    assert [op.reason for op in scene.finished] == [Finish.VANISHED]
    assert scene.world.count("ackd_vanished_total", subscription=NAME) == 1
    assert scene.copies("stored") == 0
    assert scene.partition.ledger.watermark == 1
    assert not scene.partition.ledger.send_back.sent_before  # a rollback brings no copy back


async def test_r7_what_the_log_has_lost_stays_until_its_lease_is_over(scene: Scene) -> None:
    """Its holder can go on, and no message of its key comes before he is done."""
    scene.broker.fails(b"0", Failure.REFUSED)
    await scene.moves(0, key=9)
    await asyncio.sleep(0.01)
    origin = scene.world.data.records[scene.partition.key].origins[0].slot
    lease = origin.fence, origin.rollback_epoch, origin.attempt
    extend = Settle(Verb.EXTEND, 0, *lease, 90_000)
    await scene.world.flusher.submit(scene.partition.handle, [extend])
    entry = scene.partition.ledger.entry(0)
    assert entry is not None
    entry.body, entry.gone = None, True
    await asyncio.sleep(AGAIN_S)
    assert [op.reason for op in scene.finished] == [Finish.VANISHED]
    assert (scene.partition.ledger.watermark, len(scene.back)) == (0, 1)
    assert scene.conditions == {}
    await asyncio.sleep(90)
    assert [op.reason for op in scene.finished] == [Finish.VANISHED] * 2
    assert (scene.partition.ledger.watermark, len(scene.back)) == (1, 0)
    assert not scene.world.data.records[scene.partition.key].blocked


async def test_r2_stopped_half_way_another_copier_stores_the_same_copy(scene: Scene) -> None:
    """A task that ends while the broker has the copy: nothing is finished, nothing lost."""
    scene.broker.waits.clear()
    await scene.moves(0)
    await asyncio.sleep(0.01)
    await scene.tasks.stop()
    assert scene.finished == []
    scene.broker.waits.set()
    scene.tasks.start(scene.back.run(), "back")
    await asyncio.sleep(0.01)
    assert [copy.value for copy in scene.broker.stored] == [b"0"]
    assert scene.partition.ledger.watermark == 1


# --- bounds


async def test_i8_a_batch_has_a_bound_in_messages_and_one_in_bytes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier_module, "BATCH_MAX", 2)
    await scene.moves(*range(5))
    await asyncio.sleep(0.01)
    assert [len(each) for each in scene.broker.sent] == [2, 2, 1]
    monkeypatch.setattr(copier_module, "BATCH_MAX", 500)
    monkeypatch.setattr(copier_module, "BATCH_BYTES_MAX", 600)
    scene.fetches(range(5, 8), size=400)
    await scene.moves(*range(5, 8))
    await asyncio.sleep(0.01)
    assert [len(each) for each in scene.broker.sent[3:]] == [2, 1]
    assert scene.partition.ledger.watermark == 8


async def test_one_record_that_refuses_does_not_hold_up_another(scene: Scene) -> None:
    first = scene.partition
    scene.broker.waits.clear()
    await scene.moves(0)
    second = scene.partition = await scene.owns(1)
    scene.fetches([0])
    await scene.moves(0)
    scene.world.data.records[first.key].run = "another"
    scene.broker.waits.set()
    await asyncio.sleep(0.01)
    assert (first.ledger.watermark, second.ledger.watermark) == (0, 1)
