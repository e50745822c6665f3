"""A real RocketMQ 5 from Maven's jars: `RocketMQ(RocketMQOptions(...))`."""

from tests.support.rocketmq.broker import RocketMQ
from tests.support.rocketmq.config import RocketMQOptions
from tests.support.rocketmq.install import install, missing

__all__ = [
    "RocketMQ",
    "RocketMQOptions",
    "install",
    "missing",
]
