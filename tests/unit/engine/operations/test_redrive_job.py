"""Dead letters go back to their group, once each, or are marked as gone (R29)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackd.api.dead_letters import DeadFilter, DeadRequest, Kind, Progress, To
from ackd.core.dead_letter_key import dead_key
from ackd.core.ids import LedgerKey
from ackd.core.origin import Origin
from ackd.core.record.operations import FinishOrigin, MoveToRetry
from ackd.core.record.transitions import State
from ackd.engine.base.copy_signature import CopyKind
from ackd.engine.operations import redrive_job
from ackd.engine.operations.archive import NoRightError, RedriveDocument
from ackd.engine.operations.redrive_job import RedriveJob
from ackd.engine.partition.copy_headers import (
    REDRIVEN_FROM,
    RetryCopy,
    retry_copy_headers,
    retry_copy_of,
)
from ackd.errors import BrokerError, StoreError
from ackd.ports import Failure, Outgoing, Record, TopicInfo
from tests.unit.engine.operation_stage import DEAD_ID, DEAD_LETTER_TOPIC, OperationStage
from tests.unit.engine.retry_stage import RETRY_TOPIC
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World

ORIGIN = Origin("cluster", TOPIC_ID, TOPIC, 0, 0)
DEAD = RetryCopy(ORIGIN, NAME, *(9, 7, 5, 4, 0, 900, 800), reason="age", last_error="no disk")
LETTERS = 5


class Scene(OperationStage):
    """Five dead letters, whose values are their offsets."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        for offset in range(LETTERS):
            origin = replace(ORIGIN, offset=100 + offset)
            self.broker.writes(
                DEAD_LETTER_TOPIC,
                replace(DEAD, origin=origin),
                value=b"%d" % offset,
                own=(("mine", b"1"), ("old", b"2")),
            )
        self.document: RedriveDocument

    def asks(self, request: DeadRequest, *, end: int = LETTERS) -> RedriveDocument:
        self.document = RedriveDocument(
            "op", NAME, request, DEAD_ID.hex(), starts=[0], ends=[end], created_ms=1
        )
        return self.document

    async def runs(self, request: DeadRequest | None = None, *, end: int = LETTERS) -> None:
        """One attempt, of a new process: it knows what the store has."""
        if request is not None:
            self.asks(request, end=end)
        else:
            read = await self.archive.read("op")
            assert isinstance(read, RedriveDocument)
            self.document = read
        world = self.world
        job = RedriveJob(
            world.state,
            world.context,
            self.marks,
            self.retry_topic,
            lambda *_: None,
            self.keep_right,
            self.document,
        )
        await job.run()

    async def states(self) -> str:
        """G(one), D(ead) or S(ending) for each letter."""
        key = self.claim_key
        found = await self.marks.states(key, range(LETTERS))
        letters = {State.FINISHED: "G", State.READY: "D", State.MOVING: "S"}
        return "".join(letters[each] for each in found)

    @property
    def claim_key(self) -> LedgerKey:
        return dead_key("cluster", NAME, DEAD_ID, 0)

    @property
    def counts(self) -> tuple[int, int, int]:
        document = self.document
        return document.moved, document.failed, document.skipped

    @property
    def values(self) -> list[bytes]:
        return [each.value or b"" for each in self.broker.stored]


@pytest.fixture
async def scene(world: World) -> Scene:
    return Scene(world)


def said(outgoing: Outgoing) -> RetryCopy:
    """What a copy says of its message."""
    found = retry_copy_of(Record(0, outgoing.key, outgoing.value, outgoing.headers, 0), NAME)
    assert found is not None
    return found


GROUP = DeadRequest(Kind.REDRIVE)
BACK = DeadRequest(Kind.REDRIVE, to=To.ORIGIN)
PURGE = DeadRequest(Kind.PURGE)


# --- to the group


async def test_r29_each_letter_gets_one_copy_in_the_retry_topic(scene: Scene) -> None:
    await scene.runs(GROUP)
    assert scene.document.state is Progress.DONE
    assert (scene.counts, await scene.states()) == ((5, 0, 0), "GGGGG")
    assert {each.topic for each in scene.broker.stored} == {RETRY_TOPIC}
    assert scene.world.count("ackd_dead_letters_total", subscription=NAME, outcome="redriven") == 5


async def test_r29_a_redriven_message_begins_anew_and_names_its_dead_letter(scene: Scene) -> None:
    await scene.runs(replace(GROUP, ids=("0-3",)))
    (copy,) = scene.broker.stored
    found = said(copy)
    assert found.origin == replace(ORIGIN, offset=103)
    assert found.redriven == Origin("cluster", DEAD_ID, DEAD_LETTER_TOPIC, 0, 3)
    assert (found.attempt, found.due_ms, found.reason, found.last_error) == (0, 0, "", "")
    assert (found.published_ms, found.first_ms) == (800, scene.world.clock.wall_ms())
    record = scene.world.data.records[scene.claim_key]
    assert found.generation == record.origins[3].generation
    assert found.incarnation == record.incarnation


