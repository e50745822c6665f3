"""A process that publishes numbered messages and says, after each answer, what was confirmed.

`python -m tests.integration.local.publisher FOLDER NAME BATCH DELAY_MS`, until it is killed. Each
message carries its own checksum, so that half a message could be told from a whole one. A line:
`ok partition offset id`.
"""

import asyncio
import sys
from hashlib import blake2b
from pathlib import Path

from ackd.ports import Failure, NotStored, Outgoing, Stored
from ackd_adapters.local import LocalOptions, adapter

TOPIC = "numbers"
PRESSURE = Failure.PRESSURE
PADDING = 700


def body(name: str, number: int) -> bytes:
    """`name-number padding checksum`."""
    text = f"{name}-{number} ".encode() + b"p" * (number % PADDING) + b" "
    return text + blake2b(text, digest_size=16).hexdigest().encode()


def identity(value: bytes) -> str:
    """The id in a body, after a look at its checksum."""
    text, _, checksum = value.rpartition(b" ")
    assert blake2b(text + b" ", digest_size=16).hexdigest().encode() == checksum, "half a message"
    return text.split(b" ")[0].decode()


async def publish(folder: str, name: str, batch: int, delay_ms: int) -> None:
    """Publish for ever."""
    broker = adapter.open("publisher", LocalOptions(path=Path(folder)))
    await broker.start()
    number = 0
    while True:
        numbers = range(number, number + batch)
        messages = [
            Outgoing(TOPIC, b"%d" % each, body(name, each), delay_ms=delay_ms) for each in numbers
        ]
        results = await broker.publish(messages)
        if all(isinstance(each, NotStored) and each.failure is PRESSURE for each in results):
            continue  # others kept the file busy; nothing was stored, so none may lie there twice
        lines = []
        for each, result in zip(numbers, results, strict=True):
            assert isinstance(result, Stored), result
            lines.append(f"ok {result.partition} {result.offset} {name}-{each}\n")
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
        number += batch


if __name__ == "__main__":
    asyncio.run(publish(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
