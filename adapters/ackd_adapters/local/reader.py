"""The one thread of a process that reads the queue: fetching for all consumers, and questions.

An actor: it alone owns the state of the fetches, and everything reaches it through its inbox, so
there is no lock that the event loop could block on. It sleeps until this process's writer has
committed something; commits of other processes are seen by SQLite's `data_version`, which costs
about two microseconds, every `LOOK_S` while anybody fetches.

A consumer's buffer is bounded by credit: a batch read here takes room, and the consumer gives it
back when the engine has taken the batch or it was dropped.

What can't be read is tried again, every `RETRY_S`. An error that nobody foresaw ends the thread: it
says so (`ReaderSignals.died`), and questions are refused from then on.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import EndReached, Fetched, OutOfRange, Record
from ackd_adapters.local import headers, schema, topics

T = TypeVar("T")

LOG = logging.getLogger("ackd.local")
LOOK_S: Final = 0.01
RETRY_S: Final = 0.1
"""Pause after something could not be read."""
BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 1 << 20
BUFFER_RECORDS: Final = 10_000
"""Records that wait for the engine, for each consumer (beside the bound in bytes)."""

FetchEvent = Fetched | EndReached | OutOfRange


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event of a fetch. `run` tells it from those of an earlier start of the same partition."""

    event: FetchEvent
    run: int
    size: int = 0
    records: int = 0


class Sink(Protocol):
    """A consumer as the reader sees it. Both are called in the reader's thread."""

    def deliver(self, batch: list[Delivery]) -> None:
        """Take events over into the event loop."""


@dataclass(slots=True)
class Fetch:
    """One partition that is being read. `reported`: the end that was reported last."""

    partition: TopicPartition
    session: int
    run: int
    next: int
    log: int = 0
    end: int = -1
    reported: int = -1
    idle: bool = False


@dataclass(slots=True)
class ConsumerFetches:
    """A consumer's fetches, and the free room of its buffer."""

    room: int
    records: int = BUFFER_RECORDS
    fetches: dict[TopicPartition, Fetch] = field(default_factory=dict)


Command = Callable[[], None]


@dataclass(slots=True)
class ReaderSignals:
    """What the reader reports to the rest, in its thread. `broke` with "": it reads again."""

    changed: Callable[[], None]
    broke: Callable[[str], None]
    died: Callable[[str], None]


