"""Outboxes: nothing accepted is lost, order by due time, one holder, results (I1, I8)."""

import random
from uuid import uuid4

import pytest

from ackd.core.outbox import (
    Bounds,
    EnqueueRequest,
    MessageStatus,
    NewMessage,
    ResultRetention,
    SendResult,
    TakeRequest,
    TakeResult,
)
from ackd.ports import Store
from ackd.store.memory import MemoryStore
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]

BOUNDS = Bounds(messages_max=1000, bytes_max=1 << 20, idempotency_ms=60_000)
KEEP = ResultRetention(result_ms=60_000, results_max=1000, failed_ms=60_000)
LEASE_MS = 30_000


def name() -> str:
    """An outbox that no other test uses."""
    return f"outbox-{uuid4()}"


def enqueue(*bodies: bytes, delay_ms: int = 0, idempotency_key: bytes = b"") -> EnqueueRequest:
    """A request."""
    return EnqueueRequest(idempotency_key, tuple(NewMessage(delay_ms, body) for body in bodies))


class Holder:
    """One that sends, as a sidecar does: it knows its term, and counts its questions."""

    def __init__(self, store: Store, box: str, owner: str) -> None:
        self.owner = owner
        self.term = self.seq = 0
        self._outbox, self._box = store.outboxes, box

    async def take(
        self, most: int = 100, bytes_max: int = 1 << 20, have: list[int] | None = None
    ) -> TakeResult:
        """Ask for messages."""
        self.seq += 1
        answer = await self.ask(self.term, self.seq, most, bytes_max, have)
        self.term = answer.term
        return answer

    async def ask(
        self,
        term: int,
        seq: int,
        most: int,
        bytes_max: int = 1 << 20,
        have: list[int] | None = None,
    ) -> TakeResult:
        """Ask for messages with any term and number; the answer is not heard."""
        request = TakeRequest(self.owner, term, seq, LEASE_MS)
        return await self._outbox.take(self._box, request, most, bytes_max, have)


async def test_accepted_messages_are_taken_in_order_and_confirmed(store: Store) -> None:
    outbox, box = store.outboxes, name()
    me = Holder(store, box, "me#1")
    first, second = await outbox.enqueue(box, [enqueue(b"a", b"\x00{b}"), enqueue(b"c")], BOUNDS)
    one, two, three = range(first.first, first.first + 3)
    assert (one, second.first) == (1, three)
    answer = await me.take()
    assert [(p.number, p.body, p.in_doubt) for p in answer.messages] == [
        (one, b"a", False),
        (two, b"\x00{b}", False),
        (three, b"c", False),
    ]
    assert (answer.term, answer.holder, answer.waiting, answer.size) == (
        1,
        "me#1",
        0,
        6,
    )
    assert (await outbox.status(box, two)).state == "sending"
    sent = [SendResult(one, b"one"), SendResult(three, b"no", failed=True)]
    for _ in range(2):
        assert await outbox.done(box, "me#1", 1, LEASE_MS, sent, KEEP), "may be repeated"
    assert await outbox.status(box, one) == MessageStatus("sent", 0, in_doubt=False, result=b"one")
    assert await outbox.status(box, three) == MessageStatus(
        "failed", 0, in_doubt=False, result=b"no"
    )
    assert await outbox.status(box, three + 1) == MessageStatus("")
    answer = await me.take()
    assert (list(answer.messages), answer.failed, answer.size) == ([], 1, 5)
    assert await outbox.again(box, three)
    assert not await outbox.again(box, three)
    assert await outbox.done(box, "me#1", 1, LEASE_MS, sent, KEEP), "repeated behind that"
    answer = await me.take()
    assert [p.body for p in answer.messages] == [b"c"]


