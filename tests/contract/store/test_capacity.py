"""The figures of docs/operate/capacity.md against `MEMORY USAGE` and the AOF of a real server.

The page says how many bytes each thing takes; here each thing is made, and measured. A figure that
is off by more than the page allows fails, so that the page is true for the build it comes with.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from ackd.core.dedup_window import DedupEntry
from ackd.core.origin import Origin
from ackd.core.outbox import (
    Bounds,
    EnqueueRequest,
    NewMessage,
    ResultRetention,
    SendResult,
    TakeRequest,
)
from ackd.core.record.operations import FinishOrigin, Gap, MoveToRetry, Op
from ackd.core.record.protocol import CallStatus, Finish, ItemTexts
from ackd.core.record.transitions import Verb
from ackd.engine.cluster.members import MemberNote, write_note
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.publishing.outbox_codec import write_stored
from ackd.ports import Store, Stored
from ackd.store.survey import BITS, HEAD, JOURNAL, ODD, ORIGINS, SLOTS, TEXTS, FoundKeys, Survey
from tests.conftest import RedisFactory
from tests.contract.store.owner import Owner
from tests.contract.store.servers import connect, started
from tests.support.paths import REPO
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
PAGE = REPO / "docs" / "operate" / "capacity.md"
TOLERANCE = 0.2
CALL = 500
BODY = 1_000
COUNT = 4_000
SPREAD = 256
TEXT = 100


def page() -> dict[str, float]:
    """The figures of the page: a row's first cell -> its bytes."""
    rows = re.findall(r"^\| ([^|]+) \| ([\d,.]+) \|", PAGE.read_text(), re.MULTILINE)
    return {name.strip(): float(number.replace(",", "")) for name, number in rows}


async def found(store: Store, owner: Owner) -> FoundKeys:
    """What a record takes."""
    (each,) = [e for e in await Survey(store).everything() if e.key == owner.key]
    return each


async def opened(store: Store) -> Owner:
    """A fresh record."""
    owner = Owner(store)
    await owner.open()
    return owner


async def leased(store: Store, offsets: range) -> Owner:
    """A record with these leases."""
    owner = await opened(store)
    for start in range(0, len(offsets), CALL):
        await owner.grant(*offsets[start : start + CALL])
    return owner


async def idle(store: Store) -> float:
    """A partition with nothing open."""
    return (await found(store, await opened(store))).sizes[HEAD]


async def lease(store: Store) -> float:
    """One of many leases beside each other."""
    sizes = (await found(store, await leased(store, range(COUNT)))).sizes
    return sizes[SLOTS] / COUNT


async def far_lease(store: Store) -> float:
    """One of many leases, none near another (R26: a chunk of slots each, and not a large one)."""
    return (await found(store, await leased(store, range(0, 200 * SPREAD, SPREAD)))).sizes[
        SLOTS
    ] / 200


async def chunk(store: Store) -> float:
    """Bits of 32,768 offsets above a stuck one."""
    owner = await opened(store)
    await owner.call(Gap(1, 4 * 32_768))
    return (await found(store, owner)).sizes[BITS] / 4


def sends(start: int) -> list[Op]:
    """Messages leave the window, each by itself."""
    return [MoveToRetry(start + n, start + n + 1) for n in range(CALL)]


async def moved(store: Store) -> float:
    """A message that was sent back."""
    owner = await leased(store, range(COUNT))
    for start in range(0, COUNT, CALL):
        reply = await owner.call(*(MoveToRetry(start + n, start + n + 1) for n in range(CALL)))
        assert reply.verdict is CallStatus.OK
    return (await found(store, owner)).sizes[ORIGINS] / COUNT


