"""A process that reads a topic of Pulsar by ackd's adapter alone, for comparison.

`python -m tests.bench.adapter_consumer SERVICE_URL ADMIN_URL TOPIC GROUP COUNT`: a member of the
group reads the partition that it gets and commits what it has read once a second, as the engine
does. Prints what `bare_consumer` prints: from the first messages to the last commit.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict

from ackd.core.ids import TopicPartition
from ackd.ports import Assigned, Committed, ConsumerSpec, Fetched
from ackd_adapters.pulsar import PulsarOptions, adapter
from tests.bench.bare_consumer import Done, Watch

COMMIT_S = 1.0
PATIENCE_S = 120.0


async def read(options: PulsarOptions, topic: str, group: str, count: int) -> Done:
    """See the module."""
    broker = adapter.open("bench", options)
    await broker.start()
    consumer = broker.consumer(ConsumerSpec(group, (topic,), "bench"))
    await consumer.start()
    watch, seen, after, commit_at = None, 0, 0, 0.0
    while True:
        for event in await consumer.events():
            if isinstance(event, Assigned):
                consumer.fetch_from(TopicPartition(topic, 0), 0)
            elif isinstance(event, Fetched):
                # The first messages are those that came while it connected.
                seen += len(event.records) if watch else 0
                watch = watch or Watch()
                after = event.records[-1].offset + 1
        if watch is not None and (time.monotonic() >= commit_at or seen >= count):
            commit_at = time.monotonic() + COMMIT_S
            await consumer.commit({TopicPartition(topic, 0): Committed(after, "")})
        if watch is not None and seen >= count:
            found = watch.done(seen)
            await broker.close()
            return found


def main(service_url: str, admin_url: str, topic: str, group: str, count: str) -> None:
    """See the module."""
    options = PulsarOptions(service_url=service_url, admin_url=admin_url)
    done = asyncio.run(asyncio.wait_for(read(options, topic, group, int(count)), PATIENCE_S))
    sys.stdout.write(json.dumps(asdict(done)))
    sys.stdout.flush()
    os._exit(0)  # threads of Pulsar's client that still end may abort an interpreter that ends


if __name__ == "__main__":
    main(*sys.argv[1:])
