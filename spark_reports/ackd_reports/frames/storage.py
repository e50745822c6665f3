"""Files where Hadoop has them: listed, looked through, removed, and made by one of many."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from ackd_reports.frames import reading

ENDINGS: Final = tuple(
    f".{kind}{packed}" for kind in ("jsonl", "json") for packed in ("", ".gz", ".zst")
)
_READ_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 1 << 20
_MEMBER: Final = b"\x1f\x8b\x08"
"""How a member of a gzip file begins; so may anything else."""
_MEMBERS_MAX: Final = 16
_CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
"""Hadoop's name for "only if there is nothing yet", which S3A asks of the store from 3.4.2 on."""


@dataclass(frozen=True, slots=True, order=True)
class TraceFile:
    """A file by what tells a changed one apart; `name` is its whole address."""

    name: str
    size: int
    changed_ms: int


def _hadoop(spark: SparkSession, address: str) -> tuple[Any, Any]:
    """Hadoop's file system for an address, and the address as its type; local and remote alike."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(address)  # noqa: SLF001 -- the only way there
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path  # noqa: SLF001


def files(spark: SparkSession, address: str, endings: Sequence[str] = ENDINGS) -> list[TraceFile]:
    """Files at an address with one of the endings, hidden ones left out; `OSError` if it is
    none.
    """
    system, path = _hadoop(spark, address)
    if not system.exists(path):
        raise FileNotFoundError(f"{address}: no such file or folder")
    listed = system.listFiles(path, True)
    found = []
    while listed.hasNext():
        status = listed.next()
        name = status.getPath().getName()
        if name.endswith(tuple(endings)) and not name.startswith((".", "_")):
            whole = status.getPath().toString()
            if "/_temporary/" not in whole:
                found.append(TraceFile(whole, status.getLen(), status.getModificationTime()))
    return sorted(found)


def folders(spark: SparkSession, address: str, beginning: str) -> list[str]:
    """Folders in a folder whose names begin so; none where it does not exist."""
    system, path = _hadoop(spark, address)
    if not system.exists(path):
        return []
    listed = [each.getPath() for each in system.listStatus(path) if each.isDirectory()]
    return sorted(each.toString() for each in listed if each.getName().startswith(beginning))


def delete(spark: SparkSession, address: str) -> None:
    """Remove a file, or a folder with all that is in it."""
    system, path = _hadoop(spark, address)
    system.delete(path, True)


def exists(spark: SparkSession, address: str) -> bool:
    """Whether there is something."""
    system, path = _hadoop(spark, address)
    return bool(system.exists(path))


def create(spark: SparkSession, address: str, text: str, *, anew: bool) -> bool:
    """Write a small file; without `anew` only where there is none. False: there is one."""
    system, path = _hadoop(spark, address)
    builder = system.createFile(path).overwrite(anew).recursive()
    if not anew and system.hasPathCapability(path, _CONDITIONAL):
        builder = system.createFile(path).overwrite(True).must(_CONDITIONAL, True)
    try:
        stream = builder.build()
        stream.write(text.encode())
        stream.close()
    except Py4JJavaError as error:
        if not anew and exists(spark, address):
            return False
        raise error from None
    return True


def text_of(spark: SparkSession, address: str) -> str:
    """What a small file holds."""
    system, path = _hadoop(spark, address)
    stream = system.open(path)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def is_cut(address: str) -> bool:
    """Whether a local gzip file ends in the middle (`is_damaged` knows what else is wrong); zstd
    files are not looked through.

    Sidecars write many members, and the last one tells; of a file of one member all is read.
    """
    return _is_local_gzip(address) and not _ends_whole(_local(address)) and is_damaged(address)


def is_damaged(address: str) -> bool:
    """Whether a local gzip file ends in the middle, or something in it is not as it was written."""
    if not _is_local_gzip(address):
        return False
    try:
        with gzip.open(_local(address)) as stream:
            while stream.read(_READ_BYTES):
                pass
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return True
    return False


def _is_local_gzip(address: str) -> bool:
    return address.endswith(".gz") and not reading.elsewhere(address)


def _local(address: str) -> Path:
    return Path("/" + address.removeprefix("file:").lstrip("/"))


def _ends_whole(path: Path) -> bool:
    """Whether the last member is near the end and whole: nothing else has its checksum there."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        tail = stream.read()
    at = len(tail)
    for _ in range(_MEMBERS_MAX):
        at = tail.rfind(_MEMBER, 0, at)
        if at < 0:
            break
        if _is_whole_member(tail[at:]):
            return True
    return False


def _is_whole_member(data: bytes) -> bool:
    unpacked = zlib.decompressobj(wbits=31)
    try:
        while not unpacked.eof:
            text = unpacked.decompress(data, _READ_BYTES)
            data = unpacked.unconsumed_tail
            if not text and not data:
                break
    except zlib.error:
        return False
    return unpacked.eof and not unpacked.unused_data


def is_torn(spark: SparkSession, address: str) -> bool:
    """Whether a gzip file elsewhere ends in the middle, although storage has all of it: only then
    it is the file's own fault. Java looks through it; nothing of it comes here.
    """
    if not address.endswith(".gz"):
        return False
    system, path = _hadoop(spark, address)
    context: Any = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 -- the only way there
    nowhere = jvm.java.io.OutputStream.nullOutputStream()
    packed = system.open(path)
    try:
        if packed.transferTo(nowhere) != system.getFileStatus(path).getLen():
            raise OSError(f"{address}: storage did not give all of it")
    finally:
        packed.close()
    codecs = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(system.getConf())
    stream = codecs.getCodec(path).createInputStream(system.open(path))
    try:
        stream.transferTo(nowhere)
    except Py4JJavaError:
        return True
    finally:
        stream.close()
    return False
