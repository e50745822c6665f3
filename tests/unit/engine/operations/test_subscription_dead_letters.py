"""Dead letters of one subscription: listing, looking, and what an operation is begun with (R29)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackd.api.dead_letters import DeadFilter, DeadRequest, DryRun, Kind, Progress, To
from ackd.core.dead_letter_key import dead_key
from ackd.core.ids import TopicPartition
from ackd.core.origin import Origin
from ackd.core.record.operations import Gap, MoveToRetry, PlaceCopy
from ackd.core.record.protocol import Finish
from ackd.engine.operations import subscription_dead_letters
from ackd.engine.operations.archive import AnyDocument, KeepRight, OperationJob, RedriveDocument
from ackd.engine.operations.operation_runner import Operations
from ackd.engine.operations.subscription_dead_letters import LogBounds, SubscriptionDeadLetters
from ackd.engine.partition.copy_headers import RetryCopy
from ackd.errors import (
    BadParameterError,
    BrokerError,
    OperationRunningError,
    StoreError,
    UnconfirmedError,
    UnknownDeadLetterError,
)
from ackd.ports import Record, TopicInfo
from tests.unit.engine.operation_stage import DEAD_ID, DEAD_LETTER_TOPIC, OperationStage
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World

ORIGIN = Origin("cluster", TOPIC_ID, TOPIC, 0, 0)
DEAD = RetryCopy(ORIGIN, NAME, *(9, 7, 5, 4, 0, 900, 800), reason="age", last_error="no disk")
KEY = dead_key("cluster", NAME, DEAD_ID, 0)
LETTERS = 6


def no_work(document: AnyDocument, keep_right: KeepRight) -> OperationJob:
    raise NotImplementedError(document, keep_right)


class Scene(OperationStage):
    """Six dead letters of `work` in partition 0, the last of another reason."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        for offset in range(LETTERS):
            reason = "age" if offset < LETTERS - 1 else "span"
            origin = replace(ORIGIN, offset=100 + offset)
            letter = replace(DEAD, origin=origin, reason=reason)
            self.broker.writes(
                DEAD_LETTER_TOPIC, letter, value=b"%d" % offset, own=(("mine", b"1"),)
            )
        operations = Operations(
            world.state, world.context, self.control.end_halt, self.marks, no_work
        )
        self.letters = SubscriptionDeadLetters(world.state, world.context, self.marks, operations)

    async def gone(self, *offsets: int) -> None:
        """As a purge leaves them."""
        taken = await self.marks.take(KEY, 0)
        ops = [Gap(each, each + 1, Finish.SKIPPED) for each in offsets]
        await self.marks.decide(taken.handle, ops)

    async def page(
        self, partition: int = 0, offset: int = 0, limit: int = 50
    ) -> tuple[list[str], str | None]:
        page = await self.letters.page(partition, offset, limit)
        return [each.id for each in page.messages], page.cursor

    async def dry_run(self, **more: object) -> DryRun:
        request = DeadRequest(Kind.REDRIVE, dry_run=True, **more)  # type: ignore[arg-type]
        found = await self.letters.look(request)
        assert isinstance(found, DryRun)
        return found


@pytest.fixture
def scene(world: World) -> Scene:
    return Scene(world)


def ids(*offsets: int, partition: int = 0) -> list[str]:
    return [f"{partition}-{each}" for each in offsets]


# --- listing


async def test_a_page_lists_what_is_there_and_where_the_next_one_begins(scene: Scene) -> None:
    assert await scene.page(limit=4) == (ids(0, 1, 2, 3), "0-4")
    assert await scene.page(offset=4, limit=4) == (ids(4, 5), None)


async def test_a_page_that_ends_with_the_last_letter_has_no_next_one(scene: Scene) -> None:
    assert await scene.page(limit=LETTERS) == (ids(*range(LETTERS)), None)


async def test_what_is_gone_is_not_listed_and_takes_no_room(scene: Scene) -> None:
    await scene.gone(0, 2)
    assert await scene.page(limit=2) == (ids(1, 3), "0-4")


