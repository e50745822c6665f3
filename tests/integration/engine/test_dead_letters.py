"""Dead letters are looked at, redriven and purged, exactly, whoever dies meanwhile (R2, R29)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import pytest

from ackd.api.dead_letters import (
    DeadFilter,
    DeadLetterApi,
    DeadPage,
    DeadRequest,
    DeadView,
    DryRun,
    Kind,
    OperationView,
    To,
)
from ackd.api.messages import Delivery, SettleVerb
from ackd.core.ids import LedgerKey
from ackd.core.record.state import PartitionRecord as CoreRecord
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.claims import CopyClaims
from ackd.errors import (
    BadParameterError,
    OperationRunningError,
    UnknownDeadLetterError,
    UnknownOperationError,
)
from ackd.ports import Headers
from tests.integration.engine.linked import WITH_PARTITIONS
from tests.integration.engine.test_send_back import NAME, Place, Sidecar
from tests.integration.engine.test_send_back import place as place  # noqa: PLC0414  the fixture
from tests.support.wait import wait_until_async

REDRIVE = DeadRequest(Kind.REDRIVE, confirm=NAME)
PURGE = DeadRequest(Kind.PURGE, confirm=NAME)
EVERY_BROKER = pytest.mark.parametrize("place", WITH_PARTITIONS, indirect=True)
"""Whose dead letters can be read."""


async def dead_letter(sidecar: Sidecar, count: int, *, headers: Headers = ()) -> list[Delivery]:
    """Messages that are given up, in the order of the topic."""
    await sidecar.publish(count, headers=headers)
    messages = await sidecar.collect(count, lease_ms=300_000)
    for number, message in enumerate(messages):
        await sidecar.settle([message], SettleVerb.DEAD, reason=f"bad {number % 2}")
    await sidecar.until_count(count, "copies", "dead-letter-topic", "stored")
    return messages


def desk(sidecar: Sidecar) -> DeadLetterApi:
    """What a test asks."""
    return sidecar.runtime.dead


async def listed(sidecar: Sidecar, limit: int = 100) -> list[DeadView]:
    """All pages, as `ackd dead list` reads them."""
    found: list[DeadView] = []
    page = DeadPage([], "0-0")
    while page.cursor is not None:
        page = await desk(sidecar).page(NAME, page.cursor, limit)
        assert len(page.messages) <= limit
        found += page.messages
    return found


async def done(
    sidecar: Sidecar, operation: DryRun | OperationView, state: str = "done"
) -> OperationView:
    """Wait for its end."""
    assert isinstance(operation, OperationView)
    seen = [operation]

    async def ended() -> bool:
        seen.append(await desk(sidecar).operation(operation.id))
        return seen[-1].state not in ("running", "cancelling")

    await wait_until_async(ended, "the operation to end", timeout_s=60)
    assert seen[-1].state == state, seen[-1]
    return seen[-1]


def names(messages: Sequence[Delivery | DeadView]) -> list[str]:
    """Ids of the messages, sorted."""
    return sorted(m.id if isinstance(m, Delivery) else m.message for m in messages)


async def test_r29_all_are_redriven_once_with_a_fresh_budget(place: Place) -> None:
    sidecar = await place.start(attempts_max=2)
    assert await listed(sidecar) == []
    dead = await dead_letter(sidecar, 25, headers=(("own", b"yes"), ("old", b"1")))
    letters = await listed(sidecar, limit=7)
    assert names(letters) == names(dead)
    assert {each.state for each in letters} == {"dead"}
    assert {(each.reason, each.attempts) for each in letters} == {("bad 0", 1), ("bad 1", 1)}
    one = await desk(sidecar).peek(NAME, letters[3].id)
    assert one.view == letters[3]
    assert one.record.value is not None
    assert one.headers == (("own", b"yes"), ("old", b"1"))
    edited = DeadRequest(
        Kind.REDRIVE,
        set_headers=(("own", "new"), ("more", "x")),
        remove_headers=("old",),
        confirm=NAME,
    )
    view = await done(sidecar, await desk(sidecar).begin(NAME, edited))
    assert (view.moved, view.failed, view.skipped) == (25, 0, 0)
    assert view.scanned == view.total
    again = await sidecar.collect(25)
    assert names(again) == names(dead)
    sources = {each.message: each.id for each in letters}
    for message in again:
        assert message.attempt == 1
        *own, (name, source) = message.record.headers
        assert own == [("own", b"new"), ("more", b"x")]
        assert name == "ackd-redriven-from"
        assert source is not None
        assert source.decode().endswith("/" + sources[message.id].replace("-", "/"))
    assert await sidecar.receive(wait_ms=500) == []
    assert await listed(sidecar) == []
    with pytest.raises(UnknownDeadLetterError):
        await desk(sidecar).peek(NAME, letters[3].id)
    # It is the same message: when it dies again, that is told, and from where it came.
    await sidecar.settle(again[1:], SettleVerb.ACK)
    await sidecar.settle(again[:1], SettleVerb.DEAD, reason="still bad")
    await sidecar.until_count(26, "copies", "dead-letter-topic", "stored")
    (last,) = await listed(sidecar)
    assert (last.message, last.reason, last.attempts) == (again[0].id, "still bad", 1)
    assert last.redriven_from is not None
    assert sidecar.count("dead_letters", "redriven") == 25


async def test_some_by_id_or_filter_and_a_dry_run_changes_nothing(place: Place) -> None:
    sidecar = await place.start()
    await dead_letter(sidecar, 12)
    letters = await listed(sidecar)
    odd = DeadRequest(Kind.REDRIVE, filter=DeadFilter(reason="bad 1"), max=4)
    wanted = names([each for each in letters if each.reason == "bad 1"])
    for _ in range(2):
        dry = await desk(sidecar).begin(
            NAME, DeadRequest(Kind.REDRIVE, filter=odd.filter, dry_run=True)
        )
        assert isinstance(dry, DryRun)
        assert (dry.matched, dry.scanned, dry.complete) == (6, 12, True)
        assert names(dry.messages) == wanted
    view = await done(sidecar, await desk(sidecar).begin(NAME, odd))
    assert view.moved == 4
    assert set(names(await sidecar.collect(4))) <= set(wanted)
    left = await listed(sidecar)
    assert len(left) == 8
    ids = (left[5].id, left[0].id)
    view = await done(sidecar, await desk(sidecar).begin(NAME, DeadRequest(Kind.REDRIVE, ids=ids)))
    assert (view.moved, view.total, view.scanned) == (2, 2, 2)
    assert names(await sidecar.collect(2)) == names([left[0], left[5]])
    with pytest.raises(UnknownDeadLetterError):
        await desk(sidecar).begin(NAME, DeadRequest(Kind.REDRIVE, ids=ids))
    with pytest.raises(UnknownDeadLetterError):
        await desk(sidecar).begin(NAME, DeadRequest(Kind.REDRIVE, ids=("99-0",)))
    assert await sidecar.receive(wait_ms=500) == []


@EVERY_BROKER
async def test_a_purge_wants_the_name_and_forgets_for_good(place: Place) -> None:
    sidecar = await place.start()
    await dead_letter(sidecar, 6)
    with pytest.raises(BadParameterError):
        await desk(sidecar).begin(NAME, DeadRequest(Kind.PURGE, confirm="something"))
    some = DeadRequest(Kind.PURGE, filter=DeadFilter(reason="bad 0"), confirm=NAME)
    assert (await done(sidecar, await desk(sidecar).begin(NAME, some))).moved == 3
    assert {each.reason for each in await listed(sidecar)} == {"bad 1"}
    assert (await done(sidecar, await desk(sidecar).begin(NAME, PURGE))).moved == 3
    assert await listed(sidecar) == []
    assert (await done(sidecar, await desk(sidecar).begin(NAME, REDRIVE))).moved == 0
    assert await sidecar.receive(wait_ms=500) == []
    assert sidecar.count("dead_letters", "purged") == 6


@EVERY_BROKER
async def test_to_the_origin_topic(place: Place) -> None:
    sidecar = await place.start(retry_topic=False)
    await dead_letter(sidecar, 3)
    with pytest.raises(BadParameterError):
        await desk(sidecar).begin(NAME, REDRIVE)
    request = DeadRequest(Kind.REDRIVE, to=To.ORIGIN, confirm=NAME)
    assert (await done(sidecar, await desk(sidecar).begin(NAME, request))).moved == 3
    again = await sidecar.collect(3)
    assert names(again) == [f"{place.topic}/0/{offset}" for offset in (3, 4, 5)]
    assert {message.record.headers[0][0] for message in again} == {"ackd-redriven-from"}
    assert await listed(sidecar) == []


async def test_one_at_a_time_at_a_rate_and_cancelled(place: Place) -> None:
    sidecar = await place.start()
    await dead_letter(sidecar, 30)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    view = await desk(sidecar).begin(NAME, DeadRequest(Kind.REDRIVE, rate_per_s=3, confirm=NAME))
    assert isinstance(view, OperationView)
    with pytest.raises(OperationRunningError) as other:
        await desk(sidecar).begin(NAME, REDRIVE)
    assert other.value.facts == {"operation": view.id}
    got = await sidecar.collect(6, lease_ms=300_000)
    assert loop.time() - began_s > 0.9
    asked = await desk(sidecar).cancel(view.id)
    assert asked.state in ("cancelling", "cancelled")
    ended = await done(sidecar, view, "cancelled")
    assert 6 <= ended.moved < 30
    got += await sidecar.collect(ended.moved - len(got)) if ended.moved > len(got) else []
    assert len(await listed(sidecar)) == 30 - ended.moved
    assert await sidecar.receive(wait_ms=500) == []
    with pytest.raises(UnknownOperationError):
        await desk(sidecar).cancel("nothing")
    rest = await done(sidecar, await desk(sidecar).begin(NAME, REDRIVE))
    assert rest.moved == 30 - ended.moved
    got += await sidecar.collect(rest.moved)
    assert len(set(names(got))) == len(got) == 30


def dead_records(place: Place) -> dict[LedgerKey, CoreRecord]:
    """The records of the dead-letter topic's partitions."""
    return {k: r for k, r in place.data.records.items() if k.subscription.endswith("!dead")}


