"""Makes the topics and groups that ackd needs and does not find, or says exactly what to make."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ackd.errors import BrokerError
from ackd_adapters.rocketmq.client import GroupClient
from ackd_adapters.rocketmq.remoting_admin import RemotingAdmin

LOG = logging.getLogger("ackd.rocketmq")

RETRIES: Final = 1_000
"""`retryMaxTimes` of a group that ackd makes: only holds that were lost count there."""
SEEN_S: Final = 3.0
LOOK_S: Final = 0.1


async def make_topic(admin: RemotingAdmin, client: GroupClient, topic: str, queues: int) -> None:
    """Make a topic and wait until the proxies know it. Raises BrokerError."""
    by_hand = (
        f"make it: mqadmin updateTopic -t {topic} -r {queues} -w {queues} -a +message.type=NORMAL"
    )
    if not admin.on:
        raise BrokerError(
            f"there is no topic {topic!r}, and RocketMQ's proxies make none: set `name_servers` "
            f"of this broker, or {by_hand}",
            code="TOPIC_NOT_FOUND",
        )
    try:
        if not await admin.queues(topic):
            await admin.make_topic(topic, queues)
            LOG.info("the topic %s is made", topic)
    except BrokerError as error:
        raise BrokerError(
            f"there is no topic {topic!r}, and ackd can't make it ({error.detail}); {by_hand}",
            code="TOPIC_NOT_FOUND",
        ) from None
    for _ in range(round(SEEN_S / LOOK_S)):
        if await client.route(topic):
            return
        await asyncio.sleep(LOOK_S)
    raise BrokerError(f"{topic} is made, the proxies do not know it yet", code="TOPIC_NOT_FOUND")


async def make_group(admin: RemotingAdmin, group: str, *, orderly: bool) -> str:
    """Make the group on brokers that do not know it. Returns what to do when that is not
    possible, to be told if the group is missing; empty when it is there.
    """
    by_hand = (
        f"make it: mqadmin updateSubGroup -g {group} -r {RETRIES}{' -o true' if orderly else ''}"
    )
    if not admin.on:
        return f"set `name_servers` of this broker so that ackd makes the group, or {by_hand}"
    try:
        made = await admin.make_group(group, retries=RETRIES, orderly=orderly)
    except BrokerError as error:
        return f"ackd can't look for it ({error.detail}); {by_hand}"
    if made:
        LOG.info("the group %s is made on %s", group, ", ".join(made))
    return ""