async def test_r2_the_origin_record_is_there_before_the_copy_and_the_mark_after_it(
    scene: Scene,
) -> None:
    scene.broker.raises = BrokerError("away")
    with pytest.raises(BrokerError):
        await scene.runs(GROUP)
    ops = [type(op) for call in scene.world.store.asked for op in call.ops]
    assert MoveToRetry in ops
    assert FinishOrigin not in ops
    assert (scene.counts, await scene.states()) == ((0, 0, 0), "SSSSS")


async def test_r29_a_batch_begun_anew_repeats_its_copies_under_their_generations(
    scene: Scene,
) -> None:
    """The first that is claimed wins; the group gets each message once."""
    scene.broker.raises = BrokerError("nobody knows")
    with pytest.raises(BrokerError):
        await scene.runs(GROUP)
    record = scene.world.data.records[scene.claim_key]
    before = [record.origins[offset].generation for offset in range(LETTERS)]
    scene.broker.raises = None
    await scene.runs()
    assert [said(copy).generation for copy in scene.broker.stored] == before
    assert (scene.counts, await scene.states()) == ((5, 0, 0), "GGGGG")


async def test_r29_what_an_earlier_attempt_redrove_is_not_copied_again(scene: Scene) -> None:
    scene.broker.fails(b"3", Failure.PRESSURE)
    with pytest.raises(BrokerError):
        await scene.runs(GROUP)
    assert await scene.states() == "GGGSG"
    await scene.runs()
    assert scene.values == [b"0", b"1", b"2", b"4", b"3"]
    assert (scene.counts, await scene.states()) == ((5, 0, 0), "GGGGG")


async def test_a_copy_that_the_broker_never_takes_is_counted_and_the_rest_goes_on(
    scene: Scene,
) -> None:
    scene.broker.fails(b"1", Failure.REFUSED)
    await scene.runs(GROUP)
    assert scene.counts == (4, 1, 0)
    assert (await scene.states())[0] == "G"
    assert scene.document.state is Progress.DONE


async def test_headers_are_edited_as_asked(scene: Scene) -> None:
    edits = replace(
        GROUP, ids=("0-0",), remove_headers=("old",), set_headers=(("mine", "2"), ("new", "3"))
    )
    await scene.runs(edits)
    own = [each for each in scene.broker.stored[0].headers if not each[0].startswith("ackd-")]
    assert own == [("mine", b"2"), ("new", b"3")]


# --- what ackd did not write


@pytest.mark.parametrize("to", list(To))
async def test_r2_what_ackd_did_not_write_is_redriven_only_when_asked(scene: Scene, to: To) -> None:
    """Letters 0 and 1 are from before signatures, 2 to 4 are not signed, 5 is; 6 was put aside."""
    keys = scene.world.state.copy_keys
    await keys.load(scene.world.store, NAME)
    await keys.begin(DEAD_LETTER_TOPIC, DEAD_ID, {0: 2})
    for topic in (TOPIC, RETRY_TOPIC):
        dead = replace(DEAD, origin=replace(ORIGIN, topic=topic, offset=200))
        headers = retry_copy_headers(dead, ())
        sent = keys.signed(Outgoing("dead", b"k", topic.encode(), headers), CopyKind.DEAD)
        scene.broker.writes(DEAD_LETTER_TOPIC, None, value=topic.encode(), own=sent.headers)
    await scene.runs(DeadRequest(Kind.REDRIVE, to=to), end=LETTERS + 2)
    assert scene.values == [b"0", b"1", TOPIC.encode()]
    assert scene.counts == (3, 0, 4)
    await scene.runs(DeadRequest(Kind.REDRIVE, to=to, unsigned=True), end=LETTERS + 2)
    more = [RETRY_TOPIC.encode()] if to is To.GROUP else []  # nothing is published there
    assert scene.values[3:] == [b"2", b"3", b"4", *more]


# --- to the origin topic


async def test_r29_to_the_origin_topic_only_when_asked(scene: Scene) -> None:
    await scene.runs(BACK)
    assert {each.topic for each in scene.broker.stored} == {TOPIC}
    headers = dict(scene.broker.stored[2].headers)
    assert headers == {"mine": b"1", "old": b"2", REDRIVEN_FROM: b"ackd.dead.work/0/2"}
    assert (scene.counts, await scene.states()) == ((5, 0, 0), "GGGGG")


async def test_r29_what_was_published_to_the_origin_is_not_published_again(scene: Scene) -> None:
    """Only a crash may repeat a batch there, not one message that the broker does not take yet."""
    scene.broker.fails(b"3", *[Failure.PRESSURE] * 2)
    for _ in range(2):
        with pytest.raises(BrokerError):
            await scene.runs(BACK if scene.values == [] else None)
    await scene.runs()
    assert sorted(scene.values) == [b"0", b"1", b"2", b"3", b"4"]
    assert (scene.counts, await scene.states()) == ((5, 0, 0), "GGGGG")


