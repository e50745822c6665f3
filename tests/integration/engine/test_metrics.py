"""What a scrape tells of a small workload on real servers, an outage of the store included."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from ackd.api.messages import Delivery, ReceiveRequest, SettleItem, SettleResult, SettleVerb, Status
from ackd.config.address import TcpAddress
from ackd.config.schema import BrokerSettings, ServerSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.control import partition_gauges
from ackd.engine.runtime import Runtime
from ackd.http.listen import Listener
from ackd.telemetry import log
from ackd_adapters.kafka import KafkaOptions, adapter
from tests.conftest import RedisFactory
from tests.support.kafka import Kafka
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]
MakeTopic = Callable[..., str]
NAME = "work"
MESSAGES = 20
LEASE_MS = 300
VALUE = b"x" * 100

# What a healthy workload has none of; 0 or no series at all.
NOTHING = {
    *("ackd_peers_connected", "ackd_peer_handshakes_refused_total", "ackd_peer_bytes_total"),
    *("ackd_publish_retries_total", "ackd_external_commits_total", "ackd_vanished_total"),
    *("ackd_messages_expired_by_retention_total", "ackd_store_data_lost_total"),
    *("ackd_http_refused_connections_total", "ackd_log_lines_dropped_total"),
    *("ackd_retry_topic_moves_total", "ackd_copies_total", "ackd_claims_total"),
    "ackd_push_throttled",
    *("ackd_streams", "ackd_push_calls_total", "ackd_push_seconds", "ackd_push_running"),
    *("ackd_push_breaker_open", "ackd_paused", "ackd_rate_waits_total", "ackd_dead_letters_total"),
    *("ackd_dead_letter_depth", "ackd_oldest_dead_letter_age_seconds"),
    *("ackd_dead_letters_unreadable", "ackd_dead_letters_uncounted"),
    *("ackd_notes_total", "ackd_notes_dropped_total", "ackd_cancels_total"),
    *(
        "ackd_circuit_breaker_open",
        "ackd_circuit_breaker_trips_total",
        "ackd_window_warnings_total",
    ),
    *("ackd_settings_differ", "ackd_copies_ignored_total", "ackd_readiness_warnings"),
    *("ackd_outbox_accepted_total", "ackd_outbox_refused_total", "ackd_outbox_sent_total"),
    *("ackd_outbox_lateness_seconds", "ackd_outbox_waiting", "ackd_outbox_due"),
    *("ackd_outbox_bytes", "ackd_outbox_failed"),
    *("ackd_dedup_repeats_total", "ackd_dedup_skipped_total", "ackd_acked_again_total"),
    "ackd_log_cuts_total",
    "ackd_recovered_from_log_total",
    *("ackd_trace_spans_total", "ackd_trace_files_deleted_total"),
}
SIGNED = {"ackd_clock_skew_seconds"}
Samples = dict[str, dict[tuple[str, ...], float]]


@dataclass
class Desk:
    """A running sidecar with both ports, and its store's server."""

    runtime: Runtime
    listener: Listener
    server: RedisServer
    session: ClientSession
    topic: str
    held: list[Delivery] = field(default_factory=list)

    def url(self, port: str, path: str) -> str:
        """An address of one of the two ports."""
        bound = self.listener.address("data" if port == "data" else "admin")
        assert isinstance(bound, TcpAddress)
        return f"http://127.0.0.1:{bound.port}{path}"

    async def ready(self) -> bool:
        """Whether readiness has no reason against it."""
        return all(reason.ok for reason in self.runtime.readiness())

    async def publish(self, count: int) -> None:
        """Over HTTP."""
        path = self.url("data", f"/v1/topics/{self.topic}/messages")
        for _ in range(count):
            async with self.session.post(path, data=VALUE) as answer:
                assert answer.status == 201, await answer.text()

    async def lease(self, most: int, lease_ms: int) -> list[Delivery]:
        """Exactly `most` messages."""
        got: list[Delivery] = []
        while len(got) < most:
            request = ReceiveRequest(max=most - len(got), wait_ms=30_000, lease_ms=lease_ms)
            messages = (await self.runtime.receive(NAME, request)).messages
            assert messages
            got += messages
        return got

    async def settle(
        self, delivery: Delivery, do: SettleVerb, delay_ms: int | None = None
    ) -> SettleResult:
        """One settle."""
        item = SettleItem(delivery.lease, do, delay_ms)
        return (await self.runtime.settle([item]))[0]

    async def scrape(self) -> Samples:
        """All samples: name -> values of the labels in their names' order -> value."""
        async with self.session.get(self.url("admin", "/metrics")) as answer:
            assert answer.status == 200
            text = await answer.text()
        samples: Samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                samples.setdefault(sample.name, {})[labels] = sample.value
        return samples

    async def told(self, name: str, *labels: str) -> float:
        """One sample of now; 0 when it is not there."""
        return (await self.scrape()).get(name, {}).get(labels, 0)


