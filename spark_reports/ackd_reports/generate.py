"""Made-up traces that look like those of a busy week: for tests, benchmarks and a first look.

Everything follows from the seed. Load goes up and down with the day; in one hour of trouble a
store is away and work is slow; some messages are poison and end in the dead-letter topic, some
stay stuck; work that takes long extends its lease or loses it; partitions move between sidecars,
one of which crashes and starts again. Spans come late, twice, in any order, and a few lines are
broken.
"""

from __future__ import annotations

import gzip
import math
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ackd_reports import words
from ackd_reports.generate_batches import Batches, MadeBatch, Place, alone
from ackd_reports.generate_spans import Span, Value, as_json, attributes_json
from ackd_reports.words import HOUR_US, MICRO

SPANS_A_LINE: Final = 512
LEASE_US: Final = 30 * MICRO
ATTEMPTS_MAX: Final = 5
EXTENDS: Final = 0.7
"""Share of long work that extends its lease."""
SENT_BACK_AFTER: Final = 3
_KAFKA_FIRST: Final = 2
MINUTE_US: Final = 60 * MICRO
START_US: Final = 1_790_000_000 // 86_400 * 86_400 * MICRO
"""Midnight, UTC, in September 2026."""


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """What to make. Shares are of messages."""

    messages: int = 10_000
    seed: int = 1
    hours: int = 24
    start_us: int = START_US
    sidecars: int = 3
    streams: int = 6
    partitions: int = 6
    poison: float = 0.002
    stuck: float = 0.001
    slow: float = 0.01
    fails: float = 0.02
    redriven: float = 0.5
    """Share of dead letters that a person publishes again."""
    again: int = 0
    """How many messages are leased after their ack: what must never be."""
    repeated: float = 0.003
    late: float = 0.01
    bad_lines: int = 3
    one_in: int = 1
    """Head sampling: of so many lives without trouble one is written."""


@dataclass(slots=True)
class Made:
    """What was made, counted while making it: the truth that a report can be held against."""

    files: list[Path] = field(default_factory=list)
    spans: int = 0
    messages: int = 0
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _MadeStream:
    system: str
    topic: str
    group: str
    application: str
    work_us: float


_SYSTEMS: Final = ("kafka", "rocketmq", "pulsar")
_NAMES: Final = ("orders", "payments", "invoices", "mail", "audit", "stock", "search", "users")


