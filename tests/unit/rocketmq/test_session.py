"""A session whose task dies is told of, and one that its owner closes is not."""

import asyncio
from typing import cast

import pytest

from ackd.errors import BrokerError
from ackd.ports import ConsumerSpec
from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.consumer import RocketMQConsumer
from ackd_adapters.rocketmq.protocol.definition_pb2 import Settings
from ackd_adapters.rocketmq.remoting_admin import RemotingAdmin
from ackd_adapters.rocketmq.rpc import Rpc
from ackd_adapters.rocketmq.session import Session


class BrokenRpc:
    """Fails in the way that it is told to, as soon as a session talks."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def talk(self, _: object) -> object:
        raise self.error


async def ended_by(error: Exception) -> list[asyncio.Task[None]]:
    """The tasks that had ended when a session met this error, and was then closed."""
    ended: list[asyncio.Task[None]] = []
    session = Session(cast("Rpc", BrokenRpc(error)), Settings(), None)
    session.start(ended.append)
    for _ in range(20):
        await asyncio.sleep(0)
    found = list(ended)
    await session.close()
    return found


async def test_an_error_that_nobody_foresaw_ends_the_session_and_is_told() -> None:
    [task] = await ended_by(ValueError("planted"))
    with pytest.raises(ExceptionGroup, match="unhandled"):
        task.result()


async def test_a_broker_that_is_away_ends_no_session() -> None:
    assert await ended_by(BrokerError("away")) == []


async def test_a_consumer_whose_session_ended_has_to_be_made_again() -> None:
    rpc = cast("Rpc", BrokenRpc(ValueError("planted")))
    options = RocketMQOptions(endpoints="127.0.0.1:1")
    consumer = RocketMQConsumer(
        options, ConsumerSpec("group", ("topic",), "client"), rpc, RemotingAdmin(options)
    )
    session = Session(rpc, Settings(), None)
    session.start(consumer._ended)
    async with asyncio.timeout(5):
        [condition] = await consumer.events()
    assert condition.fatal  # type: ignore[union-attr]  # it is a Condition
    assert "planted" in condition.detail  # type: ignore[union-attr]
    await session.close()
