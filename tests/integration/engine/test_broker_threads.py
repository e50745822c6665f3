"""A thread of an adapter that ends by an error is made anew, or the process ends: no sidecar is
ready and does nothing. Each thread of each adapter, on real brokers.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ackd.api.messages import SettleVerb
from ackd.config.peers import PeerSettings
from ackd.errors import BrokerError, DrainingError
from ackd.ports import Outgoing
from ackd_adapters.kafka.fetcher import Fetcher
from ackd_adapters.kafka.member import Member as KafkaMember
from ackd_adapters.kafka.publish import _Producer
from ackd_adapters.local import log, schema
from ackd_adapters.local.reader import QueueReader
from ackd_adapters.local.writer import Writer
from ackd_adapters.pulsar.member import Member as PulsarMember
from ackd_adapters.pulsar.reading import Reading
from tests.integration.engine.linked import Linked, Ring
from tests.support.redis import RedisServer
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(300)]
ALONE = PeerSettings(on=False)
GONE_S = 30.0
"""How long anything may take that a thread which has ended must not hold up; it ends what hangs."""


class Planted:
    """Has a function raise an error the next time it is called, and only then."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: Exception
    ) -> None:
        self._raised = threading.Event()
        original: Callable[..., Any] = getattr(owner, name)

        def planted(*given: Any, **named: Any) -> Any:
            if not self._raised.is_set():
                self._raised.set()
                raise error
            return original(*given, **named)

        monkeypatch.setattr(owner, name, planted)

    async def raised(self) -> None:
        """Wait until it was."""

        async def so() -> bool:
            return self._raised.is_set()

        await wait_until_async(so, "the planted error")


@pytest.fixture
async def ring(valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Ring]:
    """A local queue."""
    async with AsyncExitStack() as stack:
        yield Ring(stack, tmp_path, valkey.url)


async def works(linked: Linked, first: int) -> None:
    """A message is published, delivered and settled, and the sidecar says that it is ready."""
    async with asyncio.timeout(GONE_S):
        await linked.publish(1, first=first)
        message = await wait_until_async(
            linked.one,
            "a message",
            ignoring=(DrainingError,),  # as long as it is made anew
        )
    assert int(message.record.value or b"") == first
    assert await linked.settle([message], SettleVerb.ACK) == ["acked"]
    await linked.ready()
    assert linked.runtime.vitals.failure == ""


@pytest.mark.parametrize(
    ("owner", "name"),
    [(log, "next_due_ms"), (schema, "version"), (QueueReader, "_read"), (QueueReader, "_look")],
)
async def test_the_local_queue_goes_on_after_one_error_of_its_file(
    ring: Ring, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    """Of the file, as a disk that hesitates makes it: before a commit, after it, when reading."""
    linked = await ring.start(ALONE)
    await works(linked, 0)
    broken = sqlite3.OperationalError("disk I/O error")
    planted = Planted(monkeypatch, owner, name, broken)
    await works(linked, 1)
    await planted.raised()
    await works(linked, 2)


async def test_the_local_queue_answers_a_commit_after_which_it_can_not_read(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publish is stored and says so."""
    linked = await ring.start(ALONE)
    await works(linked, 0)
    transact = Writer._transact
    planted: list[Planted] = []

    def watched(self: Writer, jobs: list[Any], *, look: bool, sweep: bool) -> None:
        if jobs and not planted:  # Within this call it is asked only once all is committed.
            broken = sqlite3.OperationalError("disk I/O error")
            planted.append(Planted(monkeypatch, log, "next_due_ms", broken))
        transact(self, jobs, look=look, sweep=sweep)

    monkeypatch.setattr(Writer, "_transact", watched)
    await linked.publish(1, first=1)
    await planted[0].raised()
    [message] = await linked.collect(1)
    assert await linked.settle([message], SettleVerb.ACK) == ["acked"]
    await works(linked, 2)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Writer, "_look_around"),
        (Writer, "_collect"),
        (QueueReader, "_turn"),
        (QueueReader, "_look"),
    ],
)
async def test_a_thread_of_the_local_queue_that_ends_makes_the_sidecar_unready_and_ends_it(
    ring: Ring, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    """`ackd serve` ends as soon as `Vitals` has a failure. Nobody who asks waits for ever."""
    linked = await ring.start(ALONE)
    await works(linked, 0)
    planted = Planted(monkeypatch, owner, name, KeyError("planted"))
    broker = linked.runtime._brokers["b"]
    async with asyncio.timeout(GONE_S):
        await broker.publish([Outgoing(ring.topic, None, b"stored or not")])
        await planted.raised()
        await linked.runtime.vitals.wait()
        assert "KeyError" in linked.runtime.vitals.failure
        assert not all(reason.ok for reason in linked.runtime.readiness())
        answers = await asyncio.gather(
            broker.ensure_topic("more", {}), broker.partitions(ring.topic), return_exceptions=True
        )
        refused = [str(each) for each in answers if isinstance(each, BrokerError)]
        assert refused, answers
        assert all("has ended" in each for each in refused)
        await linked.runtime.stop()


@pytest.mark.kafka
@pytest.mark.parametrize("owner", [_Producer, Fetcher, KafkaMember])
async def test_a_thread_of_kafka_that_ends_is_made_anew(
    request: pytest.FixtureRequest,
    valkey: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
) -> None:
    kafka = request.getfixturevalue("kafka")
    async with AsyncExitStack() as stack:
        ring = Ring(stack, tmp_path, valkey.url, kafka)
        await ring.make_topic()
        linked = await ring.start(ALONE)
        await works(linked, 0)
        planted = Planted(monkeypatch, owner, "step", RuntimeError("planted"))
        await planted.raised()
        for number in (1, 2):
            await works(linked, number)


@pytest.mark.pulsar
@pytest.mark.slow
@pytest.mark.parametrize(("owner", "name"), [(PulsarMember, "_step"), (Reading, "_batch")])
async def test_a_thread_of_pulsar_that_ends_is_made_anew(
    request: pytest.FixtureRequest,
    valkey: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
) -> None:
    pulsar = request.getfixturevalue("pulsar")
    async with AsyncExitStack() as stack:
        ring = Ring(stack, tmp_path, valkey.url, pulsar=pulsar)
        await ring.make_topic()
        linked = await ring.start(ALONE)
        await works(linked, 0)
        planted = Planted(monkeypatch, owner, name, RuntimeError("planted"))
        await planted.raised()
        for number in (1, 2):
            await works(linked, number)