async def test_another_subscription_s_letters_are_not_shown(scene: Scene) -> None:
    """Two subscriptions of a group share a dead-letter topic."""
    scene.broker.writes(DEAD_LETTER_TOPIC, replace(DEAD, subscription="others"))
    scene.broker.writes(DEAD_LETTER_TOPIC, None)
    scene.broker.writes(DEAD_LETTER_TOPIC, DEAD)
    assert (await scene.page(offset=LETTERS - 1))[0] == ids(LETTERS - 1, LETTERS + 2)


async def test_pages_go_on_in_the_next_partition(scene: Scene) -> None:
    scene.broker.topics[DEAD_LETTER_TOPIC] = TopicInfo(DEAD_LETTER_TOPIC, DEAD_ID, 3)
    first = TopicPartition(DEAD_LETTER_TOPIC, 0)
    scene.broker.logs[first._replace(partition=1)] = scene.broker.logs.pop(first)
    assert await scene.page(limit=2) == (ids(0, 1, partition=1), "1-2")
    assert await scene.page(1, 5, limit=2) == (ids(5, partition=1), None)
    assert await scene.page(2) == ([], None)
    assert await scene.page(0, 5, limit=1) == (ids(0, partition=1), "1-1"), "from its beginning"


async def test_a_listing_takes_a_bounded_time_and_tells_where_it_stopped(
    world: World, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of millions of letters of others must not hold a request for ever (I8)."""
    monkeypatch.setattr(subscription_dead_letters, "READ_MAX", 2)
    took_ms = subscription_dead_letters.LOOK_MS // 2
    read = scene.letters.still_there

    async def slowly(*of: object) -> object:
        world.clock.pass_ms(took_ms)
        return await read(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(scene.letters, "still_there", slowly)
    found, cursor = await scene.page()
    assert (found, cursor) == (ids(0, 1, 2, 3), "0-4")


async def test_a_letter_that_is_on_its_way_says_so(scene: Scene) -> None:
    taken = await scene.marks.take(KEY, 0)
    await scene.marks.decide(taken.handle, [PlaceCopy(1), MoveToRetry(1, 1)])
    page = await scene.letters.page(0, 0, 3)
    assert [each.state for each in page.messages] == ["dead", "redriving", "dead"]


async def test_without_a_topic_there_is_nothing(scene: Scene) -> None:
    """It is made with the first dead letter."""
    del scene.broker.topics[DEAD_LETTER_TOPIC]
    assert await scene.page() == ([], None)
    assert (await scene.dry_run()).matched == 0


# --- one of them


async def test_a_letter_with_its_content(scene: Scene) -> None:
    letter = await scene.letters.peek("0-2")
    assert (letter.view.id, letter.view.message, letter.view.state) == (
        "0-2",
        "orders/0/102",
        "dead",
    )
    assert (letter.view.reason, letter.view.last_error) == ("age", "no disk")
    assert letter.record.value == b"2"
    assert letter.headers == (("mine", b"1"),)


@pytest.mark.parametrize("dead_id", ["0-6", "1-0", "0-1"])
async def test_what_is_not_there_or_gone_is_named(scene: Scene, dead_id: str) -> None:
    await scene.gone(1)
    with pytest.raises(UnknownDeadLetterError, match=dead_id):
        await scene.letters.peek(dead_id)


async def test_an_id_of_another_subscription_s_letter_is_unknown(scene: Scene) -> None:
    offset = scene.broker.writes(DEAD_LETTER_TOPIC, replace(DEAD, subscription="others"))
    with pytest.raises(UnknownDeadLetterError):
        await scene.letters.peek(f"0-{offset}")


async def test_a_broker_or_store_that_is_away_is_told(world: World, scene: Scene) -> None:
    scene.broker.away = True
    with pytest.raises(BrokerError):
        await scene.letters.peek("0-1")
    scene.broker.away = False
    world.store.away = True
    with pytest.raises(StoreError):
        await scene.letters.peek("0-1")


# --- what may begin


async def test_a_purge_needs_the_name_and_a_dry_run_does_not(scene: Scene) -> None:
    for confirm in ("", "orders", f"{NAME} "):
        with pytest.raises(BadParameterError, match=NAME):
            scene.letters.check(DeadRequest(Kind.PURGE, confirm=confirm))
    scene.letters.check(DeadRequest(Kind.PURGE, confirm=NAME))
    scene.letters.check(DeadRequest(Kind.PURGE, dry_run=True))
    scene.letters.check(DeadRequest(Kind.REDRIVE))


async def test_a_redrive_of_everything_is_confirmed_and_max_does_not_do_it(scene: Scene) -> None:
    """As many as there are, or more, is everything; letters that are gone do not count."""
    await scene.gone(0)
    left = LETTERS - 1
    for most in (None, left, left + 1, 1 << 40):
        request = DeadRequest(Kind.REDRIVE, max=most)
        with pytest.raises(UnconfirmedError, match=NAME):
            await scene.letters.look(request)
        assert isinstance(await scene.letters.look(replace(request, confirm=NAME)), LogBounds)
        assert isinstance(await scene.letters.look(replace(request, dry_run=True)), DryRun)
    some = (
        DeadRequest(Kind.REDRIVE, max=left - 1),
        DeadRequest(Kind.REDRIVE, max=left, filter=DeadFilter(reason="age")),
        DeadRequest(Kind.REDRIVE, ids=("0-1",)),
    )
    for request in some:
        assert isinstance(await scene.letters.look(request), LogBounds), request


async def test_where_there_is_no_time_to_see_whether_max_is_everything_it_is_confirmed(
    world: World, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_dead_letters, "READ_MAX", 1)
    read = scene.letters.still_there

    async def slowly(*of: object) -> object:
        world.clock.pass_ms(subscription_dead_letters.LOOK_MS)
        return await read(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(scene.letters, "still_there", slowly)
    with pytest.raises(UnconfirmedError, match="not time"):
        await scene.letters.look(DeadRequest(Kind.REDRIVE, max=2))


@pytest.mark.parametrize(
    "edit",
    [{"remove_headers": ("ackd-origin",)}, {"set_headers": (("ackd-attempt", "1"),)}],
)
async def test_ackd_s_own_headers_can_t_be_edited(
    scene: Scene, edit: dict[str, tuple[str | tuple[str, str], ...]]
) -> None:
    """With them gone, the copy would be a stranger's; with others, another message's."""
    with pytest.raises(BadParameterError, match="ackd-"):
        scene.letters.check(DeadRequest(Kind.REDRIVE, **edit))  # type: ignore[arg-type]
    scene.letters.check(DeadRequest(Kind.REDRIVE, remove_headers=("x-ackd-mine",)))


async def test_r29_without_a_retry_topic_nothing_reaches_one_group_alone(
    world: World, scene: Scene
) -> None:
    world.sets(retry_topic=False)
    with pytest.raises(BadParameterError, match="origin"):
        scene.letters.check(DeadRequest(Kind.REDRIVE))
    scene.letters.check(DeadRequest(Kind.REDRIVE, to=To.ORIGIN))
    scene.letters.check(DeadRequest(Kind.PURGE, confirm=NAME))


# --- looking before it begins


async def test_a_dry_run_counts_and_shows_what_matches(scene: Scene) -> None:
    await scene.gone(0)
    found = await scene.dry_run(filter=DeadFilter(reason="age"))
    assert (found.matched, found.scanned, found.complete) == (4, LETTERS, True)
    assert [each.id for each in found.messages] == ids(1, 2, 3, 4)


async def test_a_dry_run_that_has_enough_is_complete(scene: Scene) -> None:
    found = await scene.dry_run(max=2)
    assert (found.matched, found.scanned, found.complete) == (2, 2, True)


async def test_a_dry_run_shows_only_the_first_and_counts_all(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_dead_letters, "SHOWN_MAX", 2)
    found = await scene.dry_run()
    assert (found.matched, [each.id for each in found.messages]) == (LETTERS, ids(0, 1))
    found = await scene.dry_run(ids=tuple(ids(3, 4, 5)))
    assert (found.matched, [each.id for each in found.messages]) == (3, ids(3, 4))


async def test_a_dry_run_of_named_letters_knows_them_or_refuses(scene: Scene) -> None:
    found = await scene.dry_run(ids=("0-4", "0-1"))
    assert [each.id for each in found.messages] == ["0-4", "0-1"]
    assert (found.matched, found.scanned, found.complete) == (2, 2, True)
    with pytest.raises(UnknownDeadLetterError):
        await scene.dry_run(ids=("0-1", "0-77"))


async def test_an_operation_ends_where_the_topic_ended_when_it_began(scene: Scene) -> None:
    """What dies while it runs is left for the next one: else a redrive could run for ever."""
    request = DeadRequest(Kind.REDRIVE, filter=DeadFilter(topic=TOPIC))
    bounds = await scene.letters.look(request)
    assert bounds == LogBounds(DEAD_ID, [(0, LETTERS)])
    scene.broker.writes(DEAD_LETTER_TOPIC, DEAD)
    view = await scene.letters.begin(request, bounds)
    assert (view.state, view.total, view.subscription) == (Progress.RUNNING, LETTERS, NAME)
    document = await scene.archive.read(view.id)
    assert isinstance(document, RedriveDocument)
    assert (document.topic_id, document.request) == (DEAD_ID.hex(), request)


async def test_an_operation_of_letters_that_are_not_there_does_not_begin(scene: Scene) -> None:
    await scene.gone(1)
    with pytest.raises(UnknownDeadLetterError):
        await scene.letters.look(DeadRequest(Kind.REDRIVE, ids=("0-0", "0-1")))


async def test_one_operation_at_a_time(scene: Scene) -> None:
    request = DeadRequest(Kind.REDRIVE)
    bounds = LogBounds(DEAD_ID, [(0, LETTERS)])
    first = await scene.letters.begin(request, bounds)
    with pytest.raises(OperationRunningError, match=first.id):
        await scene.letters.begin(request, bounds)


async def test_without_a_topic_there_is_nothing_to_do(scene: Scene) -> None:
    del scene.broker.topics[DEAD_LETTER_TOPIC]
    request = DeadRequest(Kind.REDRIVE, confirm=NAME)
    assert await scene.letters.look(request) == LogBounds(b"", [])


async def test_the_newest_letter_of_a_message_is_found_also_when_it_is_gone(scene: Scene) -> None:
    """By the place of its message; letters of others are passed over."""
    again = replace(DEAD, origin=replace(ORIGIN, offset=102), attempt=9)
    scene.broker.writes(DEAD_LETTER_TOPIC, again, value=b"again", own=())
    found = await scene.letters.find(f"{TOPIC}/0/102")
    assert (found.key, found.offset, found.complete) == (KEY, LETTERS, True)
    assert found.letter is not None
    assert (found.letter.view.id, found.letter.view.attempts) == (f"0-{LETTERS}", 9)
    await scene.gone(3)
    found = await scene.letters.find(f"{TOPIC}/0/103")
    assert (found.offset, found.letter is None) == (3, False)
    nothing = await scene.letters.find(f"{TOPIC}/0/999")
    assert (nothing.letter, nothing.complete) == (None, True)


async def test_a_search_without_time_says_that_it_did_not_see_all(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_dead_letters, "FIND_MS", 0)
    found = await scene.letters.find(f"{TOPIC}/0/102")
    assert (found.letter, found.complete) == (None, False)


async def test_a_page_says_how_many_records_it_passed_over(scene: Scene) -> None:
    """They are no dead letters: nobody could see that they are there."""
    log = scene.broker.logs[TopicPartition(DEAD_LETTER_TOPIC, 0)]
    log += [Record(LETTERS + n, None, b"?", (("ackd-origin", b"?"),), 0) for n in range(3)]
    assert (await scene.letters.page(0, 0, 50)).unreadable == 3
    first = await scene.letters.page(0, 0, LETTERS - 1)
    assert (first.cursor, first.unreadable) == (f"0-{LETTERS - 1}", 0)
    assert (await scene.letters.page(0, LETTERS - 1, 50)).unreadable == 3
