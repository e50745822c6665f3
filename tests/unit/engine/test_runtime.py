"""The whole sidecar without HTTP: what its front ends ask, and what they are told when it can't."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ackd.api.messages import (
    Delivery,
    PublishRequest,
    Received,
    ReceiveRequest,
    SettleItem,
    SettleResult,
    SettleVerb,
    Status,
)
from ackd.config.schema import BrokerSettings, ServerSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.runtime import Runtime, open_brokers
from ackd.errors import (
    AckdError,
    BadParameterError,
    ConfigError,
    StoreError,
    UnknownSubscriptionError,
)
from ackd.ports import Outgoing
from tests.support.sidecar import BROKER, MEMORY, Sidecar, make_queue

NAME = "orders"
SETTINGS = SubscriptionSettings(broker=BROKER, topics=(NAME,), group=NAME, start="earliest")
NOW = ReceiveRequest(max=10)


@pytest.fixture(scope="module")
def queue() -> Iterator[Path]:
    with TemporaryDirectory(dir=MEMORY) as folder:
        made = Path(folder, "made")
        asyncio.run(make_queue(made, [NAME]))
        yield made


Make = Callable[..., Sidecar]


@pytest.fixture
async def make(queue: Path) -> AsyncIterator[Make]:
    """Sidecars that are not started yet; all are stopped at the end of the test."""
    made: list[Sidecar] = []
    with TemporaryDirectory(dir=MEMORY) as folder:

        def make(server: ServerSettings | None = None) -> Sidecar:
            place = Path(folder, str(len(made)))
            place.mkdir()
            made.append(Sidecar.make(place, queue, {NAME: SETTINGS}, server or ServerSettings()))
            return made[-1]

        yield make
        for each in made:
            await each.runtime.stop()


@pytest.fixture
async def sidecar(make: Make) -> Sidecar:
    sidecar = make()
    await sidecar.start()
    return sidecar


async def has(sidecar: Sidecar, *values: bytes) -> Runtime:
    """Messages of these values wait."""
    messages = [Outgoing(NAME, None, each) for each in values]
    await sidecar.runtime.publish(None, PublishRequest(messages))
    await sidecar.fetched(NAME)
    return sidecar.runtime


def acks(*deliveries: Delivery) -> list[SettleItem]:
    return [SettleItem(each.lease, SettleVerb.ACK) for each in deliveries]


def values(received: Received | AckdError) -> list[bytes | None]:
    assert isinstance(received, Received), received
    return [each.record.value for each in received.messages]


# --- before and after


async def test_before_the_start_it_shows_its_configuration_and_settles_nothing(
    make: Make,
) -> None:
    runtime = make().runtime
    view = runtime.subscription(NAME)
    assert (view.state, view.topics) == ("starting", (NAME,))
    with pytest.raises(StoreError):
        await runtime.settle([])
    with pytest.raises(UnknownSubscriptionError):
        await runtime.receive(NAME, NOW)


async def test_a_start_waits_for_the_store(make: Make) -> None:
    """It may come up later than its sidecars."""
    sidecar = make()
    sidecar.store.away = True
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(sidecar.start())
        done, _ = await asyncio.wait({starting}, timeout=0.2)
        assert not done
        sidecar.store.away = False
    assert sidecar.runtime.subscription(NAME).state == "running"


async def test_a_stop_never_raises_and_says_draining(sidecar: Sidecar) -> None:
    sidecar.store.away = True
    await sidecar.runtime.stop()
    assert sidecar.runtime.subscription(NAME).state == "draining"
    assert "draining" in {reason.name for reason in sidecar.runtime.readiness()}


async def test_a_stop_before_the_start_is_none(make: Make) -> None:
    await make().runtime.stop()


def test_an_adapter_that_is_not_installed_is_named() -> None:
    brokers = {"main": BrokerSettings(adapter="nowhere")}
    settings = Settings(
        identity="me", state_dir=Path("unused"), store=StoreSettings(url="memory"), brokers=brokers
    )
    with pytest.raises(ConfigError, match="no adapter"):
        open_brokers(settings)


async def test_it_says_who_it_is(sidecar: Sidecar) -> None:
    info = sidecar.runtime.info()
    assert (info["identity"], info["brokers"], info["subscriptions"]) == (
        "me",
        {BROKER: "local"},
        [NAME],
    )


# --- receive and settle


async def test_a_receive_counts_as_what_it_came_to(sidecar: Sidecar) -> None:
    runtime = await has(sidecar, b"1", b"2")
    assert values(await runtime.receive(NAME, NOW)) == [b"1", b"2"]
    assert values(await runtime.receive(NAME, NOW)) == []
    with pytest.raises(BadParameterError):
        await runtime.receive(NAME, replace(NOW, lease_ms=0))
    counted = [sidecar.receives(NAME, each) for each in ("messages", "empty", "replayed")]
    assert counted == [1, 1, 0]
    found = runtime.metrics.registry.get_sample_value
    labels = {"subscription": NAME, "kind": "first"}
    assert found("ackd_deliveries_total", labels) == 2


@pytest.mark.parametrize("lease_ms", [0, -1, SETTINGS.lease_ms_max + 1])
async def test_a_lease_time_out_of_bounds_is_refused(sidecar: Sidecar, lease_ms: int) -> None:
    runtime = await has(sidecar, b"1")
    with pytest.raises(BadParameterError, match="lease_ms"):
        await runtime.receive(NAME, replace(NOW, lease_ms=lease_ms))
    assert values(await runtime.receive(NAME, replace(NOW, lease_ms=SETTINGS.lease_ms_max)))


async def test_a_receive_that_is_given_up_counts_as_cancelled(sidecar: Sidecar) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await sidecar.runtime.receive(NAME, ReceiveRequest(wait_ms=60_000))
    assert sidecar.receives(NAME, "cancelled") == 1
    assert sidecar.waiters(NAME) == 0


async def test_r21_a_repeat_gets_the_same_leases_and_counts_as_replayed(sidecar: Sidecar) -> None:
    runtime = await has(sidecar, b"1")
    request = replace(NOW, attempt_id="a")
    first, again = [await runtime.receive(NAME, request) for _ in range(2)]
    assert [each.lease for each in first.messages] == [each.lease for each in again.messages]
    assert sidecar.receives(NAME, "replayed") == 1
    found = runtime.metrics.registry.get_sample_value
    labels = {"subscription": NAME, "kind": "first"}
    assert found("ackd_deliveries_total", labels) == 1, "delivered once"


async def test_r21_an_answer_that_was_not_sent_gives_its_leases_back(sidecar: Sidecar) -> None:
    runtime = await has(sidecar, b"1")
    await runtime.abandon(await runtime.receive(NAME, NOW))
    again = await runtime.receive(NAME, ReceiveRequest(wait_ms=10_000))
    assert [each.attempt for each in again.messages] == [1], "uncounted"


async def test_subscriptions_that_are_not_here_are_named(sidecar: Sidecar) -> None:
    runtime = sidecar.runtime
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: runtime.receive("other", NOW),
        lambda: runtime.settle_and_receive([], "other", NOW),
        lambda: runtime.explain("other"),
        lambda: runtime.lag("other"),
        lambda: runtime.pause("other", "pod", "", None),
        lambda: runtime.configure("other", {}),
        lambda: runtime.in_flight("other", 0, 1),
    ]
    for each in asked:
        with pytest.raises(UnknownSubscriptionError, match="'other'"):
            await each()
    for at_once in (runtime.subscription, runtime.lease_ms, runtime.unsettled):
        with pytest.raises(UnknownSubscriptionError, match="'other'"):
            at_once("other")


# --- settle and receive in one call

Joined = tuple[list[SettleResult], Received | AckdError]


@pytest.mark.parametrize("attempt_id", [None, "a"])
async def test_settles_come_before_the_receive_of_the_same_call(
    sidecar: Sidecar, attempt_id: str | None
) -> None:
    runtime = await has(sidecar, b"1", b"2")
    first = await runtime.receive(NAME, ReceiveRequest(max=1))
    results, received = await runtime.settle_and_receive(
        acks(*first.messages), NAME, replace(NOW, attempt_id=attempt_id)
    )
    assert [each.status for each in results] == [Status.ACKED]
    assert values(received) == [b"2"]


@pytest.mark.parametrize("attempt_id", [None, "a"])
async def test_r21_when_a_settle_is_unavailable_nothing_is_received(
    sidecar: Sidecar, attempt_id: str | None
) -> None:
    """The caller repeats the whole call; messages that it got meanwhile would lie idle."""
    runtime = await has(sidecar, b"1", b"2")
    first = await runtime.receive(NAME, ReceiveRequest(max=1))
    sidecar.store.away = True
    results, received = await runtime.settle_and_receive(
        acks(*first.messages), NAME, replace(NOW, attempt_id=attempt_id)
    )
    assert [each.status for each in results] == [Status.UNAVAILABLE]
    assert isinstance(received, StoreError)
    assert sidecar.waiters(NAME) == 0
    sidecar.store.away = False
    again = await runtime.receive(NAME, ReceiveRequest(wait_ms=10_000, max=10))
    assert values(again) == [b"2"]


async def test_a_receive_that_is_refused_loses_no_settle(sidecar: Sidecar) -> None:
    runtime = await has(sidecar, b"1")
    first = await runtime.receive(NAME, NOW)
    runtime.quiesce()
    results, received = await runtime.settle_and_receive(acks(*first.messages), NAME, NOW)
    assert [each.status for each in results] == [Status.ACKED]
    assert isinstance(received, AckdError) or values(received) == []


async def test_a_bad_lease_time_is_refused_before_anything_is_settled(sidecar: Sidecar) -> None:
    runtime = await has(sidecar, b"1")
    first = await runtime.receive(NAME, NOW)
    with pytest.raises(BadParameterError):
        await runtime.settle_and_receive(acks(*first.messages), NAME, replace(NOW, lease_ms=0))
    assert await sidecar.states(NAME) == ["leased"]


# --- operators


async def test_pauses_and_a_changed_setting_show_in_the_view(sidecar: Sidecar) -> None:
    runtime = sidecar.runtime
    assert (await runtime.pause(NAME, "pod", "deploy", None)).state == "paused"
    assert (await runtime.resume(NAME, "pod")).state == "running"
    runtime.pause_unhealthy("the application answers 503")
    assert runtime.subscription(NAME).state == "paused"
    runtime.pause_unhealthy(None)
    view = await runtime.configure(NAME, {"lease_ms": 45_000})
    assert (view.state, view.settings["lease_ms"], view.live_version) == ("running", 45_000, 1)
    assert runtime.lease_ms(NAME) == 45_000


async def test_who_takes_no_messages_says_why(sidecar: Sidecar) -> None:
    sidecar.runtime.hold_back(NAME, "push", "503")
    assert "push: 503" in (await sidecar.runtime.explain(NAME)).limits
    sidecar.runtime.hold_back(NAME, "push", None)
    assert "push: 503" not in (await sidecar.runtime.explain(NAME)).limits


async def test_a_warning_of_a_source_shows_in_readiness_until_it_is_over(sidecar: Sidecar) -> None:
    for what, shown in (("nothing but pauses", True), (None, False)):
        sidecar.runtime.warn(NAME, "push", what)
        [reason] = [each for each in sidecar.runtime.readiness() if NAME in each.name]
        assert reason.ok
        assert ("push: nothing but pauses" in reason.detail) == shown


async def test_a_drain_ends_when_the_last_lease_does(sidecar: Sidecar) -> None:
    runtime = await has(sidecar, b"1")
    received = await runtime.receive(NAME, NOW)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        draining = group.create_task(runtime.drain())
        done, _ = await asyncio.wait({draining}, timeout=0.1)
        assert not done
        await runtime.settle(acks(*received.messages))
    assert runtime.subscription(NAME).state == "draining"
