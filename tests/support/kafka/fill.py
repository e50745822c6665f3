"""Fill topics fast, past the adapter, and through it."""

from collections.abc import Sequence

from confluent_kafka import Producer

from ackd.ports import Broker, Outgoing, Stored


def fill(bootstrap: str, topic: str, partition: int, values: Sequence[bytes | None]) -> None:
    """Store values fast, keyed by nothing, and see that each one is stored."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    for value in values:
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    partition=partition,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(30) == 0
    assert not failed, failed[:3]


async def store(broker: Broker, *messages: Outgoing) -> list[Stored]:
    """Publish through the adapter and see each one stored."""
    results = await broker.publish(messages)
    stored = [each for each in results if isinstance(each, Stored)]
    assert len(stored) == len(messages), results
    return stored