@pytest.mark.parametrize("harm", ["another server run", "origin records gone"])
async def test_r9_r14_a_copy_claims_although_nobody_owns_the_record_of_the_dead_letters(
    place: Place, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    claim = CopyClaims.claim
    harmed: list[str] = []

    def harm_first(claims: CopyClaims, partition: Partition, offset: int) -> None:
        if not harmed:
            harmed.append(harm)
            for record in dead_records(place).values():
                if harm == "origin records gone":
                    record.origins.clear()
                else:
                    record.run = "an earlier one"
        claim(claims, partition, offset)

    monkeypatch.setattr(CopyClaims, "claim", harm_first)
    sidecar = await place.start()
    dead = await dead_letter(sidecar, 3)
    await done(sidecar, await desk(sidecar).begin(NAME, REDRIVE))
    again = await sidecar.collect(3, wait_ms=30_000)
    assert harmed
    assert names(again) == names(dead)
    assert await sidecar.receive(wait_ms=500) == []
    assert await listed(sidecar) == []


async def test_i8_origin_records_of_what_was_redriven_are_dropped(place: Place) -> None:
    sidecar = await place.start()
    await dead_letter(sidecar, 3)
    await done(sidecar, await desk(sidecar).begin(NAME, REDRIVE))
    await sidecar.collect(3)
    records = dead_records(place)

    async def closed() -> bool:
        return sum(len(record.closing) for record in records.values()) == 3

    await wait_until_async(closed, "the origin records to be closed", timeout_s=60)
    marks = sidecar.runtime._subscriptions[NAME].dead_letter_records
    for key, record in records.items():
        record.closing = deque((1, offset) for _, offset in record.closing)
        for _, offset in record.closing:
            record.origins[offset].closed_ms = 1
        await marks.prune(key, 3)
        assert (record.origins, record.origin_count) == ({}, 0)


async def test_another_sidecar_ends_what_one_has_left(place: Place) -> None:
    first = await place.start("one")
    await dead_letter(first, 20)
    operation = await desk(first).begin(NAME, DeadRequest(Kind.REDRIVE, rate_per_s=4, confirm=NAME))
    got = await first.collect(4, lease_ms=300_000)
    second = await place.start("two")
    await first.runtime.stop()
    ended = await done(second, operation)
    assert (ended.moved, ended.skipped) == (20, 0)
    got += await second.collect(20 - len(got))
    assert len(set(names(got))) == 20
    assert await second.receive(wait_ms=500) == []