async def texts(store: Store) -> float:
    """What is around the texts of a message that failed, with one event of its history."""
    owner, count = await opened(store), COUNT // 2  # of more, the bound drops some
    for start in range(0, count, CALL):
        acks = await owner.grant(*range(start, start + CALL))
        said = [ItemTexts(n, bytes(TEXT), bytes(TEXT)) for n in range(CALL)]
        await owner.call(*(ack._replace(verb=Verb.RETRY) for ack in acks), texts=said)
    return (await found(store, owner)).sizes[TEXTS] / count - 3 * TEXT


async def exception(store: Store) -> float:
    """A message that finished in another way than by an ack."""
    owner = await leased(store, range(COUNT))
    for start in range(0, COUNT, CALL):
        sent = await owner.call(*(MoveToRetry(start + n, start + n + 1) for n in range(CALL)))
        await owner.call(
            *(
                FinishOrigin(start + n, each.fence, owner.rollback_epoch, Finish.SENT)
                for n, each in enumerate(sent.results)
            )
        )
    return (await found(store, owner)).sizes[ODD] / COUNT


async def journal(store: Store) -> float:
    """A settle by another sidecar than the owner, as long as the owner's journal keeps it."""
    owner = await opened(store)
    for start in range(0, COUNT, CALL):
        acks = await owner.grant(*range(start, start + CALL))
        await owner.foreign(*acks)
    return (await found(store, owner)).sizes[JOURNAL] / COUNT


async def member(store: Store) -> float:
    """A sidecar's heartbeat, for each of the partitions that it owns."""
    owner = await opened(store)
    owned = [owner.key._replace(partition=n).text() for n in range(200)]
    name = f"capacity-{owner.key.subscription}"
    boot = await store.register(name, "orders-7d9f8b6c5-x2x4z")
    note = write_note(
        MemberNote(version="1.0.0", settings={f"setting_{n}": "0" * 8 for n in range(15)})
    )
    for _ in range(2):
        await store.heartbeat(name, "orders-7d9f8b6c5-x2x4z", boot, owned, note)
    (each,) = [e for e in await Survey(store).everything() if e.name == f"members:{name}"]
    return each.size / len(owned)


async def business_key(store: Store) -> float:
    """An acked key, as long as its window (`dedup`)."""
    name = f"capacity-{uuid4()}"
    now_ms = (await store.heartbeat(name, "a", 1, (), "")).now_ms
    for start in range(0, COUNT, CALL):
        entries = [
            DedupEntry(n.to_bytes(16, "big"), n.to_bytes(8, "big"), now_ms)
            for n in range(start, start + CALL)
        ]
        assert await store.dedup_keys.remember(name, 3_600_000, COUNT, entries) == CALL
    (each,) = [e for e in await Survey(store).everything() if e.name == f"seen:{name}"]
    return each.size / COUNT


async def outbox_of(store: Store, body: bytes, idempotency_key: bytes = b"") -> str:
    """A full outbox; its name. With `idempotency_key` each message is a request of its own."""
    name = f"capacity-{uuid4()}"
    bounds = Bounds(COUNT, 1 << 30, 3_600_000)
    for start in range(0, COUNT, CALL):
        numbers = range(start, start + CALL)
        requests = [
            EnqueueRequest(
                idempotency_key and b"%s-%08d" % (idempotency_key, n), (NewMessage(0, body),)
            )
            for n in numbers
        ]
        enqueued = await store.outboxes.enqueue(name, requests, bounds)
        assert all(each.first for each in enqueued)
    return name


async def outbox_size(store: Store, name: str) -> int:
    """All its keys."""
    return sum(e.size for e in await Survey(store).everything() if e.name == f"outbox:{name}")


async def outbox_message(store: Store) -> float:
    """What is around the bytes of a message."""
    name = await outbox_of(store, bytes(BODY))
    return (await outbox_size(store, name)) / COUNT - BODY


