"""Blocked keys on every store: copies of one key are claimed one after the other (R19, I6)."""

import pytest

from ackd.core.record.operations import (
    AskBlocker,
    ClaimOrigin,
    CloseOrigin,
    CopyRef,
    FinishOrigin,
    MoveToRetry,
    PlaceCopy,
    ReplayAck,
    Reset,
)
from ackd.core.record.protocol import CallStatus, Finish, OpResult
from ackd.core.record.transitions import Outcome, State, Verb
from ackd.ports import Store
from ackd.store.keys import Keys
from tests.conftest import RedisFactory
from tests.contract.store.owner import Owner
from tests.contract.store.servers import connect, redis7, started

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]

KEY, OTHER = (1 << 48) - 1, 2
PARTITION = 2


def place_of(offset: int) -> int:
    """Where its copy is."""
    return 70 + offset


async def block(owner: Owner, *offsets: int, key: int = KEY) -> list[OpResult]:
    """Send them back in one call; their copies are stored."""
    ops = [MoveToRetry(o, at, key) for at, o in enumerate(offsets, 1)]
    results = (await owner.call(*ops)).results
    for offset, sent in zip(offsets, results, strict=True):
        if sent.outcome is Outcome.SENT:
            finish = FinishOrigin(offset, sent.fence, owner.rollback_epoch, Finish.SENT)
            assert (await owner.one(finish)).outcome is Outcome.DONE
    return results


async def handed_out(owner: Owner, *offsets: int) -> None:
    """Leased once, and given back."""
    for ack in await owner.grant(*offsets):
        given = await owner.one(ack._replace(verb=Verb.RETRY, for_ms=0))
        assert given.outcome is Outcome.RETRYING


async def claim(owner: Owner, offset: int, sent: OpResult, copy: int | None = None) -> OpResult:
    """As the owner of the retry partition."""
    place = place_of(offset) if copy is None else copy
    reply = await owner.foreign(
        ClaimOrigin(offset, sent.fence, owner.rollback_epoch, CopyRef(PARTITION, place))
    )
    return reply.results[0]


async def over(owner: Owner, offset: int, generation: int = 0, copy: int | None = None) -> None:
    """The copy of a message is finished."""
    place = place_of(offset) if copy is None else copy
    op = CloseOrigin(offset, generation, finished=CopyRef(PARTITION, place))
    assert (await owner.foreign(op)).results[0].outcome is Outcome.DONE


async def head(owner: Owner, key: int = KEY) -> OpResult:
    """Who holds a key back."""
    return (await owner.foreign(AskBlocker(key))).results[0]


async def test_r19_copies_of_a_key_are_claimed_in_order_and_the_last_frees_it(
    store: Store,
) -> None:
    owner = Owner(store)
    await owner.open()
    await handed_out(owner, 1)
    first, second, third = await block(owner, 1, 2, 3)
    assert [r.outcome for r in (first, second, third)] == [Outcome.SENT] * 3
    assert len({first.fence, second.fence, third.fence}) == 3
    assert (second.attempt, second.first_s) == (0, 0)
    behind = await claim(owner, 2, second)
    assert (behind.outcome, behind.fence, behind.when_ms) == (Outcome.BLOCKED, 1, 0)
    assert (await claim(owner, 1, first)).outcome is Outcome.CLAIMED
    behind = await claim(owner, 3, third)
    told = (behind.fence, behind.first_s, behind.when_ms - 1)
    assert (behind.outcome, told) == (Outcome.BLOCKED, (1, PARTITION, place_of(1)))
    assert await head(owner) == behind
    await owner.foreign(CloseOrigin(1, first.fence))  # its copy has a slot: not enough
    assert (await claim(owner, 2, second)).outcome is Outcome.BLOCKED
    await over(owner, 1)
    await over(owner, 1)
    assert (await claim(owner, 3, third)).fence == 2
    claimed = await claim(owner, 2, second)
    assert (claimed.outcome, claimed.attempt, claimed.state) == (Outcome.CLAIMED, 0, State.READY)
    assert (await claim(owner, 2, second, copy=5)).outcome is Outcome.REFUSED
    assert (await owner.open(again=True)).blocked == [KEY]
    await over(owner, 2)
    await over(owner, 3)  # it has not claimed: nothing is known of this copy
    assert (await head(owner)).fence == 3
    assert (await claim(owner, 3, third)).outcome is Outcome.CLAIMED
    await over(owner, 3)
    assert (await head(owner)).outcome is Outcome.FINISHED
    assert (await owner.open(again=True)).blocked == []


