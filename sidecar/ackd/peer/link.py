"""One connection to another sidecar: frames of bytes, each with its length before it.

A frame is four bytes with its length, big endian, then its bytes. A length of `BEAT` is no frame:
it says only that the sender lives. Whoever sends nothing else sends one twice a second, so that a
sidecar that stands still is noticed, however much waits in the other direction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from ackd.config.units import KIB
from ackd.peer.handshake import Hello
from ackd.peer.peer_limits import PeerLimits
from ackd.ports.peers import PeerUser
from ackd.telemetry.counter import Counter

LOG = logging.getLogger("ackd.peer")

READ_BYTES = 256 * KIB
"""The most bytes of one read of small frames. All links share the buffer for it."""
JOINED_BYTES_MAX = 64 * KIB
"""Longer frames are written by themselves: to copy them costs more than another call."""
BEAT = 0xFFFF_FFFF
HEAD_BYTES = 4
TICKS_A_BEAT = 2
_HEAD = Struct(">I")
_BEAT = _HEAD.pack(BEAT)


@dataclass(frozen=True, slots=True)
class LinkShare:
    """What the links of a sidecar have in common."""

    user: PeerUser
    limits: PeerLimits
    buffer: memoryview
    sent: Counter
    received: Counter
    ended: Callable[[TcpLink], None]
    """Called before the user hears of the end."""


# tidy: long-class attributes=16 -- buffers and counters of one connection, on the hot path
class TcpLink(asyncio.BufferedProtocol):
    """Implements `ackd.ports.PeerLink`; made when the handshake is over.

    `tick` is called at half the interval of beats. Time is counted in ticks: while this process
    stands still nobody ticks, and so it blames nobody else for that.
    """

    __slots__ = (
        *("_at", "_frame", "_head", "_high", "_loop", "_mute", "_open", "_outgoing", "_peer"),
        *("_quiet", "_quiet_max", "_reported", "_share", "_transport", "_waiting"),
        "_waiting_bytes",
    )

    def __init__(
        self, peer: Hello, transport: asyncio.Transport, share: LinkShare, *, outgoing: bool
    ) -> None:
        self._peer = peer
        self._outgoing = outgoing
        self._transport = transport
        self._share = share
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._reported = False
        # Frames that the next turn of the loop writes in one call.
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        # A part of a frame's head, or the frame that is being received and how much of it has come.
        self._head = b""
        self._frame: memoryview | None = None
        self._at = 0
        # Ticks without a byte in, and out.
        self._quiet = self._mute = 0
        self._quiet_max = round(share.limits.quiet_s / share.limits.beat_s * TICKS_A_BEAT)
        # Whether `unsent` was above the high-water mark, so that the user waits for its end. The
        # transport tells whenever its buffer is empty again; that of TLS takes 0 for always full.
        self._high = False
        secured = transport.get_extra_info("ssl_object") is not None
        transport.set_write_buffer_limits(high=1 if secured else 0, low=0)

    @property
    def name(self) -> str:
        """The other sidecar's identity."""
        return self._peer.name

    @property
    def instance(self) -> str:
        """A text of the other sidecar's process."""
        return self._peer.instance

    @property
    def outgoing(self) -> bool:
        """Whether this sidecar made the connection."""
        return self._outgoing

    @property
    def open(self) -> bool:
        """Whether frames go through."""
        return self._open

    @property
    def unsent(self) -> int:
        """Bytes that the operating system has not taken yet. With TLS those are not counted that
        were encrypted already, at most as much again.
        """
        return self._waiting_bytes + self._transport.get_write_buffer_size() if self._open else 0

    # --- out --------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Queue a frame; what is sent in one turn of the event loop goes out together."""
        if not self._open:
            return
        size = len(frame)
        if size > self._share.limits.frame_bytes_max:
            self._fail(f"a frame of {size} bytes was to be sent")
            return
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(frame)
        self._waiting_bytes += HEAD_BYTES + size

    def _flush(self) -> None:
        frames, self._waiting = self._waiting, []
        if not self._open:
            return
        if self.unsent > self._share.limits.unsent_bytes_high:
            self._high = True
        size, self._waiting_bytes = self._waiting_bytes, 0
        self._mute = 0
        self._share.sent.inc(size)
        write = self._transport.write
        pieces: list[bytes] = []
        for frame in frames:
            pieces.append(_HEAD.pack(len(frame)))
            if len(frame) <= JOINED_BYTES_MAX:
                pieces.append(frame)
            else:
                write(b"".join(pieces))
                pieces.clear()
                write(frame)
        if pieces:
            write(b"".join(pieces))
        if self._high and not self.unsent:
            self.resume_writing()

    def pause_writing(self) -> None:
        """Nothing: `unsent` tells, and the user decides."""

    def resume_writing(self) -> None:
        """All that was unsent has gone, but for what was sent in this turn of the event loop."""
        if self._open and self._high and not self._waiting:
            self._high = False
            self._share.user.writable(self)

    # --- in ---------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Place for the next read: the rest of a frame that has begun, or the shared buffer."""
        if self._frame is not None:
            return self._frame[self._at :]
        head, buffer = self._head, self._share.buffer
        buffer[: len(head)] = head
        return buffer[len(head) :]

    def buffer_updated(self, nbytes: int) -> None:
        """Cut frames out of what has come."""
        self._quiet = 0
        self._share.received.inc(nbytes)
        if not self._open:
            return
        frame = self._frame
        if frame is None:
            end = len(self._head) + nbytes
            self._head = b""
            self._cut(end)
            return
        self._at += nbytes
        if self._at == len(frame):
            self._frame = None
            self._receive(bytes(frame))

    def _cut(self, end: int) -> None:
        """The first `end` bytes of the shared buffer are this link's; nobody else reads into it
        before this returns.
        """
        buffer, most, at = self._share.buffer, self._share.limits.frame_bytes_max, 0
        while end - at >= HEAD_BYTES and self._open:
            (size,) = _HEAD.unpack_from(buffer, at)
            at += HEAD_BYTES
            if size > most:
                if size != BEAT:
                    self._fail(f"a frame of {size} bytes was announced")
                continue
            if size > end - at:
                self._begin(size, buffer[at:end])
                return
            at += size
            self._receive(bytes(buffer[at - size : at]))
        self._head = bytes(buffer[at:end])

    def _begin(self, size: int, start: memoryview) -> None:
        """Receive the rest of a frame into a place of its own."""
        frame = memoryview(bytearray(size))
        frame[: len(start)] = start
        self._frame, self._at = frame, len(start)

    def _receive(self, frame: bytes) -> None:
        try:
            self._share.user.received(self, frame)
        except ValueError as error:
            self._fail(f"a frame that makes no sense: {error}")

    # --- the end ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Look after the time that has passed."""
        if not self._open:
            return
        self._quiet += 1
        self._mute += 1
        if self._quiet > self._quiet_max:
            self._fail(f"nothing came for {self._share.limits.quiet_s} s")
        elif self._mute >= TICKS_A_BEAT and not self.unsent:
            self._mute = 0
            self._share.sent.inc(HEAD_BYTES)
            self._transport.write(_BEAT)

    def close(self) -> None:
        """Drop the connection, with what is unsent and unread. `closed` of its user follows."""
        if self._open:
            self._open = False
            self._frame = None
            self._transport.abort()
            self._loop.call_soon(self._end)

    def drop(self) -> None:
        """Close, and tell the user before this returns. Not for the user itself."""
        if self._open:
            self.close()
            self._end()

    def _fail(self, why: str) -> None:
        LOG.warning("the link to %s was closed: %s", self.name, why)
        self.close()

    def eof_received(self) -> None:
        """Nothing more comes, so nothing that waits here has a reader."""
        self.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.close()

    def _end(self) -> None:
        """Report the end, once."""
        if not self._reported:
            self._reported = True
            self._share.ended(self)
            self._share.user.closed(self)
