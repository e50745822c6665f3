"""What the traces of a message cost by themselves: `python -m tests.bench.bench_spans`.

CPU time of this process, least of several rounds: a lease and an ack in replies of 32, their spans
written out and compressed, nothing else. A sidecar's own figures (`make bench ARGS="--only
traces"`) differ more from round to round than this is. Beside it an f-string of two numbers, to
compare machines and moments by.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ackd.config.traces import TraceSettings
from ackd.core.ledger.entry import Entry, EntryStatus
from ackd.core.ledger.grants import grants
from ackd.core.origin import Origin
from ackd.core.record.operations import Settle
from ackd.core.record.protocol import OpResult, RecordCall, RecordReply
from ackd.core.record.transitions import Outcome, State, Verb
from ackd.engine.base.context import SystemClock
from ackd.engine.tracing.partition_spans import PartitionSpans
from ackd.engine.tracing.subscription_spans import SubscriptionSpans
from ackd.ports import Record
from ackd.telemetry.metrics import Metrics
from ackd.telemetry.traces import Traces
from ackd.telemetry.traceway import TraceBatch

ROUNDS = 9
MESSAGES = 20_000
BATCH = 32
NOW_MS = 1_790_000_000_000
LEASE_MS = 30_000
TOPIC_ID = b"t" * 16
Step = tuple[RecordCall, RecordReply]


class Written:
    """A way that does at once what its thread would do."""

    def __init__(self) -> None:
        self.bytes = 0

    def offer(self, batch: TraceBatch) -> bool:
        """Compress it."""
        self.bytes += len(batch.member())
        return True


def subscription() -> Any:
    """As much of one as traces look at."""
    return SimpleNamespace(
        broker=SimpleNamespace(capabilities=SimpleNamespace(name="kafka")),
        cluster="MkU3OEVBNTcwNTJENDM2Qk",
        context=SimpleNamespace(clock=SimpleNamespace(monotonic_ms=lambda: 0)),
        name="orders",
        settings=SimpleNamespace(group="orders-group"),
    )


def partition() -> Any:
    """As much of one as traces look at; `ledger.entries` is filled by `steps`."""
    return SimpleNamespace(
        closed=False,
        copies=SimpleNamespace(origin=lambda at: Origin("c", TOPIC_ID, "orders", 3, at)),
        ledger=SimpleNamespace(holds_copies=False, entries={}, seen_ms=NOW_MS),
    )


def steps(entries: dict[int, Entry[Record]], first: int) -> list[Step]:
    """Calls and replies: each 32 messages are leased and then acked."""
    chance = random.Random(2101)
    found: list[Step] = []
    for start in range(first, first + MESSAGES, BATCH):
        offsets, fence = range(start, start + BATCH), NOW_MS * 1000 + start * 7
        for offset in offsets:
            parent = f"00-{chance.getrandbits(128):032x}-{chance.getrandbits(64):016x}-01"
            headers = (("traceparent", parent.encode()),)
            entry = Entry(
                Record(offset, None, b"x" * 180, headers, NOW_MS - 100), EntryStatus.LEASED
            )
            entry.attempt, entry.fence, entry.holder = 1, fence, "worker-1"
            entry.when_ms = NOW_MS + LEASE_MS + start
            entries[offset] = entry
        granted = OpResult(Outcome.GRANTED, State.LEASED, 1, fence, NOW_MS, 0, late=False)
        acked = granted._replace(outcome=Outcome.ACKED, state=State.FINISHED)
        acks = [Settle(Verb.ACK, offset, fence, 5, 1) for offset in offsets]
        for ops, result in ((grants(offsets, LEASE_MS, 1), granted), (acks, acked)):
            reply = SimpleNamespace(
                results=[result] * BATCH, epoch=0, now_ms=NOW_MS + start, journal=()
            )
            found.append((cast("RecordCall", SimpleNamespace(ops=ops)), cast("RecordReply", reply)))
    return found


def one_round(tracing: PartitionSpans, todo: list[Step]) -> float:
    """CPU us a message."""
    begun_ns = time.process_time_ns()
    for call, reply in todo:
        tracing.on_reply(call, reply)
    tracing.flush()
    return (time.process_time_ns() - begun_ns) / MESSAGES / 1000


def f_string_us() -> float:
    """CPU us of the yardstick."""
    begun_ns = time.process_time_ns()
    for number in range(MESSAGES):
        _ = f"{number}{number}"
    return (time.process_time_ns() - begun_ns) / MESSAGES / 1000


def main() -> int:
    """Measure; prints one JSON object."""
    with tempfile.TemporaryDirectory() as folder:
        traces = Traces(TraceSettings(files=True), "bench", Path(folder), Metrics())
        way, part = Written(), partition()
        traces.exports.exporters = [cast("Any", way)]
        topics = cast("Any", SimpleNamespace(known={}))
        owned = cast("Any", SimpleNamespace(by_ledger={}))
        whole = SubscriptionSpans(
            subscription(), SystemClock(), owned, topics, "ackd.retry.orders", traces
        )
        tracing = PartitionSpans(part, whole)
        costs = []
        for number in range(ROUNDS):
            todo = steps(part.ledger.entries, number * MESSAGES)
            costs.append(one_round(tracing, todo))
            part.ledger.entries.clear()
        traces.flush()
    yardstick = min(f_string_us() for _ in range(ROUNDS))
    found = {
        "message_us": round(min(costs), 2),
        "f_string_us": round(yardstick, 3),
        "message_beside_f_string": round(min(costs) / yardstick, 1),
        "compressed_bytes": round(way.bytes / MESSAGES / ROUNDS, 1),
    }
    print(json.dumps(found, indent=1))  # noqa: T201  what a benchmark is for
    return 0


if __name__ == "__main__":
    sys.exit(main())
