"""Pack calls for the scripts and unpack their replies: big-endian, fixed sizes, one string each.

This is the hot path: `struct` packs and unpacks whole lists, and no item is touched twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import starmap
from struct import Struct

from ackd.core.bitmap import CHUNK_BYTES, CHUNK_SHIFT, ChunkedBitmap
from ackd.core.record.protocol import (
    CallStatus,
    CallTexts,
    JournalEntry,
    MessageTexts,
    Open,
    OpResult,
    RecordCall,
    RecordReply,
    SlotView,
    Snapshot,
)
from ackd.core.record.slot import SLOT_CHUNK_SHIFT
from ackd.core.record.transitions import Outcome, State
from ackd.errors import StoreCallError, StoreDataError
from ackd.ports import Member

_CALL = Struct(">QQQQB")
_OP = Struct(">BQQHHQI?")
_REPLY = Struct(">BQQHIQQQBI")
_RESULT = Struct(">BBHQQI?")
_JOURNAL = Struct(">QBQQH")
FAILED = 255
"""In the place of the verdict: the call failed, and the error's text follows."""
_OPEN = Struct(">QQHqQBQQ")
_PEEK = 2
"""Stands where it says whether an absent record is made."""
_OPENED = Struct(">B??QQQQQIHQQQ?")
_SLOT = Struct(">BHB7sH6sI")
_MEMBER = Struct(">QQ")
_SIZE = Struct(">H")
_ITEM = Struct(">I")
_TEXTS = Struct(">HI")
_SIZES = Struct(">HHH")
_JOURNALED, _HAS_TEXTS, _HAS_NOTES, _DROPPED = 1, 2, 4, 8
"""Bits of a reply."""
_EPOCH, _WATERMARK = slice(14, 18), slice(27, 34)

OP_BYTES = _OP.size
SLOT_BYTES = _SLOT.size
_pack_op = _OP.pack
_OUTCOMES = tuple(
    Outcome(n) if n in set(Outcome) else Outcome.LOST for n in range(max(Outcome) + 1)
)
_STATES = tuple(State(n) if n in set(State) else State.READY for n in range(max(State) + 1))
_SLOTS_PER_BITS = CHUNK_SHIFT - SLOT_CHUNK_SHIFT
_KEY_BYTES = 6


def encode_call(call: RecordCall, run: bytes) -> bytes:
    """Pack a call into its argument of the apply script. Raises StoreCallError."""
    try:
        head = _CALL.pack(call.term, call.seq, call.incarnation, call.journal_from, len(run))
        return b"".join((head, run, *starmap(_pack_op, call.ops)))
    except struct.error as error:
        raise StoreCallError(f"a store call has a number out of range: {error}") from error


def encode_texts(number: int, texts: CallTexts) -> bytes:
    """Pack the texts of call `number` (from 1 on) into one argument; these come after all calls.

    Raises StoreCallError.
    """
    try:
        parts = [_TEXTS.pack(number, texts.bytes_max)]
        for item, *reported in texts.items:
            parts.append(_ITEM.pack(item))
            for text in reported:
                parts += (_SIZE.pack(len(text)), text)
    except struct.error as error:
        raise StoreCallError(f"a store call has too long a text: {error}") from error
    return b"".join(parts)


_UNREADABLE = (struct.error, ValueError, IndexError)
"""What unpacking raises for bytes that ackd has not written: anybody may write into a store."""


def decode_texts(data: bytes) -> MessageTexts:
    """The texts of one message, as `texts.lua` writes them. Raises StoreDataError."""
    try:
        first, last, note = _SIZES.unpack_from(data)
    except struct.error as error:
        raise StoreDataError(f"the texts of a message can't be read: {error}") from error
    one = _SIZES.size
    two, three = one + first, one + first + last
    end = three + note
    return MessageTexts(data[one:two], data[two:three], data[three:end], data[end:])


def decode_reply(data: bytes) -> RecordReply:
    """Unpack the apply script's answer to one call. Raises StoreDataError."""
    try:
        return _decoded_reply(data)
    except _UNREADABLE as error:
        raise StoreDataError(f"the answer to a call can't be read: {error}") from error


def _decoded_reply(data: bytes) -> RecordReply:
    (
        verdict,
        now_ms,
        version,
        rollback_epoch,
        epoch,
        term,
        watermark,
        journal_next,
        flag,
        count,
    ) = _REPLY.unpack_from(data)
    if verdict:
        return RecordReply(CallStatus(verdict), term=term, version=version)
    start = _REPLY.size
    end = start + count * _RESULT.size
    outcomes, states, make = _OUTCOMES, _STATES, tuple.__new__  # `Result` itself is Python code
    results = [
        make(OpResult, (outcomes[outcome], states[state], attempt, fence, when_ms, first_s, late))
        for outcome, state, attempt, fence, when_ms, first_s, late in _RESULT.iter_unpack(
            memoryview(data)[start:end]
        )
    ]
    dropped = 0
    if flag & _DROPPED:
        (dropped,) = _ITEM.unpack_from(data, len(data) - _ITEM.size)
        data = data[: -_ITEM.size]
    journal = None
    if flag & _JOURNALED:
        journal = _journal(data[end:])
    has_texts, has_notes = bool(flag & _HAS_TEXTS), bool(flag & _HAS_NOTES)
    numbers = now_ms, version, rollback_epoch, epoch, term, watermark, journal_next
    return RecordReply(CallStatus.OK, *numbers, results, journal, has_texts, has_notes, dropped)


