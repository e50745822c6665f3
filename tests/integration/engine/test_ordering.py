"""Ordered subscriptions: a key, or a partition, one message after the other (I6, R19)."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from ackd.api.messages import Delivery, HeldKey, ReceiveRequest, SettleVerb
from ackd.ports import Outgoing, Stored
from tests.integration.engine.linked import WITH_PARTITIONS
from tests.integration.engine.test_send_back import NAME, Place, Sidecar, place_of
from tests.support.wait import wait_until_async

RETRY_MS = (300,)


@pytest.fixture(params=WITH_PARTITIONS)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A place to run in."""
    async with place_of(request) as made:
        yield made


async def ordered(place: Place, ordering: str, name: str = "one", **more: object) -> Sidecar:
    """A sidecar that hands out in order, and sends nothing back for a minute."""
    settings = {"stuck_after_ms": 60_000, "retry_delays_ms": RETRY_MS, **more}
    return await place.start(name, ordering=ordering, **settings)  # type: ignore[arg-type]


async def publish(sidecar: Sidecar, *keys: str | None) -> None:
    """One message a key, in this order; its value is its number."""
    batch = [
        Outgoing(sidecar.place.topic, None if k is None else k.encode(), b"%d" % n, (), partition=0)
        for n, k in enumerate(keys)
    ]
    results = await sidecar.runtime._brokers["b"].publish(batch)
    assert all(isinstance(each, Stored) for each in results)


def numbers(messages: Sequence[Delivery]) -> list[int]:
    """Which ones."""
    return [int(each.record.value or b"") for each in messages]


async def test_i6_a_key_goes_on_when_its_first_message_is_over_and_others_never_wait(
    place: Place,
) -> None:
    sidecar = await ordered(place, "key")
    await publish(sidecar, "a", "b", "a", None, "b", "a", None)
    got = await sidecar.collect(4)
    assert numbers(got) == [0, 1, 3, 6], "one of each key, and all without a key"
    limited = await sidecar.runtime.receive(NAME, _at_once())
    assert (limited.messages, limited.limited_by) == ([], "ordering")
    held = (await sidecar.runtime.explain(NAME)).ordered
    assert [
        (each.key, each.waiting, each.head.id, each.head.state, each.blocked) for each in held
    ] == [
        ("a", 2, f"{place.topic}/0/0", "leased", False),
        ("b", 1, f"{place.topic}/0/1", "leased", False),
    ]
    first, second, *loose = got
    await sidecar.settle([first, *loose], SettleVerb.ACK)
    (third,) = await sidecar.receive()
    assert numbers([third]) == [2]
    # A dead letter frees its key, a retry does not.
    await sidecar.settle([second], SettleVerb.DEAD)
    started = time.monotonic()
    await sidecar.settle([third], SettleVerb.RETRY, delay_ms=3_000)
    (fourth,) = await sidecar.receive()
    assert numbers([fourth]) == [4]
    (again,) = await sidecar.receive()
    assert (numbers([again]), again.attempt) == ([2], 2)
    assert time.monotonic() - started >= 3
    await sidecar.settle([again, fourth], SettleVerb.ACK)
    assert numbers(await sidecar.receive()) == [5]


def _at_once() -> ReceiveRequest:
    return ReceiveRequest(max=10, wait_ms=0)


async def test_i6_a_partition_blocks_behind_its_head_and_nothing_is_sent_back(
    place: Place,
) -> None:
    """What RocketMQ calls suspending the queue a moment; far beyond `stuck_after` here."""
    sidecar = await ordered(place, "partition", stuck_after_ms=200, stuck_min_age_ms=200)
    await publish(sidecar, "a", None, "b")
    for attempt in (1, 2, 3):
        (head,) = await sidecar.receive()
        assert (numbers([head]), head.attempt) == ([0], attempt)
        assert await sidecar.receive(wait_ms=100) == []
        await sidecar.settle([head], SettleVerb.RETRY, delay_ms=400)
    (head,) = await sidecar.receive()
    await sidecar.settle([head], SettleVerb.ACK)
    for expected in (1, 2):
        (head,) = await sidecar.receive()
        assert numbers([head]) == [expected]
        await sidecar.settle([head], SettleVerb.DEAD)
    await sidecar.until_watermark(3)
    assert sum(sidecar.count("retry_topic_moves", why) for why in ("age", "span", "delay")) == 0


