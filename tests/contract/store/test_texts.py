"""Progress notes and failure reasons, on every store: kept with the settle, gone with the message.

So a copy has them whoever makes it (I8: three texts of so many bytes, for so many messages).
"""

from functools import partial

import pytest

from ackd.core.record.operations import CloseOrigin, FinishOrigin, Gap, PlaceCopy, ReplayAck, Reset
from ackd.core.record.protocol import CallStatus, Finish, ItemTexts, MessageTexts, RecordReply
from ackd.core.record.texts import TEXTS_MAX
from ackd.core.record.transitions import Outcome, Verb
from ackd.ports import Store
from ackd.store.redis import RedisStore
from ackd.store.survey import TEXTS, Survey
from tests.contract.store.owner import Owner
from tests.contract.store.test_origin_records import RETRY_COPY, claim, ended, send

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
said = partial(ItemTexts, first=b"")
NO_DISK = MessageTexts(b"no disk", b"no disk")


async def opened(store: Store) -> Owner:
    """A new record."""
    owner = Owner(store)
    await owner.open()
    return owner


async def texts(owner: Owner, *offsets: int) -> list[MessageTexts | None]:
    """What is kept of these, but for the history."""
    found = await owner.store.texts(owner.key, offsets)
    return [each and each._replace(history=b"") for each in found]


def outcomes(reply: RecordReply) -> list[Outcome]:
    """Of a call."""
    return [result.outcome for result in reply.results]


async def test_the_first_and_the_last_are_kept_until_the_ack(store: Store) -> None:
    """Told to the owner or to somebody else; a repeat, and a settle that is lost."""
    owner = await opened(store)
    acks = await owner.grant(1, 2, 3)
    assert not (await owner.call()).has_texts
    retries = [ack._replace(verb=Verb.RETRY, for_ms=0) for ack in acks]
    told = [said(0, last=b"no disk"), said(1, last="wäre \0".encode())]
    reply = await owner.foreign(*retries, texts=told)
    assert (outcomes(reply), reply.has_texts) == ([Outcome.RETRYING] * 3, True)
    assert await texts(owner, 3, 1, 2) == [None, NO_DISK, ("wäre \0".encode(),) * 2 + (b"", b"")]
    (again,) = await owner.grant(1)
    lost = await owner.foreign(retries[0], texts=[said(0, last=b"too late")])
    assert outcomes(lost) == [Outcome.LOST]
    dead = again._replace(verb=Verb.DEAD)
    assert (await owner.call(dead, texts=[said(0, last=b"no shop")])).has_texts
    assert await texts(owner, 1) == [(b"no disk", b"no shop", b"", b"")]
    await owner.call(dead, texts=[said(0, last=b"no shop")])
    assert await texts(owner, 1) == [(b"no disk", b"no shop", b"", b"")]
    (two,) = await owner.grant(2)
    await owner.call(two, FinishOrigin(1, again.fence, owner.rollback_epoch, Finish.DEAD))
    assert await texts(owner, 1, 2) == [None, None]
    assert not (await owner.call()).has_texts


async def test_a_takeover_changes_nothing_and_a_reset_forgets(store: Store) -> None:
    owner = await opened(store)
    (ack,) = await owner.grant(5)
    await owner.call(ack._replace(verb=Verb.DEAD), texts=[said(0, last=b"no disk")])
    successor = Owner(store, owner.key, "other#1")
    await successor.open(create_at=None)
    assert (await successor.call()).has_texts
    assert await texts(successor, 5) == [NO_DISK]
    await successor.call(Reset(0))
    assert await texts(successor, 5) == [None]


