"""What every store promises; the same tests on memory and on all kinds of servers."""

import asyncio
from operator import attrgetter

import pytest

from ackd.core.bitmap import CHUNK_OFFSETS
from ackd.core.record.operations import Advance, Drop, FinishOrigin, Gap, Grant, LookUp
from ackd.core.record.protocol import CallStatus, Finish, Open, OpResult, RecordCall
from ackd.core.record.transitions import Outcome, State, Verb
from ackd.ports import Store
from tests.contract.store.owner import Owner, fresh_key
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
MANY = 10_000


async def test_a_record_is_made_once_and_read_again(store: Store) -> None:
    owner = Owner(store)
    assert (await owner.open(create_at=None)).verdict is CallStatus.ABSENT
    first = await owner.open(create_at=7)
    assert (first.verdict, first.created, first.watermark) == (CallStatus.OK, True, 7)
    again = await owner.open(again=True, create_at=99)
    assert (again.created, again.watermark, again.term) == (False, 7, first.term)
    assert again.incarnation == first.incarnation


async def test_a_look_at_a_record_changes_nothing(store: Store) -> None:
    owner = Owner(store)
    look = Open(
        owner.key, "who#1", rollback_epoch=7, incarnation=7, grace_ms=0, create_at=3, peek=True
    )
    assert (await store.open(look)).verdict is CallStatus.ABSENT
    taken = await owner.open(create_at=7)
    acks = await owner.grant(8, 9)
    await owner.call(acks[0])
    seen = await store.open(look)
    assert (seen.verdict, seen.created, seen.watermark) == (CallStatus.OK, False, 7)
    assert (seen.term, seen.epoch, seen.incarnation) == (taken.term, 0, taken.incarnation)
    assert [slot.offset for slot in seen.slots] == [9]
    assert seen.chunks[0][1] == 0b1000_0000
    # The owner goes on as if nobody had looked.
    assert (await owner.call(acks[1])).results[0].outcome is Outcome.ACKED


async def test_r5_a_takeover_fences_the_owner_before(store: Store) -> None:
    old = Owner(store)
    await old.open()
    acks = await old.grant(1)
    new = Owner(store, old.key, name="other#1")
    snapshot = await new.open()
    assert snapshot.previous_owner == "me#1"
    assert snapshot.term > old.term
    assert [slot.offset for slot in snapshot.slots] == [1]
    refused = await old.call(Grant.of(2, 1000, 1))
    assert (refused.verdict, refused.term) == (CallStatus.FENCED, new.term)
    assert (await old.foreign(*acks)).results[0].outcome is Outcome.ACKED