async def test_due_times_decide_and_nothing_comes_early(store: Store) -> None:
    outbox, box, seed = store.outboxes, name(), random.randrange(1 << 30)
    delays = [random.Random(seed).choice([0, 0, 200, 350, 400, 600]) for _ in range(40)]
    requests = [enqueue(b"%d" % at, delay_ms=delay) for at, delay in enumerate(delays)]
    accepted = await outbox.enqueue(box, requests, BOUNDS)
    due = {each.first: each.now_ms + delay for each, delay in zip(accepted, delays, strict=True)}
    seen: list[int] = []
    me = Holder(store, box, "me")

    async def all_taken() -> bool:
        answer = await me.take(7)
        for taken in answer.messages:
            assert taken.due_ms == due[taken.number] <= answer.now_ms, seed
            seen.append(taken.number)
        left = [due[number] for number in due if number not in seen]
        assert answer.next_due_ms == min(left, default=0), seed
        return not left

    await wait_until_async(all_taken, "everything to fall due", interval_s=0.02)
    assert seen == sorted(due, key=lambda number: (due[number], number)), seed


async def test_one_holder_and_doubt_after_a_takeover(store: Store) -> None:
    outbox, box = store.outboxes, name()
    a, b = Holder(store, box, "a"), Holder(store, box, "b")
    assert (await a.take()).term == 0, "an empty one has no holder"
    n1 = (await outbox.enqueue(box, [enqueue(b"1", b"2", b"3", b"4")], BOUNDS))[0].first
    n2, n3, n4 = range(n1 + 1, n1 + 4)
    assert (await b.take(0)).term == 0, "looking takes nothing"
    answer = await a.take(3)
    assert [p.number for p in answer.messages] == [n1, n2, n3]
    other = await b.take()
    assert (other.term, other.holder, list(other.messages)) == (0, "a", [])
    assert await outbox.done(box, "a", answer.term, 300, [SendResult(n1, b"x")], KEEP)

    async def taken_over() -> bool:
        nonlocal other
        other = await b.take()
        return other.term > 0

    await wait_until_async(taken_over, "the lease to run out", interval_s=0.02)
    assert other.term == answer.term + 1
    assert [(p.number, p.in_doubt) for p in other.messages] == [(n2, True), (n3, True), (n4, False)]
    assert not await outbox.done(box, "a", answer.term, 300, [SendResult(n2, b"x")], KEEP), "fenced"
    assert not await outbox.release(box, "a", answer.term, [])
    assert (await outbox.status(box, n2)).in_doubt
    assert await outbox.release(box, "b", other.term, [n4])
    answer = await a.take()
    assert answer.term == other.term + 1
    assert [(p.number, p.in_doubt) for p in answer.messages] == [
        (n2, True),
        (n3, True),
        (n4, False),
    ]


async def test_a_lost_answer_to_a_take_loses_no_message(store: Store) -> None:
    box = name()
    me = Holder(store, box, "a")
    n1 = (await store.outboxes.enqueue(box, [enqueue(b"1", b"2", b"3", b"4")], BOUNDS))[0].first
    await me.take(1)
    await me.take(2)  # nobody saw this answer
    answer = await me.take(have=[n1])
    assert [(p.number, p.in_doubt) for p in answer.messages] == [
        (n1 + at, False) for at in range(1, 4)
    ]


async def test_a_late_question_changes_nothing(store: Store) -> None:
    """I6, R20: one that nobody waits for any more arrives after the next one of that sidecar."""
    outbox, box = store.outboxes, name()
    me, other = Holder(store, box, "a"), Holder(store, box, "b")
    n1 = (await outbox.enqueue(box, [enqueue(b"1", b"2")], BOUNDS))[0].first
    await me.take(1)
    me.seq += 1  # on its way for a while
    answer = await me.take(0)
    nothing: tuple[list[int] | None, ...] = (None, [])
    for have in nothing:
        late = await me.ask(me.term, me.seq - 1, 100, have=have)
        assert (late.term, list(late.messages)) == (0, [])
    assert (await outbox.status(box, n1)).state == "sending", "it is not laid back"
    assert (await outbox.status(box, n1 + 1)).state == "waiting", "nor is more taken"
    assert await outbox.release(box, "a", answer.term, [n1])
    assert not (await me.ask(answer.term, me.seq, 100)).term, "nor is a lease taken that was let go"
    assert [p.number for p in (await other.take()).messages] == [n1, n1 + 1]


