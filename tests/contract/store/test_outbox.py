"""Outboxes: nothing accepted is lost, order by due time, one holder, results (I1, I8)."""

import random
from uuid import uuid4

import pytest

from ackd.core.outbox import Bounds, Keep, Look, Post, Posting, Sent
from ackd.ports import Store
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]

BOUNDS = Bounds(messages_max=1000, bytes_max=1 << 20, ticket_ms=60_000)
KEEP = Keep(result_ms=60_000, results_max=1000, failed_ms=60_000)
LEASE_MS = 30_000


def name() -> str:
    """An outbox that no other test uses."""
    return f"outbox-{uuid4()}"


def post(*bodies: bytes, delay_ms: int = 0, ticket: bytes = b"") -> Post:
    """A request."""
    return Post(ticket, tuple(Posting(delay_ms, body) for body in bodies))


async def test_accepted_messages_are_taken_in_order_and_confirmed(store: Store) -> None:
    outbox, box = store.outboxes, name()
    first, second = await outbox.post(box, [post(b"a", b"\x00{b}"), post(b"c")], BOUNDS)
    assert (first.first, second.first) == (1, 3)
    load = await outbox.take(box, "me#1", LEASE_MS, 10, 1 << 20)
    assert [(p.number, p.body, p.doubtful) for p in load.parcels] == [
        (1, b"a", False),
        (2, b"\x00{b}", False),
        (3, b"c", False),
    ]
    assert (load.term, load.holder, load.waiting, load.size) == (1, "me#1", 0, 6)
    assert (await outbox.look(box, 2)).state == "sending"
    sent = [Sent(1, b"one"), Sent(3, b"no", failed=True)]
    for _ in range(2):
        assert await outbox.done(box, "me#1", 1, LEASE_MS, sent, KEEP), "may be repeated"
    assert await outbox.look(box, 1) == Look("sent", 0, doubtful=False, result=b"one")
    assert await outbox.look(box, 3) == Look("failed", 0, doubtful=False, result=b"no")
    assert await outbox.look(box, 4) == Look("")
    load = await outbox.take(box, "me#1", LEASE_MS, 10, 1 << 20)
    assert (list(load.parcels), load.failed, load.size) == ([], 1, 5)
    assert await outbox.again(box, 3)
    assert not await outbox.again(box, 3)
    load = await outbox.take(box, "me#1", LEASE_MS, 10, 1 << 20)
    assert [p.body for p in load.parcels] == [b"c"]


async def test_due_times_decide_and_nothing_comes_early(store: Store) -> None:
    outbox, box, seed = store.outboxes, name(), random.randrange(1 << 30)
    delays = [random.Random(seed).choice([0, 0, 200, 350, 400, 600]) for _ in range(40)]
    posts = [post(b"%d" % at, delay_ms=delay) for at, delay in enumerate(delays)]
    accepted = await outbox.post(box, posts, BOUNDS)
    due = {each.first: each.now_ms + delay for each, delay in zip(accepted, delays, strict=True)}
    seen: list[int] = []

    async def all_taken() -> bool:
        load = await outbox.take(box, "me", LEASE_MS, 7, 1 << 20)
        for parcel in load.parcels:
            assert parcel.due_ms == due[parcel.number] <= load.now_ms, seed
            seen.append(parcel.number)
        left = [due[number] for number in due if number not in seen]
        assert load.next_due_ms == min(left, default=0), seed
        return not left

    await wait_until_async(all_taken, "everything to fall due", interval_s=0.02)
    assert seen == sorted(due, key=lambda number: (due[number], number)), seed


async def test_one_holder_and_doubt_after_a_takeover(store: Store) -> None:
    outbox, box = store.outboxes, name()
    assert (await outbox.take(box, "a", LEASE_MS, 10, 100)).term == 0, "an empty one has no holder"
    await outbox.post(box, [post(b"1", b"2", b"3", b"4")], BOUNDS)
    assert (await outbox.take(box, "b", LEASE_MS, 0, 100)).term == 0, "looking takes nothing"
    load = await outbox.take(box, "a", LEASE_MS, 3, 100)
    assert [p.number for p in load.parcels] == [1, 2, 3]
    other = await outbox.take(box, "b", LEASE_MS, 10, 100)
    assert (other.term, other.holder, list(other.parcels)) == (0, "a", [])
    assert await outbox.done(box, "a", load.term, 300, [Sent(1, b"x")], KEEP)

    async def taken_over() -> bool:
        nonlocal other
        other = await outbox.take(box, "b", LEASE_MS, 10, 100)
        return other.term > 0

    await wait_until_async(taken_over, "the lease to run out", interval_s=0.02)
    assert other.term == load.term + 1
    assert [(p.number, p.doubtful) for p in other.parcels] == [(2, True), (3, True), (4, False)]
    assert not await outbox.done(box, "a", load.term, 300, [Sent(2, b"x")], KEEP), "fenced"
    assert not await outbox.release(box, "a", load.term, [])
    assert (await outbox.look(box, 2)).doubtful
    assert await outbox.release(box, "b", other.term, [4])
    load = await outbox.take(box, "a", LEASE_MS, 10, 100)
    assert load.term == other.term + 1
    assert [(p.number, p.doubtful) for p in load.parcels] == [(2, True), (3, True), (4, False)]


