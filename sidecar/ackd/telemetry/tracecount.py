"""Counts spans made, written and dropped, by event, where a kill can't erase the counts.

The numbers are in a small memory-mapped file: the kernel keeps them when the process is killed, and
writing one costs as much as an assignment. The next run reads what was made and never written,
which is what the crash lost.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from array import array
from dataclasses import dataclass
from pathlib import Path

from ackd.errors import ConfigError
from ackd.telemetry.spans import SpanEvent

_EVENTS = len(SpanEvent)
_BOOT_BYTES = 32
_ROW_BYTES = 8 * _EVENTS
_BYTES = _BOOT_BYTES + 3 * _ROW_BYTES


@dataclass(frozen=True, slots=True)
class LastRun:
    """What a killed run left, by event. `dropped`: spans it had dropped; `lost`: spans it had made
    and neither written nor dropped.
    """

    boot: str
    written: int
    dropped: dict[SpanEvent, int]
    lost: dict[SpanEvent, int]


class TraceCounts:
    """`made`, `written`, `dropped`: a number for each event, since the start. One writer each."""

    def __init__(self, path: Path | None, boot: str) -> None:
        """Without a path the counts are in memory only. Raises ConfigError, OSError."""
        self.last: LastRun | None = None
        self._file: int | None = None
        self._map: mmap.mmap | None = None
        if path is None:
            rows = memoryview(bytearray(3 * _ROW_BYTES))
        else:
            self._map = self._mapped(path)
            self.last = self._read(self._map)
            self._map[:] = boot.encode().ljust(_BOOT_BYTES, b"\0") + bytes(3 * _ROW_BYTES)
            rows = memoryview(self._map)[_BOOT_BYTES:]
        self._rows = [rows[at * _ROW_BYTES : (at + 1) * _ROW_BYTES].cast("Q") for at in range(3)]
        self.made, self.written, self.dropped = self._rows

    def _mapped(self, path: Path) -> mmap.mmap:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            message = (
                f"traces.folder = {path.parent}: a sidecar of the same identity writes there; "
                "give each sidecar an identity of its own"
            )
            raise ConfigError(message) from error
        if os.fstat(self._file).st_size != _BYTES:
            os.truncate(self._file, 0)
        os.truncate(self._file, _BYTES)
        return mmap.mmap(self._file, _BYTES)

    @staticmethod
    def _read(data: mmap.mmap) -> LastRun | None:
        boot = data[:_BOOT_BYTES].rstrip(b"\0").decode("ascii", "replace")
        if not boot:
            return None
        numbers = array("Q", data[_BOOT_BYTES:])
        made, written, dropped = (numbers[i * _EVENTS : (i + 1) * _EVENTS] for i in range(3))
        lost = {
            event: made[event] - written[event] - dropped[event]
            for event in SpanEvent
            if made[event] > written[event] + dropped[event]
        }
        by_event = {event: dropped[event] for event in SpanEvent if dropped[event]}
        return LastRun(boot, sum(written), by_event, lost)

    def close(self) -> None:
        """End cleanly, so that the next run has nothing to report about this one."""
        for row in self._rows:
            row.release()
        if self._map is not None and self._file is not None:
            self._map[:_BOOT_BYTES] = bytes(_BOOT_BYTES)
            self._map = None  # unmapped with its last view
            os.close(self._file)
            self._file = None
