"""The one thread of a process that writes to the queue: group commit, delays, groups, retention.

All waiting jobs go into one transaction, and every answer is given after its commit, so `Stored`
never names a message that a crash could take back. A job checks everything before it writes
anything; so a failed job has changed nothing and the rest of its group goes on. An error of the
database itself rolls the whole group back and fails all of it.

The thread sleeps exactly until the next job, the next due time or the next check of the members.
An error that nobody foresaw ends it: it says so (`Signals.died`), and from then on every job fails.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ackd.errors import BrokerError, BugError, OutcomeUnknownError
from ackd_adapters.local import log, schema
from ackd_adapters.local.alive import LOOK_MS, Instance, Watch
from ackd_adapters.local.config import LocalOptions
from ackd_adapters.local.errors import QueueBusyError, QueueFullError
from ackd_adapters.local.group import Groups
from ackd_adapters.local.log import Retention, Transaction
from ackd_adapters.local.topics import Topic

LOG = logging.getLogger("ackd.local")
GROUP_WEIGHT: Final = 8 << 20
"""Bytes of messages in one transaction; further messages wait for the next one."""
SWEEP_MS_MAX: Final = 30_000
SWEEP_MS_MIN: Final = 100
SWEEP_BYTES_MS: Final = 1_000
RETRY_MS: Final = 100
"""Pause after a failed transaction before the thread tries its own duties again."""


PROBE_MS: Final = 500
"""How often to try a queue that could not be written to, so that readiness comes back."""


class Job(Protocol):
    """Work for the writer. `weight`: bytes, for the bound of one transaction."""

    weight: int

    def run(self, tx: Transaction) -> None:
        """Do it inside the transaction. Raises BrokerError before it has written anything."""

    def succeed(self) -> None:
        """The transaction is durable."""

    def fail(self, error: BrokerError | BugError) -> None:
        """This job has no effect (`OutcomeUnknownError`: it may have one)."""


class Probe:
    """Writes what needs room and takes it back, only to see whether writing works again."""

    weight = 0

    def run(self, tx: Transaction) -> None:
        """Write two pages, for the length of the transaction."""
        tx.db.execute("INSERT OR REPLACE INTO meta VALUES('probe', ZEROBLOB(8192))")
        tx.db.execute("DELETE FROM meta WHERE key = 'probe'")

    def succeed(self) -> None:
        """Nothing to do: the transaction's success is reported by itself."""

    def fail(self, error: BrokerError | BugError) -> None:
        """Nothing to do: writing still fails."""


@dataclass(slots=True)
class Signals:
    """What the writer reports to the rest. Called in its thread."""

    committed: Callable[[], None]
    broke: Callable[[BrokerError | None], None]
    died: Callable[[str], None]


