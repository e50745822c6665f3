"""What sidecars say to each other, and what is no such thing."""

import msgspec
import pytest

from ackd.api.messages import Delivery
from ackd.core.origin import Origin
from ackd.engine.peers.frames import (
    MESSAGES_MAX,
    NUMBERS_MAX,
    Frame,
    PeerAnswer,
    PeerAsk,
    PeerCancel,
    PeerLost,
    PeerMessage,
    PeerReady,
    PeerTaken,
    PeerWatch,
    pack_deliveries,
    read_frame,
    unpack_deliveries,
    write_frame,
)
from ackd.ports import Record

MESSAGE = PeerMessage("v1.x", "orders", 3, 2101, None, b"", [("h", None)], -1, 1, 17, 5, 9)
FRAMES: list[Frame] = [
    PeerAsk("work", 1, 10, 1 << 20, 30_000, 0, "10.0.0.1"),
    PeerCancel("work", 1),
    PeerTaken("work", 1),
    PeerLost("work", [1, 2]),
    PeerWatch("work", on=True),
    PeerAnswer("work", 1, 0, 5, [MESSAGE]),
    PeerReady("work", 7),
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_frame_arrives_as_it_was_sent(frame: Frame) -> None:
    assert read_frame(write_frame(frame)) == frame


def delivery(origin: Origin | None) -> Delivery:
    record = Record(2101, b"key", None, (("a", b"1"), ("b", None)), 1_000)
    return Delivery("v1.x", "orders", 3, record, 2, 17, 500, 900, "half done", origin)


@pytest.mark.parametrize("origin", [None, Origin("c", bytes(16), "orders", 3, 7)])
def test_a_message_arrives_as_it_was_granted(origin: Origin | None) -> None:
    sent = PeerAnswer("work", 1, 0, 0, pack_deliveries([delivery(origin)]))
    got = read_frame(write_frame(sent))
    assert isinstance(got, PeerAnswer)
    assert unpack_deliveries(got.messages) == [delivery(origin)]


def changed(frame: Frame, **fields: object) -> bytes:
    """A frame with fields that nobody checks before it is sent."""
    return write_frame(msgspec.structs.replace(frame, **fields))


def message(**fields: object) -> bytes:
    return changed(FRAMES[5], messages=[msgspec.structs.replace(MESSAGE, **fields)])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"hello",
        write_frame(FRAMES[0])[:-1],
        write_frame(FRAMES[0]) + b"x",
        msgspec.msgpack.encode(["shout", "work", 1]),
        msgspec.msgpack.encode(["cancel", "work"]),
        changed(FRAMES[0], number=-1),
        changed(FRAMES[0], number=1 << 54),
        changed(FRAMES[0], max=0),
        changed(FRAMES[0], max=MESSAGES_MAX + 1),
        changed(FRAMES[0], bytes_max=-1),
        changed(FRAMES[0], lease_ms=-1),
        changed(FRAMES[0], wait_ms=-1),
        changed(FRAMES[0], wait_ms=1 << 63),
        changed(FRAMES[0], subscription="w" * 257),
        changed(FRAMES[0], holder="h" * 1_025),
        changed(FRAMES[3], numbers=[-1]),
        changed(FRAMES[3], numbers=[1] * (NUMBERS_MAX + 1)),
        changed(FRAMES[4], on="yes"),
        changed(FRAMES[5], waited_ms=-1),
        changed(FRAMES[6], ready=-1),
        message(partition=-1),
        message(partition=1 << 31),
        message(offset=-1),
        message(offset=1 << 63),
        message(attempt=-1),
        message(deadline_ms=-1),
        message(deadline_ms=1 << 63),
        message(headers=[("h",)]),
        message(origin=("c", b"short", "orders", 3, 7)),
        message(origin=("c", bytes(16), "orders", -3, 7)),
    ],
)
def test_what_is_no_frame_or_out_of_range_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="invalid frame"):
        read_frame(data)
