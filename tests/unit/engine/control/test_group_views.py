"""The whole group, shown at one sidecar: what owners answer, and who did not."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ackd.api.messages import (
    STATES,
    Explanation,
    HeldKey,
    HeldPartition,
    InFlight,
    MessagesServed,
    MessageView,
    PartitionLag,
    SidecarShare,
)
from ackd.engine.cluster.members import SILENT_MS, MemberNote, write_note
from ackd.engine.control.group_views import (
    ASKED_MAX,
    EXPLAIN,
    GIVEN_AWAY,
    IN_FLIGHT,
    LAG,
    MESSAGE,
    MESSAGES,
    NAMED_MAX,
    NO_LINKS,
    NOT_TAKEN,
    GroupViews,
    LagAnswer,
    read_cursor,
)
from ackd.engine.control.inspect import Inspector, Listed, Place, SeenMessage
from ackd.engine.control.lag import Lag
from ackd.engine.control.message_lookup import Answers
from ackd.engine.retry.own_topic import RetryTopic
from ackd.errors import BadParameterError
from ackd.ports import Member, Members
from tests.unit.engine.control.test_inspect import Silent
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World


class Others:
    """Implements `GroupQuestions`: pod-2 answers `replies` by kind, pod-3 never."""

    def __init__(self) -> None:
        self.replies: dict[str, bytes] = {}
        self.answers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {}
        self.asked: list[tuple[str, ...]] = []

    def on(self, kind: str, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        self.answers[kind] = answer

    async def ask_all(
        self, names: Iterable[str], kind: str, body: bytes, timeout_ms: int
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        del body, timeout_ms
        wanted = tuple(names)
        self.asked.append(wanted)
        found = {name: self.replies[kind] for name in wanted if name == "pod-2"}
        return found, {name: "asleep" for name in wanted if name == "pod-3"}


class Lookup:
    """Asks, as `MessageLookup` does, and shows what came of it."""

    async def of(self, name: str, ask: Callable[[], Awaitable[Answers]]) -> MessageView:
        answers, missing = await ask()
        holders = ",".join(each.view.holder for held in answers.values() for each in held)
        return MessageView(name, "leased", holder=holders, missing=missing)


def views(world: World, others: Others | None) -> GroupViews:
    silent: Any = Silent()
    lookup: Any = Lookup()
    topic = RetryTopic(world.state, world.context)
    inspector = Inspector(
        world.state, world.context, world.partitions, silent, silent, silent, None, silent, topic
    )
    lag = Lag(world.state, world.context, world.partitions, world.topics, world.membership)
    return GroupViews(lag, inspector, world.membership, others, lookup)


def lives(world: World, *others: tuple[str, Sequence[str]]) -> None:
    """A heartbeat has read of these sidecars, and what they own."""
    members = tuple(Member(name, 1, 0, "run-1", tuple(owned), "") for name, owned in others)
    world.membership.view.update(Members(0, members, superseded=False))


def row(partition: int, owner: str, watermark: int) -> PartitionLag:
    return PartitionLag(TOPIC, partition, owner, 9, 9, watermark, 0, 0, 0, 0, None)


def packed(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


@pytest.fixture
def others(world: World) -> Others:
    made = Others()
    for text in ("pod-2", "pod-3"):
        assert text != world.context.identity
    lives(world, ("pod-2", ["c:work:00:7"]), ("pod-3", ["c:work:00:8"]), ("pod-4", []))
    return made


async def test_lag_has_the_rows_of_all_who_answer(world: World, others: Others) -> None:
    """A row that somebody tells of a partition that is not his is not taken."""
    await world.owns(0, range(3))
    group = views(world, others)
    rows = [row(7, "pod-2", 5), row(0, "pod-2", 6), row(8, "pod-3", 4)]
    others.replies[LAG] = packed(LagAnswer(rows, MessagesServed(1, 2, 3)))
    found = await group.lag()
    assert found.missing == {"pod-3": "asleep"}
    assert others.asked == [("pod-2", "pod-3", "pod-4")]
    shown = {(each.owner, each.partition): each.watermark for each in found.partitions}
    assert shown[world.context.identity, 0] == 0
    assert shown["pod-2", 7] == 5
    assert ("pod-3", 8) not in shown or shown["pod-3", 8] == -1
    own = await group.lag(others=False)
    assert (own.missing, len(others.asked)) == ({}, 1)


async def test_lag_says_what_each_sidecar_owns_and_has_handed_out(
    world: World, others: Others
) -> None:
    await world.owns(0, range(3))
    await world.topics.read()
    owned = f"cluster:{NAME}:{TOPIC_ID.hex()}:"
    lives(world, ("pod-2", [f"{owned}2"]), ("pod-3", [f"{owned}3"]), ("pod-4", []))
    me, served = world.context.identity, world.metrics.served
    for way, count in (("own", 9), ("for_peers", 4), ("through_peers", 2)):
        served.at(NAME, way).inc(count)
    copies = row(5, "pod-2", 1)
    copies.retry_topic = True
    rows = [row(2, "pod-2", 5), copies]
    others.replies[LAG] = packed(LagAnswer(rows, MessagesServed(1, 2, 3)))
    found = {each.sidecar: each for each in (await views(world, others).lag()).sidecars}
    assert list(found) == sorted([me, "pod-2", "pod-3", "pod-4"])
    assert found["pod-2"] == SidecarShare("pod-2", 1, 1, 9 - 5, MessagesServed(1, 2, 3))
    assert (found[me].partitions, found[me].served) == (1, MessagesServed(9, 4, 2))
    assert (found["pod-3"].lag, found["pod-3"].served) == (-1, None), "it did not answer"
    assert found["pod-4"] == SidecarShare("pod-4"), "it owns nothing"


async def test_of_many_sidecars_only_owners_are_asked(world: World, others: Others) -> None:
    """A question costs a link."""
    idle: list[tuple[str, list[str]]] = [(f"idle-{number}", []) for number in range(ASKED_MAX)]
    lives(world, ("pod-2", ["c:work:00:7"]), *idle)
    others.replies[LAG] = packed(LagAnswer([], MessagesServed()))
    assert len((await views(world, others).lag()).sidecars) == ASKED_MAX + 2
    assert others.asked == [("pod-2",)]


async def test_the_oldest_messages_of_all_come_first_and_within_the_limit(
    world: World, others: Others
) -> None:
    partition = await world.owns(0, range(2))
    await world.leases(partition, 2)
    now_ms = world.clock.wall_ms()
    theirs = [InFlight("far/0/1", "leased", 1, "x", now_ms + gap) for gap in (-60_000, 60_000)]
    group = views(world, others)
    others.replies[IN_FLIGHT] = packed(theirs)
    found = await group.in_flight(0, 2)
    assert [each.id for each in found.messages] == ["far/0/1", f"{TOPIC}/0/0"]
    assert found.missing == {"pod-3": "asleep"}
    assert len((await group.in_flight(0, 9, others=False)).messages) == 2


async def test_an_explanation_names_what_holds_everywhere(world: World, others: Others) -> None:
    await world.owns(1, range(2))
    key = HeldKey(InFlight("far/0/1", "leased", 1, "x", 0), "k", 3, blocked=False)
    theirs = Explanation(NAME, [HeldPartition(TOPIC, 0, 5, None, "an ack")], ["rate"], 4, [key])
    group = views(world, others)
    others.replies[EXPLAIN] = packed(theirs)
    found = await group.explain()
    assert [(each.partition, each.watermark) for each in found.partitions] == [(0, 5), (1, 0)]
    assert (found.elsewhere, found.limits, found.repeats) == ({"pod-2": ["rate"]}, [], 4)
    assert (found.ordered, found.missing) == ([key], {"pod-3": "asleep"})


async def test_an_answer_that_makes_no_sense_is_missing(world: World, others: Others) -> None:
    others.replies[EXPLAIN] = b"?"
    missing = (await views(world, others).explain()).missing
    assert "can't be read" in missing["pod-2"]


async def test_without_links_the_owners_are_named(world: World, others: Others) -> None:
    del others
    found = await views(world, None).explain()
    assert found.missing == {"pod-2": NO_LINKS, "pod-3": NO_LINKS}


@pytest.mark.parametrize("left", [False, True])
async def test_between_a_death_and_its_takeover_the_dead_one_is_named(
    world: World, others: Others, *, left: bool
) -> None:
    """Its partitions are in no answer: that is said, until one has taken the last of them."""
    others.replies[EXPLAIN] = packed(Explanation(NAME, []))
    others.replies[LAG] = packed(LagAnswer([], MessagesServed()))
    shown = views(world, others)
    note = write_note(MemberNote(left=left))
    owned, silent_ms = ("c:work:00:1", "c:work:00:2"), 0 if left else SILENT_MS
    gone = Member("pod-9", 1, silent_ms, "run-1", owned, note)
    alive = Member("pod-2", 1, 0, "run-1", ("c:work:00:2",), "")
    world.membership.view.update(Members(0, (gone, alive), superseded=False))
    assert (await shown.explain()).missing == {"pod-9": NOT_TAKEN}
    assert (await shown.lag()).missing == {"pod-9": NOT_TAKEN}
    assert (await shown.explain(others=False)).missing == {}
    assert (await views(world, None).explain()).missing == {"pod-9": NOT_TAKEN, "pod-2": NO_LINKS}
    taken = replace(alive, owned=owned)
    world.membership.view.update(Members(0, (gone, taken), superseded=False))
    assert (await shown.explain()).missing == {}


async def test_who_gave_partitions_away_is_named_with_them_until_all_are_taken(
    world: World, others: Others
) -> None:
    """The group took them, or the sidecar leaves: they are in no answer, and all who could answer
    do. Those of a topic that is gone nobody will ever take.
    """
    partition = await world.owns(0, range(2))
    await world.topics.read()
    record = partition.key.text().rpartition(":")[0]
    others.replies[EXPLAIN] = packed(Explanation(NAME, []))
    others.replies[LAG] = packed(LagAnswer([], MessagesServed()))
    others.replies |= dict.fromkeys((IN_FLIGHT, MESSAGES, MESSAGE), packed([]))
    shown, me = views(world, others), world.context.identity
    theirs = [f"{record}:{number}" for number in (3, 2, 0)] + ["c:work:00:7"]
    note = write_note(MemberNote(handed=theirs))
    alive = Member("pod-2", 1, 0, "run-1", ("c:work:00:2",), note)
    world.membership.view.update(Members(0, (alive,), superseded=False))
    world.membership.handed_over([f"{record}:1"])
    own, two = f"{GIVEN_AWAY}{TOPIC}/1", f"{GIVEN_AWAY}{TOPIC}/2, {TOPIC}/3"
    assert (await shown.explain()).missing == {"pod-2": two, me: own}
    assert (await shown.lag()).missing == {"pod-2": two, me: own}
    assert (await shown.in_flight(0, 9)).missing["pod-2"] == two
    assert (await shown.messages(frozenset(STATES), None, 9)).missing["pod-2"] == two
    assert (await shown.message(f"{TOPIC}/0/0")).missing["pod-2"] == two
    assert (await shown.explain(others=False)).missing == {}
    taken = Member("pod-3", 1, 0, "run-1", (f"{record}:1", f"{record}:2"), "")
    world.membership.view.update(Members(0, (alive, taken), superseded=False))
    assert (await shown.explain()).missing["pod-2"] == f"{GIVEN_AWAY}{TOPIC}/3"
    assert me not in (await shown.explain()).missing
    many = [f"{record}:{number}" for number in range(1, NAMED_MAX + 4)]
    rest = replace(alive, note=write_note(MemberNote(handed=many)))
    world.membership.view.update(Members(0, (rest,), superseded=False))
    assert (await shown.lag()).missing["pod-2"].endswith(f"{TOPIC}/{NAMED_MAX} and 3 more")


async def test_what_others_ask_is_answered_as_this_sidecar_sees_it(
    world: World, others: Others
) -> None:
    partition = await world.owns(0, range(2))
    await world.leases(partition, 2)
    group = views(world, others)
    own = await group.in_flight(0, 1, others=False)
    body = packed((0, 1))
    assert await others.answers[IN_FLIGHT](body) == packed(own.messages)
    lag = await group.lag(others=False)
    assert await others.answers[LAG](b"") == packed(LagAnswer(lag.partitions, MessagesServed()))
    told = msgspec.msgpack.decode(await others.answers[EXPLAIN](b""), type=Explanation)
    assert told.partitions == (await group.explain(others=False)).partitions
    with pytest.raises(ValueError, match="Expected"):
        await others.answers[IN_FLIGHT](packed("?"))


async def test_a_list_of_all_goes_on_where_the_page_before_ended(
    world: World, others: Others
) -> None:
    """What was delivered comes first, whoever owns it, then what never was."""
    partition = await world.owns(0, range(4))
    await world.leases(partition, 2)
    since_s = world.clock.wall_ms() // 1000
    group = views(world, others)
    theirs = [
        Listed(Place(since_s - 9, "far", 0, 3), InFlight("far/0/3", "retrying", 1, "", 1)),
        Listed(Place(since_s + 9, "far", 0, 5), InFlight("far/0/5", "leased", 1, "", 1)),
    ]
    found: list[str] = []
    cursor: str | None = None
    for _ in range(4):
        after = None if cursor is None else read_cursor(cursor)
        others.replies[MESSAGES] = packed([e for e in theirs if after is None or e.place > after])
        page = await group.messages(frozenset(STATES), cursor, 2)
        assert page.missing == {"pod-3": "asleep"}
        found += [each.id for each in page.messages]
        cursor = page.cursor
        if cursor is None:
            break
    orders = [f"{TOPIC}/0/{each}" for each in range(4)]
    assert found == ["far/0/3", *orders[:2], "far/0/5", *orders[2:]]
    assert cursor is None
    ready = await group.messages(frozenset({"ready"}), None, 9, others=False)
    assert [each.id for each in ready.messages] == orders[2:]
    for wrong in ("", "7", "x/far/0/3", "7/far/x/3"):
        with pytest.raises(BadParameterError):
            await group.messages(frozenset(STATES), wrong, 2)


async def test_one_message_is_asked_for_at_all_owners(world: World, others: Others) -> None:
    await world.leases(await world.owns(0, range(2)), 1)
    group, name = views(world, others), f"{TOPIC}/0/0"
    others.replies[MESSAGE] = packed([SeenMessage(InFlight(name, "leased", 1, "x", 0), "an ack")])
    found = await group.message(name)
    assert (found.holder, found.missing) == ("x", {"pod-3": "asleep"})
    told = msgspec.msgpack.decode(
        await others.answers[MESSAGE](name.encode()), type=list[SeenMessage]
    )
    assert [(each.view.id, each.view.state) for each in told] == [(name, "leased")]
    assert "an ack, or the end of its lease" in told[0].released_by
    body = packed((["leased"], Place(0, "a", 0, 0), 5))
    listed = msgspec.msgpack.decode(await others.answers[MESSAGES](body), type=list[Listed])
    assert [each.view.id for each in listed] == [name]
    for wrong in (b"\xff", b"x"):
        with pytest.raises(ValueError, match=r".*"):
            await others.answers[MESSAGE](wrong)
