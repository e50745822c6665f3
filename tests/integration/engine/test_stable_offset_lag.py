"""R33: an open transaction holds the end of the log, and that is told."""

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from ackd.engine.control import partition_gauges, stable_offset_lag
from tests.integration.engine.conftest import NAME, Sidecar, StartSidecar
from tests.support.kafka import Kafka
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


async def test_r33_an_open_transaction_is_named(
    kafka: Kafka,
    start: StartSidecar,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_gauges, "END_MS", 200)
    monkeypatch.setattr(stable_offset_lag, "SHOWN_MS", 500)
    name = topic()
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    await asyncio.to_thread(producer.init_transactions, 60)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(name, b"%d" % number, partition=0)
    await asyncio.to_thread(producer.flush, 60)
    sidecar: Sidecar = await start(name, name)
    labels = {"subscription": NAME, "topic": name, "partition": "0", "retry_topic": "false"}

    def held_s() -> float:
        metrics = sidecar.runtime.metrics
        metrics.render("")
        return metrics.registry.get_sample_value("ackd_transaction_held_seconds", labels) or 0.0

    async def told() -> str:
        [row] = (await sidecar.runtime.explain(NAME)).partitions
        return row.released_by if "transaction" in row.released_by else ""

    said = await wait_until_async(told, "explain to name the transaction")
    assert said.startswith("held by an open transaction at offset 0 for ")
    assert "3 offsets can't be read" in said
    assert held_s() >= 0.5
    await asyncio.to_thread(producer.commit_transaction, 60)
    assert len(await sidecar.drain()) == 3

    async def free() -> bool:
        return held_s() == 0

    await wait_until_async(free, "the end to be free")
    assert await told() == ""
