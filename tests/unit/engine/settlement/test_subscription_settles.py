"""Settles of one subscription: what they ask of the store, what they tell, and who is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackd.api.messages import ACKED, SettleItem, SettleResult, SettleVerb, Status
from ackd.core.ids import LedgerKey
from ackd.core.lease_token import Token
from ackd.core.record.operations import Settle
from ackd.core.record.protocol import ItemTexts
from ackd.core.record.transitions import Outcome, Verb
from ackd.engine.settlement import subscription_settles
from ackd.engine.settlement.subscription_settles import SettleCall
from ackd.errors import BadParameterError
from tests.unit.engine.world import LEASE_MS, NAME, TOPIC_ID, World

TOKEN = Token(b"work", TOPIC_ID, 0, 5, 33, 1, 2)
ACK, RETRY, EXTEND = SettleVerb.ACK, SettleVerb.RETRY, SettleVerb.EXTEND
DEAD, RELEASE = SettleVerb.DEAD, SettleVerb.RELEASE


def call(partition: int = 0) -> SettleCall:
    return SettleCall(TOPIC_ID, partition)


# --- what is asked of the store


@pytest.mark.parametrize(
    ("do", "verb", "for_ms"),
    [
        (ACK, Verb.ACK, 0),
        (DEAD, Verb.DEAD, 0),
        (RELEASE, Verb.RELEASE, 0),
        (EXTEND, Verb.EXTEND, LEASE_MS),
        (RETRY, Verb.RETRY, 60_000),
    ],
)
async def test_each_verb_has_the_token_and_a_time_of_the_settings(
    world: World, do: SettleVerb, verb: Verb, for_ms: int
) -> None:
    world.sets(retry_delays_ms=(1_000, 60_000))
    found = world.settles.op(SettleItem("", do), TOKEN)
    assert found == Settle(verb, 5, 33, 1, 2, for_ms, counted=True)


async def test_what_an_item_says_goes_before_the_settings(world: World) -> None:
    retry = SettleItem("", RETRY, delay_ms=7, count=False)
    extend = SettleItem("", EXTEND, lease_ms=9)
    assert world.settles.op(retry, TOKEN) == Settle(Verb.RETRY, 5, 33, 1, 2, 7, counted=False)
    assert world.settles.op(extend, TOKEN) == Settle(Verb.EXTEND, 5, 33, 1, 2, 9)


async def test_i8_a_lease_has_the_bound_of_the_settings(world: World) -> None:
    world.sets(lease_ms_max=50_000)
    for lease_ms, fits in ((0, False), (1, True), (50_000, True), (50_001, False)):
        found = world.settles.op(SettleItem("", EXTEND, lease_ms=lease_ms), TOKEN)
        assert isinstance(found, BadParameterError) is not fits


# --- what is told with it


async def test_a_settle_tells_its_note_its_reason_or_nothing(world: World) -> None:
    texts = world.settles.text
    assert texts(call(), SettleItem("", EXTEND, note="half"), TOKEN) == ItemTexts(0, note=b"half")
    assert texts(call(), SettleItem("", EXTEND, note=""), TOKEN) == ItemTexts(0, note=b"")
    assert texts(call(), SettleItem("", EXTEND), TOKEN) is None
    assert texts(call(), SettleItem("", ACK), TOKEN) is None
    failed = texts(call(), SettleItem("", RETRY, reason="bad", holder="pod-7"), TOKEN)
    assert failed is not None
    assert (failed.last, failed.holder) == (b"bad", b"pod-7")


async def test_the_place_of_a_text_is_that_of_its_operation(world: World) -> None:
    asked = call()
    asked.ops += [Settle(Verb.ACK, 1), Settle(Verb.ACK, 2)]
    found = world.settles.text(asked, SettleItem("", EXTEND, note="x"), TOKEN)
    assert found is not None
    assert found.item == 2


async def test_a_reason_is_kept_where_the_copy_will_be_made(world: World) -> None:
    """In the partition's notes, or, of a lease that moved, with the copy that waits for its end."""
    partition = await world.owns(0, range(6))
    world.settles.text(call(), SettleItem("", RETRY, reason="one"), TOKEN)
    assert partition.copies.errors(5) == ("one", "one")
    world.claims.waits = {5}
    world.settles.text(call(), SettleItem("", DEAD, reason="two"), TOKEN)
    assert partition.copies.errors(5) == ("one", "one")
    assert world.claims.reasons == ["one", "two"]