# tidy: long-class attributes=24 -- what one thread owns
class Writer:
    """Starts with `start`, ends after `stop` has been sent and the inbox is empty."""

    def __init__(self, folder: Path, options: LocalOptions, signals: Signals) -> None:
        self._folder = folder
        self._options = options
        self._signals = signals
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._retention = Retention(options.retention_ms, options.retention_bytes)
        self._on_start: Callable[[str | BrokerError], None] = lambda _: None
        self._on_end: Callable[[], None] = lambda: None
        self._stopping = False
        self._carried: Job | None = None
        self._in_hand: list[Job] = []
        self._ended = False
        self._cache: dict[str, Topic | None] = {}
        self._version = -1
        self._due_ms: int | None = None
        self._look_ms = 0
        self._sweep_ms = 0
        self._retry_ms = 0
        self._broken = False
        self._probe_ms = 0

    def start(self, on_start: Callable[[str | BrokerError], None]) -> None:
        """Open the file; `on_start` gets the cluster's id or what went wrong, from the thread.

        The thread ends when something went wrong; another start makes a new one.
        """
        self._on_start = on_start
        threading.Thread(target=self._main, name="ackd-local-writer", daemon=True).start()

    def submit(self, job: Job) -> None:
        """Put a job into the inbox; never blocks. A thread that has ended refuses it at once."""
        self._inbox.put(job)
        if self._ended:
            self._refuse_waiting()

    def poke(self) -> None:
        """Make the thread check members and topics now."""
        self._inbox.put(None)

    def stop(self, on_end: Callable[[], None]) -> None:
        """End when everything in the inbox is done; the thread calls `on_end`."""
        if self._ended:
            on_end()
            return
        self._on_end = on_end
        self._stopping = True
        self._inbox.put(None)

    def _main(self) -> None:
        try:
            self._db = schema.prepare(self._folder, self._options.sync)
            try:
                self._instance = Instance(self._folder)
                self._watch = Watch(self._folder, self._instance.name, self._options.session_ms)
                self.groups = Groups(self._instance.name, self._watch, self.submit)
                self._refresh()
                cluster = schema.cluster_id(self._db)
            except BaseException:
                self._db.close()
                raise
        except (BrokerError, OSError, sqlite3.Error) as error:
            wrong = error if isinstance(error, BrokerError) else BrokerError(str(error))
            self._on_start(wrong)
            return
        except Exception as error:
            LOG.exception("the local queue can't be opened")
            self._on_start(BrokerError(repr(error)))
            return
        self._on_start(cluster)
        try:
            self._loop()
        except Exception as error:
            LOG.exception("the local queue's writer has ended")
            self._signals.died(f"the writer has ended: {error!r}")
            for job in self._in_hand:
                # It may be in the file. To a job that has its answer this says nothing any more.
                job.fail(OutcomeUnknownError(f"the queue's writer has ended: {error!r}"))
        finally:
            self._instance.close()
            self._db.close()
            self._ended = True
            self._refuse_waiting()
            self._on_end()

    def _refuse_waiting(self) -> None:
        """Nobody takes jobs any more, and none of these was begun."""
        waiting = [self._carried]
        self._carried = None
        with contextlib.suppress(queue.Empty):
            while True:
                waiting.append(self._inbox.get_nowait())
        for job in waiting:
            if job is not None:
                job.fail(BrokerError("nothing stored: the queue's writer has ended"))

    def _loop(self) -> None:
        while True:
            jobs = self._in_hand = self._collect()
            if self._stopping and not jobs and self._inbox.empty() and self._carried is None:
                return
            now_ms = _monotonic_ms()
            look = self._look_around(now_ms)
            sweep = now_ms >= self._sweep_ms
            probe = self._broken and now_ms >= self._probe_ms
            duty = (look or sweep or probe or self._is_due()) and now_ms >= self._retry_ms
            if probe:
                self._probe_ms = now_ms + PROBE_MS
                jobs.append(Probe())
            if jobs or duty:
                self._transact(jobs, look=look, sweep=sweep)

    def _look_around(self, now_ms: int) -> bool:
        """Write the own heartbeat, check the others' and due times; True = groups have work."""
        try:
            if now_ms >= self._look_ms:
                self._look_ms = now_ms + LOOK_MS
                self._instance.beat()
                self._due_ms = log.next_due_ms(self._db)
            return self.groups.needs(self._db, now_ms)
        except (OSError, sqlite3.Error) as error:
            self._retry_ms = now_ms + RETRY_MS
            self._report(BrokerError(f"the queue can't be read: {error}"))
            return False

    def _collect(self) -> list[Job]:
        """The jobs of the next transaction; waits for the first, but not past the next duty."""
        jobs: list[Job] = []
        weight = 0
        if self._carried is not None:
            jobs.append(self._carried)
            weight = self._carried.weight
            self._carried = None
        wait_s = 0.0 if jobs else self._pause_s()
        while True:
            try:
                job = self._inbox.get(timeout=wait_s) if wait_s > 0 else self._inbox.get_nowait()
            except queue.Empty:
                return jobs
            wait_s = 0.0
            if job is None:
                continue
            if jobs and weight + job.weight > GROUP_WEIGHT:
                self._carried = job
                return jobs
            jobs.append(job)
            weight += job.weight

    def _pause_s(self) -> float:
        if self._stopping:
            return 0.0
        now_ms = _monotonic_ms()
        until_ms = min(self._look_ms, self._sweep_ms) - now_ms
        revoke_ms = self.groups.deadline_ms()
        if revoke_ms is not None:
            until_ms = min(until_ms, revoke_ms - now_ms)
        pause_s = max(until_ms, 0) / 1000
        if self._due_ms is not None:
            # From nanoseconds: a wait cut to whole milliseconds would wake up early and spin.
            pause_s = min(pause_s, max(self._due_ms / 1000 - time.time_ns() / 1e9, 0.0))
        return max(pause_s, (self._retry_ms - now_ms) / 1000)

    def _is_due(self) -> bool:
        return self._due_ms is not None and self._due_ms <= log.wall_ms()

    def _transact(self, jobs: list[Job], *, look: bool, sweep: bool) -> None:
        """Run one transaction with all jobs that wait now."""
        going = list(jobs)
        committing = False
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._refresh()
            tx = Transaction(self._db, log.wall_ms(), self._cache)
            for job in jobs:
                try:
                    job.run(tx)
                except BrokerError as error:
                    going.remove(job)
                    job.fail(error)
            if self._is_due():
                log.move_due(tx)
            tx.flush()
            if look:
                self.groups.look(tx, _monotonic_ms())
            if sweep:
                self._sweep(tx)
            # Topics made or removed in here: the cache must follow before the next transaction.
            self._refresh()
            committing = True
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            self._fail(going, _translate(error, committing=committing))
            return
        except Exception as error:  # noqa: BLE001  a bug in one job must not end the thread
            self._roll_back()
            self._fail(going, BugError(f"the local queue's writer: {error!r}"))
            return
        if going:
            self._report(None)
        for job in going:
            job.succeed()
        for call in tx.after:
            call()
        self._signals.committed()
        try:
            self._due_ms = log.next_due_ms(self._db)
        except sqlite3.Error as error:
            # All that was committed is answered; the next look around asks again.
            self._look_ms = 0
            self._retry_ms = _monotonic_ms() + RETRY_MS
            self._report(BrokerError(f"the queue can't be read: {error}"))

    def _fail(self, jobs: list[Job], error: BrokerError | BugError) -> None:
        self._retry_ms = _monotonic_ms() + RETRY_MS
        self.groups.forget()
        if isinstance(error, BrokerError):
            self._report(error)
        for job in jobs:
            job.fail(error)

    def _roll_back(self) -> None:
        self._cache.clear()
        self._version = -1
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._report(BrokerError(f"rolling back: {error}"))

    def _sweep(self, tx: Transaction) -> None:
        more = self._retention.sweep(tx)
        shortest_ms = self._retention.shortest_ms(self._db)
        pause_ms = SWEEP_MS_MAX
        if shortest_ms:
            pause_ms = min(max(shortest_ms // 10, SWEEP_MS_MIN), SWEEP_MS_MAX)
        if self._retention.bounds_bytes(self._db):
            pause_ms = min(pause_ms, SWEEP_BYTES_MS)
        self._sweep_ms = _monotonic_ms() + (SWEEP_MS_MIN if more else pause_ms)

    def _refresh(self) -> None:
        """Drop cached topics when any process has changed topics."""
        version = schema.version(self._db)
        if version != self._version:
            self._version = version
            self._cache.clear()

    def _report(self, error: BrokerError | None) -> None:
        if error is None and not self._broken:
            return
        self._broken = error is not None
        self._signals.broke(error)


def _translate(error: sqlite3.Error, *, committing: bool) -> BrokerError:
    """Say what a failed transaction means for its jobs."""
    name = getattr(error, "sqlite_errorname", "") or ""
    text = f"{error} ({name or type(error).__name__})"
    if name.startswith("SQLITE_FULL"):
        # Also of a commit: it is the last frame in the WAL that makes one valid, and a write that
        # found no room came before its end. (What fails later, a sync, has another name.)
        return QueueFullError(f"nothing stored: {text}")
    if committing and not name.startswith("SQLITE_BUSY"):
        # A commit that failed half-way may be found whole in the file after a crash.
        return OutcomeUnknownError(f"the commit failed: {text}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return QueueBusyError(f"another process holds the queue: {text}")
    return BrokerError(f"nothing stored: {text}")


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
