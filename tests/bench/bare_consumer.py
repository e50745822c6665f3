"""A process that receives and acks messages with a broker's bare client, for comparison.

`python -m tests.bench.bare_consumer BROKER ADDRESS TOPIC GROUP COUNT`: BROKER `pulsar` (the
published client, a Shared subscription, each message acked by itself), `logged` (the same with a
logger of Python's, as its documentation offers it), `looking` (which takes from each message what
ackd hands on) or `rocketmq` (gRPC calls with nothing around
them: four receivers of 32 messages, one ack for all messages of an answer).
Prints one JSON object: messages, seconds and CPU us of this process between the first message and
the last ack.
"""

import asyncio
import json
import logging
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ackd_adapters.rocketmq.client import EVERYTHING, GroupClient, HeldMessage
from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.rpc import Rpc
from ackd_adapters.rocketmq.session import Session, consumer_settings
from tests.support.pulsar import bare

RECEIVERS = 4
HOLD_MS = 60_000
POLL_MS = 1_000
PATIENCE_S = 60.0


@dataclass
class Done:
    """What one run took."""

    messages: int
    seconds: float
    cpu_us: float


class Watch:
    """Time and CPU of this process, all threads, since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._cpu_s = _cpu_s()

    def done(self, messages: int) -> Done:
        """What it shows now."""
        took = time.monotonic() - self._began
        return Done(messages, took, (_cpu_s() - self._cpu_s) * 1e6)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def nothing(_: object) -> None:
    """What a client does with a message that it only acknowledges."""


def look(message: Any) -> None:
    """Take what ackd hands on."""
    message.data()
    message.properties()
    message.partition_key()
    message.publish_timestamp()
    message.message_id()


def pulsar(
    address: str,
    topic: str,
    group: str,
    count: int,
    logger: object = bare.SILENT,
    take: Callable[[object], None] = nothing,
) -> Done:
    """Receive and acknowledge one after the other; the client fetches ahead and groups acks."""
    with bare.client(address, logger) as made:
        consumer = bare.join(made, f"persistent://public/default/{topic}", group)
        consumer.acknowledge(consumer.receive(round(PATIENCE_S * 1000)))
        watch = Watch()
        for _ in range(count - 1):
            message = consumer.receive(round(PATIENCE_S * 1000))
            take(message)
            consumer.acknowledge(message)
        found = watch.done(count - 1)
        consumer.close()
        return found


async def rocketmq(address: str, topic: str, group: str, count: int) -> Done:
    """Receivers side by side, each with one call at a time."""
    options = RocketMQOptions(endpoints=address)
    rpc = Rpc(options, f"bare-{group}")
    await rpc.start()
    client = GroupClient(rpc, options, group)
    session = Session(
        rpc, consumer_settings(client.group, {topic: EVERYTHING}, POLL_MS), client.group
    )
    session.start(lambda _: None)
    await session.ready(PATIENCE_S)
    (queue, *_) = await client.route(topic)
    seen = 0
    watch: Watch | None = None

    async def receiver() -> None:
        nonlocal seen, watch
        end = time.monotonic() + PATIENCE_S
        while seen < count and time.monotonic() < end:
            found = await client.receive(queue, hold_ms=HOLD_MS, poll_ms=POLL_MS)
            if not found:
                continue
            watch = watch or Watch()
            said = await client.ack(
                topic, [HeldMessage(each.message_id, each.handle) for each in found]
            )
            if set(said) != {"OK"}:
                raise RuntimeError(f"not acked: {said}")
            seen += len(found)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(RECEIVERS):
                tasks.create_task(receiver())
        if watch is None or seen < count:
            raise RuntimeError(f"only {seen} of {count} messages came")
        return watch.done(seen)
    finally:
        await session.close()
        await rpc.close()


def main(broker: str, address: str, topic: str, group: str, count: str) -> None:
    """See the module."""
    if broker == "pulsar":
        done = pulsar(address, topic, group, int(count))
    elif broker == "logged":
        done = pulsar(address, topic, group, int(count), logging.getLogger("bare"))
    elif broker == "looking":
        done = pulsar(address, topic, group, int(count), take=look)
    else:
        done = asyncio.run(rocketmq(address, topic, group, int(count)))
    sys.stdout.write(json.dumps(asdict(done)))
    sys.stdout.flush()
    os._exit(0)  # threads of Pulsar's client that still end may abort an interpreter that ends


if __name__ == "__main__":
    main(*sys.argv[1:])
