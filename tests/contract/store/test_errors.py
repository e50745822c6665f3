"""What applications said of failures, on every store: kept with the settle, gone with the message.

So a copy has them whoever makes it (I8: two texts of so many bytes, for so many messages).
"""

from functools import partial

import pytest

from ackd.core.record.failures import ERRORS_MAX
from ackd.core.record.operations import CloseOrigin, FinishOrigin, Gap, PlaceCopy, ReplayAck, Reset
from ackd.core.record.protocol import FailureTexts, Finish, RecordReply
from ackd.core.record.transitions import Outcome, Verb
from ackd.ports import Store
from ackd.store.survey import ERRORS, Survey
from tests.contract.store.owner import Owner
from tests.contract.store.test_origin_records import RETRY_COPY, claim, ended, send

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
reasons = partial(FailureTexts, first=b"")


async def opened(store: Store) -> Owner:
    """A new record."""
    owner = Owner(store)
    await owner.open()
    return owner


async def errors(owner: Owner, *offsets: int) -> list[tuple[bytes, bytes] | None]:
    """What is kept of these."""
    return await owner.store.errors(owner.key, offsets)


def outcomes(reply: RecordReply) -> list[Outcome]:
    """Of a call."""
    return [result.outcome for result in reply.results]


async def test_the_first_and_the_last_are_kept_until_the_ack(store: Store) -> None:
    """Told to the owner or to somebody else; a repeat, and a settle that is lost."""
    owner = await opened(store)
    acks = await owner.grant(1, 2, 3)
    assert not (await owner.call()).has_reasons
    retries = [ack._replace(verb=Verb.RETRY, for_ms=0) for ack in acks]
    told = [reasons(0, last=b"no disk"), reasons(1, last="wäre \0".encode())]
    reply = await owner.foreign(*retries, reasons=told)
    assert (outcomes(reply), reply.has_reasons) == ([Outcome.RETRYING] * 3, True)
    assert await errors(owner, 3, 1, 2) == [None, (b"no disk",) * 2, ("wäre \0".encode(),) * 2]
    (again,) = await owner.grant(1)
    lost = await owner.foreign(retries[0], reasons=[reasons(0, last=b"too late")])
    assert outcomes(lost) == [Outcome.LOST]
    dead = again._replace(verb=Verb.DEAD)
    assert (await owner.call(dead, reasons=[reasons(0, last=b"no shop")])).has_reasons
    assert await errors(owner, 1) == [(b"no disk", b"no shop")]
    await owner.call(dead, reasons=[reasons(0, last=b"no shop")])
    assert await errors(owner, 1) == [(b"no disk", b"no shop")]
    (two,) = await owner.grant(2)
    await owner.call(two, FinishOrigin(1, again.fence, owner.rollback_epoch, Finish.DEAD))
    assert await errors(owner, 1, 2) == [None, None]
    assert not (await owner.call()).has_reasons


async def test_a_takeover_changes_nothing_and_a_reset_forgets(store: Store) -> None:
    owner = await opened(store)
    (ack,) = await owner.grant(5)
    await owner.call(ack._replace(verb=Verb.DEAD), reasons=[reasons(0, last=b"no disk")])
    successor = Owner(store, owner.key, "other#1")
    await successor.open(create_at=None)
    assert (await successor.call()).has_reasons
    assert await errors(successor, 5) == [(b"no disk", b"no disk")]
    await successor.call(Reset(0))
    assert await errors(successor, 5) == [None]


async def test_r4_what_is_said_of_a_moved_message_goes_on_with_its_copy(store: Store) -> None:
    """Kept in its origin record behind the finish, until its copy has taken it over."""
    owner, retry_copy = await opened(store), await opened(store)
    (ack,) = await owner.grant(7, lease_ms=60_000)
    sent = await send(owner, 7)
    await owner.foreign(
        ack._replace(verb=Verb.RETRY, for_ms=0), reasons=[reasons(0, last=b"no disk")]
    )
    claimed = await claim(owner, 7, sent)
    assert claimed.outcome is Outcome.CLAIMED
    (found,) = await errors(owner, 7)
    assert found == (b"no disk", b"no disk")
    place = PlaceCopy(RETRY_COPY[1], sent.fence, attempt=1)
    for _ in range(2):
        assert (await retry_copy.call(place, reasons=[FailureTexts(0, *found)])).has_reasons
    close = CloseOrigin(7, sent.fence)
    assert not (await owner.foreign(close)).has_reasons
    assert await errors(owner, 7) == [None]
    (again,) = await retry_copy.grant(RETRY_COPY[1])
    dead = again._replace(verb=Verb.DEAD)
    await retry_copy.foreign(dead, reasons=[reasons(0, last=b"no shop")])
    assert await errors(retry_copy, RETRY_COPY[1]) == [(b"no disk", b"no shop")]


async def test_whatever_ends_a_message_takes_them_along(store: Store) -> None:
    """An ack in its origin record, a message that the log has lost, an ack that is repeated
    (R10).
    """
    owner = await opened(store)
    acks = await owner.grant(1, 2, 3, lease_ms=1)
    for ack in acks:
        await ended(owner, ack)
    acks = await owner.grant(1, 2, 3)
    retries = [ack._replace(verb=Verb.RETRY, for_ms=0) for ack in acks]
    await owner.call(*retries, reasons=[reasons(n, last=b"no disk") for n in range(3)])
    (again,) = await owner.grant(1)
    await send(owner, 1)
    assert (await owner.call()).has_reasons
    assert outcomes(await owner.foreign(again)) == [Outcome.ACKED]
    hole = Gap(2, 3, Finish.EXPIRED)
    assert (await owner.call(hole)).has_reasons
    assert await errors(owner, 1, 2, 3) == [None, None, (b"no disk", b"no disk")]
    assert not (await owner.call(ReplayAck(3))).has_reasons
    assert await errors(owner, 3) == [None]


async def test_i8_of_very_many_failures_the_further_ones_are_not_kept(store: Store) -> None:
    owner = await opened(store)
    count = ERRORS_MAX + 4
    for first in range(0, count, 1_000):
        acks = await owner.grant(*range(first, min(first + 1_000, count)))
        told = [reasons(n, last=b"no disk") for n in range(len(acks))]
        await owner.call(*(ack._replace(verb=Verb.RETRY, for_ms=0) for ack in acks), reasons=told)
    known = (b"no disk", b"no disk")
    assert await errors(owner, 0, ERRORS_MAX - 1, ERRORS_MAX) == [known, known, None]
    (ack, further) = await owner.grant(9, count - 1)
    await owner.call(ack._replace(verb=Verb.DEAD), reasons=[reasons(0, last=b"no shop")])
    assert await errors(owner, 9) == [(b"no disk", b"no shop")]
    (other,) = await owner.grant(10)
    await owner.call(other)  # there is room for one again
    await owner.call(further._replace(verb=Verb.DEAD), reasons=[reasons(0, last=b"no shop")])
    assert await errors(owner, 10, count - 1) == [None, (b"no shop", b"no shop")]
    if store.run != "memory":
        found = {each.key: each for each in await Survey(store).everything()}[owner.key]
        assert found.sizes[ERRORS] > ERRORS_MAX * 14
        assert await Survey(store).forget(found)
        assert await errors(owner, 9) == [None]
