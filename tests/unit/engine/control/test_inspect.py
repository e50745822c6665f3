"""What `explain` says holds a partition's progress up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from ackd.engine.control.inspect import Inspector
from ackd.engine.retry.own_topic import RetryTopic
from tests.unit.engine.world import TestBroker, World


class Silent:
    """Parts of a subscription that have nothing to say."""

    def words(self) -> list[str]:
        return []

    def error_of(self, *_: object) -> str:
        return ""


@pytest.mark.parametrize(
    ("settings", "broker_side_acks", "why"),
    [
        ({}, False, "there is no retry topic yet"),
        ({"retry_topic": False}, False, "retry_topic is off"),
        ({"ordering": "partition"}, False, "in its partition's order it holds up all behind it"),
        ({}, True, "the broker keeps the acks itself, so nothing waits behind it"),
    ],
)
async def test_why_a_message_does_not_move_to_the_retry_topic(
    world: World, settings: dict[str, Any], *, broker_side_acks: bool, why: str
) -> None:
    """I5."""
    world.sets(**settings)
    broker = cast("TestBroker", world.state.broker)
    broker.capabilities = replace(broker.capabilities, broker_side_acks=broker_side_acks)
    partition = await world.owns(0, range(2))
    await world.leases(partition)
    silent: Any = Silent()
    topic = RetryTopic(world.state, world.context)
    inspector = Inspector(
        world.state, world.context, world.partitions, silent, silent, silent, None, silent, topic
    )
    [held] = (await inspector.explain()).partitions
    assert held.released_by.endswith(f"; it does not move to the retry topic: {why}")
