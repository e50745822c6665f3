"""Spill: bodies of messages that wait long, in files of their own; memory keeps a stub of each.

Nothing here has to survive a restart, because the broker has every body: the files are deleted at
the start, and a body that can't be read back is fetched again. One thread does all file work, one
job after the other, so nothing needs a lock and the event loop never waits for the disk.
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
from ackd.unreadable import UNREADABLE

T = TypeVar("T")
SEGMENT_BYTES = 16 * 1024 * 1024
STUB_BYTES = 64
"""Bytes that a stub counts in the window."""
FREED_MAX = 1_000
WASTE_SHARE = 2
"""A segment is rewritten when less than one part in this many of the bytes is still wanted."""


class Stub:
    """Stands for a body in its ledger entry. The spill alone knows where the body is, and may move
    it.

    `name`: the public id if the body is a retry copy's, else empty; `epoch`: the copy's reset
    epoch; `published_ms`: when the message itself was published.
    """

    __slots__ = (
        "at",
        "epoch",
        "length",
        "name",
        "offset",
        "published_ms",
        "segment",
        "timestamp_ms",
    )

    def __init__(self, record: Record) -> None:
        self.offset = record.offset
        self.timestamp_ms = self.published_ms = record.timestamp_ms
        self.name = ""
        self.segment = self.at = self.length = self.epoch = 0

    def stands_for_copy(self, name: str, epoch: int, published_ms: int) -> None:
        """The body is a retry copy's."""
        self.name, self.epoch, self.published_ms = name, epoch, published_ms

    def size(self) -> int:
        """Return the bytes that the stub counts in the window."""
        return STUB_BYTES


Held = Record | Stub
"""What a ledger entry holds."""


class Spill(Protocol):
    """Keeps bodies of messages outside memory; each has a `Stub` in its place."""

    @property
    def taken(self) -> int: ...

    async def write(self, records: Sequence[Record]) -> list[Stub] | None:
        """Store bodies; None when there is no room for them. Raises OSError."""

    async def read(self, stubs: Sequence[Stub]) -> list[Record]:
        """Read bodies back; they stay until they are freed. Raises OSError."""

    def free(self, stub: Stub) -> None:
        """Give up a body that is not needed any more."""

    async def close(self) -> None:
        """Stop, and delete everything. Never raises."""


class _StoredBody(msgspec.Struct, array_like=True):
    """A body in the form of the file."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class _Segment:
    """One file. `live`: stubs whose bodies are in it and still wanted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.live: set[Stub] = set()
        self.live_bytes = 0
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def append(self, data: bytes) -> int:
        """Write at the end; return the position. Raises OSError, and then nothing of it counts."""
        at, view = self.size, memoryview(data)
        while view:
            written = os.pwrite(self.file, view, at + len(data) - len(view))
            view = view[written:]
        self.size += len(data)
        return at

    def read(self, stub: Stub) -> bytes:
        """Read one body. Raises OSError."""
        data = os.pread(self.file, stub.length, stub.at)
        if len(data) != stub.length:
            raise OSError(f"{self.path}: cut off")
        return data

    def remove(self) -> None:
        os.close(self.file)
        self.path.unlink(missing_ok=True)


class FileSpill:
    """Implements `Spill` in a folder of its own, with at most `bytes_max` bytes."""

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
        self._decode = msgspec.msgpack.Decoder(_StoredBody).decode

    @property
    def taken(self) -> int:
        return self._total

    async def write(self, records: Sequence[Record]) -> list[Stub] | None:
        return await self._run(lambda: self._write(records))

    async def read(self, stubs: Sequence[Stub]) -> list[Record]:
        return await self._run(lambda: [self._read(stub) for stub in stubs])

    def free(self, stub: Stub) -> None:
        """Free a body; the next write gets its room."""
        self._freed.append(stub)
        if len(self._freed) == FREED_MAX:
            self._thread.submit(self._release_freed)

    async def close(self) -> None:
        try:
            await self._run(self._remove_all)
        except OSError:
            pass  # the next start deletes the files
        finally:
            self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # --- in the thread

    def _write(self, records: Sequence[Record]) -> list[Stub] | None:
        self._release_freed()
        bodies = [
            self._encode(
                _StoredBody(each.offset, each.key, each.value, each.headers, each.timestamp_ms)
            )
            for each in records
        ]
        size = sum(map(len, bodies))
        if self._live + size > self._bytes_max:
            return None
        if self._total + size > max(self._live * WASTE_SHARE, 2 * self._segment_bytes):
            self._compact()
        if self._total + size > self._bytes_max:
            return None
        stubs = [Stub(each) for each in records]
        self._append(stubs, bodies)
        return stubs

    def _append(self, stubs: Sequence[Stub], bodies: Sequence[bytes]) -> None:
        """Write all bodies into one segment, so that a failure leaves nothing half done."""
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
        except UNREADABLE as error:
            raise OSError(f"{segment.path}: {error}") from error
        return Record(body.offset, body.key, body.value, body.headers, body.timestamp_ms)

    def _release_freed(self) -> None:
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

    def _compact(self) -> None:
        """Rewrite what is still wanted of the emptiest segment, so that one long wait does not keep
        it.
        """
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
