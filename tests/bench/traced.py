"""`ackd serve` with a stopwatch: when each message passes which place, for `bench_http.latency`.

`python -m tests.bench.traced --config FILE` serves until SIGTERM and then writes `FILE.split.json`:
for each step of a message's way percentiles of its time in ms. Values carry the moment of their
publishing (`tests/bench/pace.py`); topics whose timestamps are the broker's own
(`message.timestamp.type=LogAppendTime`) show the way to the broker too, to a millisecond.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from ackd.cli.main import main as ackd
from ackd.core.ledger.intake import Intake
from ackd.core.record.transitions import Verb
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.ownership.broker_events import BrokerEvents
from ackd.engine.partition.partition import Partition
from ackd.http.formats.delivery_json import DeliveryEncoder
from ackd.store.measured import MeasuredStore
from ackd_adapters.kafka.fetcher import Fetcher

STEPS = ("published", "stored", "fetched", "in_loop", "asked", "sent", "landed", "answered")
SHARES = (0.5, 0.9, 0.99)
SETTLING_US = 3_000_000
"""The clients come after the first messages, which are older by that."""

Place = tuple[int, int]
"""Partition and offset."""


class Stopwatch:
    """Moments (monotonic us) of each message by step."""

    def __init__(self) -> None:
        self.moments: dict[Place, dict[str, int]] = defaultdict(dict)
        self.pauses_us: list[int] = []
        self.batches: list[int] = []
        self.ends = 0
        self.wall_us = time.time_ns() // 1000 - time.monotonic_ns() // 1000
        self._since_us = now_us()
        self._pause_us = 0

    def note(self, place: Place, step: str, at_us: int) -> None:
        """The first time counts."""
        self.moments[place].setdefault(step, at_us)

    def collector(self, phase: str, _: dict[str, int]) -> None:
        """How long the garbage collector holds everything up."""
        if phase == "start":
            self._pause_us = now_us()
        else:
            self.pauses_us.append(now_us() - self._pause_us)

    def split(self) -> dict[str, object]:
        """Percentiles of the time between each two steps."""
        found: dict[str, object] = {}
        own = [m for m in self.moments.values() if m.get("published", 0) > self._since_us]
        first_us = min((m["published"] for m in own), default=0) + SETTLING_US
        whole = [m for m in own if len(m) == len(STEPS) and m["published"] > first_us]
        for before, after in pairwise(STEPS):
            found[f"{before} -> {after}"] = shares([m[after] - m[before] for m in whole])
        found["published -> answered"] = shares([m[STEPS[-1]] - m[STEPS[0]] for m in whole])
        found["messages"] = len(whole)
        found["ends_told"] = self.ends
        found["messages_per_fetch"] = shares([each * 1000 for each in self.batches])
        found["collector_pauses"] = shares(self.pauses_us)
        found["collector_runs"] = len(self.pauses_us)
        return found


def now_us() -> int:
    """Monotonic."""
    return time.monotonic_ns() // 1000


def shares(values_us: list[int]) -> dict[str, float]:
    """p50, p90, p99 in ms."""
    ordered = sorted(values_us) or [0]
    last = len(ordered) - 1
    return {f"p{s * 100:.0f}": round(ordered[int(s * last)] / 1000, 2) for s in SHARES}


def before(kind: type, name: str, look: Callable[..., None]) -> None:
    """Call `look` with the arguments of each call of a method, before that."""
    method: Any = getattr(kind, name)

    @wraps(method)
    def looked_at(*given: Any) -> Any:
        look(*given)
        return method(*given)

    setattr(kind, name, looked_at)


Look = tuple[type, str, Callable[..., None]]
"""Class, method, and what is called before it."""


def fetching(clock: Stopwatch) -> list[Look]:
    """The way from the broker into the engine."""

    def fetched(_: Any, messages: list[Any]) -> None:
        at_us = now_us()
        clock.batches.append(len(messages))
        for each in messages:
            if each.error() is None:
                clock.note((each.partition(), each.offset()), "fetched", at_us)

    def in_loop(_: Any, event: Any) -> None:
        at_us = now_us()
        for record in event.records:
            place = (event.partition.partition, record.offset)
            clock.note(place, "in_loop", at_us)
            clock.note(place, "published", orjson.loads(record.value)["at_us"])
            clock.note(place, "stored", record.timestamp_ms * 1000 - clock.wall_us)

    def end_reached(*_: Any) -> None:
        clock.ends += 1

    return [
        (Fetcher, "_deliver", fetched),
        (Intake, "end_reached", end_reached),
        (BrokerEvents, "_fetched", in_loop),
    ]


def granting(clock: Stopwatch) -> list[Look]:
    """The way from the engine through the store into an answer."""

    def asked(_: Any, __: Any, partition: Any, offsets: list[int], *___: Any) -> None:
        at_us = now_us()
        for offset in offsets:
            clock.note((partition.tp.partition, offset), "asked", at_us)

    def granted(call: Any, step: str, at_us: int) -> None:
        for op in call.ops:
            if op.verb is Verb.GRANT:
                clock.note((call.key.partition, op.offset), step, at_us)

    def sent(_: Any, calls: list[Any]) -> None:
        at_us = now_us()
        for call in calls:
            granted(call, "sent", at_us)

    def landed(_: Any, call: Any, __: Any) -> None:
        granted(call, "landed", now_us())

    def answered(_: Any, received: Any, *__: Any) -> None:
        at_us = now_us()
        for each in received.messages:
            clock.note((each.partition, each.record.offset), "answered", at_us)

    return [
        (Dispatcher, "_ask", asked),
        (MeasuredStore, "apply", sent),
        (Partition, "on_reply", landed),
        (DeliveryEncoder, "received", answered),
    ]


def main() -> None:
    """Serve, then tell."""
    config = Path(sys.argv[2])
    clock = Stopwatch()
    for kind, name, look in (*fetching(clock), *granting(clock)):
        before(kind, name, look)
    gc.callbacks.append(clock.collector)
    code = ackd(["serve", "--config", str(config)])
    config.with_suffix(".split.json").write_text(json.dumps(clock.split()))
    sys.exit(code)


if __name__ == "__main__":
    main()