async def test_i6_attempts_that_are_used_up_free_the_key(place: Place) -> None:
    sidecar = await ordered(place, "key", attempts_max=2, retry_delays_ms=(50,))
    await publish(sidecar, "a", "a")
    for _ in range(2):
        (first,) = await sidecar.receive()
        assert numbers([first]) == [0]
        await sidecar.settle([first], SettleVerb.RETRY)
    assert numbers(await sidecar.receive()) == [1]


async def test_i6_order_holds_when_another_sidecar_takes_over(place: Place) -> None:
    """The first one of each key is leased or waits for its retry when its sidecar vanishes."""
    if place.kafka is None and place.pulsar is None:
        pytest.skip("the queue on the disk has one sidecar")
    one = await ordered(place, "key")
    await publish(one, *(f"k{n % 5}" for n in range(50)))
    firsts = await one.collect(5)
    due_s = time.monotonic() + 5.0
    await one.settle(firsts[:2], SettleVerb.RETRY, delay_ms=5_000)
    await one.runtime.stop()
    two = await ordered(place, "key", name="two")
    seen: dict[str, list[int]] = {}
    got = await two.receive(most=3, wait_ms=300)
    assert not got or time.monotonic() > due_s, "all five keys wait for a lease or a delay"
    assert await two.settle(firsts[2:], SettleVerb.ACK) == ["acked"] * 3
    while sum(map(len, seen.values())) < 47:
        got = got or await two.receive(most=3)
        assert got
        for each in got:
            seen.setdefault((each.record.key or b"").decode(), []).append(numbers([each])[0])
        assert await two.settle(got, SettleVerb.ACK) == ["acked"] * len(got)
        got = []
    assert all(each == sorted(each) for each in seen.values()), seen
    assert seen["k0"][0] == 0
    assert seen["k2"][0] == 7


