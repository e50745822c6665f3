"""What Pulsar's own clients delayed, kept by ackd: `reconsumeLater` and `deliverAfter` (I1, I2).

A bare client plays the Java consumer: it writes the same properties, and delays the letter as that
one does.
"""

import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulsar as client_library
import pytest

from ackd_torture.parts import Sidecar
from tests.chaos.test_redrive import BASE, ask, dead
from tests.chaos.world import Http, world
from tests.support.pulsar import Pulsar, bare
from tests.support.pulsar.part import PulsarAt
from tests.support.wait import wait_until

pytestmark = [pytest.mark.pulsar, pytest.mark.slow, pytest.mark.timeout(240)]

LONG_MS = 240_000
FOREIGN_DELAY_MS = 5_000
SHORT_MS = 3_000
HOUR_MS = 3_600_000
SLACK_MS = 1_000


class Asking(PulsarAt):
    """With the retry topics of other clients; delays of theirs are kept by default."""

    def options(self) -> dict[str, str | int]:
        """How to connect."""
        return {**super().options(), "read_retry_topic": True}


def reconsume_later(
    made: Any, message: Any, topic: str, letters: str, delay_ms: int, times: int
) -> None:
    """As Java's consumer does it: one letter, which tells where it came from."""
    place = message.message_id()
    origin = f"{place.ledger_id()}:{place.entry_id()}:-1"
    later: dict[str, Any] = {"deliver_after": timedelta(milliseconds=delay_ms)} if delay_ms else {}
    made.create_producer(letters, batching_enabled=False).send(
        message.data(),
        properties={
            "REAL_TOPIC": topic,
            "ORIGIN_MESSAGE_ID": origin,
            "ORIGIN_MESSAGE_IDY_TIME": origin,
            "RECONSUMETIMES": str(times),
            "DELAY_TIME": str(delay_ms),
        },
        **later,
    )


def leave_letters(broker: Pulsar, topic: str, group: str) -> None:
    """A consumer of the group fails with m0 to m2, acks m3 and goes; letters are left behind."""
    whole = f"persistent://public/default/{topic}"
    letters = f"{whole}-{group}-RETRY"
    with bare.client(broker.url) as made:
        bare.join(made, letters, group)
        consumer = bare.join(made, whole, group)
        bare.produce(made, topic, 4)
        plans = [(0, 4), (HOUR_MS, 2), (0, 99)]
        for number in range(4):
            message = consumer.receive(20_000)
            if number < len(plans):
                reconsume_later(made, message, whole, letters, *plans[number])
            consumer.acknowledge(message)
        for bad in ({"RECONSUMETIMES": "many", "DELAY_TIME": "-7"}, {"DELAY_TIME": "9" * 50}):
            made.create_producer(letters, batching_enabled=False).send(b"{}", properties=bad)
        consumer.close()
        wait_until(lambda: broker.admin.backlog(f"public/default/{topic}", group) == 0, "acks")


def one_letter_more(broker: Pulsar, topic: str, group: str) -> None:
    """From a consumer that has not heard of the move yet."""
    whole = f"persistent://public/default/{topic}"
    with bare.client(broker.url) as made:
        place = made.create_reader(whole, client_library.MessageId.earliest).read_next(20_000)
        reconsume_later(made, place, whole, f"{whole}-{group}-RETRY", FOREIGN_DELAY_MS, 1)


def told(message: Mapping[str, Any]) -> tuple[Any, int]:
    """(which message, which attempt)."""
    return message["json"].get("msg"), message["attempt"]


def receive_in_time(
    client: Http, delays_ms: Mapping[str, int], *wanted: str
) -> dict[str, dict[str, Any]]:
    """Messages until all `wanted` have come, none of them before its time. A producer of a busy
    machine may begin to count a moment before it publishes.
    """
    found: dict[str, dict[str, Any]] = {}
    end = time.monotonic() + 90
    while not found.keys() >= set(wanted):
        assert time.monotonic() < end, f"only {found.keys()} came"
        for each in client.receive():
            name = each["json"]["msg"]
            since_ms = time.time_ns() // 1_000_000 - each["published_ms"]
            assert since_ms >= delays_ms[name] - SLACK_MS, f"{name} after {since_ms} ms"
            assert name not in found
            found[name] = each
    return found