async def gone(owner: Owner, offset: int, sent: OpResult) -> OpResult:
    """The log lost it before its owner could copy it."""
    return await owner.one(FinishOrigin(offset, sent.fence, owner.rollback_epoch, Finish.VANISHED))


async def moved(owner: Owner, *offsets: int) -> list[OpResult]:
    """Sent back in one call; no copy is stored yet."""
    ops = [MoveToRetry(o, at, KEY) for at, o in enumerate(offsets, 1)]
    results = (await owner.call(*ops)).results
    assert [r.outcome for r in results] == [Outcome.SENT] * len(offsets)
    return results


async def test_r19_a_message_that_the_log_loses_before_its_copy_blocks_its_key_no_longer(
    store: Store,
) -> None:
    """Compaction, and the owner that had its body was killed: there will be no copy to finish."""
    owner = Owner(store)
    await owner.open()
    await handed_out(owner, 1)
    first, second, third = await moved(owner, 1, 2, 3)
    assert (await gone(owner, 2, second)).outcome is Outcome.DONE
    assert (await claim(owner, 3, third)).fence == 1  # the first one still comes before it
    assert (await gone(owner, 1, first)).outcome is Outcome.DONE
    assert (await gone(owner, 1, first)).outcome is Outcome.FINISHED
    assert (await claim(owner, 3, third)).outcome is Outcome.CLAIMED
    await over(owner, 3)
    assert (await head(owner)).outcome is Outcome.FINISHED
    assert (await owner.open(again=True)).blocked == []


async def test_r7_what_the_log_loses_on_its_way_keeps_its_lease(store: Store) -> None:
    """Its holder is told the truth, and its key waits for it."""
    owner = Owner(store)
    await owner.open()
    (ack,) = await owner.grant(1)
    first, second = await moved(owner, 1, 2)
    extended = await owner.foreign(ack._replace(verb=Verb.EXTEND, for_ms=90_000))
    held = await gone(owner, 1, first)
    assert (held.outcome, held.when_ms) == (Outcome.HELD, extended.results[0].when_ms)
    assert (await claim(owner, 2, second)).outcome is Outcome.BLOCKED
    assert (await owner.foreign(ack)).results[0].outcome is Outcome.ACKED
    assert (await gone(owner, 1, first)).outcome is Outcome.FINISHED
    assert (await claim(owner, 2, second)).outcome is Outcome.CLAIMED


async def test_i1_a_copy_that_was_stored_after_all_is_delivered(store: Store) -> None:
    """Its owner was killed before it could say so, and then the log lost the message."""
    owner = Owner(store)
    await owner.open()
    await handed_out(owner, 1, 2)
    first, second = await moved(owner, 1, 2)
    assert (await claim(owner, 1, first)).outcome is Outcome.CLAIMED
    assert (await gone(owner, 1, first)).outcome is Outcome.DONE
    assert (await head(owner)).fence == 1  # its copy has its place in the queue
    await over(owner, 1)
    assert (await gone(owner, 2, second)).outcome is Outcome.DONE
    assert (await claim(owner, 2, second)).outcome is Outcome.CLAIMED  # landed late
    assert (await claim(owner, 2, second, copy=5)).outcome is Outcome.REFUSED


async def test_r19_a_later_message_goes_only_while_its_key_is_blocked(store: Store) -> None:
    """One script decides: it follows, or it is free to be handed out from the window."""
    owner = Owner(store)
    await owner.open()
    (ack,) = await owner.grant(1)
    assert [r.outcome for r in await block(owner, 2, 3, key=0)] == [Outcome.LOST] * 2
    assert [r.outcome for r in await block(owner, 2)] == [Outcome.LOST]
    await block(owner, 1)
    assert [r.outcome for r in await block(owner, 5, key=OTHER)] == [Outcome.LOST]
    assert [r.outcome for r in await block(owner, 2)] == [Outcome.SENT]
    assert (await owner.open(again=True)).blocked == [KEY]
    assert (await owner.foreign(ack)).results[0].outcome is Outcome.ACKED  # in its origin record
    assert (await head(owner)).fence == 2
    assert [r.outcome for r in await block(owner, 3, 4)] == [Outcome.SENT] * 2
    for offset in (2, 3, 4):
        assert (await head(owner)).fence == offset
        await owner.call(ReplayAck(offset))  # acked, as another sidecar remembers it
    assert [r.outcome for r in await block(owner, 6)] == [Outcome.LOST]
    assert (await owner.grant(6))[0].attempt == 1


