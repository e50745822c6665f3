"""A session of Pulsar's adapter when the client fails midway, or leaves something out (I1)."""

import asyncio
from typing import cast

import pulsar
import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import EndReached, Fetched
from ackd_adapters.pulsar.box import Box
from ackd_adapters.pulsar.config import PulsarOptions
from ackd_adapters.pulsar.connection import Connection
from ackd_adapters.pulsar.delays import Delays
from ackd_adapters.pulsar.entries import EntryFollower
from ackd_adapters.pulsar.logs import Logs
from ackd_adapters.pulsar.numbering import Ledger, Log, Numbering
from ackd_adapters.pulsar.protobuf import encode
from ackd_adapters.pulsar.reading import Reading, _GapError
from ackd_adapters.pulsar.tables import Tables
from ackd_adapters.pulsar.wire import ClusterAccess

PART = TopicPartition("orders", 0)
LOG = Log((Ledger(7, 0),), 7, 9)


class OneLog:
    """A log of ten entries in one ledger; `first` is what retention has left."""

    first = 0

    def numbering(
        self, partition: TopicPartition, ledger: int | None = None, *, gives: bool = False
    ) -> Numbering:
        return Numbering.new(LOG, 1)

    def range(self, partition: TopicPartition) -> tuple[int, int]:
        return self.first, 10


class Message:
    """An entry as the client gives it."""

    def __init__(self, entry: int) -> None:
        self._entry = entry

    def message_id(self) -> pulsar.MessageId:
        return pulsar.MessageId(-1, 7, self._entry, -1)

    def properties(self) -> dict[str, str]:
        return {}

    def has_null_value(self) -> bool:
        return False

    def data(self) -> bytes:
        return b"%d" % self._entry

    def partition_key(self) -> str:
        return ""

    def publish_timestamp(self) -> int:
        return 1


class Reader:
    """Gives these entries; None = nothing for now, an error = that."""

    def __init__(self, *script: int | Exception | None) -> None:
        self._script = list(script)

    def read_next(self, timeout_ms: int) -> Message:
        step = self._script.pop(0) if self._script else None
        if step is None:
            raise pulsar.Timeout(pulsar.Result.Timeout)
        if isinstance(step, Exception):
            raise step
        return Message(step)

    def has_message_available(self) -> bool:
        return bool(self._script)


def begin(box: Box, logs: OneLog, delays: Delays | None = None) -> Reading:
    plain = PulsarOptions(service_url="pulsar://a", admin_url="http://a", honor_client_delays=False)
    delays = delays or Delays(plain, PART.topic, no_entries)
    tables = cast("Tables", logs)
    return Reading(cast("Connection", None), cast("Logs", logs), tables, box, 1, PART, 0, delays)


def no_entries() -> EntryFollower:
    raise AssertionError("nothing is asked")


class NoDelays(EntryFollower):
    """No entry was delayed."""

    def due(self, *_: object) -> dict[tuple[int, int], int]:
        return {}


class NoPath(Delays):
    """The broker does not say where the entries are, the first time."""

    def __init__(self) -> None:
        super().__init__(
            PulsarOptions(service_url="pulsar://a", admin_url="http://a"), PART.topic, self.entries
        )
        self.failed = False

    def entries(self) -> EntryFollower:
        if not self.failed:
            self.failed = True
            raise BrokerError("away")
        return NoDelays(cast("ClusterAccess", None), PART.topic)


def read(box: Box) -> list[int]:
    return [r.offset for each in box.take() if isinstance(each, Fetched) for r in each.records]


async def test_i1_what_was_read_before_the_client_failed_is_handed_over() -> None:
    """Else the next reader begins behind it, and the hole counts as finished."""
    box = Box(asyncio.get_running_loop(), 100, 10_000)
    session = begin(box, OneLog())
    with pytest.raises(pulsar.PulsarException):
        session._batch(Reader(0, 1, 2, pulsar.ConnectError(pulsar.Result.ConnectError)))
    assert read(box) == [0, 1, 2]
    assert not session._batch(Reader(2, 3, None))
    assert read(box) == [3]