async def test_r12_a_call_that_comes_late_changes_nothing(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    await owner.grant(1)
    late = RecordCall(owner.key, [Grant.of(2, 1000, 1)], owner.term, owner.seq)
    assert (await store.apply([late]))[0].verdict is CallStatus.STALE
    assert [slot.offset for slot in (await owner.open(again=True)).slots] == [1]


async def test_i2_an_ack_is_kept_and_its_repeat_is_told_so(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    acks = await owner.grant(*range(100))
    reply = await owner.call(*acks)
    assert {result.outcome for result in reply.results} == {Outcome.ACKED}
    assert {result.state for result in reply.results} == {State.FINISHED}
    reply = await owner.call(*acks, Grant.of(5, 1000, 1))
    assert [result.outcome for result in reply.results] == [Outcome.ALREADY_ACKED] * 100 + [
        Outcome.FINISHED
    ]
    snapshot = await Owner(store, owner.key).open()
    assert snapshot.slots == []
    assert snapshot.chunks[0][:14] == b"\xff" * 12 + b"\xf0\x00"


async def test_i3_a_leased_message_is_held_and_a_wrong_token_is_lost(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    (ack,) = await owner.grant(3)
    held = await owner.one(Grant.of(3, 1000, 1))
    assert held.outcome is Outcome.HELD
    assert held.when_ms > 0
    wrong = await owner.one(ack._replace(fence=ack.fence - 1))
    assert (wrong.outcome, wrong.state) == (Outcome.LOST, State.LEASED)
    assert (await owner.one(ack)).outcome is Outcome.ACKED


async def test_r13_the_items_of_a_call_are_decided_in_their_order(store: Store) -> None:
    """Each sees what those before it did, and a call of very many items is one call."""
    owner = Owner(store)
    await owner.open()
    first, second = await owner.grant(1, 2)
    longer = first._replace(verb=Verb.EXTEND, for_ms=60_000)
    reply = await owner.call(
        *(longer, first, longer, first),
        *(second, Grant.of(2, 1000, 1)),
        *(Grant.of(3, 60_000, 2), Grant.of(3, 60_000, 3)),
    )
    found = [each.outcome for each in reply.results]
    assert found == [
        *(Outcome.EXTENDED, Outcome.ACKED, Outcome.LOST, Outcome.ALREADY_ACKED),
        *(Outcome.ACKED, Outcome.FINISHED),
        *(Outcome.GRANTED, Outcome.HELD),
    ]
    many = await owner.grant(*range(10, 10 + MANY))
    done = await owner.call(*many, *many)
    assert [each.outcome for each in done.results[:MANY]] == [Outcome.ACKED] * MANY
    assert [each.outcome for each in done.results[MANY:]] == [Outcome.ALREADY_ACKED] * MANY


async def test_i4_a_lease_ends_at_its_deadline_and_a_late_ack_counts(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    (other,) = await owner.grant(1, lease_ms=30)  # first, so that it has ended when the next has
    (ack,) = await owner.grant(0, lease_ms=30)

    async def granted() -> OpResult | None:
        result = await owner.one(Grant.of(0, 60_000, 1))
        return None if result.outcome is Outcome.HELD else result

    again = await wait_until_async(granted, "the lease ends")
    assert again is not None
    assert (again.outcome, again.attempt) == (Outcome.GRANTED, 2)
    assert again.fence > ack.fence
    assert (await owner.one(ack)).outcome is Outcome.LOST
    late = await owner.one(other)
    assert (late.outcome, late.late) == (Outcome.ACKED, True)


async def test_retry_extend_release_and_dead(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    retry, extend, release, dead = [
        ack._replace(verb=verb, for_ms=20)
        for ack, verb in zip(
            await owner.grant(0, 1, 2, 3),
            [Verb.RETRY, Verb.EXTEND, Verb.RELEASE, Verb.DEAD],
            strict=True,
        )
    ]
    reply = await owner.call(retry, extend._replace(for_ms=90_000), release, dead)
    assert [result.outcome for result in reply.results] == [
        Outcome.RETRYING,
        Outcome.EXTENDED,
        Outcome.RELEASED,
        Outcome.DEAD,
    ]
    assert reply.results[1].when_ms - reply.now_ms == 90_000
    assert (await owner.one(retry)).outcome is Outcome.RETRYING
    regranted = await owner.one(Grant.of(2, 1000, 1))
    assert (regranted.outcome, regranted.attempt) == (Outcome.GRANTED, 1)
    assert (await owner.one(Grant.of(3, 1000, 1))).outcome is Outcome.REFUSED
    finish = FinishOrigin(3, dead.fence, dead.rollback_epoch, Finish.DEAD)
    assert (await owner.one(finish)).outcome is Outcome.DONE
    assert (await owner.one(dead._replace(verb=Verb.ACK))).outcome is Outcome.LOST


async def test_r16_the_owner_hears_of_foreign_settles(store: Store) -> None:
    owner = Owner(store)
    snapshot = await owner.open()
    acks = await owner.grant(4, 5, 6)
    await owner.foreign(acks[0], acks[1]._replace(verb=Verb.EXTEND, for_ms=1000))
    reply = await owner.call(journal_from=snapshot.journal_next)
    assert [(e.offset, e.outcome) for e in reply.journal or []] == [
        (4, Outcome.ACKED),
        (5, Outcome.EXTENDED),
    ]
    assert reply.journal_next == snapshot.journal_next + 2
    assert (await owner.call(journal_from=reply.journal_next)).journal == []
    assert (await owner.call(journal_from=reply.journal_next + 1)).journal is None


async def test_gaps_watermark_and_freed_chunks(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    (ack,) = await owner.grant(10)
    end = 2 * CHUNK_OFFSETS + 100
    kept = await owner.one(Gap(0, end))
    assert (kept.outcome, kept.when_ms) == (Outcome.DONE, 1)
    await owner.one(ack)
    snapshot = await owner.open(again=True)
    assert sorted(snapshot.chunks) == [0, 1, 2]
    assert snapshot.chunks[0] == snapshot.chunks[1] == b"\xff" * 4096
    reply = await owner.call(Advance(end), Drop(end))
    assert reply.watermark == end
    snapshot = await owner.open(again=True)
    assert (sorted(snapshot.chunks), snapshot.watermark) == ([2], end)
    assert (await owner.one(Grant.of(3, 1000, 1))).outcome is Outcome.FINISHED


async def test_a_call_without_a_record_is_absent(store: Store) -> None:
    owner = Owner(store, term=5)
    assert (await owner.call(Grant.of(1, 1, 1))).verdict is CallStatus.ABSENT
    assert (await owner.foreign(LookUp(1))).verdict is CallStatus.ABSENT


async def test_one_flush_serves_many_partitions(store: Store) -> None:
    base = fresh_key()
    owners = [Owner(store, base._replace(partition=n)) for n in range(24)]
    await asyncio.gather(*(owner.open(create_at=n) for n, owner in enumerate(owners)))
    calls = []
    for n, owner in enumerate(owners):
        owner.seq += 1
        ops = [Grant.of(n + i, 1000, 1) for i in range(n)]
        calls.append(RecordCall(owner.key, ops, owner.term, owner.seq))
    replies = await store.apply(calls)
    assert [reply.watermark for reply in replies] == list(range(24))
    assert [len(reply.results) for reply in replies] == list(range(24))


async def test_members_beat_are_superseded_and_forgotten(store: Store) -> None:
    name = fresh_key().subscription
    first = await store.register(name, "a")
    second = await store.register(name, "a")
    other = await store.register(name, "b")
    assert 0 < first < second
    assert (await store.heartbeat(name, "b", other, ["k1", "k2"], "note")).members == ()
    beat = await store.heartbeat(name, "a", second, [], "")
    assert not beat.superseded
    assert [(m.name, m.boot, m.owned, m.note) for m in beat.members] == [
        ("b", other, ("k1", "k2"), "note")
    ]
    assert beat.members[0].run == store.run != ""
    assert 0 <= beat.members[0].silent_ms < 20_000
    late = await store.heartbeat(name, "a", first, [], "")
    assert late.superseded
    assert [(m.name, m.boot) for m in late.members] == [("a", second), ("b", other)]
    await store.forget(name, "b", other - 1)
    await store.forget(name, "a", second)
    left = await store.heartbeat(name, "a", second, [], "")
    assert list(map(attrgetter("name"), left.members)) == ["b"]


async def test_small_values(store: Store) -> None:
    name = f"odd {{name}}:{fresh_key().subscription}"
    assert await store.get(name) is None
    assert await store.put_new(name, b"\x00one") is None
    assert await store.put_new(name, b"two") == b"\x00one"
    await store.put(name, b"three")
    assert await store.get(name) == b"three"
    await store.delete(name)
    assert await store.get(name) is None
    await store.put(name, b"short", ttl_ms=30)

    async def gone() -> bool:
        return await store.get(name) is None

    await wait_until_async(gone, "the value runs out")
    assert await store.put_new(name, b"four", ttl_ms=60_000) is None


async def test_the_store_says_what_an_operator_must_know(store: Store) -> None:
    codes = {condition.code for condition in store.conditions()}
    expected = {"store-memory"} if store.run == "memory" else set()
    assert codes == expected
