"""Whoever may write to the retry topic writes any header: what a forged copy can do, and what not.

On the embedded store, which packs numbers as every real one does.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.api.dead_letters import DeadRequest, Kind, OperationView, To
from ackd.api.messages import PublishRequest, SettleVerb
from ackd.core.origin import Origin
from ackd.engine.base.copy_signature import CopyKind
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.errors import ReservedTopicError
from ackd.ports import Headers, Outgoing, Stored
from tests.integration.engine.shop import NAME, Shop, Worker
from tests.support.wait import wait_until_async

FORGED = {
    "ackd-generation": (b"-1", b"%d" % (1 << 70), b"%d" % (1 << 52)),
    "ackd-incarnation": (b"-1", b"%d" % (1 << 70)),
    "ackd-rollback-epoch": (b"-1", b"65536"),
    "ackd-attempt": (b"70000",),
    "ackd-due-ms": (b"%d" % (1 << 60),),
    "ackd-order-key": (b"%d" % (1 << 50),),
}


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    async with AsyncExitStack() as stack:
        yield await Shop(stack, tmp_path, "embedded").start(ordering="key")


def retry_topic(worker: Worker) -> str:
    return worker.subscription.retry_topic.topic.name


async def forge(worker: Worker, *headers: Headers, signed: bool = False) -> None:
    """Write to the retry topic as any producer of the broker can; `signed`: as ackd can."""
    topic = retry_topic(worker)
    records = [Outgoing(topic, None, b"forged", each, partition=0) for each in headers]
    if signed:
        keys = worker.subscription.state.copy_keys
        records = [keys.signed(each, CopyKind.RETRY) for each in records]
    stored = await worker.runtime._brokers["b"].publish(records)
    assert all(isinstance(each, Stored) for each in stored)


def made_up(worker: Worker, **more: object) -> RetryCopy:
    topic_id = worker.subscription.topics.known[worker.shop.topic].topic_id
    facts: dict[str, object] = {
        "cluster": worker.subscription.state.cluster,
        "topic_id": topic_id,
        "topic": worker.shop.topic,
        "partition": 0,
        "offset": 0,
        **more,
    }
    origin = Origin(**facts)  # type: ignore[arg-type]
    return RetryCopy(origin, NAME, 1 << 50, 7, 9, 1, 0, 0, 0)


async def test_no_header_stops_the_sidecar_or_makes_a_name(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    right = dict(retry_copy_headers(made_up(worker), ()))
    place = f"{made_up(worker).origin.text().rsplit('/', 2)[0]}"
    origins = [f"{place}/{at}".encode() for at in ("-1/4", "99999999999/4", f"0/{1 << 63}", "0/-4")]
    headers = [right | {"ackd-origin": each} for each in origins]
    headers += [right | {"ackd-redriven": each} for each in origins]
    headers += [right | {name: each} for name, values in FORGED.items() for each in values]
    with caplog.at_level(logging.WARNING):
        await forge(worker, *(tuple(each.items()) for each in headers))
        found = await worker.dead(len(headers))
    places = {f"{retry_topic(worker)}/0/{at}" for at in range(len(headers))}
    assert ({each.message for each in found}, len(found)) == (places, len(headers))
    wrong = {"ackd-origin", "ackd-redriven", *FORGED}
    assert {each.reason for each in found} == {
        f"not written by ackd: its {name} is none of ackd's" for name in wrong
    }
    whole = await worker.runtime.dead.peek(NAME, found[0].id)
    kept = [(name.replace("ackd-", "said-"), value) for name, value in headers[0].items()]
    assert (whole.record.value, list(whole.headers)) == (b"forged", kept)
    assert worker.runtime.metrics.claims.at(NAME, "aside").value == len(headers)
    assert len([each for each in caplog.records if "a dead letter: not" in each.message]) == 1
    assert not worker.runtime.vitals.failure
    assert (await worker.receive(wait_ms=0)).messages == []
    await worker.publish(1)
    assert (await worker.one()).topic == worker.shop.topic


async def test_a_sidecar_that_starts_again_meets_them_again_and_goes_on(worker: Worker) -> None:
    """One that was put aside in the moment of the stop may be a dead letter twice."""
    right = dict(retry_copy_headers(made_up(worker), ()))
    headers = [right | {name: each} for name, values in FORGED.items() for each in values]
    await forge(worker, *(tuple(each.items()) for each in headers))
    await worker.runtime.stop()
    again = await worker.shop.start(ordering="key")
    places = {f"{retry_topic(again)}/0/{at}" for at in range(len(headers))}

    async def all_aside() -> bool:
        return {each.message for each in await again.dead(1)} == places

    await wait_until_async(all_aside, "each of them is a dead letter")
    await again.publish(1)
    assert (await again.one()).topic == worker.shop.topic
    assert not again.runtime.vitals.failure


@pytest.mark.parametrize("other", [{"cluster": "elsewhere"}, {"topic_id": b"?" * 16}])
async def test_a_copy_of_nothing_here_has_no_name_of_a_message_here(
    worker: Worker, other: dict[str, object]
) -> None:
    """What ackd has signed is delivered, since a store that lost its data looks the same; but as
    itself. What nobody has signed is put aside.
    """
    await worker.publish(1)
    real = await worker.one(lease_ms=60_000)
    headers = retry_copy_headers(made_up(worker, **other), (("own", b"1"),))
    await forge(worker, headers, signed=True)
    forged = await worker.one(lease_ms=60_000)
    assert (forged.topic, forged.partition, forged.record.offset) == (retry_topic(worker), 0, 0)
    assert (forged.record.value, forged.record.headers) == (b"forged", (("own", b"1"),))
    shown = {each.id for each in await worker.runtime.in_flight(NAME, 0, 10)}
    assert shown == {f"{worker.shop.topic}/0/0", f"{retry_topic(worker)}/0/0"}
    assert (await worker.settle(real, SettleVerb.ACK)).status == "acked"
    assert (await worker.settle(forged, SettleVerb.ACK)).status == "acked"
    await forge(worker, headers)
    [letter] = await worker.dead(1)
    assert letter.message == f"{retry_topic(worker)}/0/1"
    assert letter.reason.startswith("not-signed")


async def test_a_made_up_generation_takes_no_message_from_its_holder(worker: Worker) -> None:
    """It claims no origin record of a later generation; here there is none, and no rollback."""
    await worker.publish(1)
    real = await worker.one(lease_ms=60_000)
    await forge(worker, retry_copy_headers(made_up(worker), ()))

    async def asked() -> bool:
        claims = worker.runtime.metrics.claims
        outcomes = ("held", "finished", "duplicate", "unknown", "foreign", "aside")
        return sum(claims.at(NAME, each).value for each in outcomes) > 0

    await wait_until_async(asked, "the claim", timeout_s=30)
    assert (await worker.settle(real, SettleVerb.ACK)).status == "acked"


async def test_applications_publish_nothing_to_it(worker: Worker) -> None:
    topic = retry_topic(worker)
    message = Outgoing(topic, None, b"1", ())
    for respond_async in (False, True):
        request = PublishRequest([message], respond_async=respond_async)
        [result] = (await worker.runtime.publish(None, request)).results
        assert isinstance(result, ReservedTopicError)


async def test_a_redrive_goes_to_no_topic_of_the_brokers_own(worker: Worker) -> None:
    """Whoever may write dead letters writes where they come from, too."""
    broker = worker.runtime._brokers["b"]
    dead = worker.subscription.dead_letters._topic
    await dead.ensure()
    own = made_up(worker, topic="__consumer_offsets", topic_id=b"?" * 16)
    letters = [
        Outgoing(dead.name, None, b"1", retry_copy_headers(each, ()), partition=0)
        for each in (own, made_up(worker, topic=retry_topic(worker)), made_up(worker))
    ]
    assert all(isinstance(each, Stored) for each in await broker.publish(letters))
    desk = worker.runtime.dead
    begun = await desk.begin(
        NAME, DeadRequest(Kind.REDRIVE, to=To.ORIGIN, unsigned=True, confirm=NAME)
    )
    assert isinstance(begun, OperationView)

    async def over() -> bool:
        return (await desk.operation(begun.id)).state not in ("running", "cancelling")

    await wait_until_async(over, "the operation to end", timeout_s=60)
    view = await desk.operation(begun.id)
    assert (view.state, view.moved, view.failed) == ("done", 1, 2)
    assert await broker.partitions("__consumer_offsets") is None
    assert (await worker.one()).topic == worker.shop.topic