def generate(folder: Path, plan: GenerationPlan) -> Made:
    """Write trace files into `folder`; deterministic in `plan`."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Made()
    chance = random.Random(plan.seed)  # noqa: S311 -- reproducible on purpose
    writer = _MadeFiles(folder, plan, made)
    streams = [_stream(number) for number in range(plan.streams)]
    offsets: Counter[tuple[str, int]] = Counter()
    again = set(chance.sample(range(plan.messages), plan.again))
    batches = Batches()
    for number, published in enumerate(_times(plan, chance)):
        stream = streams[min(int(chance.expovariate(0.5)), plan.streams - 1)]
        partition = chance.randrange(plan.partitions)
        offset = offsets[stream.topic, partition]
        offsets[stream.topic, partition] += 1
        key: dict[str, Value] = {
            words.SYSTEM: stream.system,
            words.TOPIC: stream.topic,
            words.PARTITION: str(partition),
            ("messaging.kafka.offset" if stream.system == "kafka" else "ackd.offset"): offset,
            words.GROUP: stream.group,
            words.PUBLISHED: published // 1000,
        }
        life = _Life(plan, chance, stream, key, published // 1000 * 1000)
        spans = list(life.spans(again=number in again))
        made.messages += 1
        made.counts.update(life.counts)
        place = stream.system, stream.topic, str(partition), stream.group
        for batch in (*_batched(batches, place, offset, spans), *batches.done(published)):
            writer.add(_batch_span(batch), partition, 0)
        if life.plain and number % plan.one_in:
            continue
        for span in spans:
            if life.plain and plan.one_in > 1:
                span.attributes[words.WEIGHT] = float(plan.one_in)
            late = chance.random() < plan.late
            copies = 2 if chance.random() < plan.repeated else 1
            for copy in range(copies):
                delay = chance.randrange(2 * HOUR_US) if late or copy else 0
                writer.add(span, partition, delay)
    for batch in batches.done():
        writer.add(_batch_span(batch), int(batch.place[2]), 0)
    for process in _process(plan, streams):
        writer.add(*process)
    writer.close(chance)
    return made


def _stream(number: int) -> _MadeStream:
    name = _NAMES[number % len(_NAMES)] + ("" if number < len(_NAMES) else str(number))
    system = _SYSTEMS[0 if number < _KAFKA_FIRST else number % len(_SYSTEMS)]
    return _MadeStream(
        system, name, f"{name}-workers", f"{name}-app", MICRO * 0.4 * (1 + number % 3)
    )


def _times(plan: GenerationPlan, chance: random.Random) -> list[int]:
    """Times of publishing: twice the load at midday as at midnight."""
    weights = [1.5 - 0.5 * math.cos(2 * math.pi * (hour % 24) / 24) for hour in range(plan.hours)]
    hours = chance.choices(range(plan.hours), weights, k=plan.messages)
    return sorted(plan.start_us + hour * HOUR_US + chance.randrange(HOUR_US) for hour in hours)


def bad_hour(plan: GenerationPlan) -> tuple[int, int]:
    """The hour of trouble, [from, to) in microseconds."""
    since = plan.start_us + (plan.hours * 2 // 3) * HOUR_US
    return since, since + HOUR_US


class _Life:
    """One message from its publishing to its end, told as spans."""

    def __init__(
        self,
        plan: GenerationPlan,
        chance: random.Random,
        stream: _MadeStream,
        key: dict[str, Value],
        published: int,
    ) -> None:
        self._plan = plan
        self._chance = chance
        self._stream = stream
        self._key = key
        self._published = published
        self.plain = True
        self.counts: Counter[str] = Counter()
        since, until = bad_hour(plan)
        self._bad_hour = since <= published < until

    def spans(self, *, again: bool) -> Iterator[Span]:
        """Attempts until an end; `again` leases it once more after its ack."""
        chance, plan = self._chance, self._plan
        fate = chance.random()
        poison = fate < plan.poison
        stuck = not again and plan.poison <= fate < plan.poison + plan.stuck
        fails = plan.fails * (8 if self._bad_hour else 1)
        wait = chance.lognormvariate(math.log(0.02), 1.2) * MICRO * (200 if self._bad_hour else 1)
        now = self._published + max(1, int(wait))
        for attempt in range(1, ATTEMPTS_MAX + 1):
            slow = chance.random() < plan.slow * (5 if self._bad_hour else 1)
            work = chance.lognormvariate(math.log(self._stream.work_us), 0.6) * (40 if slow else 1)
            end = now + max(1, int(work))
            extensions = min(3, int(work) // LEASE_US) if chance.random() < EXTENDS else 0
            for n in range(1, extensions + 1):
                yield self._span("extend", now + n * LEASE_US * 2 // 3, None, attempt, n)
            deadline = now + LEASE_US + extensions * LEASE_US * 2 // 3
            self.counts["extensions"] += extensions
            if end > deadline:
                yield self._span("expire", now, deadline, attempt, extensions)
                yield self._span("late", end, None, attempt, extensions)
                now = deadline
            elif poison or chance.random() < fails:
                if poison and attempt == ATTEMPTS_MAX:
                    yield self._span("dead", now, end, attempt, extensions)
                    if chance.random() < plan.redriven:
                        later = end + HOUR_US
                        yield self._span("redrive", later, None, 1, 0)
                        yield self._span("ack", later + MICRO, later + 2 * MICRO, 1, 0)
                        self.counts["redriven"] += 1
                    return
                yield self._span("retry", now, end, attempt, extensions)
                now = end + (1 << attempt) * MICRO
            elif stuck:
                yield self._span("retry", now, end, attempt, extensions)
            else:
                yield self._span("ack", now, end, attempt, extensions)
                if again:
                    yield self._span("expire", end + MICRO, end + MICRO + LEASE_US, attempt + 1, 0)
                    self.counts["again"] += 1
                return
            if stuck:
                self.counts["stuck"] += 1
                return
            if attempt == SENT_BACK_AFTER:
                yield self._span("send_back", now, now + 5_000, attempt, 0)
            now += max(1, int(chance.expovariate(1 / (0.1 * MICRO))))
        self.counts["stuck"] += 1

    def _span(self, event: str, start: int, end: int | None, attempt: int, extensions: int) -> Span:
        self.counts[event] += 1
        self.plain &= event in ("ack", "extend", "release") and attempt == 1
        attributes = {
            **self._key,
            words.EVENT: event,
            words.APPLICATION: self._stream.application,
            words.ATTEMPT: attempt,
            words.EXTENSIONS: extensions,
        }
        if event == "dead":
            attributes[words.REASON] = "attempts"
        verb = "process" if event == "ack" else event
        name = f"{verb} {self._stream.topic}"
        kind = 5 if event in words.LEASE_EVENTS else 3
        return Span(name, kind, start, start if end is None else end, attributes, event == "expire")


def _batched(
    batches: Batches, place: Place, offset: int, spans: Iterable[Span]
) -> Iterator[MadeBatch]:
    """A life's deliveries and acks: into the batches of their time, or apart if out of order."""
    leases = [each for each in spans if each.attributes[words.EVENT] in words.LEASE_EVENTS]
    acks = [each.end_us for each in leases if each.attributes[words.EVENT] == "ack"]
    apart = bool(acks) and any(each.start_us > acks[0] for each in leases)
    for each in leases:
        again = each.attributes[words.ATTEMPT] != 1
        if again or apart:
            yield alone(place, "receive", offset, each.start_us, again=again)
        else:
            batches.add(place, "receive", offset, each.start_us)
    for at_us in acks:
        if apart:
            yield alone(place, "settle", offset, at_us, again=False)
        else:
            batches.add(place, "settle", offset, at_us)


