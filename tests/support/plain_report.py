"""The figures of a report once more, in plain Python: no Spark, no histogram, no partial lives.

Written against docs/operate/reports.md, not against the job: it reads every span into memory, keeps
the set of what happened to each message, and sorts durations to find a percentile.
"""

import gzip
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

LEASES = ("ack", "retry", "release", "expire", "lost", "dead")
EVENTS = (*LEASES, "send_back", "extend", "late", "dead_letter", "redrive")


@dataclass
class Life:
    """All that is known of a message; events as a set, so that repeats vanish."""

    events: set[tuple[str, int, int, int, int]] = field(default_factory=set)
    """(event, attempt, start, end, extensions)."""
    published: int | None = None
    weight: float = math.inf
    application: str = ""

    def first(self, event: str, place: int) -> int | None:
        """The smallest start (2) or end (3) of an event."""
        found = [(start, end) for name, _, start, end, _ in self.events if name == event]
        return min((pair[place - 2] for pair in found), default=None)

    def is_dead(self) -> bool:
        """Given up, and not published again since."""
        ends = {
            event: max((each[3] for each in self.events if each[0] == event), default=0)
            for event in ("dead", "redrive")
        }
        return ends["dead"] > 0 and ends["redrive"] <= ends["dead"]

    def leases(self) -> list[int]:
        """When leases began."""
        return [
            start
            for event, _, start, end, _ in self.events
            if event in LEASES and (event != "dead" or end > start)
        ]

    def born(self) -> int:
        """When it was published, else first leased."""
        return min(self.leases()) if self.published is None else self.published

    def attempts(self, event: str) -> int:
        """In how many attempts an event came."""
        return len({attempt for name, attempt, *_ in self.events if name == event})

    def extensions(self) -> int:
        """Sum over attempts of the largest number of an extension."""
        most: dict[int, int] = defaultdict(int)
        for _, attempt, _, _, number in self.events:
            most[attempt] = max(most[attempt], number)
        return sum(most.values())


def spans(paths: Iterable[Path]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """(fields, attributes) of every span that can be read."""
    for path in paths:
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            try:
                data = json.loads(line)
            except ValueError:
                continue
            for resource in data["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    for span in scope["spans"]:
                        named = {
                            each["key"]: str(next(iter(each["value"].values())))
                            for each in span["attributes"]
                        }
                        yield span, named


def lives(paths: Iterable[Path]) -> dict[tuple[str, ...], Life]:
    """(system, topic, group, partition, offset) -> life."""
    found: dict[tuple[str, ...], Life] = defaultdict(Life)
    for span, named in spans(paths):
        event = named["ackd.event"]
        if event not in EVENTS:
            continue
        offset = named.get("messaging.kafka.offset") or named["ackd.offset"]
        life = found[
            named["messaging.system"],
            named["messaging.destination.name"],
            named["messaging.consumer.group.name"],
            named["messaging.destination.partition.id"],
            offset,
        ]
        start, end = (int(span[f"{side}TimeUnixNano"]) // 1000 for side in ("start", "end"))
        attempt = int(named["ackd.delivery.attempt"])
        life.events.add((event, attempt, start, end, int(named["ackd.lease.extensions"])))
        life.published = int(named["ackd.publish.unix_ms"]) * 1000
        life.weight = min(life.weight, float(named.get("ackd.sample.weight", 1)))
        life.application = named["ackd.application"]
    return found


def counts(found: Iterable[Life]) -> Counter[str]:
    """Weighted counts, under the names of the report."""
    total: Counter[str] = Counter()
    for life in found:
        acked, dead = life.first("ack", 3), life.is_dead()
        once = {
            "messages": 1,
            "acked": acked is not None,
            "dead": acked is None and dead,
            "unfinished": acked is None and not dead,
            "redelivered": max(each[1] for each in life.events) > 1,
            "retried": life.attempts("retry") > 0,
            "retries": life.attempts("retry"),
            "expires": life.attempts("expire"),
            "lates": life.attempts("late"),
            "send_backs": life.attempts("send_back"),
            "extensions": life.extensions(),
            "acked_again": acked is not None and any(at > acked for at in life.leases()),
            "given": max(each[1] for each in life.events),
            "redriven": life.attempts("redrive") > 0,
        }
        for name, value in once.items():
            total[name] += int(value) * round(life.weight)
    return total


def durations(life: Life) -> dict[str, int]:
    """Those of the report's durations, in microseconds, that this life has."""
    acked, leases, published = life.first("ack", 3), life.leases(), life.published
    known = {}
    if leases and published is not None:
        known["wait"] = min(leases) - published
    if acked is not None and published is not None:
        begun = life.first("ack", 2)
        assert begun is not None
        known |= {"work": acked - begun, "lease_to_ack": acked - min(leases)}
        known["time_to_ack"] = acked - published
    return known


def percentile(values: list[tuple[int, float]], share: float) -> int:
    """The smallest value that `share` of the weight does not exceed; exact."""
    total = sum(weight for _, weight in values)
    below = 0.0
    for value, weight in sorted(values):
        below += weight
        if below >= share * total - 1e-9:
            return value
    raise AssertionError("no values")
