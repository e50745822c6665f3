"""What the store answers. Whoever can write into it can put anything there: StoreError, or a value.

The first byte says which reader gets the rest. Of an answer in parts, two bytes before each have
its length.
"""

import contextlib
from collections.abc import Callable, Iterator

import msgspec

from ackd.core.outbox import MessageStatus
from ackd.core.record.protocol import RecordReply
from ackd.engine.publishing import outbox_codec
from ackd.errors import StoreError
from ackd.ports import Outgoing, Stored
from ackd.store import answers, codec


def _parts(data: bytes) -> Iterator[bytes]:
    while data:
        size = int.from_bytes(data[:2], "big")
        yield data[2 : 2 + size]
        data = data[2 + size :]


def _replies(data: bytes) -> None:
    [reply] = answers.replies([data], 1)
    assert isinstance(reply, RecordReply | StoreError)


def _texts(data: bytes) -> None:
    texts = codec.decode_texts(data)
    assert sum(map(len, texts)) <= len(data)


def _head(data: bytes) -> None:
    _, slots = codec.decode_head([*_parts(data)])
    for chunk in slots:
        assert len(chunk) * codec.SLOT_BYTES <= len(data)


def _cold(data: bytes) -> None:
    layout, epoch, watermark = codec.decode_cold(data)
    assert min(layout, epoch, watermark) >= 0


def _member(data: bytes) -> None:
    version, member = codec.decode_member(b"s1", data)
    again = codec.encode_member(member.run, member.owned, member.note)
    assert codec.decode_member(b"s1", data[:16] + again) == (version, member)


def _outbox(data: bytes) -> None:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        message = outbox_codec.read_message(data)
        assert outbox_codec.read_message(outbox_codec.write_message(message)) == message


def _outcome(data: bytes) -> None:
    state = "failed" if data[:1] == b"f" else "sent"
    outbox_codec.read_status("b", 1, MessageStatus(state, 0, result=data[1:]))


_READERS: tuple[Callable[[bytes], None], ...] = (
    *(_replies, _texts, _head, _cold, _member, _outbox, _outcome),
)


def run(data: bytes) -> None:
    """Read it."""
    with contextlib.suppress(StoreError):
        _READERS[(data[:1] or b"\0")[0] % len(_READERS)](data[1:])


def seeds() -> Iterator[bytes]:
    """A good one for each reader."""
    result = codec._RESULT.pack(0, 1, 1, 5, 9, 2, False)
    numbers = (0, 9, 1, 3, 0, 5, 2101, 7, 0, 2)
    yield b"\0" + codec._REPLY.pack(*numbers) + result * 2
    yield (
        b"\0"
        + codec._REPLY.pack(*numbers[:8], 9, 1)
        + result
        + codec._JOURNAL.pack(7, 1, 2, 3, 1)
        + b"\0\0\0\1"
    )
    yield b"\0" + codec._REPLY.pack(3, *numbers[1:])
    yield b"\0\xffOOM command not allowed"
    yield b"\1\0\2\0\2\0\1abcdnrest"
    opened = codec._OPENED.pack(0, False, False, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, False)
    slots = codec._SLOT.pack(1, 1, 0, bytes(7), 1, bytes(6), 9) * 3
    parts = (opened, b"s1", b"b0", b"\xff\x01", b"s1", slots, b"k", bytes(12), b"j", b"")
    yield b"\2" + b"".join(len(each).to_bytes(2, "big") + each for each in parts)
    yield b"\3" + bytes(64)
    yield b"\4" + codec._MEMBER.pack(1, 2) + codec.encode_member("run", ["a", "b"], "note")
    message = Outgoing("orders", b"k", b"v", (("h", b"x"), ("n", None)), 3)
    yield b"\5" + outbox_codec.write_message(message)
    yield b"\6s" + outbox_codec.write_stored(Stored("orders", 3, 2101), in_doubt=True)
