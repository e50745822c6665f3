"""The broker contract on a real RocketMQ: what needs positions in a log is not declared there."""

import asyncio
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


NO_COMMITS = (
    "a group has no position there, an ack for each message instead (`BrokerSideAcksContract`)"
)
NO_SHARES = (
    "every member may draw all of a topic; the engine chooses who does: "
    "`tests/integration/rocketmq/test_flow.py`"
)
NO_RETRY_TOPIC = "nothing waits behind a stuck message, so no member reads a retry topic"
NO_PLACE = "the proxy chooses the queue of a message, and does not tell it"
AS_HELD = "what it says is asked of messages under a hold, in `BrokerSideAcksContract`"
NO_DROPS = "a broker drops whole files of its log only, of at least 64 MiB here"
LEFT_OUT = {
    "ConnectionContract.test_log_range_after_records_were_dropped": NO_DROPS,
    "FetchContract.test_r6_dropped_records_are_out_of_range": NO_DROPS,
    "FetchContract.test_one_that_does_not_join_only_reads": "a member fetches nothing by offset; "
    "that a reader beside it takes nothing: `tests/integration/rocketmq/test_remoting.py`",
    "FetchContract.test_r5_fetches_without_a_assignment": "as before",
    "FetchContract.test_r1_topic_made_again": "a topic has no identity but its name; that it was "
    "made again is told by store times: `tests/integration/rocketmq/test_log_cut.py`",
    "GroupContract.test_a_member_reads_one_more_topic": NO_RETRY_TOPIC,
    "GroupContract.test_topics_and_retry_topics_are_shared_apart": NO_RETRY_TOPIC,
    "GroupContract.test_retry_topics_that_come_later_are_shared_apart": NO_RETRY_TOPIC,
    "GroupContract.test_two_members_share": NO_SHARES,
    "GroupContract.test_more_members_than_partitions": NO_SHARES,
    "GroupContract.test_orderly_leave": NO_SHARES,
    "GroupContract.test_r34_revoke_waits_for_the_hand_over": NO_SHARES,
    "GroupContract.test_r34_revoke_waits_two_seconds_at_most": NO_SHARES,
    "GroupContract.test_r5_killed_member_is_replaced": NO_SHARES,
    "GroupContract.test_r5_frozen_member_is_replaced_and_told": NO_SHARES,
    "GroupContract.test_pattern": "there are no patterns of topics; they are a mistake in the "
    "configuration",
    "ProgressContract.test_commit_comes_back": NO_COMMITS,
    "ProgressContract.test_commits_keep_their_order": NO_COMMITS,
    "ProgressContract.test_r8_metadata_as_long_as_it_says": NO_COMMITS,
    "ProgressContract.test_commit_of_no_member_is_refused": NO_COMMITS,
    "ProgressContract.test_commit_to_no_partition_is_refused": NO_COMMITS,
    "ProgressContract.test_r1_progress_goes_with_the_topic": NO_COMMITS,
    "PublishContract.test_answers_are_in_the_order_of_the_messages": NO_PLACE,
    "PublishContract.test_r20_key_decides_the_partition": NO_PLACE,
    "PublishContract.test_partition_asked_for": NO_PLACE,
    "PublishContract.test_many_publishers_at_once": AS_HELD,
    "PublishContract.test_messages_come_back_whole": AS_HELD,
    "PublishContract.test_delay": AS_HELD,
    "PublishContract.test_delays_in_the_order_of_their_due_times": "the broker's timers count in "
    "seconds, and what is due within one comes in any order",
}
"""Scenarios that have no meaning on RocketMQ, each with the reason."""


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
    """By what the adapter declares: the table above, and no scenario more or less."""
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
    assert out == LEFT_OUT.keys()
    assert all(LEFT_OUT.values())
