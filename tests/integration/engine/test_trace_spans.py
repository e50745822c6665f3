"""What a sidecar writes of dead letters, redrives, copies, seeks, outages, its own ways."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackd.api.dead_letters import DeadRequest, DryRun, Kind, OperationView, To
from ackd.api.messages import Delivery, PublishRequest, SettleVerb
from ackd.api.progress import SeekRequest, SeekTo
from ackd.config.traces import TraceSettings
from ackd.errors import BrokerError
from ackd.ports import Outgoing
from ackd.telemetry.caller import calling
from ackd.telemetry.spans import SpanEvent
from ackd_adapters.local.broker import LocalBroker
from tests.integration.engine.shop import NAME, Shop, Worker
from tests.support.otlp import offsets, spans
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.timeout(120)]

Span = dict[str, Any]
QUICK = {"stuck_after_ms": 300, "stuck_min_age_ms": 300}


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    """Sidecars on a store in memory that write every span."""
    async with AsyncExitStack() as stack:
        traces = TraceSettings(
            files=True, folder=tmp_path / "traces", flush_ms=20, application="till"
        )
        yield Shop(stack, tmp_path, "", traces=traces)


async def ended(*workers: Worker) -> list[Span]:
    """All spans, after an orderly stop."""
    for each in workers:
        await each.runtime.stop()
    return spans(workers[0].shop.folder / "traces")


def of(found: Sequence[Span], event: str) -> list[Span]:
    return [each for each in found if each["ackd.event"] == event]


def one_of(found: Sequence[Span], event: str) -> Span:
    (span,) = of(found, event)
    return span


def life(found: Sequence[Span], message: Delivery) -> list[str]:
    """The events of a message in order of their ends; they are in one trace and one epoch."""
    mine = [each for each in found if each.get("messaging.message.id") == message.id]
    assert len({each["trace"] for each in mine}) == 1
    assert {each["ackd.application"] for each in mine} == {"till"}
    return [str(each["ackd.event"]) for each in sorted(mine, key=lambda each: int(each["end"]))]


async def over(worker: Worker, begun: DryRun | OperationView | object) -> OperationView:
    """Wait for the end of an operation."""
    assert isinstance(begun, OperationView)
    seen = [begun]

    async def done() -> bool:
        seen.append(await worker.runtime.dead.operation(begun.id))
        return seen[-1].state not in ("running", "cancelling")

    await wait_until_async(done, "the operation to end", timeout_s=60)
    assert seen[-1].state == "done", seen[-1]
    return seen[-1]


async def seek(worker: Worker, to: SeekTo) -> None:
    """Of the group, to its end, and on."""
    await worker.runtime.pause(NAME, "group", "test", None)
    await over(worker, await worker.runtime.progress.seek(NAME, SeekRequest(to)))
    await worker.runtime.resume(NAME, "group")


async def until(check: Callable[[], bool], what: str) -> None:
    async def there() -> bool:
        return check()

    await wait_until_async(there, what, timeout_s=60)


async def test_a_dead_letter_and_both_ways_of_its_redrive(shop: Shop) -> None:
    worker = await shop.start(attempts_max=2)
    await worker.publish(2)
    first, origin = await worker.collect(2)
    assert (await worker.settle(first, SettleVerb.DEAD, reason="bad")).status == "dead"
    assert (await worker.settle(origin, SettleVerb.DEAD, reason="worse")).status == "dead"
    letters = {each.message: each for each in await worker.dead(2)}
    desk = worker.runtime.dead
    ids = (letters[first.id].id,)
    await over(worker, await desk.begin(NAME, DeadRequest(Kind.REDRIVE, ids)))
    again = await worker.one()
    assert again.id == first.id
    assert (await worker.settle(again, SettleVerb.ACK)).status == "acked"
    ids = (letters[origin.id].id,)
    await over(worker, await desk.begin(NAME, DeadRequest(Kind.REDRIVE, ids, to=To.ORIGIN)))
    new = await worker.one()
    assert new.id == f"{shop.topic}/0/2"
    assert (await worker.settle(new, SettleVerb.ACK)).status == "acked"

    found = await ended(worker)
    assert life(found, first) == ["dead", "dead_letter", "redrive", "ack"]
    assert life(found, origin) == ["dead", "dead_letter", "redrive"]
    assert life(found, new) == ["ack"]
    stored = of(found, "dead_letter")
    reasons = {each["messaging.message.id"]: each["ackd.reason"] for each in stored}
    assert reasons == {first.id: "bad", origin.id: "worse"}
    assert shop.topic not in {each["ackd.copy.topic"] for each in stored}
    for each in of(found, "redrive"):
        assert each["ackd.redriven.from"].endswith(
            letters[each["messaging.message.id"]].id.replace("-", "/")
        )
        assert each["name"] == f"redrive {shop.topic}"


async def test_a_copy_stays_the_message_of_its_origin_and_of_its_epoch(shop: Shop) -> None:
    """Also where the sidecar that has the copy does not own the origin record, after a seek
    (R8).
    """
    one = await shop.start("one", **QUICK)
    await one.publish(2)
    before = await one.collect(2)
    assert await one.all(before, SettleVerb.ACK) == ["acked"] * 2
    await seek(one, SeekTo.EARLIEST)
    stuck, other = await one.collect(2)
    assert (await one.settle(other, SettleVerb.ACK)).status == "acked"
    late_ms = 2_500
    asked = await one.settle(stuck, SettleVerb.RETRY, delay_ms=late_ms)
    assert asked.status == "retrying"
    metrics = one.runtime.metrics
    await until(lambda: metrics.copies.at(NAME, "retry-topic", "stored").value == 1, "a copy")
    two = await shop.start("two", **QUICK)
    again: list[Delivery] = []
    while not again:
        for each in (one, two):
            again += (await each.receive(wait_ms=200)).messages
    (copy,) = again
    assert (copy.id, copy.attempt) == (stuck.id, 2)
    assert (await two.settle(copy, SettleVerb.ACK)).status == "acked"

    found = await ended(one, two)
    named = [each for each in found if each.get("messaging.message.id") == stuck.id]
    assert {each["ackd.reset.epoch"] for each in of(named, "ack")} == {0, 1}
    mine = [each for each in named if each["ackd.reset.epoch"] == 1]
    assert len(mine) == len(of(named, "retry") + of(named, "send_back")) + 1
    assert [each["ackd.event"] for each in sorted(mine, key=lambda e: int(e["end"]))] == [
        "retry",
        "send_back",
        "ack",
    ]
    assert len({each["trace"] for each in mine}) == 1
    retry, sent = one_of(mine, "retry"), one_of(mine, "send_back")
    assert retry["ackd.due.unix_ms"] - retry["end"] // 1_000_000 in range(
        late_ms - 100, late_ms + 1
    )
    assert sent["ackd.copy.topic"] != shop.topic
    assert sent["ackd.reason"]
    (ack,) = of(mine, "ack")
    assert ack["ackd.delivery.attempt"] == 2
    assert "ackd.sample.weight" not in ack


async def test_a_seek_is_told_and_what_comes_again_is_another_life(shop: Shop) -> None:
    """Acked, then handed out again: on purpose, so in another epoch, never in the same."""
    worker = await shop.start()
    await worker.publish(3)
    messages = await worker.collect(3)
    assert await worker.all(messages, SettleVerb.ACK) == ["acked"] * 3
    await seek(worker, SeekTo.EARLIEST)
    again = await worker.collect(3)
    assert [each.id for each in again] == [each.id for each in messages]
    assert await worker.all(again, SettleVerb.ACK) == ["acked"] * 3

    found = await ended(worker)
    told = one_of(found, "seek")
    assert told["parent"] == ""
    assert (told["ackd.reset.epoch"], told["ackd.seek.offset"]) == (1, 0)
    assert told["messaging.destination.partition.id"] == "0"
    acks = of(found, "ack")
    assert len({each["trace"] for each in acks}) == 6
    for event in ("receive", "settle"):
        batches = {
            (each["ackd.reset.epoch"], offset)
            for each in of(found, event)
            for offset in offsets(each["ackd.offsets"])
        }
        assert batches == {(epoch, offset) for epoch in (0, 1) for offset in range(3)}


async def test_takeovers_and_the_last_commit_are_told(shop: Shop) -> None:
    one = await shop.start("one")
    await one.publish(5)
    assert await one.all(await one.collect(3), SettleVerb.ACK) == ["acked"] * 3

    async def committed() -> bool:
        (row,) = [row for row in await one.runtime.lag(NAME) if row.topic == shop.topic]
        return row.committed == 3

    await wait_until_async(committed, "the commit", timeout_s=60)
    await one.runtime.stop()
    two = await shop.start("two")
    found = await ended(two)
    topic = [each for each in found if each.get("messaging.destination.name") == shop.topic]
    takers = [each["instance"] for each in of(topic, "takeover")]
    assert takers == ["one", "two"]
    for each in of(topic, "takeover"):
        assert each["messaging.destination.partition.id"] == "0"
        assert each["messaging.consumer.group.name"] == shop.topic
        assert each["end"] > each["start"]
    mine = [each for each in of(topic, "commit") if each["instance"] == "one"]
    last = max(mine, key=lambda each: int(each["ackd.commit.offset"]))
    assert (last["ackd.commit.offset"], last["ackd.commit.lag"]) == (3, 2)
    assert [each["instance"] for each in of(found, "start")] == ["one", "two"]
    assert [each["instance"] for each in of(found, "stop")] == ["one", "two"]


async def test_an_ack_before_the_topics_are_known_is_told_of_later(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sidecar that has just started serves settles before its broker has told it the topics."""

    async def away() -> None:
        raise BrokerError("it does not answer yet")

    worker = await shop.start()
    await worker.publish(2)
    messages = [await worker.one(), await worker.one()]
    traces = worker.runtime._subscriptions[NAME].context.traces
    assert traces is not None
    subscription = worker.runtime._subscriptions[NAME]
    topics, known = subscription.topics, dict(subscription.topics.known)
    subscription.ownership.drop_all()
    monkeypatch.setattr(topics, "read", away)
    topics.known.clear()
    assert await worker.all(messages[:1], SettleVerb.ACK) == ["acked"]
    assert traces.counts.made[SpanEvent.ACK] == 1, "a crash from here on counts it"
    traces.flush_all()
    topics.known.update(known)
    traces.flush_all()
    topics.known.clear()
    assert await worker.all(messages[1:], SettleVerb.ACK) == ["acked"]
    found = await ended(worker)
    (told,) = of(found, "ack")
    assert told["messaging.message.id"] == messages[0].id
    (status,) = of(found, "status")
    assert status["ackd.spans.dropped.ack"] == 1, "its topic was never known"


