"""One session: a thread that reads a partition by position, without a subscription of the broker's.

Each session has a reader of its own: what an earlier one had pending can't get into a later one,
nothing that others ack or seek moves it, and the client's `receive` is never cancelled.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

import pulsar

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Condition, Delay, EndReached, Fetched, OutOfRange, Record
from ackd_adapters.pulsar import errors
from ackd_adapters.pulsar.box import Box
from ackd_adapters.pulsar.connection import Connection
from ackd_adapters.pulsar.delays import Alone, Delays
from ackd_adapters.pulsar.logs import Logs
from ackd_adapters.pulsar.numbering import Position
from ackd_adapters.pulsar.records import RecordMaker
from ackd_adapters.pulsar.tables import Tables

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 1024 * 1024
IDLE_MS: Final = 50
RETRY_S: Final = 0.5
ASK_END_S: Final = 5.0
"""How often to ask for gaps at the end of the log."""


class _GapError(Exception):
    """Read once more from where the gap begins."""


@dataclass(slots=True)
class ReadBatch:
    """What was read since the engine got something. `alone`: messages outside of batches."""

    records: list[Record] = field(default_factory=list)
    alone: list[Alone] = field(default_factory=list)
    size_bytes: int = 0


# tidy: long-class attributes=19 -- the state of one reader
class Reading:
    """A running session. `stop` is final; `hold` and `go` pause it."""

    def __init__(
        self,
        connection: Connection,
        logs: Logs,
        tables: Tables,
        box: Box,
        session: int,
        partition: TopicPartition,
        offset: int,
        delays: Delays,
    ) -> None:
        self.session = session
        self.partition = partition
        self._connection = connection
        self._logs = logs
        self._tables = tables
        self._box = box
        self._next = offset
        self._reported_end = -1
        self._delays = delays
        self._made = RecordMaker(tables, partition)
        self._in_vain = ""
        self._gone: OutOfRange | None = None
        self._gap = -1
        self._ask_at = 0.0
        self._stopped = threading.Event()
        self._going = threading.Event()
        self._going.set()
        self._away = False
        self._code = f"reader {partition.topic}/{partition.partition}"
        name = f"ackd-pulsar-{partition.topic[-40:]}-{partition.partition}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hold(self) -> None:
        """Stop reading; what was read already stays in the box."""
        self._going.clear()

    def go(self) -> None:
        self._going.set()

    def stop(self) -> None:
        """End soon; returns at once."""
        self._stopped.set()
        self._going.set()

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended; blocks."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._read():
                    return
            except _GapError:
                continue
            except (BrokerError, pulsar.PulsarException) as error:
                self._condition(errors.broker_error("reading", error).detail, away=True)
            except Exception as error:  # noqa: BLE001 -- a thread's last words must be heard
                self._condition(f"the reader ended: {error!r}", away=False)
                return
            self._stopped.wait(RETRY_S)

    def _read(self) -> bool:
        """Read until the session ends (True) or has to begin again where it was."""
        found, log = self._tables.read(self.partition, gives=True)
        first, end = found.range(log)
        if not first <= self._next <= end:
            self._box.put(OutOfRange(self.partition, self.session, first, end))
            return True
        reader = self._open(found.position(self._next))
        try:
            self._well()
            return self._loop(reader)
        finally:
            self._delays.close()
            with contextlib.suppress(pulsar.PulsarException, RuntimeError):
                reader.close()

    def _open(self, start: Position) -> Any:
        """Open a reader; it begins after the id that it is given. The id must name the partition:
        else the client finds the last message greater than itself, and never reaches the end.
        """
        part = self.partition.partition if self._logs.partitioned(self.partition.topic) else -1
        if start.batch:
            before = pulsar.MessageId(part, start.ledger, start.entry, start.batch - 1)
        else:
            before = pulsar.MessageId(part, start.ledger, start.entry - 1, -1)
        return self._connection.client.create_reader(
            "persistent://" + self._logs.full_name(self.partition),
            before,
            receiver_queue_size=self._connection.options.receiver_queue,
            reader_name="ackd",
        )

    def _loop(self, reader: Any) -> bool:
        while not self._stopped.is_set():
            if not self._going.wait(1.0) or not self._box.wait_for_room(0.2):
                if self._box.closed:
                    return True
                continue
            if self._batch(reader):
                return True
        return True

    def _batch(self, reader: Any) -> bool:
        """Read and pass on what is there. True: the session is over."""
        batch = ReadBatch()
        begun = self._next
        over = False
        try:
            over = self._fill(reader, batch)
        finally:
            # Also when the client or a question to the broker failed: what was read counts as read.
            if self._stopped.is_set():
                over = True
            elif batch.records:
                delays = self._find_delays(batch, begun) if self._delays.wanted else None
                fetched = Fetched(self.partition, self.session, batch.records, delays)
                self._box.put(fetched, batch.size_bytes)
        if over:
            if self._gone is not None:
                self._box.put(self._gone)
            return True
        if self._next == begun and self._reported_end != self._next:
            self._tell_end(reader)
        return False

    def _fill(self, reader: Any, batch: ReadBatch) -> bool:
        """Collect a batch. True: retention was faster than this session."""
        # Without the wrapping in Python, which makes objects of its own for each message.
        read, make = getattr(reader, "_reader", reader).read_next, self._made.make
        records, wait_ms = batch.records, IDLE_MS
        while len(records) < BATCH_RECORDS and batch.size_bytes < BATCH_BYTES:
            try:
                message = read(wait_ms)
            except pulsar.Timeout:
                return False
            wait_ms = 0
            record, after, alone = make(message)
            if record.offset != self._next:
                if record.offset < self._next:
                    continue
                if self._passed():
                    return True
                self._look_twice()
            self._next = after
            records.append(record)
            batch.size_bytes += record.size()
            if alone is not None:
                batch.alone.append((record.offset, alone))
        return False

    def _find_delays(self, batch: ReadBatch, begun: int) -> dict[int, Delay]:
        """Find out when messages with client-set delays are due; waits for answers. If that fails,
        they are read again from `begun`: what the engine did not get must not count as read (I1).
        """
        try:
            found = self._delays.find(
                batch.records, batch.alone, lambda: not self._stopped.is_set()
            )
        except BaseException:
            self._next = begun
            raise
        why = self._delays.in_vain
        if bool(why) != bool(self._in_vain) and not self._stopped.is_set():
            code = f"delays of {self.partition.topic}/{self.partition.partition}"
            self._box.put(Condition(code, why, cleared=not why, warning=True))
        self._in_vain = why
        return found

    def _look_twice(self) -> None:
        """A gap is really in the log when a second reader finds it, too. Rare: markers, compaction.

        Whatever a client drops while it reconnects must not count as finished (I1).
        """
        if self._gap != self._next:
            self._gap = self._next
            raise _GapError

    def _passed(self) -> bool:
        """Judge a gap: offsets without messages, or retention was faster than this session
        (True).
        """
        first, end = self._tables.range(self.partition)
        if first <= self._next:
            return False
        self._gone = OutOfRange(self.partition, self.session, first, end)
        return True

    def _tell_end(self, reader: Any) -> None:
        """Nothing came for a moment: report the end. The end is asked for first: then everything
        below it was read once nothing more comes, including transaction markers, which no reader
        gets.
        """
        now = time.monotonic()
        if now >= self._ask_at:
            self._ask_at = now + ASK_END_S
            end = self._tables.range(self.partition)[1]
        else:
            end = self._next
        if not reader.has_message_available():
            self._next = max(self._next, end)
            self._reported_end = self._next
            self._box.put(EndReached(self.partition, self.session, self._next))

    def _condition(self, detail: str, *, away: bool) -> None:
        if self._stopped.is_set():
            return
        self._away = True
        self._box.put(Condition(self._code, detail, away=away, fatal=not away))

    def _well(self) -> None:
        if self._away:
            self._away = False
            self._box.put(Condition(self._code, "", cleared=True))
