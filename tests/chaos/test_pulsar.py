"""What Pulsar's client forgets or cannot do, and ackd beside it, on one broker (I2-I4, R31).

The broker keeps the settings that it is shipped with for writing cursors down. Each test runs the
bare client first and ackd second, and keeps both figures.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar as client_library
import pulsar.asyncio as asyncio_library
import pytest

from tests.chaos.kept import kept_over_a_kill, store_gone_with_the_sidecar
from tests.chaos.world import Http, World, long_job, world
from tests.support import pulsar as pulsar_support
from tests.support.pulsar import Pulsar, PulsarOptions, bare
from tests.support.pulsar.part import PulsarAt
from tests.support.require import require
from tests.support.wait import wait_until

pytestmark = [pytest.mark.pulsar, pytest.mark.slow, pytest.mark.timeout(240)]

COUNT = 1_000
GROUP = 900
TRIES = 5
FEW = 20
LEASE_MS = 3_000
LONG_MS = 60_000
Figure = Callable[[str, float], None]


@pytest.fixture(scope="module")
def rough() -> Iterator[Pulsar]:
    """A Pulsar that writes a cursor down every 10 s at most, as shipped; tests leave it running."""
    require(pulsar_support.missing())
    with Pulsar(PulsarOptions(persist_at_once=False)) as started:
        yield started


@contextlib.contextmanager
def deployed(
    broker: Pulsar, folder: Path, count: int, *, batch: int = 1, lease_ms: int = LONG_MS
) -> Iterator[World]:
    """A sidecar on a topic that holds `count` messages, put there in batches of `batch`."""
    part = PulsarAt(broker, batch=batch)
    with world(part, folder, start="earliest", lease_ms=lease_ms) as found:
        with bare.client(broker.url) as made:
            bare.produce(made, found.topic, count, batch=batch if batch > 1 else 0)
        yield found


def plain_topic(broker: Pulsar, count: int, *, batch: int = 0) -> str:
    """A topic for the bare client, filled."""
    topic = broker.admin.create_topic(f"public/default/bare-{time.time_ns()}")
    with bare.client(broker.url) as made:
        bare.produce(made, topic, count, batch=batch)
    return topic


def wait_backlog(broker: Pulsar, topic: str, count: int) -> None:
    """Until the broker says that so many are not acked."""
    name = topic.removeprefix("persistent://")
    wait_until(lambda: broker.admin.backlog(name, "s") == count, f"a backlog of {count}")


def leases_of(client: Http, count: int) -> list[str]:
    found = client.receive_until(lambda got: len(got) >= count, 40, lease_ms=LONG_MS)
    assert len(found) == count
    return [each["lease"] for each in found]


def test_i2_killed_inside_the_ack_group_window(rough: Pulsar, folder: Path, figure: Figure) -> None:
    """The client's acks wait 100 ms before they are sent; ackd's are in the store (I2)."""
    again = 0
    for _ in range(TRIES):
        # Below the size at which the client sends a group at once; its timer may still be early.
        topic = plain_topic(rough, GROUP)
        bare.killed_after(rough.url, topic, "s", GROUP, "ack")
        with bare.client(rough.url) as made:
            again = len(bare.drain(bare.join(made, topic, "s")))
        if again:
            break
    figure("pulsar_killed_client_bare_again", again)
    with deployed(rough, folder, COUNT) as found:
        sidecar = found.sidecar()
        client = Http(sidecar)
        assert client.settle(leases_of(client, COUNT)) == ["acked"] * COUNT
        sidecar.kill()
        sidecar.start()
        came = client.quiet(3)
        figure("pulsar_killed_sidecar_ackd_again", len(came))
        assert not came
    assert again > 0, "the bare client lost no ack: never killed inside its window"


def test_i2_broker_killed_before_it_wrote_the_cursor_down(
    rough: Pulsar, folder: Path, figure: Figure
) -> None:
    """The broker answers acks and writes them down later; what it forgets, ackd knows (I2)."""
    topic = plain_topic(rough, COUNT)
    with bare.client(rough.url) as made:
        consumer = bare.join(made, topic, "s")
        first, *rest = bare.drain(consumer, COUNT)
        consumer.acknowledge(first)
        wait_backlog(rough, topic, COUNT - 1)  # written down, and for 10 s nothing more
        for message in rest:
            consumer.acknowledge(message)
        wait_backlog(rough, topic, 0)
    with deployed(rough, folder, COUNT) as found:
        client = Http(found.sidecar())
        leases = leases_of(client, COUNT)
        assert client.settle(leases[FEW:]) == ["acked"] * (COUNT - FEW)
        found.broker.kill()
        assert client.settle(leases[:FEW]) == ["acked"] * FEW, "acks go on without the broker"
        found.broker.start()
        with bare.client(rough.url) as made:
            again = len(bare.drain(bare.join(made, topic, "s")))
            bare.produce(made, found.topic, 1)
        came = client.receive_until(lambda got: len(got) >= 1, 60)
        came += client.quiet(1)
    figure("pulsar_killed_broker_bare_again", again)
    figure("pulsar_killed_broker_ackd_again", len(came) - 1)
    assert again > COUNT // 2
    assert len(came) == 1


def test_i4_without_an_ack_timeout_a_message_hangs(
    rough: Pulsar, folder: Path, figure: Figure
) -> None:
    """A holder that lives and does nothing: the broker waits for ever, a lease ends (I4)."""
    topic = plain_topic(rough, FEW)
    with bare.client(rough.url) as made:
        idle = bare.join(made, topic, "s")
        held = len(bare.drain(idle, FEW))
        other = bare.join(made, topic, "s")
        came_bare = len(bare.drain(other, quiet_ms=LEASE_MS + 2_000))
    with deployed(rough, folder, FEW, lease_ms=LEASE_MS) as found:
        client = Http(found.sidecar())
        client.receive_until(lambda got: len(got) == FEW, 40)
        came = client.receive_until(lambda got: len(got) == FEW, LEASE_MS / 1000 + 20)
    figure("pulsar_hanging_bare_back", came_bare)
    figure("pulsar_hanging_ackd_back", len(came))
    assert (held, came_bare) == (FEW, 0)
    assert {each["attempt"] for each in came} == {2}


def test_i4_a_redelivery_keeps_its_due_time_through_a_crash(
    rough: Pulsar, folder: Path, figure: Figure
) -> None:
    """The client's tracker of negative acks dies with it, and the broker knows of no delay (I4)."""
    topic = plain_topic(rough, FEW)
    with bare.client(rough.url) as made:
        bare.killed_after(rough.url, topic, "s", FEW, "nack")
        began = time.monotonic()
        first = bare.join(made, topic, "s").receive(20_000)
        early_ms = bare.NACK_DELAY_MS - (time.monotonic() - began) * 1000
        assert first.redelivery_count() == 0, "the broker's count survived"
    with deployed(rough, folder, FEW) as found:
        sidecar = found.sidecar()
        client = Http(sidecar)
        leases = leases_of(client, FEW)
        began = time.monotonic()
        done = client.settle(leases, "retry", delay_ms=8_000)
        assert len(done) == FEW
        sidecar.kill()
        sidecar.start()
        came = client.receive_until(lambda got: len(got) == FEW, 60)
        took_ms = (time.monotonic() - began) * 1000
    figure("pulsar_nack_bare_early_ms", round(early_ms))
    figure("pulsar_nack_ackd_after_ms", round(took_ms))
    assert early_ms > 0
    assert took_ms >= 8_000 - 1
    assert {each["attempt"] for each in came} == {2}


