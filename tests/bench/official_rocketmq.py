"""A process that receives and acks messages with RocketMQ's own Python client, for comparison.

`python -m tests.bench.official_rocketmq ADDRESS TOPIC GROUP COUNT`, with the packages of the group
`rocketmqclient` on PYTHONPATH (tests/support/other.py): their protocol files have the names of
ackd's, so nothing of ackd is loaded here. Four threads receive 32 messages a call and ack each of
them, for which this client has one call a message. Prints one JSON object: messages, seconds and
CPU us of this process between the first message and the last ack.
"""

import json
import os
import resource
import sys
import threading
import time
from typing import Any

from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer
from rocketmq.v5.exception import ClientException

RECEIVERS = 4
BATCH = 32
HOLD_S = 60
POLL_S = 1
PATIENCE_S = 120.0


class Receivers:
    """Threads that share one consumer, as its maker's examples do."""

    def __init__(self, consumer: Any, wanted: int) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._lock = threading.Lock()
        self.seen = 0
        self.began = (0.0, 0.0)

    def run(self) -> None:
        """Until all have come, or nothing more comes in time."""
        threads = [threading.Thread(target=self._receive) for _ in range(RECEIVERS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    def _receive(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while self.seen < self._wanted and time.monotonic() < end:
            try:
                found = self._consumer.receive(BATCH, HOLD_S)
            except ClientException:  # its first calls may come before its settings have
                time.sleep(0.2)
                continue
            with self._lock:
                if found and not self.seen:
                    self.began = (time.monotonic(), cpu_s())
            for each in found or ():
                self._consumer.ack(each)
            with self._lock:
                self.seen += len(found or ())


def cpu_s() -> float:
    """Of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(address: str, topic: str, group: str, count: str) -> None:
    """See the module."""
    configuration = ClientConfiguration(address, Credentials())
    consumer = SimpleConsumer(configuration, group, {topic: FilterExpression()}, POLL_S)
    consumer.startup()
    receivers = Receivers(consumer, int(count))
    receivers.run()
    if receivers.seen < int(count):
        raise RuntimeError(f"only {receivers.seen} of {count} messages came")
    began_s, began_cpu_s = receivers.began
    done = {
        "messages": receivers.seen,
        "seconds": time.monotonic() - began_s,
        "cpu_us": (cpu_s() - began_cpu_s) * 1e6,
    }
    sys.stdout.write(json.dumps(done))
    sys.stdout.flush()
    os._exit(0)  # its threads and its pool outlive a shutdown


if __name__ == "__main__":
    main(*sys.argv[1:])
