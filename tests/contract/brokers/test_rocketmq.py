"""The broker contract on a real RocketMQ: what needs positions in a log is not declared there."""

import asyncio
import re
from collections.abc import Sequence

import pytest

from ackd.core.ids import TopicPartition
from ackd_adapters.rocketmq.reading import BATCHES_MAX
from ackd_testing import (
    BrokerSideAcksContract,
    ConnectionContract,
    FetchContract,
    GroupContract,
    Lab,
    ProgressContract,
    PublishContract,
)
from ackd_testing.needs import abilities_of, lacking
from ackd_torture.ports import free_port
from tests.support.paths import REPO
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.remote import admin, queues_of, send

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

HOLD_MS = 2_000
"""Broker 5.5 delivers one of some hundred messages again at the end of a hold that was renewed in
time, when holds are of 5 s and longer.
"""
POLL_MS = 1_000
SMALL_BYTES = 2 * (BATCHES_MAX + 1) * 32 * 10_000
"""What of two partitions may lie there: each has so many answers of 32 messages of 10 kB."""


class RocketMQLab(Lab):
    """The RocketMQ of the whole run. Its topics take plain and delayed messages."""

    adapter = "rocketmq"
    rebalance_s = 20.0
    hold_s = HOLD_MS / 1000
    holds_surely = False
    poll_s = POLL_MS / 1000 + 0.5

    def __init__(self, rocketmq: RocketMQ) -> None:
        self._admin = rocketmq.admin
        self._names = rocketmq.ports.names
        self.options = {
            "endpoints": rocketmq.endpoints,
            "name_servers": f"127.0.0.1:{rocketmq.ports.names}",
            "invisible_duration_ms": HOLD_MS,
            "poll_ms": POLL_MS,
        }
        self.small_buffer = {}, SMALL_BYTES
        self.unreachable = {"endpoints": f"127.0.0.1:{free_port()}", "request_timeout_ms": 1_000}

    async def create_topic(self, topic: str, partitions: int) -> None:
        """By the administrator's protocol."""
        await asyncio.to_thread(self._admin.topic, topic, partitions, "MIXED")

    async def fill(self, partition: TopicPartition, values: Sequence[bytes]) -> list[int]:
        """Past the proxy, which chooses the queue itself."""
        async with admin(self._names) as it:
            queues = await queues_of(it, partition.topic)
            return await send(it, queues[partition.partition], values)

    async def create_group(self, group: str) -> None:
        """Consumers of a group that is not there are refused."""
        await asyncio.to_thread(self._admin.group, group)

    async def delete_topic(self, topic: str) -> None:
        """By the administrator's protocol."""
        await asyncio.to_thread(self._admin.drop_topic, topic)


ROWS = re.compile(r"^\| `(\w+Contract)` \| (.+) \| (.+) \|$", re.MULTILINE)


def left_out() -> set[str]:
    """Scenarios that have no meaning on RocketMQ; the page has a reason for each."""
    rows = ROWS.findall((REPO / "docs/develop/adapters.md").read_text())
    return {f"{it}.{name}" for it, names, _ in rows for name in re.findall(r"`(\w+)`", names)}


@pytest.fixture
def lab(rocketmq: RocketMQ) -> Lab:
    """The shared RocketMQ."""
    return RocketMQLab(rocketmq)


class TestConnection(ConnectionContract):
    """See the contract."""


class TestFetch(FetchContract):
    """See the contract."""


class TestGroup(GroupContract):
    """See the contract."""


class TestBrokerSideAcks(BrokerSideAcksContract):
    """See the contract."""

    @pytest.mark.alone
    async def test_i2_held_ones_stay_and_finished_ones_are_over(self, lab: Lab) -> None:
        """A starved broker delivers held messages again, too, though each renewal was in time and
        confirmed; what the engine does with such is R32.
        """
        await super().test_i2_held_ones_stay_and_finished_ones_are_over(lab)


class TestProgress(ProgressContract):
    """See the contract."""


class TestPublish(PublishContract):
    """See the contract."""


def test_what_is_left_out_has_a_reason_and_nothing_else_is(rocketmq: RocketMQ) -> None:
    """By what the adapter declares: the table of the page, and no scenario more or less."""
    lab = RocketMQLab(rocketmq)
    can = lab.open().capabilities
    contracts = (
        BrokerSideAcksContract,
        ConnectionContract,
        FetchContract,
        GroupContract,
        ProgressContract,
        PublishContract,
    )
    scenarios = {
        f"{contract.__name__}.{name}": abilities_of(test)
        for contract in contracts
        for name, test in vars(contract).items()
        if name.startswith("test_")
    }
    out = {name for name, needed in scenarios.items() if lacking(lab, can, needed)}
    assert out == left_out()