def test_i3_one_message_of_an_exclusive_consumer_comes_again(
    rough: Pulsar, folder: Path, figure: Figure
) -> None:
    """Outside Shared, a negative ack of one brings back everything that is not acked (I3)."""
    topic = plain_topic(rough, FEW)
    with bare.client(rough.url) as made:
        consumer = bare.join(
            made,
            topic,
            "s",
            consumer_type=client_library.ConsumerType.Failover,
            negative_ack_redelivery_delay_ms=100,
        )
        messages = bare.drain(consumer, FEW)
        consumer.negative_acknowledge(messages[3])
        again_bare = len(bare.drain(consumer))
    with deployed(rough, folder, FEW) as found:
        client = Http(found.sidecar())
        leases = leases_of(client, FEW)
        client.settle([leases[3]], "retry", delay_ms=100)
        came = client.receive_until(lambda got: len(got) >= 1, 20) + client.quiet(1)
    figure("pulsar_nack_one_bare_again", again_bare)
    figure("pulsar_nack_one_ackd_again", len(came))
    assert again_bare == FEW
    assert len(came) == 1


def test_i5_prefetch_of_an_idle_consumer_starves_no_other(
    rough: Pulsar, folder: Path, figure: Figure
) -> None:
    """1000 messages lie in the client of one that does nothing; ackd leases what is asked for."""
    topic = plain_topic(rough, FEW)
    with bare.client(rough.url) as made:
        bare.join(made, topic, "s").receive(20_000)
        second_bare = len(bare.drain(bare.join(made, topic, "s")))
    with deployed(rough, folder, FEW) as found:
        idle, second = Http(found.sidecar()), Http(found.sidecar())
        idle.receive_until(lambda got: len(got) == 1, 40, most=1)
        began = time.monotonic()
        came = second.receive_until(lambda got: len(got) == FEW - 1, 20)
        took_ms = (time.monotonic() - began) * 1000
    figure("pulsar_prefetch_bare_second_got", second_bare)
    figure("pulsar_prefetch_ackd_second_waited_ms", round(took_ms))
    figure("pulsar_prefetch_ackd_second_got", len(came))
    assert second_bare == 0
    assert len(came) == FEW - 1


