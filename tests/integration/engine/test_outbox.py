"""The outbox on real parts: order per key, delays, repeats, bounds, what was refused (I1, R20)."""

import asyncio
import random
import time
from collections import defaultdict
from dataclasses import replace

import msgspec
import pytest

from ackd.api.messages import Accepted, PublishRequest
from ackd.config.schema import PublishSettings
from ackd.engine.publishing.idempotency import RememberedPublish
from ackd.engine.runtime import Runtime
from ackd.errors import (
    BodyTooLargeError,
    NotFailedError,
    PressureError,
    PublishRefusedError,
    UnknownOutboxMessageError,
)
from ackd.ports import Outgoing, Stored
from tests.integration.engine.together import PARTITIONS, Sidecar, Together
from tests.support.starved import Starved
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]


async def accept(runtime: Runtime, *messages: Outgoing, key: str | None = None) -> list[Accepted]:
    """Publish through the outbox."""
    fingerprint = repr(messages).encode() if key else b""
    request = PublishRequest(messages, key, fingerprint, respond_async=True)
    results = (await runtime.publish("b", request)).results
    accepted = [each for each in results if isinstance(each, Accepted)]
    assert len(accepted) == len(messages), results
    return accepted


async def state(runtime: Runtime, accepted: Accepted) -> str:
    """Where a message is."""
    return (await runtime.outbox.message("b", accepted.number)).state


async def test_what_two_sidecars_accept_comes_in_order_per_key(together: Together) -> None:
    one, two = await together.pair()
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    order: dict[bytes, list[int]] = defaultdict(list)
    numbers: dict[bytes, int] = {}

    async def publish(sidecar: Sidecar, count: int) -> None:
        for n in range(count):
            key = b"key-%d" % chance.randrange(8)
            value = b"%s %s %d" % (sidecar.runtime.settings.identity.encode(), key, n)
            message = Outgoing(together.topic, key, value)
            [accepted] = await accept(sidecar.runtime, message)
            numbers[value] = accepted.number

    await asyncio.gather(publish(one, 100), publish(two, 100))
    for delivery in [*await one.collect_all(200, two)]:
        value = delivery.record.value or b""
        order[value.split(b" ")[1]].append(numbers[value])
    assert sum(len(each) for each in order.values()) == 200, seed
    for key, seen in order.items():
        assert seen == sorted(seen), (key, seed)
    views = [each.runtime.outbox.views()[0] for each in (one, two)]
    assert {view.sender for view in views} <= {"one", "two", ""}

    async def told() -> bool:
        found = await one.runtime.outbox.message("b", max(numbers.values()))
        return found.state == "sent" and str(found.message).startswith(together.topic)

    await wait_until_async(told, "the result")


async def test_a_delayed_message_waits_and_survives_a_restart(together: Together) -> None:
    one = await together.start("one")
    soon, late = await accept(
        one.runtime,
        Outgoing(together.topic, b"k", b"second", delay_ms=5_500),
        Outgoing(together.topic, b"k", b"first", delay_ms=5_200),
    )
    assert soon.due_ms == late.due_ms + 300
    assert await state(one.runtime, soon) == "waiting"
    await one.runtime.stop()
    two = await together.start("two")
    found = await two.collect(2)
    assert [each.record.value for each in found] == [b"first", b"second"], "by due time"
    for each, accepted in zip(found, (late, soon), strict=True):
        assert each.record.timestamp_ms >= accepted.due_ms - 5
    message = await two.runtime.outbox.message("b", soon.number)
    assert not message.in_doubt


async def test_a_repeat_with_an_idempotency_key_is_accepted_once(together: Together) -> None:
    one = await together.start("one")
    message = Outgoing(together.topic, b"k", b"once")
    [first] = await accept(one.runtime, message, key="a")
    assert await accept(one.runtime, message, key="a") == [first]
    # The sidecar died after the store had it and before it could note the answer.
    await one.runtime._store.delete("idem:b:a")
    request = PublishRequest([message], "a", repr((message,)).encode(), respond_async=True)
    published = await one.runtime.publish("b", request)
    assert (published.results, published.replayed) == ([first], True)
    await accept(one.runtime, Outgoing(together.topic, b"k", b"end"))
    assert [each.record.value for each in await one.collect(2)] == [b"once", b"end"]


async def test_a_repeat_of_a_batch_publishes_only_what_went_wrong(together: Together) -> None:
    """What was stored is not stored again, though the answer to the whole was no success."""
    together.publish = PublishSettings(outbox="when_away")
    one = await together.start("one")
    outbox = one.runtime._publishing._outboxes["b"]
    good = Outgoing(together.topic, b"k", b"good")
    bad = Outgoing(together.topic, b"k", b"bad", partition=PARTITIONS + 5)
    request = PublishRequest([good, bad], "a", b"two of them")
    first = await one.runtime.publish("b", request)
    assert isinstance(first.results[0], Stored)
    for _ in range(2):
        again = await one.runtime.publish("b", request)
        assert again.results[0] == first.results[0]
        assert isinstance(again.results[1], PublishRefusedError)
    outbox.away = lambda: True
    [stored, accepted] = (await one.runtime.publish("b", request)).results
    assert stored == first.results[0]
    assert isinstance(accepted, Accepted)
    last = await one.runtime.publish("b", request)
    assert (last.results, last.replayed) == ([stored, accepted], True)

    async def refused() -> bool:
        return await state(one.runtime, accepted) == "failed"

    await wait_until_async(refused, "the other one to be tried")
    outbox.away = lambda: False
    await one.runtime.publish("b", PublishRequest([replace(good, value=b"end")]))
    assert [each.record.value for each in await one.collect(2)] == [b"good", b"end"]