async def test_i1_what_nobody_told_the_delays_of_is_read_again() -> None:
    """It was not handed over, so it must not count as read."""
    box = Box(asyncio.get_running_loop(), 100, 10_000)
    session = begin(box, OneLog(), NoPath())
    with pytest.raises(BrokerError):
        session._batch(Reader(0, 1, None))
    assert read(box) == []
    assert not await asyncio.to_thread(session._batch, Reader(0, 1, None))
    assert read(box) == [0, 1]


async def test_i1_a_gap_counts_as_finished_only_when_a_second_reader_finds_it() -> None:
    box = Box(asyncio.get_running_loop(), 100, 10_000)
    session = begin(box, OneLog())
    with pytest.raises(_GapError):
        session._batch(Reader(0, 3))
    assert read(box) == [0]
    session._batch(Reader(1, None))
    assert read(box) == [1]
    with pytest.raises(_GapError):
        session._batch(Reader(4))
    session._batch(Reader(4, None))
    assert read(box) == [4]


async def test_r6_retention_passed_the_session() -> None:
    """What was deleted unread is no hole: it is told, and the session is over."""
    box, logs = Box(asyncio.get_running_loop(), 100, 10_000), OneLog()
    session = begin(box, logs)
    session._batch(Reader(0, None))
    logs.first = 5
    assert session._batch(Reader(6))
    events = box.take()
    assert [type(each).__name__ for each in events] == ["Fetched", "OutOfRange"]
    assert read(box) == []


async def test_r7_the_end_is_told_once_nothing_is_left() -> None:
    box = Box(asyncio.get_running_loop(), 100, 10_000)
    session = begin(box, OneLog())
    session._batch(Reader(*range(10), None))
    for _ in range(2):
        session._batch(Reader())
    assert [each for each in box.take() if isinstance(each, EndReached)] == [
        EndReached(PART, 1, 10)
    ]


class RoomyLog(OneLog):
    """With room for batches of 16."""

    def numbering(
        self, partition: TopicPartition, ledger: int | None = None, *, gives: bool = False
    ) -> Numbering:
        return Numbering.new(LOG, 16)


class BatchReader(Reader):
    """Gives messages of (entry, index, messages of the batch); -1: outside of batches."""

    def __init__(self, *script: tuple[int, int, int]) -> None:
        super().__init__()
        self._places = list(script)

    def read_next(self, timeout_ms: int) -> Message:
        if not self._places:
            raise pulsar.Timeout(pulsar.Result.Timeout)
        entry, index, count = self._places.pop(0)
        message = Message(entry)
        place = pulsar.MessageId(-1, 7, entry, index)
        if index >= 0:
            place = Place(place, count)
        message.message_id = lambda: place  # type: ignore[method-assign]
        return message


class Place:
    """An id that names the number of its batch's messages, as those of the client do."""

    def __init__(self, place: pulsar.MessageId, count: int) -> None:
        self._place = place
        self._count = count

    def __getattr__(self, name: str) -> object:
        return getattr(self._place, name)

    def serialize(self) -> bytes:
        return encode({6: self._count})


async def test_i1_no_gap_is_seen_behind_batches_and_messages_outside_of_them() -> None:
    """Offsets have room for a batch; what one leaves of it is no gap, which would be read twice."""
    box = Box(asyncio.get_running_loop(), 100, 10_000)
    session = begin(box, RoomyLog())
    given = [(0, -1, 1), (1, 0, 2), (1, 1, 2), (2, -1, 1), (3, 15, 16), (4, -1, 1)]
    assert not session._batch(BatchReader(*given[:4]))
    assert read(box) == [0, 16, 17, 32]
    with pytest.raises(_GapError):
        session._batch(BatchReader(*given[4:]))
    assert not session._batch(BatchReader(*given[4:]))
    assert read(box) == [63, 64]


async def test_a_batch_without_room_is_an_error() -> None:
    box = Box(asyncio.get_running_loop(), 100, 10_000)
    session = begin(box, RoomyLog())
    with pytest.raises(BrokerError, match="more than 16 messages"):
        session._batch(BatchReader((0, 16, 17)))