@pytest.mark.slow
async def test_i6_random_work_on_many_keys_is_never_out_of_order(place: Place) -> None:
    """Retries, releases, leases that run out, dead letters, in random order."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    sidecar = await ordered(place, "key", retry_delays_ms=(20,), lease_ms=500)
    count = 1_500
    keys = [f"k{rng.randrange(60)}" for _ in range(count)]
    await publish(sidecar, *keys)
    over: dict[str, int] = {}
    left, leases = count, set[int]()
    while left:
        got = await sidecar.receive(most=rng.randint(1, 40))
        assert got, f"{left} are left"
        assert len({each.record.key for each in got}) == len(got)
        for each, number in zip(got, numbers(got), strict=True):
            key = keys[number]
            earlier = [n for n in range(over.get(key, 0), number) if keys[n] == key]
            assert not earlier, f"{number} of {key} before {earlier}, seed {seed}"
            dice = rng.random()
            verb = (
                SettleVerb.RETRY
                if dice < 0.1
                else SettleVerb.RELEASE
                if dice < 0.15
                else SettleVerb.ACK
            )
            verb = SettleVerb.DEAD if dice > 0.98 else verb
            if 0.15 < dice < 0.17:
                continue  # its lease runs out
            (status,) = await sidecar.settle([each], verb)
            leases.add(number)
            if verb in (SettleVerb.ACK, SettleVerb.DEAD) and status != "lost":
                over[key] = number + 1
                left -= 1
    assert len(leases) == count


async def blocking(place: Place, name: str = "one", **more: object) -> Sidecar:
    """A sidecar on which a key is blocked after two seconds."""
    quick = {"stuck_after_ms": 2_000, "stuck_min_age_ms": 2_000, "retry_topic_partitions": 2}
    return await ordered(place, "key", name, **{**quick, **more})


async def test_r19_a_stuck_key_is_blocked_as_a_whole_and_comes_in_order(place: Place) -> None:
    """The progress moves on (I5), the lease goes on (R4), and the key keeps its order (I6)."""
    sidecar = await blocking(place)
    await publish(sidecar, *("ab" * 8))
    stuck, other = await sidecar.collect(2, lease_ms=60_000)
    assert numbers([stuck, other]) == [0, 1]
    await sidecar.settle([other], SettleVerb.ACK)
    for expected in range(3, 16, 2):
        (other,) = await sidecar.receive()
        assert numbers([other]) == [expected]
        await sidecar.settle([other], SettleVerb.ACK)
    await sidecar.until_watermark(16)
    assert sidecar.count("retry_topic_moves", "key") == 7
    (held,) = await _until_lined_up(sidecar)
    assert (held.waiting, held.head.id, held.blocked) == (7, f"{place.topic}/0/0", True)
    assert held.key in ("a", None), "None while the body lies on the disk"
    assert await sidecar.receive(wait_ms=200) == []
    # A message that comes while the key is blocked stands behind those that are there.
    await publish(sidecar, "a", "b")
    (other,) = await sidecar.receive()
    assert (other.record.key, numbers([other])) == (b"b", [1])
    await sidecar.settle([other], SettleVerb.ACK)
    assert await sidecar.settle([stuck], SettleVerb.EXTEND, lease_ms=60_000) == ["extended"]
    assert await sidecar.settle([stuck], SettleVerb.ACK) == ["acked"]
    for expected in (2, 4, 6, 8, 10, 12, 14, 0):
        (follower,) = await sidecar.receive(wait_ms=30_000)
        assert numbers([follower]) == [expected]
        assert follower.first_seen_ms > stuck.first_seen_ms
        assert await sidecar.settle([follower], SettleVerb.ACK) == ["acked"]
    await _until_free(sidecar)
    sent = sidecar.count("retry_topic_moves", "key")
    await publish(sidecar, "a")
    (free,) = await sidecar.receive()
    assert (numbers([free]), sidecar.count("retry_topic_moves", "key")) == ([0], sent)


async def _until_lined_up(sidecar: Sidecar) -> list[HeldKey]:
    """All copies of the one blocked key have been read."""

    async def there() -> bool:
        held = (await sidecar.runtime.explain(NAME)).ordered
        return bool(held) and held[0].waiting == 7

    await wait_until_async(there, "the key's copies", timeout_s=60)
    return (await sidecar.runtime.explain(NAME)).ordered


async def _until_free(sidecar: Sidecar) -> None:
    """No key is blocked any more, as far as the owner knows."""

    async def free() -> bool:
        owned = sidecar.runtime._subscriptions[NAME].partitions.owned.values()
        return not any(partition.ledger.send_back.blocked for partition in owned)

    await wait_until_async(free, "all keys to be free", timeout_s=60)


async def test_r19_a_blocked_key_that_fails_keeps_its_order_and_a_dead_letter_frees_it(
    place: Place,
) -> None:
    sidecar = await blocking(place, attempts_max=3, retry_delays_ms=(2_500,))
    await publish(sidecar, "a", "a", "a")
    (first,) = await sidecar.receive()
    await sidecar.settle([first], SettleVerb.RETRY)  # longer than stuck_after: it leaves at once
    (again,) = await sidecar.receive(wait_ms=30_000)
    assert (numbers([again]), again.attempt) == ([0], 2)
    await sidecar.until_watermark(3)
    await sidecar.settle([again], SettleVerb.RETRY)
    (again,) = await sidecar.receive(wait_ms=30_000)
    assert (numbers([again]), again.attempt) == ([0], 3)
    await sidecar.settle([again], SettleVerb.RETRY)  # the last attempt: a dead letter
    for expected in (1, 2):
        (later,) = await sidecar.receive(wait_ms=30_000)
        assert (numbers([later]), later.attempt) == ([expected], 1)
        await sidecar.settle([later], SettleVerb.ACK)
    await _until_free(sidecar)


async def test_r19_a_blocked_key_keeps_its_order_when_another_sidecar_takes_over(
    place: Place,
) -> None:
    one = await blocking(place)
    await publish(one, *("a" * 6))
    (stuck,) = await one.receive(lease_ms=60_000)
    await one.until_watermark(6)
    await one.runtime.stop()
    two = await blocking(place, name="two")
    await publish(two, "a")
    assert await two.receive(wait_ms=700) == []
    await two.settle([stuck], SettleVerb.ACK)
    got: list[int] = []
    while len(got) < 6:
        messages = await two.receive(wait_ms=30_000)
        assert len(messages) == 1
        got += numbers(messages)
        await two.settle(messages, SettleVerb.ACK)
    assert got == [1, 2, 3, 4, 5, 0]
    await _until_free(two)
