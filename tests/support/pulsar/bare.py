"""The bare client as people use it, to show beside ackd what it does; and one that dies.

`python -m tests.support.pulsar.bare URL TOPIC SUBSCRIPTION COUNT ack|nack` receives, acks (or
asks for redelivery), says `done`, and waits to be killed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulsar

from tests.support.paths import REPO

SILENT = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
"""A logger of Python's would cost each message several lines of debugging that nobody wants."""
NACK_DELAY_MS = 4_000
QUIET_MS = 1_500
SURE_MS = 60_000
PATIENCE_S = 40


@contextmanager
def client(url: str, logger: object = SILENT, **options: object) -> Iterator[Any]:
    """A client, closed in time: one that is left ends the process with a message."""
    made = pulsar.Client(url, logger=logger, **options)
    try:
        yield made
    finally:
        made.close()


def join(made: Any, topic: str, subscription: str, **options: object) -> Any:
    """A consumer of a Shared subscription from the first message on, unless told otherwise.

    A broker that has just come back may not have the topic yet: its client is as patient as a
    user's program.
    """
    defaults: dict[str, object] = {
        "consumer_type": pulsar.ConsumerType.Shared,
        "initial_position": pulsar.InitialPosition.Earliest,
    }
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return made.subscribe(topic, subscription, **(defaults | options))
        except pulsar.Timeout:
            if time.monotonic() > end_s:
                raise


def drain(consumer: Any, most: int = sys.maxsize, quiet_ms: int = QUIET_MS) -> list[Any]:
    """What comes until nothing has come for a while; `most`: so many, which are there."""
    found: list[Any] = []
    wait_ms = quiet_ms if most == sys.maxsize else SURE_MS
    while len(found) < most:
        try:
            found.append(consumer.receive(wait_ms))
        except pulsar.Timeout:
            break
    return found


def produce(made: Any, topic: str, count: int, *, batch: int = 0) -> None:
    """Put `m0`, `m1`, ... onto a topic; `batch`: so many in each entry."""
    producer = made.create_producer(
        topic,
        batching_enabled=batch > 0,
        batching_max_messages=max(batch, 2),
        batching_max_publish_delay_ms=60_000,
        block_if_queue_full=True,
    )
    failed: list[object] = []

    def sent(result: object, _: object) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    for number in range(count):
        producer.send_async(b'{"msg": "m%d"}' % number, sent)
    producer.flush()
    producer.close()
    assert not failed, failed[:3]


def killed_after(url: str, topic: str, subscription: str, count: int, do: str) -> None:
    """A process that acks (or nacks) `count` messages with the bare client and is killed then."""
    argv = [sys.executable, "-m", "tests.support.pulsar.bare", url, topic, subscription]
    with subprocess.Popen(
        [*argv, str(count), do], stdout=subprocess.PIPE, text=True, cwd=REPO
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "done\n"
        finally:
            child.kill()


def main(url: str, topic: str, subscription: str, count: str, do: str) -> None:
    """See the module."""
    consumer = join(
        pulsar.Client(url, logger=SILENT),
        topic,
        subscription,
        negative_ack_redelivery_delay_ms=NACK_DELAY_MS,
    )
    for message in [consumer.receive(20_000) for _ in range(int(count))]:
        if do == "ack":
            consumer.acknowledge(message)
        else:
            consumer.negative_acknowledge(message)
    sys.stdout.write("done\n")
    sys.stdout.flush()
    time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
