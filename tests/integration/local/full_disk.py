"""A local queue on a disk of 1 MiB that runs full: a process of its own, in namespaces of its own.

Prints a line of JSON: how many messages were stored, how many are in the log, what the failures
were, and whether it went on at last.
"""

import asyncio
import json
import os
import sqlite3
import sys
from pathlib import Path

from ackd.ports import NotStored, Outgoing, Stored
from ackd_adapters.local import LocalBroker, LocalOptions, adapter

FREE_BYTES = 96 * 1024
TRIES = 300


async def publish(broker: LocalBroker, size: int) -> Stored | NotStored:
    """One message."""
    [result] = await broker.publish([Outgoing("t", None, b"x" * size)])
    return result


async def main(folder: Path) -> None:
    """Fill the disk but for a little, publish until that is full, make room, publish again."""
    queue, filler = folder / "queue", folder / "filler"
    broker = adapter.open("test", LocalOptions(path=queue, partitions=1))
    await broker.start()
    try:
        results = [await publish(broker, 1)]
        there = os.statvfs(folder)
        filler.write_bytes(b"x" * (there.f_bavail * there.f_frsize - FREE_BYTES))
        while isinstance(results[-1], Stored) and len(results) < TRIES:
            results.append(await publish(broker, 1_000))
        filler.unlink()
        while isinstance(results[-1], NotStored) and len(results) < TRIES:
            await asyncio.sleep(0.2)
            results.append(await publish(broker, 1))
    finally:
        await broker.close()
    with sqlite3.connect(queue / "queue.db") as db:
        kept = db.execute("SELECT COUNT(*) FROM records").fetchone()[0]
    db.close()
    failures = {
        f"{each.failure.name} {each.code}" for each in results if isinstance(each, NotStored)
    }
    stored = sum(isinstance(each, Stored) for each in results)
    print(json.dumps([stored, kept, sorted(failures), isinstance(results[-1], Stored)]))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
