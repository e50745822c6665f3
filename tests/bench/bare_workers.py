"""Workers of 20 ms on a broker's own client, each with a consumer of its own, for comparison.

`python -m tests.bench.bare_workers BROKER ADDRESS TOPIC GROUP COUNT SECONDS`: BROKER `kafka` (a
share group, one record a poll, accepted before the next) or `pulsar` (a Shared subscription, no
queue of messages in the client, each message acked by itself). Prints how many messages each did
within the seconds after all have been at it for a while, as JSON.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable

import confluent_kafka
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tests.support.pulsar import bare

WORK_S = 0.02
WARM_S = 10.0


class Workers:
    """Counts what each does while it counts."""

    def __init__(self, count: int, seconds: float) -> None:
        self.done = [0] * count
        self._begin_s = time.monotonic() + WARM_S
        self._end_s = self._begin_s + seconds

    def run(self, work: Callable[[int], None]) -> None:
        """Each in a thread."""
        threads = [threading.Thread(target=work, args=(n,)) for n in range(len(self.done))]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    @property
    def over(self) -> bool:
        """Whether the time is."""
        return time.monotonic() > self._end_s

    def did(self, number: int) -> None:
        """One message, its work and its ack."""
        if self._begin_s < time.monotonic() < self._end_s:
            self.done[number] += 1


def kafka(address: str, topic: str, group: str, workers: Workers) -> None:
    """A share group that starts at the first message."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    earliest = ConfigEntry(
        "share.auto.offset.reset",
        "earliest",
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[earliest])
    for each in admin.incremental_alter_configs([resource]).values():
        each.result(30)

    def work(number: int) -> None:
        consumer = confluent_kafka.ShareConsumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "max.poll.records": 1,
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        while not workers.over:
            for message in consumer.poll(1.0):
                if message.error() is None:
                    time.sleep(WORK_S)
                    consumer.acknowledge(message)
                    consumer.commit_sync(30.0)
                    workers.did(number)
        consumer.close()

    workers.run(work)


def pulsar(address: str, topic: str, group: str, workers: Workers) -> None:
    """Subscriptions are made beforehand, so that no consumer comes late."""

    def work(number: int) -> None:
        with bare.client(address) as made:
            name = f"persistent://public/default/{topic}"
            consumer = bare.join(made, name, group, receiver_queue_size=1)
            while not workers.over:
                message = consumer.receive(30_000)
                time.sleep(WORK_S)
                consumer.acknowledge(message)
                workers.did(number)

    workers.run(work)


def main(broker: str, address: str, topic: str, group: str, count: str, seconds: str) -> None:
    """See the module."""
    workers = Workers(int(count), float(seconds))
    {"kafka": kafka, "pulsar": pulsar}[broker](address, topic, group, workers)
    sys.stdout.write(json.dumps(workers.done))
    sys.stdout.flush()
    os._exit(0)  # threads of Pulsar's client that still end may abort an interpreter that ends


if __name__ == "__main__":
    main(*sys.argv[1:])
