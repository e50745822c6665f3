"""What the bytes of a request and an answer cost: `python -m tests.bench.bench_codec`.

CPU time of this process, least of several rounds. The figures explain the shape of
`ackd.http.formats.delivery_json`: joining encoded pieces against building dictionaries, and
embedding a JSON value against base64.
"""

from __future__ import annotations

import json
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from functools import partial

import orjson
from cloudevents.core.bindings import http as foreign_http
from cloudevents.core.bindings import kafka as foreign_kafka

from ackd.api.messages import Delivery, Received, SettleItem, SettleResult, Status
from ackd.http.formats import cloudevents, delivery_json, model
from ackd.http.formats.decode import BodyDecoder
from ackd.ports import Record

ROUNDS = 5
BATCH = 32
LEASE = "v1." + "A" * 80
RECEIVE = b'{"max":32,"wait_ms":20000}'


def cpu_us(work: Callable[[], object], times: int) -> float:
    """Least CPU microseconds of one call."""
    best = float("inf")
    for _ in range(ROUNDS):
        start_ns = time.process_time_ns()
        for _ in range(times):
            work()
        best = min(best, (time.process_time_ns() - start_ns) / times / 1000)
    return best


def deliveries(value: bytes) -> list[Delivery]:
    """A batch of messages with a key and two headers."""
    headers = (("traceparent", b"00-" + b"a" * 50), ("source", b"shop"))
    return [
        Delivery(
            lease=LEASE,
            topic="orders",
            partition=3,
            record=Record(2101 + number, b"customer-17", value, headers, 1_700_000_000_000),
            attempt=1,
            attempts_max=17,
            first_seen_ms=1_700_000_000_000,
            deadline_ms=1_700_000_030_000,
        )
        for number in range(BATCH)
    ]


def json_value(size: int) -> bytes:
    """A JSON object of about this many bytes."""
    items = [{"sku": f"abc{number}", "n": number, "price": 1.25} for number in range(size // 36)]
    return orjson.dumps({"order": 1, "items": items, "note": "x" * 20})


def with_dicts(of: list[Delivery]) -> bytes:
    """The obvious way, for comparison: dictionaries, values parsed and written again."""
    messages = [
        {
            "id": each.id,
            "lease": each.lease,
            "topic": each.topic,
            "key": delivery_json.text_or_base64(each.record.key),
            "attempt": each.attempt,
            "attempts_max": each.attempts_max,
            "first_seen_ms": each.first_seen_ms,
            "deadline_ms": each.deadline_ms,
            "published_ms": each.record.timestamp_ms,
            "headers": [
                (name, delivery_json.text_or_base64(text)) for name, text in each.record.headers
            ],
            "json": orjson.loads(each.record.value or b"null"),
        }
        for each in of
    ]
    return orjson.dumps({"messages": messages})


def settle_body(count: int) -> bytes:
    """A settle request."""
    items = [{"lease": LEASE, "do": "ack"} for _ in range(count)]
    return orjson.dumps({"items": items})


def settle_items(decoder: BodyDecoder[model.SettleBody], body: bytes) -> list[SettleItem]:
    """From bytes to what the engine takes."""
    return [item.item() for item in decoder.decode(body).items]


EVENT = (
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/shop"),
    ("ce_type", b"order.placed"),
    ("ce_time", b"2026-11-21T15:42:52Z"),
    ("content-type", b"application/json"),
)


def ours() -> bytes:
    """An event from its broker message to structured JSON."""
    record = Record(0, b"k", json_value(1024), EVENT, 5)
    delivery = Delivery(LEASE, "orders", 0, record, 1, 17, 0, 1_000)
    return cloudevents.event_of(delivery, "json").structured()


def theirs() -> bytes:
    """The same by the library."""
    message = foreign_kafka.KafkaMessage(dict(EVENT), b"k", json_value(1024))
    return foreign_http.to_structured_event(foreign_kafka.from_kafka_event(message)).body


def measure() -> dict[str, float]:
    """CPU microseconds by case: a whole batch of 32 each, but for the single-item ones."""
    found: dict[str, float] = {}
    for size in (200, 1024, 10_240):
        batch = deliveries(json_value(size))
        times = 2000 if size < 10_000 else 400
        received = Received(batch)
        for payload in ("json", "text", "binary"):
            encoder = delivery_json.DeliveryEncoder(payload)
            name = f"answer of {BATCH} x {size} B, {payload}"
            found[name] = cpu_us(partial(encoder.received, received), times)
        found[f"answer of {BATCH} x {size} B, dictionaries"] = cpu_us(
            partial(with_dicts, batch), times // 4
        )
        value = json_value(size)
        found[f"is_json, {size} B"] = cpu_us(partial(delivery_json.is_json, value), 20_000)
        found[f"orjson.loads, {size} B"] = cpu_us(partial(orjson.loads, value), 5_000)
        found[f"base64, {size} B"] = cpu_us(partial(b64encode, value), 20_000)
    for count in (1, BATCH):
        decoder = BodyDecoder(model.SettleBody)
        body = settle_body(count)
        found[f"settle request of {count}, decoded"] = cpu_us(
            partial(settle_items, decoder, body), 5_000
        )
        results = [SettleResult(Status.ACKED) for _ in range(count)]
        found[f"settle answer of {count}"] = cpu_us(partial(delivery_json.results, results), 10_000)
    found["CloudEvent of 1 KiB, structured"] = cpu_us(ours, 3_000)
    found["CloudEvent of 1 KiB, the CNCF's library"] = cpu_us(theirs, 1_000)
    receive = BodyDecoder(model.ReceiveBody)
    found["receive request, decoded"] = cpu_us(partial(receive.decode, RECEIVE), 50_000)
    found["receive request, stdlib json"] = cpu_us(partial(json.loads, RECEIVE), 20_000)
    return found


def main() -> None:
    """Print a table."""
    for name, value_us in measure().items():
        sys.stdout.write(f"{name:45} {value_us:9.2f} us\n")


if __name__ == "__main__":
    main()
