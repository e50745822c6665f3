"""The broker contract on the local queue."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ackd.core.ids import TopicPartition
from ackd_adapters.local import LocalBroker
from ackd_adapters.local.log import Transaction, drop
from ackd_testing import (
    ConnectionContract,
    FetchContract,
    GroupContract,
    Lab,
    ProgressContract,
    PublishContract,
)

SMALL_BYTES = 256 * 1024


class LocalLab(Lab):
    """One queue in a folder; topics are made and removed by a connection of its own."""

    adapter = "local"
    small_buffer = ({"fetch_buffer_bytes": SMALL_BYTES}, SMALL_BYTES + 10_000)

    def __init__(self, folder: Path) -> None:
        self.options = {"path": str(folder / "queue")}
        self.unreachable = {"path": str(folder / "a file" / "queue")}

    async def create_topic(self, topic: str, partitions: int) -> None:
        """By `ensure_topic`."""
        async with self._own() as broker:
            await broker.ensure_topic(topic, {"partitions": str(partitions)})

    async def delete_topic(self, topic: str) -> None:
        """By the adapter's own way, which is not part of the port."""
        async with self._own() as broker:
            await broker.delete_topic(topic)

    async def truncate(self, partition: TopicPartition, before: int) -> None:
        """As retention does it."""

        def cut(tx: Transaction) -> None:
            topic = tx.topic(partition.topic)
            assert topic is not None
            head = tx.head(topic.logs[partition.partition])
            assert head is not None
            drop(tx.db, head, before)

        async with self._own() as broker:
            await broker.call(cut)

    @contextlib.asynccontextmanager
    async def _own(self) -> AsyncIterator[LocalBroker]:
        broker = self.open()
        assert isinstance(broker, LocalBroker)
        await broker.start()
        try:
            yield broker
        finally:
            await broker.close()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A queue of its own for each test."""
    (tmp_path / "a file").write_text("no folder can be made below it")
    return LocalLab(tmp_path)


class TestConnection(ConnectionContract):
    """See the contract."""


class TestFetch(FetchContract):
    """See the contract."""


class TestGroup(GroupContract):
    """See the contract."""


class TestProgress(ProgressContract):
    """See the contract."""


class TestPublish(PublishContract):
    """See the contract."""
