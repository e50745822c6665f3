"""The broker contract on a real Pulsar."""

import asyncio

import pytest

from ackd_testing import (
    ConnectionContract,
    FetchContract,
    GroupContract,
    Lab,
    ProgressContract,
    PublishContract,
)
from ackd_torture.ports import free_port
from tests.support.pulsar import AdminError, Pulsar
from tests.support.wait import wait_until

pytestmark = [pytest.mark.pulsar, pytest.mark.slow, pytest.mark.timeout(240)]

SMALL_BYTES = 1024 * 1024
CONFLICT = 409
BATCH_BYTES = 4 * 1024 * 1024
"""One batch of a reader and the client's queue come beside the bound."""


class PulsarLab(Lab):
    """The Pulsar of the whole run. The tests' topics have no producer that batches."""

    adapter = "pulsar"
    rebalance_s = 20.0
    loss_s = 40.0
    refresh_s = 20.0
    small_buffer = (
        {"fetch_records_max": 1000, "fetch_bytes_max": SMALL_BYTES, "receiver_queue": 50},
        SMALL_BYTES + BATCH_BYTES,
    )

    def __init__(self, pulsar: Pulsar) -> None:
        self._pulsar = pulsar
        self.options = {
            "service_url": pulsar.url,
            "admin_url": pulsar.web_url,
            "batch_messages_max": 1,
            "group_poll_ms": 200,
        }
        self.unreachable = {
            "service_url": f"pulsar://127.0.0.1:{free_port()}",
            "admin_url": f"http://127.0.0.1:{free_port()}",
            "request_timeout_ms": 1000,
        }

    async def create_topic(self, topic: str, partitions: int) -> None:
        """Partitioned, also with one. A try that failed half-way has made it for the next one."""
        admin, name = self._pulsar.admin, f"public/default/{topic}"

        def create() -> bool:
            try:
                admin.create_topic(name, partitions)
            except AdminError as error:
                if error.status != CONFLICT:
                    raise
                admin.ask("POST", f"persistent/{name}/createMissedPartitions")
                admin.stats(f"{name}-partition-{partitions - 1}")
                found = admin.ask("GET", f"persistent/{name}/partitions")
                return bool(found["partitions"] == partitions)
            return True

        await asyncio.to_thread(wait_until, create, f"{topic} is made", ignoring=(AdminError,))

    async def delete_topic(self, topic: str) -> None:
        """With everybody who is connected to it."""
        path = f"persistent/public/default/{topic}/partitions?force=true"
        await asyncio.to_thread(self._pulsar.admin.ask, "DELETE", path)


@pytest.fixture
def lab(pulsar: Pulsar) -> Lab:
    """The shared Pulsar."""
    return PulsarLab(pulsar)


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