# tidy: long-class attributes=14 -- what one thread owns
class QueueReader:
    """Starts with `start`; every other method may be called from any thread and never blocks."""

    def __init__(self, folder: Path, room: int, signals: ReaderSignals) -> None:
        self._folder = folder
        self._room = room
        self._signals = signals
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="ackd-local-reader", daemon=True)
        self._lanes: dict[Sink, ConsumerFetches] = {}
        self._running = True
        self._ended = False
        self._wrong = ""
        self._reported = ""
        self._data_version = -1
        self._version = -1
        self._on_end: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin; the file has been made by the writer."""
        self._thread.start()

    def stop(self, on_end: Callable[[], None]) -> None:
        """End soon; `on_end` is called from the thread."""

        def end() -> None:
            self._on_end = on_end
            self._running = False
            if self._ended:
                on_end()

        self._put(end)

    def wake(self) -> None:
        """This process's writer has committed something."""
        self._put(_nothing)

    def fetch(self, sink: Sink, fetch: Fetch) -> None:
        """Read a partition from `fetch.next` on; replaces what was read of it so far."""

        def begin() -> None:
            lane = self._lanes.setdefault(sink, ConsumerFetches(self._room))
            lane.fetches[fetch.partition] = fetch

        self._put(begin)

    def stop_fetch(self, sink: Sink, partition: TopicPartition) -> None:

        def end() -> None:
            lane = self._lanes.get(sink)
            if lane is not None:
                lane.fetches.pop(partition, None)

        self._put(end)

    def credit(self, sink: Sink, size: int, records: int) -> None:
        """Give room back to a consumer."""

        def add() -> None:
            lane = self._lanes.get(sink)
            if lane is not None:
                lane.room += size
                lane.records += records

        self._put(add)

    def drop(self, sink: Sink) -> None:
        """Forget all partitions of a consumer that has closed."""

        def end() -> None:
            self._lanes.pop(sink, None)

        self._put(end)

    def ask(
        self,
        question: Callable[[sqlite3.Connection], T],
        answer: Callable[[T | Exception], None],
    ) -> None:
        """Run a question in the thread; `answer` gets its result or the exception."""

        def run() -> None:
            if self._ended:
                answer(BrokerError("the queue can't be read: the reader has ended"))
                return
            try:
                result = question(self._db)
            except sqlite3.Error as error:
                answer(BrokerError(f"the queue can't be read: {error}"))
            except Exception as error:  # noqa: BLE001  it is the asker's
                answer(error)
            else:
                answer(result)

        self._put(run)

    def _put(self, command: Command) -> None:
        self._inbox.put(command)
        if self._ended:
            self._run_waiting()

    def _run_waiting(self) -> None:
        """Run the commands that wait. Once the thread has ended, whoever puts one runs it."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._inbox.get_nowait()()

    def _main(self) -> None:
        try:
            self._db = schema.connect(self._folder, "normal")
            try:
                while self._running:
                    self._turn()
            finally:
                self._db.close()
        except Exception as error:
            LOG.exception("the local queue's reader has ended")
            self._signals.died(f"the reader has ended: {error!r}")
        finally:
            self._on_end()
            self._ended = True
            self._run_waiting()

    def _turn(self) -> None:
        self._wrong = ""
        busy = self._pass()
        try:
            if self._wrong:
                command = self._inbox.get(timeout=RETRY_S)
            elif busy:
                command = self._inbox.get_nowait()
            else:
                fetching = any(lane.fetches for lane in self._lanes.values())
                command = self._inbox.get(timeout=LOOK_S if fetching else None)
        except queue.Empty:
            command = _nothing
        command()
        self._run_waiting()
        try:
            self._look()
        except sqlite3.Error as error:
            self._wrong = f"looking for changes: {error}"
            self._data_version = -1
        if self._wrong != self._reported:
            self._reported = self._wrong
            self._signals.broke(self._wrong)

    def _look(self) -> None:
        """Check whether another connection has committed: the ends of logs may have moved."""
        seen = self._db.execute("PRAGMA data_version").fetchone()[0]
        if seen == self._data_version:
            return
        self._data_version = seen
        version = schema.version(self._db)
        if version != self._version:
            self._version = version
            self._signals.changed()
        ranges = self._ranges(
            fetch.log for lane in self._lanes.values() for fetch in lane.fetches.values()
        )
        for lane in self._lanes.values():
            for fetch in lane.fetches.values():
                found = ranges.get(fetch.log)
                if fetch.log == 0 or (found is not None and found[1] != fetch.end):
                    fetch.idle = False

    def _ranges(self, logs: Iterable[int]) -> dict[int, tuple[int, int]]:
        known = [log for log in logs if log]
        if not known:
            return {}
        marks = ",".join("?" for _ in known)
        rows = self._db.execute(
            f"SELECT id, first, next FROM logs WHERE id IN ({marks})",  # noqa: S608
            known,
        )
        return {log: (first, after) for log, first, after in rows}

    def _pass(self) -> bool:
        """Read one batch of each fetch that has something; True = there may be more."""
        busy = False
        for sink, lane in list(self._lanes.items()):
            batch: list[Delivery] = []
            for fetch in list(lane.fetches.values()):
                if fetch.idle:
                    continue
                if lane.room <= 0 or lane.records <= 0:
                    break
                try:
                    self._read(lane, fetch, batch)
                except sqlite3.Error as error:
                    self._wrong = f"fetching {fetch.partition}: {error}"
                busy = busy or not fetch.idle
            if batch:
                # What was read last is read last in the next pass, so that fetches share a lack of
                # room.
                for delivery in batch:
                    partition = delivery.event.partition
                    again = lane.fetches.pop(partition, None)
                    if again is not None:
                        lane.fetches[partition] = again
                sink.deliver(batch)
        return busy

    def _read(self, lane: ConsumerFetches, fetch: Fetch, batch: list[Delivery]) -> None:
        if not fetch.log:
            log = topics.log_of(self._db, *fetch.partition)
            if log is None:
                fetch.idle = True  # Until topics change: then it may have been made.
                return
            fetch.log = log
        found = self._ranges((fetch.log,)).get(fetch.log)
        if found is None:
            # Deleted; should it be made again, `TopicReplaced` comes from the group's side.
            fetch.idle = True
            return
        first, fetch.end = found
        if not first <= fetch.next <= fetch.end:
            self._end(lane, fetch, batch, found)
            return
        records, size = self._records(lane, fetch)
        if records and records[0].offset != fetch.next:
            return  # Retention was faster; the next pass reports it.
        if records:
            event = Fetched(fetch.partition, fetch.session, records)
            batch.append(Delivery(event, fetch.run, size, len(records)))
            lane.room -= size
            lane.records -= len(records)
            fetch.next = records[-1].offset + 1
        if fetch.next >= fetch.end:
            fetch.idle = True
            if fetch.reported != fetch.next:
                fetch.reported = fetch.next
                end = EndReached(fetch.partition, fetch.session, fetch.next)
                batch.append(Delivery(end, fetch.run))

    def _end(
        self, lane: ConsumerFetches, fetch: Fetch, batch: list[Delivery], found: tuple[int, int]
    ) -> None:
        event = OutOfRange(fetch.partition, fetch.session, *found)
        batch.append(Delivery(event, fetch.run))
        del lane.fetches[fetch.partition]
        fetch.idle = True

    def _records(self, lane: ConsumerFetches, fetch: Fetch) -> tuple[list[Record], int]:
        """The next records within the bounds of batch and lane, at least one if there is one."""
        base = fetch.log << schema.OFFSET_BITS
        rows = self._db.execute(
            "SELECT id, stamp - behind, key, value, headers FROM records"
            " WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            (base + fetch.next, base + fetch.end, min(BATCH_RECORDS, lane.records)),
        )
        most = min(BATCH_BYTES, lane.room)
        total = 0
        records: list[Record] = []
        for number, stamp, key, value, raw in rows:
            size = len(key or b"") + len(value or b"") + len(raw or b"")
            if records and total + size > most:
                break
            total += size
            records.append(Record(number - base, key, value, headers.decode(raw), stamp))
        rows.close()
        return records, total


def _nothing() -> None:
    """Does nothing: putting it into the inbox wakes the thread."""
