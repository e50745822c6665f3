"""What the heads of entries say that wait in a connection's buffer: where each is, and when it is
due.

There is one for each message outside of a batch, so this is what honoring delays costs. A broker's
entries differ in little: the command by the number of the entry, and hardly any metadata have one
of the two fields that count. So a command is decoded once, and those that follow are compared.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from ackd_adapters.pulsar.protobuf import decode, encode, number, octets, varint

Place = tuple[int, int]
"""Ledger and entry."""
MESSAGE: Final = 9
"""The command that brings an entry."""
_SIZES: Final = Struct(">II").unpack_from
_SIZES_BYTES: Final = 8
_MAGIC: Final = b"\x0e\x01"
_CHECKSUM_BYTES: Final = 6
_PRODUCER: Final = encode({1: b""})[0]
_MORE: Final = 0x80
_BATCH_MESSAGES: Final = 11
_DELIVER_AT: Final = 19
_BATCH_TAG: Final = encode({_BATCH_MESSAGES: 0})[:-1]
_DUE_TAG: Final = encode({_DELIVER_AT: 0})[:-1]


class Heads(NamedTuple):
    """What some entries say, in order of the log. `messages`: in all of them. `due_ms`: of those
    that were delayed.
    """

    messages: int
    last: Place
    due_ms: dict[Place, int]


class CommandShape(NamedTuple):
    """What the commands of a ledger's entries have in common: all `before` and `after` the entry's
    number, and the size of that.
    """

    before: bytes
    after: bytes
    number_size: int
    ledger: int

    @property
    def size(self) -> int:
        """Bytes of the command."""
        return len(self.before) + self.number_size + len(self.after)


class HeadReader:
    """Reads the entries of one connection."""

    def __init__(self) -> None:
        self._shape = CommandShape(b"", b"", 0, -1)

    def read(self, data: bytearray, at: int) -> tuple[int, Heads | None]:
        """Read the entries of whole frames from `at` on. Stops at what is no entry, or can't be
        read: that is an error (ValueError, IndexError) once it comes first. Returns where it
        stopped; None where that is `at`.
        """
        due_ms: dict[Place, int] = {}
        messages, last = 0, (-1, -1)
        end, find, sizes, position_of = len(data), data.find, _SIZES, self._place
        while end - at >= _SIZES_BYTES:
            size, command_size = sizes(data, at)
            stop = at + 4 + size
            if stop > end:
                break
            command_at = at + _SIZES_BYTES
            try:
                place = position_of(data, command_at, command_size)
                if place is None:
                    break
                begin, ends = _metadata(data, command_at + command_size, stop)
                if find(_DUE_TAG, begin, ends) < 0 and find(_BATCH_TAG, begin, ends) < 0:
                    messages += 1
                else:
                    found = decode(bytes(data[begin:ends]))
                    messages += max(number(found, _BATCH_MESSAGES, 1), 1)
                    if due := number(found, _DELIVER_AT):
                        due_ms[place] = due
            except (ValueError, IndexError):
                if not messages:
                    raise
                break
            last = place
            at = stop
        return at, Heads(messages, last, due_ms) if messages else None

    def _place(self, data: bytearray, at: int, size: int) -> Place | None:
        """Which entry the command brings; None if it is another one."""
        before, after, number_size, ledger = self._shape
        begin = at + len(before)
        stop = begin + number_size
        if (
            number_size
            and stop + len(after) == at + size
            and data.startswith(before, at)
            and data.startswith(after, stop)
        ):
            entry, ends = varint(data, begin)
            if ends == stop:
                return ledger, entry
        return self._learn(bytes(data[at : at + size]))

    def _learn(self, command: bytes) -> Place | None:
        fields = decode(command)
        if number(fields, 1) != MESSAGE:
            return None
        place = decode(octets(decode(octets(fields, MESSAGE)), 2))
        ledger, entry = number(place, 1), number(place, 2)
        begins, whole = encode({1: ledger, 2: 0})[:-1], encode({1: ledger, 2: entry})
        if command.count(whole) == 1:
            before, _, after = command.partition(whole)
            self._shape = CommandShape(before + begins, after, len(whole) - len(begins), ledger)
        return ledger, entry


def _metadata(data: bytearray, at: int, stop: int) -> tuple[int, int]:
    """Where an entry's metadata begin, without the name of the producer, and end."""
    if data[at] == _MAGIC[0] and data[at + 1] == _MAGIC[1]:
        at += _CHECKSUM_BYTES
    begin = at + 4
    end = begin + int.from_bytes(data[at:begin], "big")
    if end > stop:
        raise ValueError("metadata are longer than their entry")
    # The name comes first, and may have any letters.
    if end - begin > 1 and data[begin] == _PRODUCER and data[begin + 1] < _MORE:
        begin += 2 + data[begin + 1]
    return begin, end
