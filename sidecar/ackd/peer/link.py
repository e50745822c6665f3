"""One connection to another sidecar: frames of bytes, each with its length before it.

A frame is four bytes with its length, big endian, then its bytes. The length `BEAT` has no frame
behind it: it says only that the sender lives. A sidecar that has nothing to send sends a beat twice
a second. Thus the other side notices within 1.5 s that it hangs, even while the other side itself
has much to send.

A long frame goes in parts, with other frames between them, so that nobody waits behind a message of
256 MiB: a head with the bits of `LONG` announces its length, and heads with the bit of `PART` are
followed by its next bytes. One long frame goes after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from ackd.config.units import KIB, MIB
from ackd.peer.handshake import Hello
from ackd.peer.peer_limits import PeerLimits
from ackd.ports.peers import PeerUser
from ackd.telemetry.counter import Counter

LOG = logging.getLogger("ackd.peer")

READ_BYTES = 256 * KIB
"""Size of the buffer into which all links read small frames, so the most that one read brings."""
JOINED_BYTES_MAX = 64 * KIB
"""Longer frames are written by themselves: joining copies them, which costs more than a call."""
LONG_BYTES_MIN = MIB
"""Longer frames go in parts."""
PART_BYTES = 128 * KIB
BEAT = 0xFFFF_FFFF
LONG = 0xC000_0000
PART = 0x8000_0000
LENGTH = 0x3FFF_FFFF
"""The bits of a length, beside those of `LONG` and `PART`."""
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
    """Called before `PeerUser.closed`."""


# tidy: long-class attributes=23 -- buffers and counters of one connection, on the hot path
class TcpLink(asyncio.BufferedProtocol):
    """Implements `ackd.ports.PeerLink`, for a connection whose handshake succeeded.

    `TcpPeers` calls `tick` every half interval of beats. The link measures silence in ticks, not in
    seconds: a process that hangs does not tick, so it does not take its own pause for silence of
    the other side.
    """

    __slots__ = (
        *("_at", "_frame", "_head", "_high", "_long", "_long_at", "_long_bytes"),
        *("_long_left", "_loop", "_mute"),
        *("_open", "_outgoing", "_parts", "_parts_left", "_peer", "_pumping", "_quiet"),
        *("_quiet_max", "_reported", "_share", "_transport", "_waiting", "_waiting_bytes"),
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
        # Frames that the next turn of the event loop writes in one call.
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        # Long frames, how much of the first one is written, their unwritten bytes, and whether the
        # next turn of the loop writes a part.
        self._long: deque[bytes] = deque()
        self._long_at = self._long_bytes = 0
        self._pumping = False
        # Parts of a long frame that have come; bytes that are missing of it, and of its last part.
        self._parts: list[bytes] = []
        self._long_left = self._parts_left = 0
        # A part of a frame's head, or the frame that is being received and how much of it has come.
        self._head = b""
        self._frame: memoryview | None = None
        self._at = 0
        # Ticks since the last byte came in, and since the last one went out.
        self._quiet = self._mute = 0
        self._quiet_max = round(share.limits.quiet_s / share.limits.beat_s * TICKS_A_BEAT)
        # Whether `unsent` passed the high-water mark, so that the user waits for `writable`. These
        # limits make the transport report each time that its buffer is empty again. A transport
        # with TLS takes high=0 for "always full", so it gets 1.
        self._high = False
        secured = transport.get_extra_info("ssl_object") is not None
        transport.set_write_buffer_limits(high=1 if secured else 0, low=0)

    @property
    def name(self) -> str:
        """The other sidecar's identity."""
        return self._peer.name

    @property
    def instance(self) -> str:
        """The string that the other sidecar's process chose at its start."""
        return self._peer.instance

    @property
    def outgoing(self) -> bool:
        """Whether this sidecar made the connection."""
        return self._outgoing

    @property
    def open(self) -> bool:
        """Whether the link still takes and gives frames."""
        return self._open

    @property
    def unsent(self) -> int:
        """Bytes that the operating system has not taken yet. With TLS, encrypted bytes do not
        count, so that up to twice as many may wait.
        """
        if not self._open:
            return 0
        return self._waiting_bytes + self._long_bytes + self._transport.get_write_buffer_size()

    # --- out --------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Queue a frame. All frames of one turn of the event loop are written together. Shorter
        ones may overtake one that is longer than `LONG_BYTES_MIN`.
        """
        if not self._open:
            return
        size = len(frame)
        if size > self._share.limits.frame_bytes_max:
            self._fail(f"a frame of {size} bytes was to be sent")
            return
        if size > LONG_BYTES_MIN:
            self._long.append(frame)
            self._long_bytes += HEAD_BYTES + size
            self._pump_soon()
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

    def _pump_soon(self) -> None:
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Write the next part of a long frame, once everything before it has gone."""
        self._pumping = False
        if not self._open or not self._long:
            return
        if self.unsent > self._share.limits.unsent_bytes_high:
            self._high = True
        if self._transport.get_write_buffer_size():
            return  # `resume_writing` follows
        frame, at = self._long[0], self._long_at
        end = self._long_at = min(at + PART_BYTES, len(frame))
        head = _HEAD.pack(PART | end - at)
        if not at:
            head = _HEAD.pack(LONG | len(frame)) + head
            self._long_bytes -= HEAD_BYTES
        self._long_bytes -= end - at
        if end == len(frame):
            self._long.popleft()
            self._long_at = 0
        self._mute = 0
        self._share.sent.inc(len(head) + end - at)
        self._transport.write(b"".join((head, memoryview(frame)[at:end])))
        if not self._transport.get_write_buffer_size():
            self.resume_writing()

    def pause_writing(self) -> None:
        """Do nothing: the user looks at `unsent` and decides for itself."""

    def resume_writing(self) -> None:
        """Write on, or call `writable` if the user waits for it and has queued nothing."""
        if not self._open:
            return
        if self._long:
            self._pump_soon()
        elif self._high and not self._waiting:
            self._high = False
            self._share.user.writable(self)

    # --- in ---------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next read goes: into the frame that has begun, or the shared buffer."""
        if self._frame is not None:
            return self._frame[self._at :]
        head, buffer = self._head, self._share.buffer
        buffer[: len(head)] = head
        return buffer[len(head) :]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the frames that are complete."""
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
        """Cut the first `end` bytes of the shared buffer into frames. No other link reads into the
        buffer before this returns.
        """
        buffer, most, at = self._share.buffer, self._share.limits.frame_bytes_max, 0
        if self._parts_left:
            at = self._take_part(0, end)
        while end - at >= HEAD_BYTES and self._open:
            (size,) = _HEAD.unpack_from(buffer, at)
            at += HEAD_BYTES
            if size > most:
                if size != BEAT:
                    self._announced(size)
                    at = self._take_part(at, end)
                continue
            if size > end - at:
                self._begin(size, buffer[at:end])
                return
            at += size
            self._receive(bytes(buffer[at - size : at]))
        self._head = bytes(buffer[at:end])

    def _announced(self, head: int) -> None:
        """A long frame begins, or its next part."""
        size, left = head & LENGTH, self._long_left
        if head & LONG == LONG:
            good = not left and 0 < size <= self._share.limits.frame_bytes_max
            self._long_left = size
        else:
            good = head & PART == PART and 0 < size <= left
            self._parts_left = size
        if not good:
            self._long_left = self._parts_left = 0
            self._fail(f"a frame of {size} bytes was announced")

    def _take_part(self, at: int, end: int) -> int:
        """Take what has come of a part, from this place of the buffer on; the place after it."""
        size = min(self._parts_left, end - at)
        if size and self._open:
            self._parts.append(bytes(self._share.buffer[at : at + size]))
            self._parts_left -= size
            self._long_left -= size
            if not self._long_left:
                parts, self._parts = self._parts, []
                self._receive(b"".join(parts))
        return at + size

    def _begin(self, size: int, start: memoryview) -> None:
        """Receive the rest of a long frame into a buffer of its own."""
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
        """Close the link if nothing came for `quiet_s` seconds, and send a beat if one is due."""
        if not self._open:
            return
        self._quiet += 1
        self._mute += 1
        if self._quiet > self._quiet_max:
            self._fail(f"nothing came for {self._share.limits.quiet_s} s")
        elif self._long:
            self._pump_soon()
        elif self._mute >= TICKS_A_BEAT and not self.unsent:
            self._mute = 0
            self._share.sent.inc(HEAD_BYTES)
            self._transport.write(_BEAT)

    def close(self) -> None:
        """Drop the connection with all that is unsent or unread. `PeerUser.closed` follows in the
        next turn of the event loop.
        """
        if self._open:
            self._open = False
            self._frame = None
            self._parts.clear()
            self._long.clear()
            self._transport.abort()
            self._loop.call_soon(self._end)

    def drop(self) -> None:
        """Close, and call `PeerUser.closed` before this returns. The user itself must not call
        this.
        """
        if self._open:
            self.close()
            self._end()

    def _fail(self, why: str) -> None:
        LOG.warning("the link to %s was closed: %s", self.name, why)
        self.close()

    def eof_received(self) -> None:
        """The other side closed its half, so it no longer reads what this side has to send."""
        self.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.close()

    def _end(self) -> None:
        """Report that the link has closed, once."""
        if not self._reported:
            self._reported = True
            self._share.ended(self)
            self._share.user.closed(self)
