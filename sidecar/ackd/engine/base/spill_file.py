"""Bodies of messages that wait long, in files of their own: memory keeps a stub of each.

Nothing in here has to survive a restart, the broker has every body: files are deleted at the start,
and a body that can't be read back is fetched again. All file work is done in one thread, one job
after the other, so that nothing needs a lock and the event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from ackd.ports import Headers, Record

T = TypeVar("T")
SEGMENT_BYTES = 16 * 1024 * 1024
STUB_BYTES = 64
"""What a stub counts in the window's bytes."""
FREED_MAX = 1_000
WASTE_SHARE = 2
"""Segments are rewritten when less than one part in this many of all bytes is still wanted."""


class Stub:
    """Stands for a body in its ledger entry. Where it lies may change: only the spill knows.

    `name`: the public id if the body is a copy's, else empty; `epoch`: the carrier's.
    """

    __slots__ = ("at", "epoch", "length", "name", "offset", "segment", "timestamp_ms")

    def __init__(self, record: Record) -> None:
        self.offset = record.offset
        self.timestamp_ms = record.timestamp_ms
        self.name = ""
        self.segment = self.at = self.length = self.epoch = 0

    def size(self) -> int:
        """Bytes that it takes in memory."""
        return STUB_BYTES


Held = Record | Stub
"""What a ledger entry holds."""


class Spill(Protocol):
    """Where bodies can be put."""

    @property
    def taken(self) -> int:
        """Bytes that are taken now."""

    async def write(self, records: Sequence[Record]) -> list[Stub] | None:
        """Put bodies there; None when there is no room for them. Raises OSError."""

    async def read(self, stubs: Sequence[Stub]) -> list[Record]:
        """Get bodies back; they stay until they are freed. Raises OSError."""

    def free(self, stub: Stub) -> None:
        """A body is not needed any more."""

    async def close(self) -> None:
        """End, and leave nothing behind. Never raises."""


class _Body(msgspec.Struct, array_like=True):
    """A body as it stands in the file."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class _Segment:
    """One file. `live`: stubs whose bodies lie in it and are wanted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.live: set[Stub] = set()
        self.live_bytes = 0
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def append(self, data: bytes) -> int:
        """Write at the end; returns where. Raises OSError; then nothing of it counts."""
        at, view = self.size, memoryview(data)
        while view:
            written = os.pwrite(self.file, view, at + len(data) - len(view))
            view = view[written:]
        self.size += len(data)
        return at

    def read(self, stub: Stub) -> bytes:
        """One body. Raises OSError."""
        data = os.pread(self.file, stub.length, stub.at)
        if len(data) != stub.length:
            raise OSError(f"{self.path}: cut off")
        return data

    def remove(self) -> None:
        """Close and delete."""
        os.close(self.file)
        self.path.unlink(missing_ok=True)


class FileSpill:
    """Implements `Spill` in a folder of its own; at most `bytes_max` bytes."""

    def __init__(self, folder: Path, bytes_max: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._segment_bytes = segment_bytes
        self._segments: dict[int, _Segment] = {}
        self._last = 0
        self._freed: list[Stub] = []
        self._total = 0
        self._live = 0
        self._ready = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ackd-spill")
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(_Body).decode

    @property
    def taken(self) -> int:
        """Bytes of all files."""
        return self._total

    async def write(self, records: Sequence[Record]) -> list[Stub] | None:
        """See `Spill`."""
        return await self._run(lambda: self._write(records))

    async def read(self, stubs: Sequence[Stub]) -> list[Record]:
        """See `Spill`."""
        return await self._run(lambda: [self._read(stub) for stub in stubs])

    def free(self, stub: Stub) -> None:
        """See `Spill`. The room is there with the next write."""
        self._freed.append(stub)
        if len(self._freed) == FREED_MAX:
            self._thread.submit(self._let_go)

    async def close(self) -> None:
        """See `Spill`."""
        try:
            await self._run(self._remove_all)
        except OSError:
            pass  # it is deleted at the next start
        finally:
            self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # --- in the thread

    def _write(self, records: Sequence[Record]) -> list[Stub] | None:
        self._let_go()
        bodies = [
            self._encode(_Body(each.offset, each.key, each.value, each.headers, each.timestamp_ms))
            for each in records
        ]
        size = sum(map(len, bodies))
        if self._live + size > self._bytes_max:
            return None
        if self._total + size > max(self._live * WASTE_SHARE, 2 * self._segment_bytes):
            self._tidy()
        if self._total + size > self._bytes_max:
            return None
        stubs = [Stub(each) for each in records]
        self._append(stubs, bodies)
        return stubs

    def _append(self, stubs: Sequence[Stub], bodies: Sequence[bytes]) -> None:
        """All of them into one segment, so that a failure leaves nothing half done."""
        segment = self._open_segment()
        data = b"".join(bodies)
        at = segment.append(data)
        for stub, body in zip(stubs, bodies, strict=True):
            stub.segment, stub.at, stub.length = self._last, at, len(body)
            at += len(body)
        segment.live.update(stubs)
        segment.live_bytes += len(data)
        self._total += len(data)
        self._live += len(data)

    def _open_segment(self) -> _Segment:
        if not self._ready:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            self._ready = True
        segment = self._segments.get(self._last)
        if segment is None or segment.size >= self._segment_bytes:
            self._last += 1
            segment = self._segments[self._last] = _Segment(self._folder / f"{self._last}.bodies")
        return segment

    def _read(self, stub: Stub) -> Record:
        segment = self._segments.get(stub.segment)
        if segment is None or stub not in segment.live:
            raise OSError("no such body")
        try:
            body = self._decode(segment.read(stub))
        except msgspec.MsgspecError as error:
            raise OSError(f"{segment.path}: {error}") from error
        return Record(body.offset, body.key, body.value, body.headers, body.timestamp_ms)

    def _let_go(self) -> None:
        freed, self._freed = self._freed, []
        for stub in freed:
            segment = self._segments.get(stub.segment)
            if segment is None or stub not in segment.live:
                continue
            segment.live.discard(stub)
            segment.live_bytes -= stub.length
            self._live -= stub.length
            if not segment.live:
                self._drop(stub.segment)

    def _drop(self, number: int) -> None:
        segment = self._segments.pop(number)
        self._total -= segment.size
        segment.remove()

    def _tidy(self) -> None:
        """Rewrite what is still wanted of the emptiest segment: one long wait must not keep it."""
        closed = [number for number in self._segments if number != self._last]
        if not closed:
            return
        number = min(closed, key=lambda each: self._segments[each].live_bytes)
        segment = self._segments[number]
        if segment.live_bytes * WASTE_SHARE > segment.size:
            return
        stubs = list(segment.live)
        bodies = [segment.read(stub) for stub in stubs]
        self._append(stubs, bodies)
        self._live -= segment.live_bytes
        self._drop(number)

    def _remove_all(self) -> None:
        for number in list(self._segments):
            self._drop(number)
        if self._ready:
            shutil.rmtree(self._folder, ignore_errors=True)
