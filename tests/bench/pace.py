"""Publish at an even rate with the broker's own client: `python -m tests.bench.pace B T RATE S`.

Each value carries the monotonic time at which it was handed to the client, so that a reader on the
same machine knows its age.
"""

import json
import sys
import time

from confluent_kafka import Producer


def main() -> None:
    """Publish."""
    bootstrap, topic, rate_per_s, seconds = sys.argv[1:5]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    pause_s = 1 / float(rate_per_s)
    due = time.monotonic()
    end = due + float(seconds)
    while due < end:
        wait_s = due - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        value = {"at_us": time.monotonic_ns() // 1000, "pad": "x" * 150}
        producer.produce(topic, json.dumps(value, separators=(",", ":")).encode())
        producer.poll(0)
        due += pause_s
    producer.flush(10)


if __name__ == "__main__":
    main()