async def test_r19_two_keys_do_not_hold_each_other_back(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    await handed_out(owner, 1, 2)
    (one,), (two,) = await block(owner, 1), await block(owner, 2, key=OTHER)
    (three,), (four,) = await block(owner, 3), await block(owner, 4, key=OTHER)
    assert (await owner.open(again=True)).blocked == [OTHER, KEY]
    assert (await claim(owner, 2, two)).outcome is Outcome.CLAIMED
    await over(owner, 2)
    assert (await claim(owner, 4, four)).outcome is Outcome.CLAIMED
    assert (await claim(owner, 3, three)).outcome is Outcome.BLOCKED
    assert (await claim(owner, 1, one)).outcome is Outcome.CLAIMED


async def test_r10_a_claim_that_was_forgotten_is_made_good_by_the_end_of_its_copy(
    store: Store,
) -> None:
    """Only the copy's generation says that it was the one; whoever else has claimed stays."""
    owner = Owner(store)
    await owner.open()
    await handed_out(owner, 1)
    first, second = await block(owner, 1, 2)
    await over(owner, 1, first.fence - 1)
    assert (await head(owner)).fence == 1
    await over(owner, 1, first.fence)
    assert (await claim(owner, 1, first)).outcome is Outcome.CLAIMED  # the same again
    assert (await claim(owner, 1, first, copy=3)).outcome is Outcome.REFUSED
    assert (await claim(owner, 2, second)).outcome is Outcome.CLAIMED
    await over(owner, 2, second.fence, copy=4)
    assert (await head(owner)).fence == 2


async def test_i6_what_only_another_client_tried_follows_its_key_and_never_goes_before_it(
    store: Store,
) -> None:
    """It has a slot, as its attempts count, and moves only if its key is blocked all the same."""
    owner = Owner(store)
    await owner.open()
    await owner.call(PlaceCopy(4, attempt=2))
    assert [each.outcome for each in await block(owner, 3, 4)] == [Outcome.LOST, Outcome.LOST]
    await handed_out(owner, 1)
    moved = await block(owner, 1, 3, 4)
    assert [each.outcome for each in moved] == [Outcome.SENT] * 3
    assert (await claim(owner, 4, moved[2])).outcome is Outcome.BLOCKED


async def test_r8_a_reset_takes_moved_messages_above_it_out_of_their_line(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    await handed_out(owner, 1, 7)
    await block(owner, 1, 2, 5, 6)
    await block(owner, 7, 8, key=OTHER)
    await owner.call(Reset(5))
    assert (await owner.open(again=True)).blocked == [KEY]
    await owner.call(ReplayAck(1))
    assert (await head(owner)).fence == 2
    await owner.call(ReplayAck(2))
    assert (await head(owner)).outcome is Outcome.FINISHED


async def test_r14_lines_are_lost_with_the_origin_records_and_never_alone(
    own_redis: RedisFactory,
) -> None:
    """A key that looks free because its line was evicted would be out of order without a word."""
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        await owner.open()
        await owner.grant(1)
        await block(owner, 1, 2)
        names = Keys("ackd").ledger(owner.key)[:-1]
        with server.client() as client:
            found = {str(name)[len(names) :] for name in client.keys(names + "*")}
            assert found == {"m", "b0", "s0", "x", "p"}
            client.delete(names + "p")
        assert (await owner.foreign(AskBlocker(KEY))).verdict is CallStatus.CHUNK_LOST
        follow = MoveToRetry(3, 1, KEY)
        assert (await owner.call(follow)).verdict is CallStatus.CHUNK_LOST
        snapshot = await owner.open(again=True)
        assert (snapshot.lost_origins, snapshot.blocked) == (True, [])
