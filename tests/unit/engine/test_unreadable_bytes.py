"""Whoever reads bytes of somebody else refuses them, whatever is wrong with them: text that is not
UTF-8, nesting without end, what is cut short, what has another shape.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from ackd.core.ids import LedgerKey
from ackd.engine.base import copy_keys
from ackd.engine.base.live import read_live
from ackd.engine.base.spill_file import FileSpill
from ackd.engine.cluster.members import MemberNote, read_note
from ackd.engine.operations.seek_document import is_seek, read_seek
from ackd.engine.ownership import undo
from ackd.engine.ownership.expected import Expected
from ackd.engine.partition.histories import read_history
from ackd.engine.peers.frames import read_delivery, read_frame
from ackd.engine.publishing import outbox_codec
from ackd.errors import StoreDataError
from ackd.ports import Record, Store
from ackd.unreadable import UNREADABLE
from tests.unit.engine.world import NAME, TOPIC_ID, World

KEY = LedgerKey("cluster", NAME, TOPIC_ID, 0)
DEEP = 100_000


def broken(*members: str) -> list[bytes]:
    """JSON that is cut, is no UTF-8, is nested without end or has another shape, in members that
    its reader knows, as it passes over others.
    """
    found = [b"", b"{", b"\xff", b"7"]
    for each in members:
        name = each.encode()
        found += [b'{"%b":"\xff"}' % name, b'[{"%b":"\xff"}]' % name, b'{"%b":1.5}' % name]
    return [*found, b'{"x":' + b"[" * DEEP, b'{"x":' + b"[" * DEEP + b"]" * DEEP + b"}"]


MSGPACK = [
    b"",
    b"\xc1",
    b"\x91\xa1\xff",  # [text that is not UTF-8]
    b"\x95\xa1\xff\xc4\x00\xc4\x00\x90\xc0",
    b"\x96\x01\xc0\xc0\x91\x92\xa1\xff\xc0\x00\xc0",
    b"\x81\xa4type\xa1\xff",
    b"\x91" * DEEP,
    msgspec.msgpack.encode({"topic": 5}),
]


def refuses(read: Callable[[bytes], object], data: bytes, *errors: type[Exception]) -> None:
    """It raises one of these, or answers nothing."""
    try:
        found = read(data)
    except errors:
        return
    assert not found, f"{data[:40]!r} was read as {found!r}"


@pytest.mark.parametrize(
    ("read", "members"),
    [
        (read_history, ["attempt", "holder"]),
        (is_seek, ["seek"]),
        (read_seek, ["id", "kind", "targets"]),
        (lambda data: copy_keys._read(data).keys, ["keys", "signed_from"]),
    ],
)
def test_json_of_somebody_else_is_refused(
    read: Callable[[bytes], object], members: list[str]
) -> None:
    for data in broken(*members):
        refuses(read, data, StoreDataError)


@pytest.mark.parametrize("text", ["", "{", "7", '{"run":7}', '{"lost":[7]}', "[" * DEEP])
def test_a_note_of_a_member_that_nobody_can_read_says_nothing(text: str) -> None:
    assert read_note(text) == MemberNote()


def test_live_settings_that_nobody_can_read_are_told_from_none() -> None:
    for data in broken("version", "settings", "pause"):
        assert data == b"" or b'"x"' in data or read_live(data) is None, data


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("undo", lambda store: undo.kept(store, KEY)),
        ("expected", lambda store: Expected(store).of(KEY)),
    ],
)
async def test_a_note_in_the_store_that_nobody_can_read_is_none(
    world: World, name: str, read: Callable[[Store], Awaitable[object]]
) -> None:
    for data in broken("offset", "start", "by_hand"):
        await world.store.put(f"{name}:{KEY.text()}", data)
        assert await read(world.context.store) is None


@pytest.mark.parametrize("data", MSGPACK, ids=[each[:8].hex() for each in MSGPACK])
def test_msgpack_of_somebody_else_is_refused(data: bytes) -> None:
    refuses(read_frame, data, ValueError)
    assert read_delivery(data) is None
    with pytest.raises(UNREADABLE):
        outbox_codec.read_message(data)


@pytest.mark.parametrize("data", MSGPACK, ids=[each[:8].hex() for each in MSGPACK])
async def test_a_body_on_the_disk_that_was_changed_is_an_error_of_the_disk(
    data: bytes, tmp_path: Path
) -> None:
    """Whoever waits for it gets it from the broker then."""
    spill = FileSpill(tmp_path / "spill", 1 << 20, 1 << 16)
    stubs = await spill.write([Record(1, b"key", b"v" * max(len(data), 100), (), 5)])
    assert stubs is not None
    (file,) = (tmp_path / "spill").glob("*.bodies")
    size = file.stat().st_size
    file.write_bytes((data or b"\xc1").ljust(size, b"\xc1")[:size])
    with pytest.raises(OSError, match="bodies"):
        await spill.read(stubs)
