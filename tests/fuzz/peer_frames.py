"""Frames of other sidecars: ValueError, or the same frame again; and how a stream is cut."""

import asyncio
import contextlib
import struct
from collections.abc import Iterator
from typing import Any

from ackd.engine.peers.frames import (
    PeerAnswer,
    PeerAsk,
    PeerLost,
    PeerMessage,
    PeerQuestion,
    PeerReply,
    pack_deliveries,
    read_delivery,
    read_frame,
    unpack_deliveries,
    write_delivery,
    write_frame,
)
from ackd.peer.handshake import Hello, NoLinkError
from ackd.peer.link import BEAT, LONG, PART, LinkShare, TcpLink
from ackd.peer.peer_limits import PeerLimits
from ackd.ports import PeerLink
from ackd.telemetry.counter import Counter

_FRAME_MAX = 4096
_READ = 512
_LIMITS = PeerLimits(frame_bytes_max=_FRAME_MAX)
_LOOP = asyncio.new_event_loop()
_COUNTER = Counter("fuzz_bytes", "bytes", ())


class _User:
    """Keeps the frames, and finds no sense in some, as the engine does."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def opened(self, link: PeerLink) -> None:
        pass

    def received(self, link: PeerLink, frame: bytes) -> None:
        self.frames.append(frame)
        if frame[:2] == b"no":
            message = "no sense"
            raise ValueError(message)

    def writable(self, link: PeerLink) -> None:
        pass

    def closed(self, link: PeerLink) -> None:
        pass


class _Wire(asyncio.Transport):
    """A connection of which only the end matters."""

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def run(data: bytes) -> None:
    """The first byte says what it is: a frame, a delivery, a hello, or a stream."""
    kind, raw = (data[:1] or b"\0")[0] % 4, data[1:]
    if kind == 0:
        with contextlib.suppress(ValueError):
            frame = read_frame(raw)
            packed = write_frame(frame)
            assert write_frame(read_frame(packed)) == packed
            if isinstance(frame, PeerAnswer):
                deliveries = unpack_deliveries(frame.messages)
                assert len(pack_deliveries(deliveries)) == len(frame.messages)
    elif kind == 1:
        delivery = read_delivery(raw)
        if delivery is not None:
            assert read_delivery(write_delivery(delivery)) == delivery
    elif kind == 2:
        with contextlib.suppress(NoLinkError):
            hello = Hello.parse(raw)
            assert len(hello.packed()) >= len(raw) or len(raw) > len(hello.packed())
            assert Hello.parse(hello.packed()) == hello
    else:
        step = 1 + (raw[:1] or b"\0")[0] % _READ
        assert _frames(raw[1:], _READ) == _frames(raw[1:], step)


def _frames(raw: bytes, step: int) -> tuple[list[bytes], bool]:
    """The frames of a stream that is read in such steps, and whether the link is open still."""
    return _LOOP.run_until_complete(_received(raw, step))


async def _received(raw: bytes, step: int) -> tuple[list[bytes], bool]:
    user, buffer = _User(), memoryview(bytearray(_READ + 8))
    share = LinkShare(user, _LIMITS, buffer, _COUNTER, _COUNTER, lambda _: None)
    link = TcpLink(Hello.fresh("s2", "i"), _Wire(), share, outgoing=False)
    at = 0
    while at < len(raw) and link.open:
        room = link.get_buffer(-1)
        piece = raw[at : at + min(step, len(room))]
        room[: len(piece)] = piece
        link.buffer_updated(len(piece))
        at += len(piece)
        held = sum(map(len, link._parts)) + (len(link._frame) if link._frame is not None else 0)
        # A long frame in parts, and one that came between its parts.
        assert held <= 2 * _FRAME_MAX, "a link holds two frames at most"
    return user.frames, link.open


def seeds() -> Iterator[bytes]:
    """Frames of each shape, and streams of short frames, beats and long frames in parts."""
    place = ("c", bytes(16), "orders", 3, 7)
    message = PeerMessage(
        *(
            "v1.a",
            "orders",
            3,
            2101,
            b"k",
            b"v",
            [("h", b"x"), ("n", None)],
            5,
            1,
            5,
            6,
            7,
            "n",
            place,
        )
    )
    yield b"\0" + write_frame(PeerAsk("orders", 1, 10, 1 << 20, 30_000, 1_000, "w", [1, 2]))
    yield b"\0" + write_frame(PeerAnswer("orders", 1, 0, 3, [message]))
    yield b"\0" + write_frame(PeerLost("orders", [1, 2, 3]))
    yield b"\0" + write_frame(PeerQuestion("orders", 1, "history", b"x"))
    yield b"\0" + write_frame(PeerReply("orders", 1, b"x", "no"))
    [delivery] = unpack_deliveries([message])
    yield b"\1" + write_delivery(delivery)
    yield b"\2" + Hello("s2", "abc", bytes(32)).packed()
    head = struct.Struct(">I").pack
    yield b"\3\5" + head(3) + b"abc" + head(BEAT) + head(600) + bytes(600) + head(1) + b"x"
    yield (
        b"\3\1"
        + head(LONG | 6)
        + head(PART | 4)
        + b"abcd"
        + head(2)
        + b"no"
        + head(PART | 2)
        + b"ef"
    )
    yield b"\3\7" + head(_FRAME_MAX + 1) + b"abc"
    long = head(LONG | _FRAME_MAX) + head(PART | 3800) + bytes(3800)
    yield b"\3\7" + long + head(700) + bytes(260)
