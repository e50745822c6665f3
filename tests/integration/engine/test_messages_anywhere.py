"""One message by its id, and all unfinished ones, asked at each of two sidecars of which one owns
the only partition: through the whole life of a message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from ackd.api.dead_letters import DeadRequest, Kind, OperationView
from ackd.api.messages import STATES, Delivery, MessageView, SettleVerb
from ackd.engine.control import group_views
from ackd.errors import BadParameterError, UnknownMessageError
from tests.integration.engine.linked import NAME, TWO, Linked, Ring, ring_of
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
HOUR_MS = 3_600_000
ALL = frozenset(STATES)


@pytest.fixture(params=TWO)
async def ring(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    """A topic of one partition."""
    async with ring_of(request) as made:
        yield made


async def seen(ring: Ring, offset: int) -> MessageView:
    """What both say, which is the same."""
    name = f"{ring.topic}/0/{offset}"
    views = [await each.runtime.group(NAME).message(name) for each in ring.members]
    assert views[0] == views[1]
    assert not views[0].missing
    return views[0]


async def until(
    ring: Ring, offset: int, state: str, more: Callable[[MessageView], bool] = lambda _: True
) -> MessageView:
    """The view, as soon as it is in this state."""
    found: list[MessageView] = []

    async def there() -> bool:
        name = f"{ring.topic}/0/{offset}"
        views = [await each.runtime.group(NAME).message(name) for each in ring.members]
        found[:] = views
        return views[0] == views[1] and views[0].state == state and more(views[0])

    try:
        await wait_until_async(there, f"message {offset} to be {state}", timeout_s=30)
    except Exception as error:
        raise AssertionError(found) from error
    return found[0]


def via(member: Linked, holder: str) -> str:
    """How the owner calls one that asked there."""
    return f"via {member.name}: {holder}"


async def given(member: Linked, holder: str, lease_ms: int = HOUR_MS) -> Delivery:
    """The next message, for this holder."""
    return await member.one(holder=holder, lease_ms=lease_ms)


async def test_a_message_from_its_publication_to_its_end(ring: Ring) -> None:
    """Ready, leased, retrying, leased again, acked: the deliveries with their holders are told as
    long as it is unfinished, and no content ever.
    """
    owner, [other] = await ring.started(2)
    await owner.publish(2)
    ready = await until(ring, 0, "ready", lambda view: bool(view.released_by))
    assert (ready.attempt, ready.owner, ready.since_ms) == (0, owner.name, None)
    assert ready.released_by == "the next receive gets it"

    first = await given(other, "first")
    leased = await until(ring, 0, "leased")
    assert (leased.attempt, leased.holder, leased.owner) == (1, via(other, "first"), owner.name)
    assert leased.deadline_ms == first.deadline_ms
    assert leased.released_by.startswith("an ack, or the end of its lease; otherwise it moves")

    second = await given(owner, "second")  # offset 1
    retry = {"delay_ms": 8_000, "reason": "shop closed", "holder": "first"}
    await other.settle([first], SettleVerb.RETRY, **retry)
    waits = await until(ring, 0, "retrying")
    assert (waits.error, waits.first_error, waits.holder) == ("shop closed", "shop closed", "")
    assert waits.due_ms is not None
    again = await given(other, "third")
    assert (second.record.offset, again.record.offset) == (1, 0)
    told = await until(ring, 0, "leased", lambda view: len(view.history) > 1)
    assert [(each.holder, each.end, each.reason) for each in told.history] == [
        ("first", "retrying", "shop closed"),
        (via(other, "third"), "open", ""),
    ]
    assert (told.holder, told.attempt) == (via(other, "third"), 2)
    assert await owner.settle([again], SettleVerb.ACK) == ["acked"]
    over = await until(ring, 0, "acked")
    assert (over.owner, over.holder, over.deadline_ms, over.copy) == ("", "", None, None)
    for wrong in (f"{ring.topic}/0/2", f"{ring.topic}/7/0", "nothing/0/0"):
        for each in ring.members:
            with pytest.raises(UnknownMessageError):
                await each.runtime.group(NAME).message(wrong)


async def test_a_retry_and_its_reason_are_in_the_answer_that_follows_at_any_sidecar(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settled at one that owns nothing; asked at the owner, there, and at a third. At once: no
    second look, no wait. One that waits for an hour may be on its way to the retry topic.
    """
    # An owner that a busy machine holds up for longer than that is left out of the answer.
    monkeypatch.setattr(group_views, "ASK_MS", 60_000)
    owner, [other, third] = await ring.started(3)
    members, rounds = (owner, other, third), 6
    for number in range(rounds):  # each is at the head of the partition, then it is acked
        await owner.publish(1)
        message = await given(other, "first")
        reason = f"no shop {number}"
        await other.settle([message], SettleVerb.RETRY, delay_ms=200, reason=reason)
        explained = await members[number % 3].runtime.group(NAME).explain()
        assert explained.missing == {}
        [held] = [each for each in explained.partitions if each.topic == ring.topic]
        assert held.head is not None
        assert (held.head.id, held.head.error) == (message.id, reason)
        again = await given(other, "first")
        assert await other.settle([again], SettleVerb.ACK) == ["acked"]
    await owner.publish(2 * rounds)
    waits = ("retrying", "moving", "waiting_for_lease")
    for number in range(rounds):
        message = await given(other, "first")
        reason = f"no disk {number}"
        await other.settle([message], SettleVerb.RETRY, delay_ms=HOUR_MS, reason=reason)
        group = members[number % 3].runtime.group(NAME)
        told = await group.in_flight(0, 100)
        assert told.missing == {}
        seen = {each.id: each for each in told.messages}[message.id]
        assert (seen.error, seen.holder) == (reason, ""), number
        assert seen.state in waits
    for number in range(rounds):
        message = await given(other, "first")
        reason = f"no bread {number}"
        await other.settle([message], SettleVerb.RETRY, delay_ms=HOUR_MS, reason=reason)
        view = await members[number % 3].runtime.group(NAME).message(message.id)
        assert (view.missing, view.error, view.holder) == ({}, reason, ""), number
        assert view.state in waits