async def test_r25_a_forged_origin_in_a_topic_of_ackd_gets_nothing(scene: Scene) -> None:
    forged = replace(DEAD, origin=replace(ORIGIN, topic=RETRY_TOPIC))
    scene.broker.writes(DEAD_LETTER_TOPIC, forged, value=b"forged")
    scene.asks(replace(BACK, unsigned=True), end=LETTERS + 1)
    await scene.archive.write(scene.document)
    await scene.runs()
    assert b"forged" not in scene.values
    assert scene.counts == (5, 1, 0)


# --- purge


async def test_a_purge_marks_and_publishes_nothing(scene: Scene) -> None:
    await scene.runs(replace(PURGE, ids=("0-1", "0-4")))
    assert scene.broker.sent == []
    assert (scene.counts, await scene.states()) == ((2, 0, 0), "DGDDG")
    assert scene.world.count("ackd_dead_letters_total", subscription=NAME, outcome="purged") == 2


async def test_a_purge_ends_what_a_stopped_redrive_left_on_its_way(scene: Scene) -> None:
    scene.broker.raises = BrokerError("away")
    with pytest.raises(BrokerError):
        await scene.runs(GROUP)
    await scene.runs(PURGE)
    assert await scene.states() == "GGGGG"


# --- which letters


async def test_only_what_fits_and_no_more_than_asked(scene: Scene) -> None:
    scene.broker.writes(DEAD_LETTER_TOPIC, None, value=b"stranger")
    scene.asks(replace(PURGE, filter=DeadFilter(error="disk"), max=2), end=LETTERS + 1)
    await scene.archive.write(scene.document)
    await scene.runs()
    assert (scene.counts, await scene.states()) == ((2, 0, 0), "GGDDD")
    await scene.runs(replace(PURGE, filter=DeadFilter(error="no such customer")))
    assert (scene.counts, await scene.states()) == ((0, 0, 0), "GGDDD")


async def test_what_is_gone_already_is_not_taken_again(scene: Scene) -> None:
    await scene.runs(replace(PURGE, ids=("0-1",)))
    await scene.runs(GROUP)
    assert scene.values == [b"0", b"2", b"3", b"4"]
    assert scene.counts == (4, 0, 0)


async def test_what_came_after_it_began_is_left_for_the_next_one(scene: Scene) -> None:
    scene.broker.writes(DEAD_LETTER_TOPIC, DEAD, value=b"later")
    await scene.runs(GROUP)
    assert b"later" not in scene.values


async def test_a_topic_that_was_made_again_is_another_one(scene: Scene) -> None:
    """R1: the same offsets are other messages there."""
    scene.broker.topics[DEAD_LETTER_TOPIC] = TopicInfo(DEAD_LETTER_TOPIC, bytes(16), 1)
    await scene.runs(PURGE)
    assert scene.document.state is Progress.FAILED
    assert scene.world.data.records == {}


# --- ends, and goes on


async def test_without_the_right_nothing_more_is_done(scene: Scene) -> None:
    scene.rights = 0
    with pytest.raises(NoRightError):
        await scene.runs(GROUP)
    assert scene.broker.sent == []


async def test_a_cancel_ends_it_between_two_batches(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive_job, "BATCH_MAX", 2)
    scene.rights = 2
    with pytest.raises(NoRightError):
        await scene.runs(GROUP)
    assert scene.values == [b"0", b"1", b"2", b"3"]
    scene.rights = None
    await scene.archive.cancel("op")
    await scene.runs()
    assert scene.document.state is Progress.CANCELLED
    assert (scene.counts, await scene.states()) == ((4, 0, 0), "GGGGD")


async def test_a_batch_is_in_the_document_before_it_begins(scene: Scene) -> None:
    scene.broker.raises = BrokerError("away")
    with pytest.raises(BrokerError):
        await scene.runs(GROUP)
    stored = await scene.archive.read("op")
    assert isinstance(stored, RedriveDocument)
    assert (stored.pending, stored.offset, stored.next_offset) == ([0, 1, 2, 3, 4], 0, 5)


async def test_while_the_store_is_away_nothing_is_published(scene: Scene) -> None:
    scene.world.store.away = True
    with pytest.raises(StoreError):
        await scene.runs(GROUP)
    assert scene.broker.sent == []


async def test_i8_it_works_at_the_rate_that_was_asked_for(scene: Scene) -> None:
    began_ms = scene.world.clock.monotonic_ms()
    await scene.runs(replace(GROUP, rate_per_s=2))
    assert [len(each) for each in scene.broker.sent] == [2, 2, 1]
    assert 2_000 <= scene.world.clock.monotonic_ms() - began_ms <= 2_100


async def test_what_retention_deleted_meanwhile_is_counted_as_passed_over(scene: Scene) -> None:
    scene.broker.raises = BrokerError("away")
    with pytest.raises(BrokerError):
        await scene.runs(GROUP)
    scene.broker.raises = None
    log = next(iter(scene.broker.logs.values()))
    del log[:2]
    await scene.runs()
    assert scene.counts == (3, 0, 2)
    assert scene.values == [b"2", b"3", b"4"]
