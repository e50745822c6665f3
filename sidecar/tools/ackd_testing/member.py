"""A member of a group in a process of its own: `python -m ackd_testing.member '{"adapter": ...}'`.

Says what it hears, a line for each event (`assigned t/0 t/1`, `revoked ...`, `lost ...`), and ends
in good order when its standard input is closed, so that it never outlives the test.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable

from ackd.core.ids import TopicPartition
from ackd.ports import Assigned, Consumer, ConsumerSpec, Lost, Revoked
from ackd_testing.lab import open_broker


async def run(order: str) -> None:
    """Join and listen until standard input ends."""
    wish = json.loads(order)
    broker = open_broker(wish["adapter"], wish["options"])
    await broker.start()
    try:
        consumer = broker.consumer(ConsumerSpec(wish["group"], tuple(wish["topics"]), "member"))
        await consumer.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(_listen(consumer))
                await asyncio.to_thread(sys.stdin.read)
                listening.cancel()
        finally:
            await consumer.close()
    finally:
        await broker.close()


async def _listen(consumer: Consumer) -> None:
    while True:
        for event in await consumer.events():
            match event:
                case Assigned(partitions):
                    _say("assigned", partitions)
                case Lost(partitions):
                    _say("lost", partitions)
                case Revoked(partitions):
                    _say("revoked", partitions)
                    event.done()
                case _:
                    pass


def _say(kind: str, partitions: Iterable[TopicPartition]) -> None:
    names = [f"{each.topic}/{each.partition}" for each in partitions]
    sys.stdout.write(" ".join([kind, *names]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
