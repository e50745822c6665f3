"""What a message costs that the Pulsar adapter reads, beside the bare client.

    python -m tests.bench.bench_pulsar_reading [--count 60000] [--runs 5] [--before FOLDER]
        [--json FILE]

A backlog of messages of 100 bytes, once none in batches and once in batches of 32, is read in turn
by processes of their own: by the adapter alone, with everything on that is by default, which
commits once a second; and by the published client (`receive`, `acknowledge`, its receiver queue of
1,000), which looks at nothing (`bare`), or at what ackd hands on: body, properties, key, time and
id (`looks`). CPU is that of the process. `--before`: the adapter of another checkout, too. Prints
medians, and the adapter's CPU beside the client's of the same turn.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.bench.bench_beside import Figures, figures_of
from tests.bench.measure import machine, median
from tests.support.pulsar import Pulsar, bare
from tests.support.pulsar.part import PulsarAt

BODY = b'{"at": "%s"}' % (b"x" * 89)
TOPICS = {"single": 0, "batched": 32}
SPARE = 2_000


def fill(pulsar: Pulsar, topic: str, count: int, batch: int) -> None:
    """The backlog."""
    with bare.client(pulsar.url) as made:
        producer = made.create_producer(
            f"persistent://public/default/{topic}",
            block_if_queue_full=True,
            batching_enabled=batch > 0,
            batching_max_messages=max(batch, 2),
            batching_max_publish_delay_ms=1_000,
        )
        for _ in range(count):
            producer.send_async(BODY, None)
        producer.flush()


def turn(pulsar: Pulsar, topic: str, run: int, count: int, before: str) -> dict[str, Figures]:
    """Each reads the topic once, in a group of its own."""
    found: dict[str, Figures] = {}
    module = "tests.bench.adapter_consumer"
    own = pulsar.url, pulsar.web_url, topic
    if before:
        path = f"{before}/adapters:{before}/sidecar"
        found["before"] = figures_of(module, *own, f"before-{run}", count, path=path)
    for kind, name in (("pulsar", "bare"), ("looking", "looks")):
        words = kind, pulsar.url, topic, f"{name}-{run}", count
        found[name] = figures_of("tests.bench.bare_consumer", *words)
    found["adapter"] = figures_of(module, *own, f"own-{run}", count)
    return found


def summary(turns: list[dict[str, Figures]]) -> dict[str, Any]:
    """Medians; how the adapters are to the clients in each turn, least to most."""
    row: dict[str, Any] = {
        f"{name} {figure}": median([each[name][figure] for each in turns], 2)
        for name in turns[0]
        for figure in ("client_us", "messages_per_s")
    }
    for own in ("before", "adapter"):
        for name in ("bare", "looks"):
            if own in turns[0]:
                times = sorted(each[own]["client_us"] / each[name]["client_us"] for each in turns)
                row[f"{own} beside {name}"] = [round(each, 2) for each in times]
                row[f"{own} beside {name}, median"] = median(times, 2)
    return row


def main() -> None:
    """Start a broker, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--before", default="")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    turns: dict[str, list[dict[str, Figures]]] = {topic: [] for topic in TOPICS}
    with Pulsar() as pulsar:
        for topic, batch in TOPICS.items():
            PulsarAt(pulsar).create_topic(topic, 1)
            fill(pulsar, topic, given.count + SPARE, batch)
        for run in range(given.runs):
            for topic in TOPICS:
                turns[topic].append(turn(pulsar, topic, run, given.count, given.before))
    found = {topic: summary(rows) for topic, rows in turns.items()}
    text = json.dumps({"machine": machine(), **found}, indent=2)
    sys.stdout.write(text + "\n")
    if given.json is not None:
        given.json.write_text(text)


if __name__ == "__main__":
    main()