async def test_who_does_not_know_its_lease_begins_anew(store: Store) -> None:
    """I6: the answer that told the term was lost, with what was taken under it."""
    outbox, box = store.outboxes, name()
    me = Holder(store, box, "a")
    n1 = (await outbox.enqueue(box, [enqueue(b"1", b"2", b"3")], BOUNDS))[0].first
    unheard = await me.ask(0, 1, 2)
    me.seq = 1
    answer = await me.take()
    assert answer.term == unheard.term + 1
    assert [(p.number, p.in_doubt) for p in answer.messages] == [
        (n1, True),
        (n1 + 1, True),
        (n1 + 2, False),
    ]
    assert not await outbox.done(box, "a", unheard.term, LEASE_MS, [SendResult(n1, b"x")], KEEP)


async def test_what_was_sent_is_done_where_it_waits_again(store: Store) -> None:
    """R20: a failover has forgotten that it was taken; its sender has not."""
    outbox, box = store.outboxes, name()
    me = Holder(store, box, "a")
    n1 = (await outbox.enqueue(box, [enqueue(b"1", b"2", b"3")], BOUNDS))[0].first
    answer = await me.take(1)
    told = [SendResult(n1 + 1, b"sent"), SendResult(n1 + 2, b"refused", failed=True)]
    assert await outbox.done(box, "a", answer.term, LEASE_MS, told, KEEP)
    assert (await outbox.status(box, n1 + 1)).state == "sent"
    assert [p.number for p in (await me.take()).messages] == [n1 + 2]


async def test_bounds_and_bytes(store: Store) -> None:
    outbox, box = store.outboxes, name()
    bounds = Bounds(messages_max=3, bytes_max=100, idempotency_ms=60_000)
    answers = await outbox.enqueue(
        box, [enqueue(b"1", b"2"), enqueue(b"3", b"4"), enqueue(b"3"), enqueue(b"4")], bounds
    )
    n1 = answers[0].first
    assert [(a.first, a.refused) for a in answers] == [
        (n1, ""),
        (0, "messages"),
        (n1 + 2, ""),
        (0, "messages"),
    ]
    box = name()
    me = Holder(store, box, "me")
    answers = await outbox.enqueue(
        box, [enqueue(b"x" * 60), enqueue(b"x" * 41), enqueue(b"x" * 40)], bounds
    )
    n1 = answers[0].first
    assert [(a.first, a.refused) for a in answers] == [(n1, ""), (0, "bytes"), (n1 + 1, "")]
    answer = await me.take(bytes_max=10)
    assert [p.number for p in answer.messages] == [n1], "the first one whatever its size"
    sent = [SendResult(n1, b"r")]
    assert await outbox.done(box, "me", answer.term, LEASE_MS, sent, KEEP)
    assert (await outbox.enqueue(box, [enqueue(b"x" * 60)], bounds))[0].first > n1 + 1


async def test_a_ticket_accepts_once(store: Store) -> None:
    outbox, box = store.outboxes, name()
    first = (await outbox.enqueue(box, [enqueue(b"1", b"2", idempotency_key=b"t\x00")], BOUNDS))[0]
    again = (await outbox.enqueue(box, [enqueue(b"1", b"2", idempotency_key=b"t\x00")], BOUNDS))[0]
    assert again == first._replace(replayed=True)
    brief = BOUNDS._replace(idempotency_ms=100)
    other = (await outbox.enqueue(box, [enqueue(b"1", idempotency_key=b"u")], brief))[0]
    assert other.first > first.first + 1

    async def forgotten() -> bool:
        return not (await outbox.enqueue(box, [enqueue(b"1", idempotency_key=b"u")], brief))[
            0
        ].replayed

    await wait_until_async(forgotten, "the key to run out", interval_s=0.05)


