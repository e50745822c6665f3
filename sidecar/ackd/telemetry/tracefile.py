"""Rotating files of spans: gzip, one member a flush, hidden while they are written.

An open file has a dot before its name, so Spark and others skip it. It gets its final name
atomically (rename) when it is full, old, or the sidecar stops. The next start cuts what a killed
sidecar left to its last whole member and names it. So a reader of a named file never sees half a
member.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib

SUFFIX = ".jsonl.gz"
GZIP_WBITS = 31
LEVEL = 1
"""ISA-L's level: a fifth of the time of zlib's level 1, with slightly fewer bytes."""
READ_BYTES = 1 << 20


def compressed(parts: Iterable[bytes]) -> bytes:
    """Compress data into a gzip member. Other threads run meanwhile."""
    packer = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, GZIP_WBITS)
    return b"".join([*map(packer.compress, parts), packer.flush()])


def whole_bytes(path: Path) -> int:
    """Return where the last whole member of a gzip file ends, in bytes."""
    good = position = 0
    unpacker = zlib.decompressobj(GZIP_WBITS)
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            while data:
                try:
                    unpacker.decompress(data)
                except zlib.error:
                    return good
                rest = unpacker.unused_data
                position += len(data) - len(rest)
                data = rest
                if unpacker.eof:
                    good = position
                    unpacker = zlib.decompressobj(GZIP_WBITS)
    return good


class TraceFiles:
    """Writes and rotates the files. Only one thread may use it. Raises OSError; what was written
    before that stays whole.

    `bytes_max`, `ms_max`: size and age at which a file is closed. `disk_bytes_max`: bound on all
    files of this sidecar. `deleted` is called with how many files were deleted to keep it. `stamp`:
    start of this run in UTC, `20261121T215500`.
    """

    def __init__(
        self,
        folder: Path,
        identity: str,
        stamp: str,
        *,
        bytes_max: int,
        ms_max: int,
        disk_bytes_max: int,
        deleted: Callable[[int], None],
    ) -> None:
        self._folder = folder
        self._base = f"ackd-{identity}-{stamp}"
        name = rf"ackd-{re.escape(identity)}-\d{{8}}T\d{{6}}-\d{{6}}{re.escape(SUFFIX)}"
        self._ours = re.compile(name)
        self._bytes_max, self._ms_max, self._disk_bytes_max = bytes_max, ms_max, disk_bytes_max
        self._deleted = deleted
        self._number = 0
        self._file: BinaryIO | None = None
        self._name = ""
        self._bytes = 0
        self._opened_ms = 0

    def recover(self) -> int:
        """Name the files that a killed run of this sidecar left. Returns how many there were."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found = [each for each in self._folder.iterdir() if each.name.startswith(".")]
        left = [each for each in found if self._ours.fullmatch(each.name[1:])]
        for path in left:
            good = whole_bytes(path)
            if good:
                os.truncate(path, good)
                self._publish(path.name[1:])
            else:
                path.unlink()
        self._delete_oldest(0)
        return len(left)

    def write(self, member: bytes, now_ms: int) -> None:
        """Append a member: all of it, or nothing."""
        if self._file is None:
            self._open(now_ms)
        file = self._file
        if file is None:  # pragma: no cover - `_open` raises
            return
        try:
            file.write(member)
        except OSError:
            os.ftruncate(file.fileno(), self._bytes)
            os.lseek(file.fileno(), self._bytes, os.SEEK_SET)
            raise
        self._bytes += len(member)

    def look(self, now_ms: int) -> None:
        """Close the file if it has reached its size or age."""
        full = self._bytes >= self._bytes_max
        if self._file is not None and (full or now_ms - self._opened_ms >= self._ms_max):
            self.close()

    def close(self) -> None:
        """Close the open file and give it its final name."""
        file, self._file = self._file, None
        if file is None:
            return
        with file:
            os.fsync(file.fileno())
        self._publish(self._name)
        self._delete_oldest(0)

    def _open(self, now_ms: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        while True:
            self._number += 1
            self._name = f"{self._base}-{self._number:06d}{SUFFIX}"
            if not (self._folder / self._name).exists():
                break
        # Unbuffered: what was written survives a kill of this process.
        self._file = (self._folder / f".{self._name}").open("xb", buffering=0)
        self._bytes, self._opened_ms = 0, now_ms

    def _publish(self, name: str) -> None:
        (self._folder / f".{name}").rename(self._folder / name)
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _delete_oldest(self, extra: int) -> None:
        """Delete the oldest files while they exceed the bound; a file may be just full when it is
        closed.
        """
        named = [each for each in self._folder.iterdir() if self._ours.fullmatch(each.name)]
        sizes = [(each.name, each.stat().st_size, each) for each in named]
        total, gone = extra + sum(size for _, size, _ in sizes), 0
        for _, size, path in sorted(sizes):
            if total <= self._disk_bytes_max:
                break
            path.unlink(missing_ok=True)
            total -= size
            gone += 1
        if gone:
            self._deleted(gone)
