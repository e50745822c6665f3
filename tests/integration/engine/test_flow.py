"""Pause, live settings and bounds that two sidecars share: local broker, a real Valkey."""

import asyncio
import time

import pytest

from ackd.api.messages import SettleItem, SettleVerb
from ackd.api.progress import SeekRequest, SeekTo
from ackd.config.mistakes import MistakesError
from tests.integration.engine.together import NAME, PARTITIONS, Sidecar, Together
from tests.support.redis import RedisServer
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]


LABELS = {"subscription": NAME}


async def knows(sidecar: Sidecar, version: int) -> None:
    """It has heard of a change of the live value."""

    async def heard() -> bool:
        return await sidecar.version() >= version

    await wait_until_async(heard, "the live value to spread", timeout_s=60)


async def test_a_pause_of_the_group_holds_every_sidecar_and_resume_frees_them(
    together: Together,
) -> None:
    """Settles go on; whoever waits gets messages as soon as it is resumed at the other sidecar."""
    one, two = await together.pair()
    await one.publish(8)
    [held] = (await two.receive(most=1)).messages
    view = await one.runtime.pause(NAME, "group", "the database is away", None)
    assert (view.state, view.live_version) == ("paused", 1)
    await knows(two, 1)
    for sidecar in (one, two):
        empty = await sidecar.receive(wait_ms=0)
        assert (empty.messages, empty.limited_by) == ([], "paused")
        assert empty.paused == {
            "scope": "group",
            "reason": "the database is away",
            "until_ms": None,
        }
        sidecar.runtime.metrics.render("")
        assert sidecar.runtime.metrics.registry.get_sample_value("ackd_paused", LABELS) == 1
        assert "paused (group)" in (await sidecar.runtime.explain(NAME)).limits[0]
    [settled] = await one.runtime.settle([SettleItem(held.lease, SettleVerb.ACK)])
    assert settled.status == "acked"
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(one.receive(wait_ms=60_000))
        await two.runtime.resume(NAME, "group")
    assert waiting.result().messages
    assert (await two.receive()).messages


