"""The broker contract on a real RocketMQ: what needs positions in a log is not declared there."""

import asyncio

import pytest

from ackd_testing import (
    BrokerSideAcksContract,
    ConnectionContract,
    FetchContract,
    GroupContract,
    Lab,
    ProgressContract,
    PublishContract,
)
from ackd_torture.ports import free_port
from tests.support.rocketmq import RocketMQ

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

HOLD_MS = 2_000
"""Broker 5.5 delivers one of some hundred messages again at the end of a hold that was renewed in
time, when holds are of 5 s and longer.
"""
POLL_MS = 1_000


class RocketMQLab(Lab):
    """The RocketMQ of the whole run. Its topics take plain and delayed messages."""

    adapter = "rocketmq"
    rebalance_s = 20.0
    hold_s = HOLD_MS / 1000
    holds_surely = False
    poll_s = POLL_MS / 1000 + 0.5

    def __init__(self, rocketmq: RocketMQ) -> None:
        self._admin = rocketmq.admin
        self.options = {
            "endpoints": rocketmq.endpoints,
            "invisible_duration_ms": HOLD_MS,
            "poll_ms": POLL_MS,
        }
        self.unreachable = {"endpoints": f"127.0.0.1:{free_port()}", "request_timeout_ms": 1_000}

    async def create_topic(self, topic: str, partitions: int) -> None:
        """By the administrator's protocol."""
        await asyncio.to_thread(self._admin.topic, topic, partitions, "MIXED")

    async def create_group(self, group: str) -> None:
        """Consumers of a group that is not there are refused."""
        await asyncio.to_thread(self._admin.group, group)

    async def delete_topic(self, topic: str) -> None:
        """By the administrator's protocol."""
        await asyncio.to_thread(self._admin.drop_topic, topic)


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