def open_states(sidecar: Sidecar) -> list[tuple[int, str]]:
    """(attempts so far, state) of what is in flight."""
    page = ask(sidecar, "GET", "/v1/subscriptions/orders/in-flight")
    return [(each["attempt"], each["state"]) for each in page["messages"]]


def test_i1_letters_of_a_java_consumer_come_in_their_time_and_count_on(
    pulsar: Pulsar, folder: Path
) -> None:
    with world(Asking(pulsar, batch=16), folder, lease_ms=LONG_MS, attempts_max=6) as found:
        group = f"{found.topic}-group"
        leave_letters(pulsar, found.topic, group)
        sidecar = found.sidecar()
        client = Http(sidecar)
        now = client.receive_until(lambda got: len(got) >= 3, 60)
        assert sorted(map(told, now), key=str) == [("m0", 5), (None, 1), (None, 1)]
        assert client.settle([each["lease"] for each in now]) == ["acked"] * 3
        # Its budget was used up where it came from.
        wait_until(lambda: dead(sidecar) == 1, "the dead letter", timeout_s=60)
        [given_up] = ask(sidecar, "GET", f"{BASE}?max=10")["messages"]
        assert given_up["attempts"] == 99
        # What has to wait is neither lost nor early when the process is killed.
        one_letter_more(pulsar, found.topic, group)
        sidecar.kill()
        sidecar.start()
        later = receive_in_time(client, {"m0": FOREIGN_DELAY_MS}, "m0")["m0"]
        assert later["attempt"] == 2
        said = dict(later["headers"])
        assert said["REAL_TOPIC"] == f"persistent://public/default/{found.topic}"
        assert said["ORIGIN_MESSAGE_ID"].endswith(":-1")
        assert client.settle([later["lease"]]) == ["acked"]
        wait_until(lambda: open_states(sidecar) == [(2, "retrying")], "the hour to be left")
        assert client.quiet(1) == []


def publish(broker: Pulsar, topic: str, *plan: int, first: int = 0) -> None:
    """`m0` (or `first`), `m1` ... delayed by so many ms each; the rest is in batches."""
    with bare.client(broker.url) as made:
        producer = made.create_producer(topic, batching_enabled=True)
        for number, delay_ms in enumerate(plan, first):
            if delay_ms:
                later = timedelta(milliseconds=delay_ms)
                producer.send(b'{"msg": "m%d"}' % number, deliver_after=later)
            else:
                producer.send_async(b'{"msg": "m%d"}' % number, _sent)
        producer.flush()


def _sent(*_: object) -> None:
    """The flush tells."""


def test_i1_delays_of_bare_producers_are_kept_over_a_kill(pulsar: Pulsar, folder: Path) -> None:
    """A long one leaves the window for the retry topic, a short one waits in it."""
    with world(
        Asking(pulsar, batch=16), folder, lease_ms=LONG_MS, start="earliest", stuck_after_ms=4_000
    ) as found:
        sidecar = found.sidecar(start=False)
        publish(pulsar, found.topic, 0, SHORT_MS, 0, HOUR_MS)
        sidecar.start()
        client = Http(sidecar)
        delays_ms = {"m0": 0, "m1": SHORT_MS, "m2": 0, "m10": 0, "m11": FOREIGN_DELAY_MS}
        came = receive_in_time(client, delays_ms, "m0", "m2")
        publish(pulsar, found.topic, 0, FOREIGN_DELAY_MS, first=10)
        sidecar.kill()
        sidecar.start()
        came |= receive_in_time(client, delays_ms, *(delays_ms.keys() - came.keys()))
        assert {each["attempt"] for each in came.values()} == {1}
        assert client.settle([each["lease"] for each in came.values()]) == ["acked"] * 5
        wait_until(lambda: open_states(sidecar) == [(0, "retrying")], "the hour to be left")
        assert client.quiet(1) == []