async def test_results_are_bounded_in_number_and_time(store: Store) -> None:
    outbox, box = store.outboxes, name()
    keep, brief = ResultRetention(60_000, 5, 60_000), ResultRetention(200, 5, 200)
    me = Holder(store, box, "me")
    n1 = (await outbox.enqueue(box, [enqueue(*(b"%d" % n for n in range(10)))], BOUNDS))[0].first
    answer = await me.take()
    sent = [SendResult(p.number, b"r", failed=p.number == n1) for p in answer.messages]
    assert await outbox.done(box, "me", answer.term, LEASE_MS, sent, keep)
    states = [(await outbox.status(box, number)).state for number in range(n1, n1 + 10)]
    assert states.count("sent") in (4, 5)
    assert states[0] == "failed", "a failed one is not forgotten for lack of room"

    other = name()
    me = Holder(store, other, "me")
    n1 = (await outbox.enqueue(other, [enqueue(b"1", b"2", b"3")], BOUNDS))[0].first
    answer = await me.take()
    sent = [SendResult(n1, b"r", failed=True), SendResult(n1 + 1, b"r")]
    assert await outbox.done(other, "me", answer.term, LEASE_MS, sent, brief)

    async def forgotten() -> bool:
        assert await outbox.done(other, "me", answer.term, LEASE_MS, [], brief)
        states = [(await outbox.status(other, number)).state for number in range(n1, n1 + 3)]
        return states == ["", "", "sending"]

    await wait_until_async(forgotten, "what was sent and what failed to be forgotten")
    assert (await me.take(0, 0)).size == 1


@pytest.mark.parametrize("turn", range(3))
async def test_every_store_decides_as_the_reference_does(store: Store, turn: int) -> None:
    """Any questions in any order: of two sidecars, late ones, with terms of before."""
    seed = random.randrange(1 << 30) + turn
    chance, box = random.Random(seed), name()
    both = (store.outboxes, MemoryStore().outboxes)
    seqs, terms, last = {"a": 0, "b": 0}, {"a": [0], "b": [0]}, 0
    for _ in range(150):
        owner = chance.choice("ab")
        term = chance.choice(terms[owner][-2:])
        some = chance.sample(range(1, last + 1), min(last, chance.randrange(4)))
        answers: list[object] = []
        match chance.choice(("enqueue", *["take"] * 3, *["done"] * 2, "release", "again")):
            case "enqueue":
                idempotency_key = b"t%d" % chance.randrange(3) if chance.random() < 0.3 else b""
                request = enqueue(
                    *[b"body"] * chance.randint(1, 3), idempotency_key=idempotency_key
                )
                enqueued = [(await each.enqueue(box, [request], BOUNDS))[0] for each in both]
                answers = [each._replace(now_ms=0) for each in enqueued]
                last = max(last, enqueued[0].first + len(request.messages) - 1)
            case "take":
                seqs[owner] += 1
                seq = seqs[owner] - chance.choice([0, 0, 0, 1, 2])
                take = TakeRequest(owner, term, seq, LEASE_MS)
                most, have = chance.randrange(5), chance.choice([None, None, some])
                loads = [await each.take(box, take, most, 1000, have) for each in both]
                terms[owner].append(loads[0].term)
                answers = [_timeless(each) for each in loads]
            case "done":
                sent = [SendResult(n, b"r", failed=chance.random() < 0.3) for n in some]
                answers = [await each.done(box, owner, term, LEASE_MS, sent, KEEP) for each in both]
            case "release":
                answers = [await each.release(box, owner, term, some) for each in both]
            case _:
                answers = [await each.again(box, n) for each in both for n in some[:1]]
        looks = [
            [(await each.status(box, n))._replace(due_ms=0) for n in range(1, last + 1)]
            for each in both
        ]
        assert answers[:1] == answers[1:], seed
        assert looks[0] == looks[1], seed


def _timeless(answer: TakeResult) -> object:
    messages = [each._replace(due_ms=0) for each in answer.messages]
    return answer._replace(now_ms=0, next_due_ms=bool(answer.next_due_ms), messages=messages)


async def test_a_value_that_is_swapped_keeps_its_time(store: Store) -> None:
    value = name()
    await store.put(value, b"one", 150)
    assert await store.swap(value, b"one", b"two") == b"two"
    assert await store.swap(value, b"one", b"three") == b"two"

    async def gone() -> bool:
        return await store.get(value) is None

    await wait_until_async(gone, "the value to run out", interval_s=0.02)