async def test_a_repeat_asks_the_outbox_though_the_broker_is_back(together: Together) -> None:
    """The sidecar died after the outbox had it and before it could note the answer."""
    together.publish = PublishSettings(outbox="when_away")
    one = await together.start("one")
    outbox = one.runtime._publishing._outboxes["b"]
    outbox.away = lambda: True
    request = PublishRequest([Outgoing(together.topic, b"k", b"once")], "a", b"print")
    [first] = (await one.runtime.publish("b", request)).results
    assert isinstance(first, Accepted)
    running = RememberedPublish(b"print", time.time_ns() // 1_000_000 + 60_000, boxed=True)
    await one.runtime._store.put("idem:b:a", msgspec.json.encode(running), 60_000)
    outbox.away = lambda: False
    published = await one.runtime.publish("b", request)
    assert (published.results, published.replayed) == ([first], True)
    await one.runtime.publish("b", PublishRequest([Outgoing(together.topic, b"k", b"end")]))
    assert [each.record.value for each in await one.collect(2)] == [b"once", b"end"]


async def test_a_full_outbox_says_429_and_what_never_fits_413(together: Together) -> None:
    together.publish = PublishSettings(outbox_messages_max=3, outbox_bytes_max=2_000)
    one = await together.start("one")
    later = Outgoing(together.topic, None, b"x", delay_ms=60_000)
    await accept(one.runtime, later, later, later)
    with pytest.raises(PressureError, match="full"):
        await accept(one.runtime, later)
    with pytest.raises(BodyTooLargeError):
        await accept(one.runtime, replace(later, value=b"x" * 2_000))
    assert one.runtime.metrics.publishing.outbox_refused.at("b", "messages")._value == 1
    mixed = PublishRequest([Outgoing(together.topic, None, b"now"), later])
    results = (await one.runtime.publish("b", mixed)).results
    assert all(isinstance(each, Stored) for each in results), "this broker delays by itself"


async def test_what_the_broker_refuses_is_kept_and_can_be_sent_again(together: Together) -> None:
    one = await together.start("one")
    bad = Outgoing(together.topic, b"k", b"bad", partition=PARTITIONS + 5)
    good = Outgoing(together.topic, b"k", b"good")
    refused, sent = await accept(one.runtime, bad, good)
    assert [each.record.value for each in await one.collect(1)] == [b"good"]

    async def failed() -> bool:
        return await state(one.runtime, refused) == "failed"

    await wait_until_async(failed, "the refusal")
    found = await one.runtime.outbox.message("b", refused.number)
    assert found.error is not None
    assert "publish-refused" in found.error
    with pytest.raises(NotFailedError):
        await one.runtime.outbox.again("b", sent.number)
    with pytest.raises(UnknownOutboxMessageError):
        await one.runtime.outbox.message("b", 10_000)
    assert (await one.runtime.outbox.again("b", refused.number)).state in {"waiting", "sending"}
    await wait_until_async(failed, "the second refusal")


async def test_one_name_for_two_clusters_is_two_outboxes(together: Together) -> None:
    """R1: the message goes to the cluster of whoever accepted it, and waits if that is away."""
    elsewhere = replace(together, folder=together.folder / "elsewhere")
    one = await together.start("one")
    [accepted] = await accept(one.runtime, Outgoing(together.topic, b"k", b"1", delay_ms=5_000))
    await one.runtime.stop()
    two = await elsewhere.start("two")
    [other] = await accept(two.runtime, Outgoing(together.topic, b"k", b"2", delay_ms=800))
    assert other.number == accepted.number == 1
    assert [each.record.value for each in await two.collect(1)] == [b"2"]
    await asyncio.sleep(max(accepted.due_ms + 700 - time.time_ns() // 1_000_000, 0) / 1000)
    assert not (await two.receive(wait_ms=100)).messages
    three = await together.start("three")
    assert [each.record.value for each in await three.collect(1)] == [b"1"]


async def test_off_means_off(together: Together) -> None:
    together.publish = PublishSettings(outbox="off")
    one = await together.start("one")
    request = PublishRequest([Outgoing(together.topic, None, b"x")], respond_async=True)
    assert all(isinstance(r, Stored) for r in (await one.runtime.publish("b", request)).results)
    assert one.runtime.outbox.views() == []
    with pytest.raises(UnknownOutboxMessageError):
        await one.runtime.outbox.message("b", 1)


@pytest.mark.alone
async def test_delays_are_kept_within_a_quarter_of_a_second(together: Together) -> None:
    """2,000 waiting among many more, due at random places within two seconds."""
    one = await together.start("one")
    chance = random.Random(7)
    for _ in range(10):
        far = [Outgoing(together.topic, None, b"far", delay_ms=600_000 + n) for n in range(1000)]
        await accept(one.runtime, *far)
    batch = [
        Outgoing(together.topic, None, b"%d" % n, delay_ms=chance.randrange(2_000, 4_000))
        for n in range(2_000)
    ]
    due: dict[bytes, int] = {}
    starved = Starved()
    with starved.watched():
        for some in (batch[at : at + 500] for at in range(0, len(batch), 500)):
            for message, accepted in zip(some, await accept(one.runtime, *some), strict=True):
                due[message.value or b""] = accepted.due_ms
        records = [delivery.record for delivery in await one.collect(2_000)]
    late = sorted(each.timestamp_ms - due[each.value or b""] for each in records)
    assert late[0] >= 0, (late[0], "nothing comes early")
    longest_ms = 1000 * max((end - begin for begin, end in starved.longest), default=0)
    assert late[int(len(late) * 0.99)] <= 250 + longest_ms, (late[-30:], starved.longest)