async def test_r4_what_is_said_of_a_moved_message_goes_on_with_its_copy(store: Store) -> None:
    """Kept in its origin record behind the finish, until its copy has taken it over."""
    owner, retry_copy = await opened(store), await opened(store)
    (ack,) = await owner.grant(7, lease_ms=60_000)
    sent = await send(owner, 7)
    await owner.foreign(ack._replace(verb=Verb.RETRY, for_ms=0), texts=[said(0, last=b"no disk")])
    claimed = await claim(owner, 7, sent)
    assert claimed.outcome is Outcome.CLAIMED
    (found,) = await texts(owner, 7)
    assert found == NO_DISK
    place = PlaceCopy(RETRY_COPY[1], sent.fence, attempt=1)
    for _ in range(2):
        assert (await retry_copy.call(place, texts=[ItemTexts(0, *found)])).has_texts
    close = CloseOrigin(7, sent.fence)
    assert not (await owner.foreign(close)).has_texts
    assert await texts(owner, 7) == [None]
    (again,) = await retry_copy.grant(RETRY_COPY[1])
    dead = again._replace(verb=Verb.DEAD)
    await retry_copy.foreign(dead, texts=[said(0, last=b"no shop")])
    assert await texts(retry_copy, RETRY_COPY[1]) == [(b"no disk", b"no shop", b"", b"")]


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
    await owner.call(*retries, texts=[said(n, last=b"no disk") for n in range(3)])
    (again,) = await owner.grant(1)
    await send(owner, 1)
    assert (await owner.call()).has_texts
    assert outcomes(await owner.foreign(again)) == [Outcome.ACKED]
    hole = Gap(2, 3, Finish.EXPIRED)
    assert (await owner.call(hole)).has_texts
    assert await texts(owner, 1, 2, 3) == [None, None, NO_DISK]
    assert not (await owner.call(ReplayAck(3))).has_texts
    assert await texts(owner, 3) == [None]


async def test_a_note_comes_with_an_extend_that_counts(store: Store) -> None:
    """The last one counts, an empty one deletes; an extend of a lost lease changes nothing."""
    owner = await opened(store)
    acks = await owner.grant(1, 2, lease_ms=1)
    one, two = (ack._replace(verb=Verb.EXTEND, for_ms=60_000) for ack in acks)
    reply = await owner.foreign(one, two, texts=[ItemTexts(0, note=b"10"), ItemTexts(1, note=b"5")])
    assert (outcomes(reply), reply.has_texts, reply.has_notes) == (
        [Outcome.EXTENDED] * 2,
        True,
        True,
    )
    reply = await owner.call(one, two, texts=[ItemTexts(1, note=b""), ItemTexts(0, note=b"20")])
    assert await texts(owner, 1, 2) == [(b"", b"", b"20", b""), None]
    await owner.call(one._replace(verb=Verb.RETRY, for_ms=0), texts=[said(0, last=b"no disk")])
    assert await texts(owner, 1) == [(b"no disk", b"no disk", b"20", b"")]
    lost = await owner.call(one, texts=[ItemTexts(0, note=b"late")])
    assert (outcomes(lost), lost.has_notes) == ([Outcome.LOST], True)
    assert await texts(owner, 1) == [(b"no disk", b"no disk", b"20", b"")]
    (again,) = await owner.grant(1)
    extend = again._replace(verb=Verb.EXTEND, for_ms=60_000)
    gone = await owner.call(extend, texts=[ItemTexts(0, note=b"")])
    assert (gone.has_texts, gone.has_notes) == (True, False)
    done = await owner.call(extend, again, texts=[ItemTexts(0, note=b"with the ack")])
    assert (outcomes(done), done.has_texts) == ([Outcome.EXTENDED, Outcome.ACKED], False)


async def test_r4_a_copy_takes_the_note_over_unless_it_has_one(store: Store) -> None:
    retry_copy = await opened(store)
    place = PlaceCopy(RETRY_COPY[1], 1_000, attempt=1)
    await retry_copy.call(place, texts=[ItemTexts(0, note=b"of the message")])
    (ack,) = await retry_copy.grant(RETRY_COPY[1])
    assert await texts(retry_copy, RETRY_COPY[1]) == [(b"", b"", b"of the message", b"")]
    extend = ack._replace(verb=Verb.EXTEND, for_ms=60_000)
    await retry_copy.call(extend, texts=[ItemTexts(0, note=b"of the copy")])
    repeated = PlaceCopy(RETRY_COPY[1], 1_000, attempt=1)
    await retry_copy.call(repeated, texts=[ItemTexts(0, b"a", b"b", b"of the message")])
    (found,) = await texts(retry_copy, RETRY_COPY[1])
    assert found is not None
    assert found.note == b"of the copy"