async def outbox_result(store: Store) -> float:
    """What is left of a message that was sent."""
    name = await outbox_of(store, bytes(BODY))
    keep = ResultRetention(3_600_000, COUNT, 3_600_000)
    result = write_stored(Stored("orders", 3, 2_101_000), in_doubt=False)
    term = 0
    for seq in range(1, COUNT // CALL + 1):
        answer = await store.outboxes.take(name, TakeRequest("a", term, seq, 60_000), CALL, 1 << 30)
        term = answer.term
        sent = [SendResult(taken.number, result) for taken in answer.messages]
        assert len(sent) == CALL
        assert await store.outboxes.done(name, "a", answer.term, 60_000, sent, keep)
    return (await outbox_size(store, name)) / COUNT


async def outbox_ticket(store: Store) -> float:
    """An `Idempotency-Key` of a request to the outbox, a hash of 16 bytes and more in the store."""
    without = await outbox_size(store, await outbox_of(store, b"body"))
    with_one = await outbox_size(store, await outbox_of(store, b"body", b"0123456"))
    return (with_one - without) / COUNT


MEASURES: dict[str, Callable[[Store], Awaitable[float]]] = {
    "a partition, idle": idle,
    "a message under lease or waiting in the window": lease,
    "the same, if no other is within 256 offsets": far_lease,
    "32,768 offsets above the position, however many are finished": chunk,
    "a message sent back, until ten minutes after its copy was claimed": moved,
    "a message with a note, `reason` or history, beside its texts (4,096 a partition)": texts,
    "a message sent back or dead, for an hour": exception,
    "a settle at another sidecar than the owner (the last 10,000 of a partition)": journal,
    "a partition in its owner's heartbeat": member,
    "an acked deduplication key, as long as its window (`dedup`)": business_key,
    "a message in the outbox, beside its own bytes": outbox_message,
    "its result, when it was sent (`publish.outbox_result_ms`)": outbox_result,
    "the `Idempotency-Key` of such a request (`publish.idempotency_ms`)": outbox_ticket,
}


@pytest.mark.parametrize("what", MEASURES)
async def test_bytes_in_the_store(what: str, valkey: RedisServer) -> None:
    """Measured where the page says: on the embedded kind of server."""
    async with started(connect(valkey.port)) as store:
        measured = await MEASURES[what](store)
    told = page()[what]
    assert abs(measured - told) <= TOLERANCE * told, f"{what}: {measured:.1f}, the page: {told}"


async def test_bytes_in_the_aof(own_redis: RedisFactory) -> None:
    """What a lease and an ack append, at 32 a call and at one."""
    # With `everysec` a server holds writes back while its disk is busy; the bytes are the same.
    config = {"appendonly": "yes", "appendfsync": "always"}
    server = own_redis(RedisOptions(binary(Flavour.VALKEY), config=config))

    def ask() -> int:
        return int(str(server.info("persistence")["aof_current_size"]))

    async with started(connect(server.port)) as store:
        for size, what in ((32, "a lease and its ack, 32 a call"), (1, "the same, alone")):
            owner = await opened(store)
            before = await asyncio.to_thread(ask)
            for start in range(0, 640, size):
                await owner.call(*(await owner.grant(*range(start, start + size))))
            measured = (await asyncio.to_thread(ask) - before) / 640
            told = page()[what]
            assert abs(measured - told) <= TOLERANCE * told, f"{what}: {measured:.1f}, {told}"


def test_bytes_of_a_copy() -> None:
    """What ackd's headers add to a message in a retry or dead-letter topic."""
    origin = Origin("MkU3OEVBNTcwNTJENDM2Qk", bytes(16), "orders", 3, 2_101_000)
    retry_copy = RetryCopy(
        *(origin, "orders", 1_795_000_000_000_000, 2**47, 40_000, 3),
        *(1_795_000_000_000, 1_795_000_000_000, 1_795_000_000_000),
        reason="age",
    )
    measured = sum(
        len(name) + len(value or b"") + 2 for name, value in retry_copy_headers(retry_copy, ())
    )
    told = page()["ackd's headers of a copy, without error texts"]
    assert abs(measured - told) <= TOLERANCE * told, f"{measured}, the page: {told}"