@pytest.fixture
async def desk(
    kafka: Kafka,
    own_redis: RedisFactory,
    topic: MakeTopic,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Desk]:
    """A sidecar on a topic with `MESSAGES` messages, ready."""
    monkeypatch.setattr(log, "DROPPED", Counter())  # the process may have run other tests before
    server = await asyncio.to_thread(own_redis, RedisOptions(binary(Flavour.VALKEY)))
    name = await asyncio.to_thread(topic)
    settings = Settings(
        identity="scraped",
        server=ServerSettings(listen="127.0.0.1:0", admin_listen="127.0.0.1:0"),
        store=StoreSettings(url=server.url, timeout_ms=3_000, grace_ms=500),
        brokers={"k": BrokerSettings(adapter="kafka")},
        subscriptions={
            NAME: SubscriptionSettings(
                broker="k",
                topics=(name,),
                group=name,
                start="earliest",
                commit_interval_ms=100,
                buffer_max=getattr(request, "param", 10_000),
                retry_topic=False,
            )
        },
    )
    options = KafkaOptions(bootstrap_servers=kafka.bootstrap)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(ClientSession())
        runtime = Runtime(settings, brokers={"k": adapter.open("k", options)})
        listener = Listener(runtime, settings.server, runtime.metrics)
        stack.push_async_callback(runtime.stop)
        await runtime.start()
        stack.push_async_callback(listener.stop)
        await listener.start()
        await listener.open_data()
        desk = Desk(runtime, listener, server, session, name)
        await wait_until_async(desk.ready, "the sidecar to be ready", timeout_s=60)
        await desk.publish(MESSAGES)
        yield desk


async def test_every_metric_has_a_plausible_value_after_a_workload(desk: Desk) -> None:
    """I4, I8, R12, R17: what happened is what a scrape says, and no family stays silent."""
    await _deliver_and_settle(desk)
    await _leases_that_run_out(desk)
    await _store_goes_and_comes(desk)

    assert (await desk.runtime.receive(NAME, ReceiveRequest())).messages == []
    samples = await desk.scrape()
    for family in desk.runtime.metrics.families:
        name = family.name + ("_count" if family.kind == "histogram" else "")
        series = samples.get(name, {})
        if family.name in NOTHING:
            assert not any(series.values()), name
        else:
            assert series, f"no series of {name}"
            assert name in SIGNED or all(value >= 0 for value in series.values()), name
            assert family.kind == "gauge" or any(series.values()), f"{name} never counted"


async def _deliver_and_settle(desk: Desk) -> None:
    """Half of the messages leased; some acked, one to be retried, one held on to."""
    ten = await desk.lease(10, 300_000)
    samples = await desk.scrape()
    size = sum(message.record.size() for message in ten)
    assert samples["ackd_delivered_bytes_total"] == {(NAME,): size}
    assert samples["ackd_deliveries_total"] == {("first", NAME): 10}
    assert samples["ackd_in_flight"] == {(NAME,): 10}
    assert samples["ackd_watermark_offset"] == {("0", "false", NAME, desk.topic): 0}
    assert samples["ackd_partitions_owned"] == {(NAME,): 1}
    assert samples["ackd_info"] == {("scraped", desk.runtime.info()["version"]): 1}
    assert samples["ackd_broker_up"] == {("k",): 1}
    assert samples["ackd_store_up"] == {(): 1}
    assert abs(samples["ackd_clock_skew_seconds"][()]) < 10
    assert set(samples["ackd_readiness"].values()) == {1}
    assert samples["ackd_published_total"] == {("k", "stored"): MESSAGES}
    assert 0 < samples["ackd_receive_wait_seconds_count"][NAME,] <= 10

    async def all_fetched() -> bool:
        return await desk.told("ackd_ready", NAME) == 10

    await wait_until_async(all_fetched, "the other messages to be fetched")
    assert await desk.told("ackd_window_bytes", NAME) == MESSAGES * len(VALUE) + _headers(ten)
    *acked, retried, held = ten
    for message in acked:
        assert (await desk.settle(message, SettleVerb.ACK)).status is Status.ACKED
    result = await desk.settle(retried, SettleVerb.RETRY, delay_ms=600_000)
    assert result.status is Status.RETRYING
    desk.held.append(held)
    samples = await desk.scrape()
    assert samples["ackd_watermark_offset"] == {("0", "false", NAME, desk.topic): 8}
    assert samples["ackd_waiting"] == {(NAME,): 1}
    assert samples["ackd_in_flight"] == {(NAME,): 1}
    assert samples["ackd_settles_total"] == {
        ("ack", "acked", NAME): 8, ("retry", "retrying", NAME): 1
    }  # fmt: skip
    assert samples["ackd_store_batch_items_sum"]["apply",] >= 10 + 9

    async def committed() -> bool:
        return await desk.told("ackd_commits_total", "done", NAME) > 0

    await wait_until_async(committed, "the progress to be committed")


def _headers(messages: list[Delivery]) -> int:
    """Bytes of headers that ackd's publishing added to all messages."""
    assert len({message.record.size() for message in messages}) == 1
    return MESSAGES * (messages[0].record.size() - len(VALUE))