# --- whom is asked


async def test_the_owner_settles_as_the_owner_and_others_by_a_handle_of_their_own(
    world: World,
) -> None:
    partition = await world.owns(0, range(2))
    (lease,) = await world.leases(partition)
    del lease
    fence = partition.ledger.entries[0].fence
    settles = world.settles
    mine = await settles.ask(call(), [Settle(Verb.EXTEND, 0, fence, 1, 1, 9_000)])
    assert mine.results[0].outcome is Outcome.EXTENDED
    world.partitions.remove(partition)
    other = await settles.ask(call(), [Settle(Verb.ACK, 0, fence, 1, 1)])
    assert other.results[0].outcome is Outcome.ACKED
    terms = [each.term for each in world.store.asked[-2:]]
    assert terms == [partition.handle.term, 0]


async def test_i8_handles_of_foreign_partitions_have_a_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_settles, "HANDLES_MAX", 2)
    settles = world.settles
    first = settles._handle(call(0))
    assert first.key == LedgerKey("cluster", NAME, TOPIC_ID, 0)
    assert settles._handle(call(0)) is first
    settles._handle(call(1))
    settles._handle(call(2))
    assert len(settles._handles) == 2
    assert settles._handle(call(0)) is not first


# --- what is counted


def result(status: Status, *, late: bool = False) -> SettleResult:
    return SettleResult(status, late=late)


async def test_settles_are_counted_by_verb_and_result(world: World) -> None:
    asked = call()
    verbs = (Verb.ACK, Verb.RETRY, Verb.RETRY, Verb.ACK)
    asked.ops += [Settle(verb, offset) for offset, verb in enumerate(verbs)]
    asked.plain = False
    lost, late = result(Status.LOST), replace(result(Status.ACKED), late=True)
    world.settles.count(asked, [late, result(Status.RETRYING), lost, None])

    def counted(do: SettleVerb, status: Status) -> float:
        labels = {"subscription": NAME, "do": do.value, "status": status.value}
        return world.count("ackd_settles_total", **labels)

    assert counted(ACK, Status.ACKED) == 1
    assert counted(RETRY, Status.RETRYING) == 1
    assert counted(RETRY, Status.LOST) == 1
    assert counted(ACK, Status.UNAVAILABLE) == 1
    assert world.count("ackd_late_acks_total", subscription=NAME) == 1
    assert world.count("ackd_lost_settles_total", subscription=NAME, do="retry") == 1


async def test_a_call_of_plain_acks_is_counted_as_one(world: World) -> None:
    asked = call()
    asked.ops += [Settle(Verb.ACK, offset) for offset in range(3)]
    world.settles.count(asked, [ACKED] * 3)
    labels = {"subscription": NAME, "do": "ack", "status": "acked"}
    assert world.count("ackd_settles_total", **labels) == 3


async def test_only_counted_failures_open_the_circuit_breaker(world: World) -> None:
    world.sets(circuit_breaker_failures=1)
    for counted in (False, True):
        asked = call()
        asked.ops.append(Settle(Verb.RETRY, 0, counted=counted))
        asked.plain = False
        world.settles.count(asked, [result(Status.RETRYING)])
        assert world.breaker.on is counted
    assert world.settles.op(SettleItem("", RETRY), TOKEN) == Settle(
        Verb.RETRY, 5, 33, 1, 2, world.state.settings.retry_delays_ms[1], counted=False
    )