def encode_open(request: Open, run: bytes) -> bytes:
    """The one argument of the open script."""
    owner = request.owner.encode()
    try:
        head = _OPEN.pack(
            request.term,
            request.incarnation,
            request.rollback_epoch,
            request.jump_ms,
            request.grace_ms,
            _PEEK if request.peek else request.create_at is not None,
            request.create_at or 0,
            request.journal_from,
        )
        return b"".join((head, bytes([len(run)]), run, _SIZE.pack(len(owner)), owner))
    except (struct.error, ValueError) as error:
        raise StoreCallError(f"a store call has a number out of range: {error}") from error


def decode_head(answer: list[bytes]) -> tuple[Snapshot, Iterator[list[SlotView]]]:
    """Unpack everything but the slots, and these as an iterator over chunks: 100,000 slots take a
    tenth of a second. Raises StoreDataError, the iterator too.
    """
    try:
        snapshot, raw_slots = _decoded_head(answer)
    except _UNREADABLE as error:
        raise StoreDataError(f"a record can't be read: {error}") from error
    return snapshot, _slots(raw_slots, snapshot)


def _decoded_head(answer: list[bytes]) -> tuple[Snapshot, dict[int, bytes]]:
    verdict, created, moved, *numbers, lost_origins = _OPENED.unpack(answer[0])
    now_ms, version, incarnation, term, *others = numbers
    if verdict:
        return Snapshot(CallStatus(verdict), term=term, previous_owner=answer[1].decode()), {}
    snapshot = Snapshot(
        CallStatus.OK,
        created,
        moved,
        answer[1].decode(),
        now_ms,
        version,
        incarnation,
        term,
        *others,  # in the order of the snapshot's fields, from `seq` to `journal_next`
    )
    snapshot.lost_origins = bool(lost_origins)
    lost: dict[int, None] = {}
    raw_slots: dict[int, bytes] = {}
    for name, data in zip(answer[2::2], answer[3::2], strict=True):
        if name == b"k":
            snapshot.blocked = _keys(data)
            continue
        if name == b"j":
            snapshot.journal = _journal(data)
            continue
        index = int(name[1:])
        if name[:1] == b"b":
            if data:
                snapshot.chunks[index] = data.ljust(CHUNK_BYTES, b"\0")
            else:
                lost[index] = None
        elif data:
            raw_slots[index] = data
        else:
            lost[index >> _SLOTS_PER_BITS] = None
    snapshot.chunks = dict(sorted(snapshot.chunks.items()))
    snapshot.lost_chunks = sorted(lost)
    return snapshot, raw_slots


def _journal(data: bytes) -> list[JournalEntry]:
    return [
        JournalEntry(offset, _OUTCOMES[outcome], when_ms, fence, attempt)
        for offset, outcome, when_ms, fence, attempt in _JOURNAL.iter_unpack(data)
    ]


def _keys(data: bytes) -> list[int]:
    """Unpack the numbers of blocked keys, in their order."""
    size = _KEY_BYTES
    return sorted(int.from_bytes(data[at : at + size], "big") for at in range(0, len(data), size))


def _slots(chunks: dict[int, bytes], snapshot: Snapshot) -> Iterator[list[SlotView]]:
    """Yield the slots of unfinished offsets from the watermark on, chunk by chunk, in order."""
    try:
        yield from _decoded_slots(chunks, snapshot)
    except _UNREADABLE as error:
        raise StoreDataError(f"a record can't be read: {error}") from error


def _decoded_slots(chunks: dict[int, bytes], snapshot: Snapshot) -> Iterator[list[SlotView]]:
    finished = ChunkedBitmap()
    for index, bits in snapshot.chunks.items():
        finished.load(index, bits)
    for index in sorted(chunks):
        slots = []
        data = chunks[index]
        offset = (index << SLOT_CHUNK_SHIFT) - 1
        for state, attempt, releases, fence, rollback_epoch, when_ms, first_s in _SLOT.iter_unpack(
            data
        ):
            offset += 1
            if state and offset >= snapshot.watermark and offset not in finished:
                slots.append(
                    SlotView(
                        offset,
                        _STATES[state],
                        attempt,
                        releases,
                        int.from_bytes(fence, "big"),
                        rollback_epoch,
                        int.from_bytes(when_ms, "big"),
                        first_s,
                    )
                )
        yield slots


def decode_cold(head: bytes) -> tuple[int, int, int]:
    """Read layout, reset epoch and watermark out of field `c` of a record's head (prelude.lua).
    Raises StoreDataError.
    """
    if len(head) < _WATERMARK.stop:
        raise StoreDataError("the head of a record is cut short")
    return head[0], int.from_bytes(head[_EPOCH], "big"), int.from_bytes(head[_WATERMARK], "big")


def encode_member(run: str, owned: Sequence[str], note: str) -> bytes:
    """Pack what a sidecar writes about itself with a heartbeat: run, owned records, note."""
    parts = [text.encode() for text in (run, note, *owned)]
    return b"".join(_SIZE.pack(len(part)) + part for part in parts)


def decode_member(name: bytes, entry: bytes) -> tuple[int, Member]:
    """Unpack a member's entry; its version comes first. Raises StoreDataError."""
    try:
        boot, version = _MEMBER.unpack_from(entry)
        run, note, *owned = _texts(entry, _MEMBER.size)
        return version, Member(name.decode(), boot, 0, run, tuple(owned), note)
    except _UNREADABLE as error:
        raise StoreDataError(f"a member's entry can't be read: {error}") from error


def _texts(entry: bytes, position: int) -> list[str]:
    texts = []
    while position < len(entry):
        (size,) = _SIZE.unpack_from(entry, position)
        position += _SIZE.size
        texts.append(entry[position : position + size].decode())
        position += size
    if len(texts) < 2:  # noqa: PLR2004 - run and note
        raise StoreDataError("a member's entry is cut short")
    return texts