def _batch_span(batch: MadeBatch) -> Span:
    name = f"{batch.event} {batch.place[1]}"
    return Span(name, 3, batch.start_us, batch.end_us, {**batch.attributes()})


def _process(
    plan: GenerationPlan, streams: Iterable[_MadeStream]
) -> Iterator[tuple[Span, int, int]]:
    """What sidecars tell of themselves, and commits with their lag."""
    since, until = bad_hour(plan)
    end = plan.start_us + plan.hours * HOUR_US
    for sidecar in range(plan.sidecars):
        # Sidecar 0 crashes in the hour of trouble: a second start without a stop.
        starts = [plan.start_us] + ([since + 10 * MINUTE_US] if sidecar == 0 else [])
        for at in starts:
            yield Span("start ackd", 1, at, at, {words.EVENT: "start"}), sidecar, 0
        out: dict[str, Value] = {words.EVENT: "outage", words.OUTAGE_OF: "store"}
        yield Span("outage store", 1, since, since + 4 * MINUTE_US, out, failed=True), sidecar, 0
    for stream in streams:
        for at in range(plan.start_us, end, HOUR_US // 2):
            lag = 2_000 if since <= at < until else 20
            commit: dict[str, Value] = {
                words.EVENT: "commit",
                words.SYSTEM: stream.system,
                words.TOPIC: stream.topic,
                words.PARTITION: "0",
                words.GROUP: stream.group,
                words.COMMIT_LAG: lag,
                words.COMMIT_OFFSET: (at - plan.start_us) // MICRO,
            }
            yield Span(f"commit {stream.topic}", 3, at, at + 2_000, commit), 0, 0


class _MadeFiles:
    """Files by sidecar and hour, a line and gzip member for every 512 spans."""

    def __init__(self, folder: Path, plan: GenerationPlan, made: Made) -> None:
        self._folder = folder
        self._plan = plan
        self._made = made
        self._waiting: dict[tuple[int, int], list[str]] = {}
        self._paths: dict[tuple[int, int], Path] = {}
        self._counts: Counter[tuple[int, int]] = Counter()
        self._latest_us: dict[tuple[int, int], int] = {}

    def add(self, span: Span, partition: int, delay_us: int) -> None:
        """Into the file of its time; partitions move to another sidecar every few hours."""
        hour = (span.end_us + delay_us - self._plan.start_us) // HOUR_US
        hour = max(0, min(hour, self._plan.hours - 1))
        file = ((partition + hour // 6) % self._plan.sidecars, hour)
        if words.TOPIC not in span.attributes:
            file = (partition, hour)
        waiting = self._waiting.setdefault(file, [])
        waiting.append(as_json(span))
        self._made.spans += 1
        self._counts[file] += int(span.attributes.get(words.BATCH_COUNT, 1))
        self._latest_us[file] = max(self._latest_us.get(file, 0), span.end_us)
        if len(waiting) >= SPANS_A_LINE:
            self._write(file, waiting)

    def close(self, chance: random.Random) -> None:
        """Write the rest, and the broken lines."""
        for file, span in self._statuses():
            self._waiting[file].append(as_json(span))
            self._made.spans += 1
        for file in sorted(self._waiting):
            if self._waiting[file]:
                self._write(file, self._waiting[file])
        self._made.files = [self._paths[file] for file in sorted(self._paths)]
        for number in range(self._plan.bad_lines):
            path = chance.choice(self._made.files)
            with path.open("ab") as out:
                out.write(gzip.compress(b'{"resourceSpans": [{"broken %d\n' % number, mtime=0))
        for file, path in self._paths.items():
            written_s = self._latest_us[file] // MICRO + 1
            os.utime(path, (written_s, written_s))

    def _statuses(self) -> Iterator[tuple[tuple[int, int], Span]]:
        """Each file ends with what its sidecar's run had written by then."""
        written: Counter[str] = Counter()
        for file in sorted(self._waiting):
            boot = self._boot(*file)
            written[boot] += self._counts[file]
            at = min(
                self._latest_us[file], self._plan.start_us + (file[1] + 1) * HOUR_US - MINUTE_US
            )
            fields: dict[str, Value] = {
                words.EVENT: "status",
                words.SPANS_WRITTEN: written[boot],
                words.SPANS_DROPPED: 0,
            }
            written[boot] += 1
            yield file, Span("status ackd", 1, at, at, fields)

    def _boot(self, sidecar: int, hour: int) -> str:
        """The run: sidecar 0 crashes in the hour of trouble."""
        since, _ = bad_hour(self._plan)
        crashed = sidecar == 0 and hour * HOUR_US + self._plan.start_us >= since
        return f"boot-{sidecar}-{int(crashed)}"

    def _write(self, file: tuple[int, int], waiting: list[str]) -> None:
        sidecar, hour = file
        path = self._paths.get(file)
        if path is None:
            path = self._folder / f"ackd-sidecar-{sidecar}-h{hour:04d}-000000.jsonl.gz"
            path.unlink(missing_ok=True)
            self._paths[file] = path
        resource = attributes_json(
            {
                "service.name": "ackd",
                words.INSTANCE: f"sidecar-{sidecar}",
                words.BOOT: self._boot(sidecar, hour),
                words.CLUSTER: "demo",
            }
        )
        line = (
            '{"resourceSpans":[{"resource":{"attributes":'
            + resource
            + '},"scopeSpans":[{"scope":{"name":"ackd"},"spans":['
            + ",".join(waiting)
            + "]}]}]}\n"
        )
        with path.open("ab") as out:
            out.write(gzip.compress(line.encode(), 1, mtime=0))
        waiting.clear()