def test_i1_one_ack_of_a_batch_by_its_id(rough: Pulsar, folder: Path, figure: Figure) -> None:
    """An id that went through a process boundary acks its whole batch, or nothing (I1).

    ackd gives each member of a batch an offset, and the entry is one to the broker only.
    """
    batch = 10
    lost: dict[bool, int] = {}
    for index_acks in (True, False):
        topic = plain_topic(rough, batch, batch=batch)
        with bare.client(rough.url) as made:
            consumer = bare.join(made, topic, "s", batch_index_ack_enabled=index_acks)
            first = bare.drain(consumer, batch)[0]
            raw = first.message_id().serialize()
            consumer.acknowledge(client_library.MessageId.deserialize(raw, topic))
            consumer.close()
            again = len(bare.drain(bare.join(made, topic, "s", batch_index_ack_enabled=True)))
            lost[index_acks] = batch - 1 - again
    with deployed(rough, folder, batch, batch=1024, lease_ms=LEASE_MS) as found:
        sidecar = found.sidecar()
        client = Http(sidecar)
        messages = client.receive_until(lambda got: len(got) == batch, 40)
        assert client.settle([messages[0]["lease"]]) == ["acked"]
        sidecar.kill()
        sidecar.start()
        came = client.receive_until(lambda got: len(got) >= batch - 1, 40, lease_ms=LONG_MS)
        came += client.quiet(1)
    figure("pulsar_batch_ack_bare_lost", lost[True])
    figure("pulsar_batch_ack_ackd_lost", batch - 1 - len(came))
    assert lost == {True: batch - 1, False: -1}, "lost with index acks; not even acked without"
    assert sorted(each["id"] for each in came) == sorted(each["id"] for each in messages[1:])


def test_i3_a_lease_extended_thirty_times_is_one_delivery(rough: Pulsar, folder: Path) -> None:
    """Work that lasts five leases; the broker would wait for it for ever, or for no time at all."""
    with deployed(rough, folder, 1) as found:
        long_job(Http(found.sidecar()), LEASE_MS, 30)


def test_i3_a_topic_that_moves_brings_no_second_delivery(
    rough: Pulsar, folder: Path, figure: Figure
) -> None:
    """Unloading a topic (a broker's restart, a balancer) repeats what a live consumer holds."""
    topic = plain_topic(rough, FEW)
    with bare.client(rough.url) as made:
        consumer = bare.join(made, topic, "s")
        bare.drain(consumer, FEW)
        rough.admin.unload(topic.removeprefix("persistent://"))
        again_bare = len(bare.drain(consumer, quiet_ms=3_000))
    with deployed(rough, folder, FEW) as found:
        client = Http(found.sidecar())
        leases = leases_of(client, FEW)
        rough.admin.unload(f"public/default/{found.topic}")
        with bare.client(rough.url) as made:
            bare.produce(made, found.topic, 1)
        came = client.receive_until(lambda got: len(got) >= 1, 60) + client.quiet(1)
        assert client.settle(leases) == ["acked"] * FEW
    figure("pulsar_unload_bare_again", again_bare)
    figure("pulsar_unload_ackd_again", len(came) - 1)
    assert again_bare == FEW
    assert len(came) == 1


def test_i2_i7_what_a_killed_sidecar_promised_is_kept(rough: Pulsar, folder: Path) -> None:
    kept_over_a_kill(PulsarAt(rough), folder)


def test_store_gone_with_the_sidecar(rough: Pulsar, folder: Path) -> None:
    store_gone_with_the_sidecar(PulsarAt(rough), folder)


async def test_r21_a_cancelled_receive_swallows_no_message(rough: Pulsar, folder: Path) -> None:
    """The client's asyncio receive goes on after it was cancelled and takes the next message."""
    topic = rough.admin.create_topic(f"public/default/bare-{time.time_ns()}")
    made = asyncio_library.Client(rough.url)
    try:
        consumer = await made.subscribe(
            topic, "s", consumer_type=client_library.ConsumerType.Shared
        )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(consumer.receive(), 0.2)
        producer = await made.create_producer(topic)
        for value in (b"one", b"two"):
            await producer.send(value)
        got = (await asyncio.wait_for(consumer.receive(), 10)).data()
    finally:
        await made.close()
    assert got == b"two"

    def through_ackd() -> int:
        with deployed(rough, folder, 0) as found:
            hasty = Http(found.sidecar(), timeout_s=0.3)
            assert hasty.receive(most=1, wait_ms=20_000) == []
            with bare.client(rough.url) as other:
                bare.produce(other, found.topic, 2)
            client = Http(found.sidecar())
            return len(client.receive_until(lambda got: len(got) == 2, 40))

    assert await asyncio.to_thread(through_ackd) == 2