async def test_resume_at_a_sidecar_that_has_not_heard_of_the_pause(
    together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause and a resume that reach two sidecars within one heartbeat: the later word counts."""
    one, two = await together.pair()
    await one.publish(8)
    control = two.runtime._subscriptions[NAME].control
    monkeypatch.setattr(control, "received", lambda *_: None)
    await one.runtime.pause(NAME, "group", "by mistake", None)
    assert (await two.runtime.resume(NAME, "group")).pauses == []
    assert (await one.receive(wait_ms=60_000)).messages
    # The other way round: whoever has not heard of the pause knows that a seek may run.
    await one.runtime.pause(NAME, "group", "for a seek", None)
    await two.runtime.progress.seek(NAME, SeekRequest(SeekTo.EARLIEST))


async def test_a_pause_of_a_pod_is_its_own_and_ends_by_itself(together: Together) -> None:
    """The other sidecar goes on; `for_ms` ends the pause without anybody's help."""
    one, two = await together.pair()
    await one.publish(8)
    started_ms = time.monotonic_ns() // 1_000_000
    await one.runtime.pause(NAME, "pod", "look", 1_000)
    assert (await two.receive()).messages
    assert (await one.receive(wait_ms=60_000)).messages
    assert time.monotonic_ns() // 1_000_000 - started_ms >= 1_000
    assert (await two.version(), two.runtime.subscription(NAME).pauses) == (0, [])


async def test_a_new_sidecar_is_paused_with_its_group(together: Together) -> None:
    """A pause outlives the processes that knew it."""
    one = await together.start("one")
    await one.publish(1)
    await one.runtime.pause(NAME, "group", "", None)
    await one.runtime.stop()
    two = await together.start("two")
    assert (await two.receive(wait_ms=0)).limited_by == "paused"
    await two.runtime.resume(NAME, "group")
    assert (await two.receive()).messages


async def test_r30_a_new_lease_time_counts_from_the_next_grant_or_extend_on(
    together: Together,
) -> None:
    """R30: at every sidecar; open leases keep the deadlines that their holders were told."""
    one, two = await together.pair(lease_ms=60_000)
    await one.publish(8)
    for sidecar in (one, two):
        await sidecar.collect(4)

    async def deadlines() -> dict[str, int]:
        rows = [row for s in (one, two) for row in await s.runtime.in_flight(NAME, 0, 100)]
        return {row.id: row.deadline_ms or 0 for row in rows}

    before = await deadlines()
    for version, lease_ms in enumerate((600_000, 20_000), 1):
        view = await one.runtime.configure(NAME, {"lease_ms": lease_ms})
        assert (view.settings["lease_ms"], view.sources["lease_ms"]) == (lease_ms, "live")
        await knows(two, version)
        asked_ms = time.time_ns() // 1_000_000
        await one.publish(8)
        late = await one.collect_all(8, two)
        now_ms = time.time_ns() // 1_000_000
        for message in late:
            assert asked_ms + lease_ms - 1_000 < message.deadline_ms <= now_ms + lease_ms
        [extended] = await one.runtime.settle([SettleItem(late[0].lease, SettleVerb.EXTEND)])
        assert (extended.deadline_ms or 0) <= time.time_ns() // 1_000_000 + lease_ms
    found = await deadlines()
    assert {each: found[each] for each in before} == before


async def test_live_settings_outlive_sidecars_and_null_takes_them_back(together: Together) -> None:
    """Live wins over the file at a restart; every wrong key of a change is named."""
    one = await together.start("one", lease_ms=40_000)
    with pytest.raises(MistakesError) as refused:
        await one.runtime.configure(NAME, {"lease_ms": 1, "leese_ms": 2, "topics": ["x"]})
    assert {each.path for each in refused.value.mistakes} == {"lease_ms", "leese_ms", "topics"}
    changes = {"lease_ms": "50s", "attempts_max": 3, "stuck_after_ms": 700}
    await one.runtime.configure(NAME, changes)
    await one.runtime.stop()
    two = await together.start("two", lease_ms=40_000)
    await two.publish(1)
    [message] = (await two.receive()).messages
    assert message.attempts_max == 3
    assert message.deadline_ms > time.time_ns() // 1_000_000 + 41_000
    view = await two.runtime.configure(NAME, {"lease_ms": None})
    assert (view.settings["lease_ms"], view.settings["attempts_max"]) == (40_000, 3)
    assert view.sources.get("lease_ms") != "live"


async def test_what_the_store_forgot_is_written_back(
    together: Together, valkey: RedisServer
) -> None:
    """After a loss of the live value the sidecars that know it go on, and a new one learns it."""
    one = await together.start("one")
    await one.runtime.pause(NAME, "group", "kept", None)
    key = f"{together.store.prefix}:v1:{{members:{NAME}}}:l"
    with valkey.client() as client:
        assert client.delete(key) == 1
    two = await together.start("two")

    async def told() -> bool:
        return [p.reason for p in two.runtime.subscription(NAME).pauses] == ["kept"]

    await wait_until_async(told, "the pause to be known again", timeout_s=60)


async def test_i8_what_is_taken_over_while_the_buffer_is_full_waits_in_the_broker(
    together: Together,
) -> None:
    """Nobody receives. Partitions of a sidecar that leaves bring no backlog into the memory."""
    one, two = await together.pair(buffer_max=100)
    subscription = one.runtime._subscriptions[NAME]
    throttle, partitions = subscription.fetch_throttle, subscription.partitions
    await one.publish(20_000)

    async def full() -> bool:
        return partitions.held()[0] >= 100

    await wait_until_async(full, "the buffer to be full")
    batch = partitions.held()[0]  # as much as comes before it is seen that there is enough
    await two.runtime.stop()

    async def all_paused() -> bool:
        return len(await one.owned()) == PARTITIONS == len(throttle._paused)

    await wait_until_async(all_paused, "what was taken over to be paused")
    assert partitions.held()[0] <= batch + 2_000
    # It comes when there is room.
    messages = await one.collect(20_000)
    assert len({message.id for message in messages}) == 20_000