async def _leases_that_run_out(desk: Desk) -> None:
    """Three leases end, not at once: one is acked late, one handed on and then acked too late."""
    first = await desk.lease(3, 300_000)
    items = [
        SettleItem(each.lease, SettleVerb.EXTEND, lease_ms=LEASE_MS + 100 * number)
        for number, each in enumerate(first)
    ]
    assert {each.status for each in await desk.runtime.settle(items)} == {Status.EXTENDED}

    async def expired() -> bool:
        return await desk.told("ackd_lease_expiries_total", NAME) >= 3

    await wait_until_async(expired, "the leases to run out", timeout_s=60)
    result = await desk.settle(first[0], SettleVerb.ACK)
    assert (result.status, result.late) == (Status.ACKED, True)
    again = await desk.lease(2, 300_000)
    assert {m.record.offset for m in again} == {m.record.offset for m in first[1:]}
    assert (await desk.settle(first[1], SettleVerb.ACK)).status is Status.LOST
    samples = await desk.scrape()
    assert samples["ackd_lease_expiries_total"] == {(NAME,): 3}
    assert samples["ackd_deadline_lateness_seconds_count"] == {(NAME,): 3}
    assert samples["ackd_deadline_lateness_seconds_sum"][NAME,] < 3 * 10
    assert samples["ackd_late_acks_total"] == {(NAME,): 1}
    lost = {labels: value for labels, value in samples["ackd_lost_settles_total"].items() if value}
    assert lost == {("ack", NAME): 1}
    assert samples["ackd_deliveries_total"]["again", NAME] == 2
    # Handed out first some seconds ago, and rounded to seconds by the store's record.
    assert samples["ackd_oldest_unfinished_age_seconds"]["0", "false", NAME, desk.topic] < 200
    end_and_watermark = (MESSAGES, samples["ackd_watermark_offset"]["0", "false", NAME, desk.topic])
    lag = samples["ackd_lag_messages"]["0", "false", NAME, desk.topic]
    assert lag == end_and_watermark[0] - end_and_watermark[1]
    desk.held += again


async def _store_goes_and_comes(desk: Desk) -> None:
    """Frozen, then killed, then there again: an outage, an unknown outcome, another server run."""
    await desk.lease(7, 300_000)  # nothing is ready any more, so that a receive has to wait
    async with asyncio.TaskGroup() as group:
        request = ReceiveRequest(wait_ms=120_000)
        waiting = group.create_task(desk.runtime.receive(NAME, request))
        await _outage(desk)
        await desk.publish(1)
    assert len(waiting.result().messages) == 1
    samples = await desk.scrape()
    assert samples["ackd_possible_rollbacks_total"][()] >= 1
    assert samples["ackd_store_run_changes_total"] == {(): 1}
    assert samples["ackd_waiters"] == {(NAME,): 0}
    assert samples["ackd_fetched_total"][NAME,] >= MESSAGES + 1


async def _outage(desk: Desk) -> None:
    """While a receive waits."""

    async def waits() -> bool:
        return await desk.told("ackd_waiters", NAME) == 1

    await wait_until_async(waits, "the receive to wait")
    desk.server.freeze()
    assert (await desk.settle(desk.held[0], SettleVerb.ACK)).status is Status.UNAVAILABLE
    samples = await desk.scrape()
    assert samples["ackd_store_up"] == {(): 0}
    assert samples["ackd_store_outages_total"] == {(): 1}
    assert samples["ackd_store_unknown_outcomes_total"]["apply",] >= 1
    assert samples["ackd_settles_total"]["ack", "unavailable", NAME] == 1
    desk.server.thaw()
    desk.server.kill()
    await asyncio.to_thread(desk.server.start)

    async def back() -> bool:
        return await desk.told("ackd_store_up") == 1 and await desk.ready()

    await wait_until_async(back, "the store to be back", timeout_s=60)


async def test_series_of_partitions_that_are_gone_are_dropped(desk: Desk) -> None:
    """I8: a gauge of a partition that somebody else owns must not stand still here."""
    names = ("ackd_watermark_offset", "ackd_lag_messages", "ackd_oldest_unfinished_age_seconds")

    async def there() -> bool:
        samples = await desk.scrape()
        return all(samples.get(name) for name in names)

    await wait_until_async(there, "the series to be there")
    desk.runtime._subscriptions[NAME].ownership.drop_all()
    samples = await desk.scrape()
    assert not any(samples.get(name) for name in names)
    assert samples["ackd_partitions_owned"] == {(NAME,): 0}


@pytest.mark.parametrize("desk", [5], indirect=True, ids=["a buffer of 5"])
async def test_the_lag_counts_what_is_not_fetched_yet(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8 lets fetching pause: the backlog behind it is read from the log's end."""
    monkeypatch.setattr(partition_gauges, "END_MS", 200)

    async def paused() -> bool:
        return await desk.told("ackd_ready", NAME) >= 5

    await wait_until_async(paused, "the buffer to be full")
    await desk.publish(2 * MESSAGES)

    async def known() -> bool:
        return await desk.told("ackd_lag_messages", "0", "false", NAME, desk.topic) == 3 * MESSAGES

    await wait_until_async(known, "the backlog to be known", timeout_s=60)
    assert await desk.told("ackd_fetched_total", NAME) < 3 * MESSAGES
