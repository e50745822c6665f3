"""The broker contract on the example of an adapter in a package of its own.

The package is built and installed from its own pyproject.toml into a folder that only this run has
on its path, so it is found as a user's would be: by its entry point.
"""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from ackd.core.ids import TopicPartition
from ackd_testing import (
    ConnectionContract,
    FetchContract,
    GroupContract,
    Lab,
    ProgressContract,
    PublishContract,
)
from ackd_torture.ports import free_port
from tests.support.paths import REPO
from tests.support.redis import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240), pytest.mark.usefixtures("installed")]

EXAMPLE = REPO / "adapters" / "examples" / "redis_stream"
RECORDS = 20
RECORD_BYTES = 10_000


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package, where this process and those that it starts find it."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", folder, EXAMPLE], check=True, timeout=120)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), before)))
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


class RedisStreamLab(Lab):
    """The run's Valkey, under a prefix of its own."""

    adapter = "redis-stream"
    small_buffer = ({"fetch_records_max": RECORDS}, 2 * 2 * RECORDS * RECORD_BYTES)

    def __init__(self, server: RedisServer) -> None:
        self._prefix = f"contract-{uuid.uuid4().hex[:8]}"
        self._url = server.url
        self.options = {"url": server.url, "prefix": self._prefix, "session_ms": 2_000}
        self.unreachable = {
            "url": f"redis://127.0.0.1:{free_port()}/0",
            "request_timeout_ms": 1000,
        }

    async def create_topic(self, topic: str, partitions: int) -> None:
        """By `ensure_topic`."""
        broker = self.open()
        await broker.start()
        await broker.ensure_topic(topic, {"partitions": str(partitions)})
        await broker.close()

    async def delete_topic(self, topic: str) -> None:
        """As an operator would: the row, then the streams."""

        def delete() -> None:
            with redis.Redis.from_url(self._url) as client:
                logs = self._logs(client, topic)
                client.hdel(f"{self._prefix}:topics", topic)
                client.delete(*logs)

        await asyncio.to_thread(delete)

    async def truncate(self, partition: TopicPartition, before: int) -> None:
        """By XTRIM."""

        def trim() -> None:
            with redis.Redis.from_url(self._url) as client:
                log = self._logs(client, partition.topic)[partition.partition]
                client.xtrim(log, minid=f"0-{before + 1}", approximate=False)

        await asyncio.to_thread(trim)

    def _logs(self, client: redis.Redis, topic: str) -> list[str]:
        row = client.hget(f"{self._prefix}:topics", topic)
        assert isinstance(row, bytes)
        identity, _, partitions = row.decode().partition(":")
        return [f"{self._prefix}:log:{identity}:{each}" for each in range(int(partitions))]


@pytest.fixture
def lab(valkey: RedisServer) -> Lab:
    """A broker of its own for each test."""
    return RedisStreamLab(valkey)


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