async def test_i8_beyond_the_bound_on_bytes_the_oldest_texts_are_dropped(store: Store) -> None:
    """Notes and reasons share the bound; one may be larger than it."""
    owner = await opened(store)
    acks = await owner.grant(1, 2, 3)
    extends = [ack._replace(verb=Verb.EXTEND, for_ms=60_000) for ack in acks]
    reply = await owner.call(extends[0], texts=[ItemTexts(0, note=b"x" * 500)], bytes_max=300)
    assert reply.dropped == 0
    retry = acks[1]._replace(verb=Verb.RETRY, for_ms=0)
    reply = await owner.foreign(retry, texts=[said(0, last=b"y" * 140)], bytes_max=300)
    assert reply.dropped == 1
    assert await texts(owner, 1, 2) == [None, (b"y" * 140, b"y" * 140, b"", b"")]
    notes = [ItemTexts(0, note=b"z" * 20), ItemTexts(1, note=b"z" * 20)]
    reply = await owner.foreign(extends[0], extends[2], texts=notes, bytes_max=300)
    assert (reply.dropped, reply.has_notes) == (1, True)
    kept = MessageTexts(note=b"z" * 20)
    assert await texts(owner, 1, 2, 3) == [kept, None, kept]


async def test_i8_of_very_many_failures_the_oldest_are_dropped(store: Store) -> None:
    owner = await opened(store)
    count, dropped = TEXTS_MAX + 4, 0
    for first in range(0, count, 1_000):
        acks = await owner.grant(*range(first, min(first + 1_000, count)))
        told = [said(n, last=b"no disk") for n in range(len(acks))]
        retries = (ack._replace(verb=Verb.RETRY, for_ms=0) for ack in acks)
        dropped += (await owner.call(*retries, texts=told)).dropped
    assert dropped == 4
    assert await texts(owner, 3, 4, count - 1) == [None, NO_DISK, NO_DISK]
    (ack, further) = await owner.grant(9, 0)
    await owner.call(ack._replace(verb=Verb.DEAD), texts=[said(0, last=b"no shop")])
    assert await texts(owner, 9) == [(b"no disk", b"no shop", b"", b"")]
    (other,) = await owner.grant(10)
    await owner.call(other)  # there is room for one again
    last = await owner.call(further._replace(verb=Verb.DEAD), texts=[said(0, last=b"no shop")])
    assert last.dropped == 0
    assert await texts(owner, 10, 0) == [None, (b"no shop", b"no shop", b"", b"")]
    if isinstance(store, RedisStore):
        found = {each.key: each for each in await Survey(store).everything()}[owner.key]
        assert found.sizes[TEXTS] > TEXTS_MAX * 14
        assert await Survey(store).forget(found)
        assert await texts(owner, 9) == [None]


@pytest.mark.parametrize("suffix", ["t", "o"])
async def test_r14_a_lost_key_of_texts_costs_nothing_but_texts(store: Store, suffix: str) -> None:
    """The head counts texts that are gone: they are forgotten, and the script ends."""
    if not isinstance(store, RedisStore):
        return  # nothing is lost in memory
    owner = await opened(store)
    acks = await owner.grant(1, 2, 3)
    retries = [ack._replace(verb=Verb.RETRY, for_ms=0) for ack in acks]
    await owner.call(*retries[:2], texts=[said(n, last=b"y" * 100) for n in range(2)])
    name = store.keys.texts(owner.key)[:-1] + suffix
    async with store.topology.node(name).aux_link() as link:
        assert await link.ask([("DEL", name)]) == [1]
    reply = await owner.call(retries[2], texts=[said(0, last=b"x" * 100)], bytes_max=300)
    assert (reply.verdict, outcomes(reply)) == (CallStatus.OK, [Outcome.RETRYING])
    assert await texts(owner, 1, 2, 3) == [None, None, (b"x" * 100, b"x" * 100, b"", b"")]
    (again,) = await owner.grant(3)
    assert not (await owner.call(again)).has_texts
