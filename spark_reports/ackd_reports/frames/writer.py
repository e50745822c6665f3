"""One writer at a time: the right to write a lake.

Rows of two runs would not harm each other, but a run of Spark that ends removes what another one is
just writing, and two compactions would do everything twice. On a local disk the right is a lock,
which ends with its process. Elsewhere it is a file that only one of many can make; its owner
renews it, and one that was not renewed for long belongs to a run that is dead.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from ackd_reports.frames import reading, storage

WAIT_S: Final = 600.0
"""A run waits for so long until the one before it is done."""
RENEWED_S: Final = 15.0
DEAD_S: Final = 60.0
"""Not renewed for so long, it is nobody's. Clocks of hosts may differ by less than this."""
_LOOK_S: Final = 0.5


@contextmanager
def writing(spark: SparkSession, root: str, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the right to write the lake at `root`. `OSError`: somebody else has it for too long."""
    held = _elsewhere(spark, root, wait_s) if reading.elsewhere(root) else _here(root, wait_s)
    with held:
        yield


def _busy(root: str, owner: str) -> OSError:
    return OSError(f"{root}: {owner} is writing it; one run at a time writes a lake")


@contextmanager
def _here(root: str, wait_s: float) -> Iterator[None]:
    try:
        import fcntl  # noqa: PLC0415 -- not on Windows, where nothing keeps two runs apart
    except ImportError:  # pragma: no cover
        yield
        return
    folder = Path("/" + root.removeprefix("file:").lstrip("/")) if ":" in root else Path(root)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".writer").open("a+", encoding="utf-8") as file:
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    file.seek(0)
                    raise _busy(root, file.read() or "another run") from None
                time.sleep(_LOOK_S)
            else:
                break
        file.truncate(0)
        file.write(_name())
        file.flush()
        yield


def _name() -> str:
    return f"process {os.getpid()} of {platform.node()}"


@contextmanager
def _elsewhere(spark: SparkSession, root: str, wait_s: float) -> Iterator[None]:
    lease = _WriterLease(spark, root)
    lease.take(wait_s)
    ended = threading.Event()
    renewing = threading.Thread(target=lease.renew, args=(ended,), daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        lease.give_back()


class _WriterLease:
    """`<root>/writer/lease-<number>.lock`: whoever made the one with the highest has the right."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root
        self._folder = f"{root}/writer"
        self._own = ""

    def take(self, wait_s: float) -> None:
        """Wait until there is none, or only dead ones, and make the next."""
        until = time.monotonic() + wait_s
        while True:
            found = self._found()
            dead_ms = time.time_ns() // 1_000_000 - DEAD_S * 1_000
            alive = [each for each in found if each.changed_ms > dead_ms]
            if not alive and self._make(found):
                return
            if alive and time.monotonic() > until:
                raise _busy(self._root, storage.text_of(self._spark, alive[-1].name))
            time.sleep(_LOOK_S)

    def _make(self, dead: list[storage.TraceFile]) -> bool:
        """Make the next one and remove the `dead` ones; False: somebody else was faster."""
        number = max((_number(each.name) for each in dead), default=0) + 1
        address = f"{self._folder}/lease-{number}.lock"
        if not storage.create(self._spark, address, _name(), anew=False):
            return False
        # Whoever lost time since it looked may have made one that others have come past.
        if any(_number(each.name) > number for each in self._found()):
            storage.delete(self._spark, address)
            return False
        self._own = address
        for each in dead:
            storage.delete(self._spark, each.name)
        return True

    def renew(self, ended: threading.Event) -> None:
        """Write it again and again until `ended`."""
        while not ended.wait(RENEWED_S):
            # Storage that is away for a moment; the run itself will find out.
            with suppress(Py4JJavaError):
                storage.create(self._spark, self._own, _name(), anew=True)

    def give_back(self) -> None:
        """Remove it, so that nobody waits until it is dead."""
        with suppress(Py4JJavaError):
            storage.delete(self._spark, self._own)

    def _found(self) -> list[storage.TraceFile]:
        if not storage.exists(self._spark, self._folder):
            return []
        return sorted(
            storage.files(self._spark, self._folder, (".lock",)),
            key=lambda each: _number(each.name),
        )


def _number(name: str) -> int:
    return int(name.rpartition("-")[2].removesuffix(".lock"))
