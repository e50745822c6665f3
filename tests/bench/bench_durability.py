"""What `durability = "always"` costs beside the default `everysec`: two sidecars, in turn."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ackd_torture.parts import Sidecar
from tests.bench.bench_http import Row, one_run, plan_of, produce
from tests.support.kafka import Kafka

MODES = ("everysec", "always")
SHAPES = {("separate", 32): 40_000, ("separate", 1): 8_000, ("joined", 1): 8_000}
PARTITIONS = 8


def durability(kafka: Kafka, folder: Path, runs: int, scale: float) -> list[dict[str, object]]:
    """The table of `throughput` for each mode. The store is the embedded one, on this disk."""
    counts = {shape: round(count * scale) for shape, count in SHAPES.items()}
    rows = {(mode, shape): Row(PARTITIONS, *shape) for shape in counts for mode in MODES}
    with ExitStack() as stack:
        sidecars = {}
        for mode in MODES:
            topic = f"bench-durability-{mode}"
            kafka.create_topic(topic, partitions=PARTITIONS)
            # A run may take a batch too much for each connection.
            produce(kafka, topic, sum((count + 1_000) * (runs + 1) for count in counts.values()))
            plan = replace(plan_of(kafka, topic), store={"durability": mode})
            sidecars[mode] = Sidecar(topic, plan, folder)
            stack.callback(sidecars[mode].stop)
            sidecars[mode].start()
        for sidecar in sidecars.values():
            one_run(sidecar, Row(PARTITIONS, "separate", 32), 1_000)
        for _ in range(runs):
            for (mode, shape), row in rows.items():
                one_run(sidecars[mode], row, counts[shape])
    return [{"durability": mode, **row.medians()} for (mode, _), row in rows.items()]