async def test_a_message_that_moved_died_and_was_redriven(ring: Ring) -> None:
    """Its copy and its dead letter are named, and its history goes on."""
    owner, [other] = await ring.started(2, stuck_after_ms=1_000, retry_delays_ms=(0,))
    await owner.publish(1)
    first = await given(other, "first")
    moved = await until(ring, 0, "waiting_for_lease")
    assert (moved.attempt, moved.holder) == (1, via(other, "first"))
    assert moved.deadline_ms == first.deadline_ms
    await other.settle([first], SettleVerb.RETRY, delay_ms=0, reason="no disk")
    second = await given(other, "second")
    held = await until(ring, 0, "leased", lambda view: view.copy is not None)
    assert held.copy is not None
    assert held.copy.startswith("ackd.retry.")
    assert (held.attempt, held.holder, held.error) == (2, via(other, "second"), "no disk")
    assert [each.holder for each in held.history] == [via(other, "first"), via(other, "second")]

    await owner.settle([second], SettleVerb.DEAD, reason="no shop")
    dead = await until(ring, 0, "dead", lambda view: view.dead_letter is not None)
    [letter] = (await other.runtime.dead.page(NAME, None, 10)).messages
    assert (dead.dead_letter, dead.attempt, dead.error) == (letter.id, 2, "no shop")
    assert [(each.holder, each.end) for each in dead.history] == [
        (via(other, "first"), "retrying"),
        (via(other, "second"), "dead"),
    ]

    begun = await other.runtime.dead.begin(NAME, DeadRequest(Kind.REDRIVE, ids=(letter.id,)))
    assert isinstance(begun, OperationView)
    third = await given(other, "third")
    again = await until(ring, 0, "leased")
    assert (again.attempt, again.holder, again.dead_letter) == (1, via(other, "third"), None)
    await other.settle([third], SettleVerb.ACK)
    over = await until(ring, 0, "acked")
    assert over.dead_letter is None


async def test_unfinished_messages_page_by_page(ring: Ring) -> None:
    """At both sidecars the same: first what was delivered, the oldest first. A message keeps its
    place when it moves to the retry topic.
    """
    owner, [other] = await ring.started(2)
    await owner.publish(7)
    first, second, third = await other.collect(3, most=1, lease_ms=HOUR_MS)
    await other.settle([second], SettleVerb.RETRY, delay_ms=HOUR_MS, reason="later")
    await other.settle([third], SettleVerb.ACK)

    async def listed(member: Linked, states: frozenset[str], most: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        cursor: str | None = None
        for _ in range(20):
            page = await member.runtime.group(NAME).messages(states, cursor, most)
            assert not page.missing
            assert len(page.messages) <= most
            found += [(each.id.rpartition("/")[2], each.state) for each in page.messages]
            cursor = page.cursor
            if cursor is None:
                break
        return found

    whole = [("0", "leased"), ("1", "retrying"), *((str(n), "ready") for n in range(3, 7))]

    async def same() -> bool:
        lists = [await listed(each, ALL, most) for each in ring.members for most in (2, 100)]
        return all(each == whole for each in lists)

    await until(ring, 1, "retrying", lambda view: view.copy is not None)
    await wait_until_async(same, "both to list all six")
    for member in ring.members:
        assert await listed(member, frozenset({"retrying"}), 5) == [("1", "retrying")]
        with pytest.raises(BadParameterError):
            await member.runtime.group(NAME).messages(ALL, "nonsense", 5)
    await other.settle([first], SettleVerb.ACK)