async def test_publishing_is_told_with_what_failed(shop: Shop) -> None:
    worker = await shop.start()
    good = Outgoing(shop.topic, None, b"x", partition=0)
    await worker.runtime.publish("b", PublishRequest([good, good]))
    await worker.runtime.publish("b", PublishRequest([good, replace(good, partition=99)]))
    found = of(await ended(worker), "publish")
    fine, bad = sorted(found, key=lambda each: int(each["start"]))
    assert fine["messaging.batch.message_count"] == bad["messaging.batch.message_count"] == 2
    assert fine["messaging.destination.name"] == shop.topic
    assert "error.type" not in fine
    assert (bad["error.type"], bad["ackd.failed"]) == ("publish", 1)


async def test_live_changes_are_told(shop: Shop) -> None:
    worker = await shop.start()
    await worker.runtime.pause(NAME, "group", "look", None)
    await worker.runtime.resume(NAME, "group")
    found = of(await ended(worker), "config")
    assert [each["ackd.subscription"] for each in found] == [NAME] * 2
    paused, resumed = found
    assert "pause" in paused["ackd.config.changed"]
    assert "pause" in resumed["ackd.config.changed"]


async def test_a_live_change_is_in_the_trace_of_its_caller(shop: Shop) -> None:
    """What the caller did not ask for is not: a takeover that follows has a trace of its own."""
    worker = await shop.start()
    with calling({"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-00"}):
        await worker.runtime.pause(NAME, "group", "look", None)
    with calling({"traceparent": "nonsense"}):
        await worker.runtime.resume(NAME, "group")
    found = await ended(worker)
    paused, resumed = of(found, "config")
    assert (paused["trace"], paused["parent"]) == ("ab" * 16, "cd" * 8)
    assert resumed["parent"] == ""
    assert [each for each in found if each["trace"] == "ab" * 16] == [paused]


