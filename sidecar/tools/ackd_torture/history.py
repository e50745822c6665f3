"""Append-only histories: what a client did and what it was answered, one JSON object a line.

The order of writing is the contract. What a client is *about to* do is on disk before the request
leaves (`PUBLISH`, `ASK`, `SETTLE`), and what it was answered is written once the whole answer was
read. So when a client is killed with -9, its file still says everything it may have caused, and the
checker never blames ackd for something it can't know.

Times come twice: the monotonic clock, which all processes of one machine share on Linux and which
orders events, and the wall clock, in which ackd tells deadlines. Histories from several machines
are compared by the wall clock only (`load` sees it by the boot id in `START`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

# How far apart the two clocks may be read, and how often that is tried.
PAIR_NS = 50_000
PAIR_TRIES = 5
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class EventKind(StrEnum):
    """What an event is about; who writes it and when is said beside each."""

    START = "start"  # first line of each file; `note` is the machine's boot id
    PUBLISH = "publish"  # a message is about to be published (once a try)
    PUBLISHED = "published"  # 2xx: stored; `id` where
    PUBLISH_REFUSED = "publish_refused"  # an answer that says: not stored
    PUBLISH_UNKNOWN = "publish_unknown"  # no answer, or one that says: outcome unknown
    ASK = "ask"  # a receive is about to be sent; `call` is the same when it is repeated
    DELIVERED = "delivered"  # one message of an answer
    ANSWERED = "answered"  # the receive is over; `count` messages came (-1: no answer)
    SETTLE = "settle"  # one item is about to be sent
    SETTLED = "settled"  # one item's answer
    SETTLE_UNKNOWN = "settle_unknown"  # no answer to the item, or 503: not decided for sure
    FORGOT = "forgot"  # a client lost its leases on purpose (a crashed worker)
    FAULT = "fault"  # something is about to be broken; `note` says what
    HEALED = "healed"  # it works again as far as the one who broke it can tell
    DATA_LOST = "data_lost"  # the store's data was destroyed or rolled back: acks may come again
    DRAINED = "drained"  # consumers found nothing more for a while, after all faults were healed
    ORDERED = "ordered"  # what the subscription keeps in order: `note` is "key" or "partition"


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line. Empty fields are left out of the file.

    `mono_us` and `wall_us` are when it was written. `msg` is the message's own name, made by its
    publisher; `id` is its place at the broker (`orders/3/2101`), made by ackd. `call` numbers the
    requests of one client. `deadline_ms` (Unix time) and `status` are ackd's words. `key`: the
    message's key, where an order is promised. `attempts_max`: deliveries that are allowed, 0 = not
    told.
    """

    kind: EventKind
    client: str
    mono_us: int
    wall_us: int
    sub: str = ""
    msg: str = ""
    key: str = ""
    id: str = ""
    call: int = 0
    lease: str = ""
    attempt: int = 0
    attempts_max: int = 0
    lease_ms: int = 0
    deadline_ms: int = 0
    do: str = ""
    status: str = ""
    late: bool = False
    http: int = 0
    count: int = 0
    note: str = ""


def now_us() -> tuple[int, int]:
    """(monotonic, wall) of one moment, microseconds.

    A busy machine may stop us between two looks at its clocks for many milliseconds. So the wall
    clock is read between two looks at the other one, and again when those lie too far apart.
    """
    best_ns, moment = 0, (0, 0)
    for attempt in range(PAIR_TRIES):
        before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        apart_ns = after_ns - before_ns
        if not attempt or apart_ns < best_ns:
            best_ns, moment = apart_ns, ((before_ns + after_ns) // 2000, wall_ns // 1000)
        if best_ns <= PAIR_NS:
            break
    return moment


class Recorder:
    """Writes one client's history. Lines are handed to the kernel by `flush`, all at once.

    A file and not a log: one `write` call per flush on a file opened for append, so that a killed
    process leaves whole lines only (at worst a last one that is cut, which `read` skips).
    """

    def __init__(self, path: Path, client: str) -> None:
        self.path = path
        self.client = client
        self.events = 0
        self._encoder = msgspec.json.Encoder()
        self._waiting = bytearray()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.note(EventKind.START, note=_boot_id())
        self.flush()

    def note(self, kind: EventKind, **fields: str | int | bool) -> None:
        """Add an event; it is in the file after the next `flush`."""
        mono_us, wall_us = now_us()
        line = {"kind": kind, "client": self.client, "mono_us": mono_us, "wall_us": wall_us}
        line.update({name: value for name, value in fields.items() if value})
        self._waiting += self._encoder.encode(line)
        self._waiting += b"\n"
        self.events += 1

    def flush(self) -> None:
        """Hand everything noted to the kernel; survives the death of this process."""
        while self._waiting:
            written = os.write(self._fd, self._waiting)
            del self._waiting[:written]

    def close(self) -> None:
        """Flush and close; safe to call twice."""
        if self._fd >= 0:
            self.flush()
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def read(path: Path) -> Iterator[Event]:
    """The events of one file, in the order they were written. A cut last line is left out."""
    decoder = msgspec.json.Decoder(Event)
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield decoder.decode(line)


def load(paths: Iterable[Path]) -> list[Event]:
    """All events of all files, by time. Across machines (several boot ids) by the wall clock."""
    events = [event for path in sorted(paths) for event in read(path)]
    boots = {event.note for event in events if event.kind is EventKind.START}
    if len(boots) > 1:
        events = [msgspec.structs.replace(each, mono_us=each.wall_us) for each in events]
    events.sort(key=lambda event: event.mono_us)
    return events


def histories(folder: Path) -> list[Path]:
    """The history files below a folder."""
    return sorted(folder.glob("**/*.ndjson"))