async def test_a_lost_answer_to_a_take_loses_no_message(store: Store) -> None:
    outbox, box = store.outboxes, name()
    await outbox.post(box, [post(b"1", b"2", b"3", b"4")], BOUNDS)
    await outbox.take(box, "a", LEASE_MS, 1, 100)
    await outbox.take(box, "a", LEASE_MS, 2, 100)  # nobody saw this answer
    load = await outbox.take(box, "a", LEASE_MS, 10, 100, have=[1])
    assert [(p.number, p.doubtful) for p in load.parcels] == [(2, False), (3, False), (4, False)]


async def test_bounds_and_bytes(store: Store) -> None:
    outbox, box = store.outboxes, name()
    bounds = Bounds(messages_max=3, bytes_max=100, ticket_ms=60_000)
    answers = await outbox.post(
        box, [post(b"1", b"2"), post(b"3", b"4"), post(b"3"), post(b"4")], bounds
    )
    assert [(a.first, a.refused) for a in answers] == [
        (1, ""),
        (0, "messages"),
        (3, ""),
        (0, "messages"),
    ]
    box = name()
    answers = await outbox.post(box, [post(b"x" * 60), post(b"x" * 41), post(b"x" * 40)], bounds)
    assert [(a.first, a.refused) for a in answers] == [(1, ""), (0, "bytes"), (2, "")]
    load = await outbox.take(box, "me", LEASE_MS, 10, 10)
    assert [p.number for p in load.parcels] == [1], "the first one whatever its size"
    sent = [Sent(1, b"r")]
    assert await outbox.done(box, "me", load.term, LEASE_MS, sent, KEEP)
    assert (await outbox.post(box, [post(b"x" * 60)], bounds))[0].first == 3


async def test_a_ticket_accepts_once(store: Store) -> None:
    outbox, box = store.outboxes, name()
    first = (await outbox.post(box, [post(b"1", b"2", ticket=b"t\x00")], BOUNDS))[0]
    again = (await outbox.post(box, [post(b"1", b"2", ticket=b"t\x00")], BOUNDS))[0]
    assert again == first._replace(replayed=True)
    brief = BOUNDS._replace(ticket_ms=100)
    assert (await outbox.post(box, [post(b"1", ticket=b"u")], brief))[0].first == 3

    async def forgotten() -> bool:
        return not (await outbox.post(box, [post(b"1", ticket=b"u")], brief))[0].replayed

    await wait_until_async(forgotten, "the ticket to run out", interval_s=0.05)


async def test_results_are_bounded_in_number_and_time(store: Store) -> None:
    outbox, box = store.outboxes, name()
    keep, brief = Keep(60_000, 5, 60_000), Keep(200, 5, 200)
    await outbox.post(box, [post(*(b"%d" % n for n in range(10)))], BOUNDS)
    load = await outbox.take(box, "me", LEASE_MS, 100, 1000)
    sent = [Sent(p.number, b"r", failed=p.number == 1) for p in load.parcels]
    assert await outbox.done(box, "me", load.term, LEASE_MS, sent, keep)
    states = [(await outbox.look(box, number)).state for number in range(1, 11)]
    assert states.count("sent") in (4, 5)
    assert states[0] == "failed", "a failed one is not forgotten for lack of room"

    other = name()
    await outbox.post(other, [post(b"1", b"2", b"3")], BOUNDS)
    load = await outbox.take(other, "me", LEASE_MS, 100, 1000)
    sent = [Sent(1, b"r", failed=True), Sent(2, b"r")]
    assert await outbox.done(other, "me", load.term, LEASE_MS, sent, brief)

    async def forgotten() -> bool:
        assert await outbox.done(other, "me", load.term, LEASE_MS, [], brief)
        states = [(await outbox.look(other, number)).state for number in range(1, 4)]
        return states == ["", "", "sending"]

    await wait_until_async(forgotten, "what was sent and what failed to be forgotten")
    assert (await outbox.take(other, "me", LEASE_MS, 0, 0)).size == 1