async def test_a_broker_that_is_away_is_an_outage(shop: Shop) -> None:
    """The local queue tells of trouble as when its disk is full, each time that it looks there."""
    worker = await shop.start()
    broker = worker.runtime._brokers["b"]
    assert isinstance(broker, LocalBroker)
    outages = worker.runtime._outages
    assert outages is not None

    def noticed() -> bool:
        broker._broke(BrokerError("no space left"))
        return bool(outages._away)

    await until(noticed, "it to be noticed")
    broker._broke(None)
    await until(lambda: not outages._away, "its end to be noticed")
    outage = one_of(await ended(worker), "outage")
    assert (outage["name"], outage["ackd.outage.of"]) == ("outage broker", "broker")
    assert outage["ackd.broker"] == "b"
    assert outage["error.type"] == "queue"
    assert outage["end"] > outage["start"]


@pytest.mark.redis
async def test_a_store_that_is_away_is_an_outage(
    shop: Shop, own_redis: Callable[..., RedisServer]
) -> None:
    server = own_redis(RedisOptions(binary(Flavour.VALKEY)))
    shop.url = server.url
    worker = await shop.start()
    server.kill()
    outages = worker.runtime._outages
    assert outages is not None
    await until(lambda: bool(outages._away), "it to be noticed")
    server.start()
    await until(lambda: not outages._away, "its end to be noticed")
    found = of(await ended(worker), "outage")
    assert {(each["name"], each["ackd.outage.of"]) for each in found} == {("outage store", "store")}
    assert {each["error.type"] for each in found} == {"store-unavailable"}
    assert max(each["end"] - each["start"] for each in found) > 0
