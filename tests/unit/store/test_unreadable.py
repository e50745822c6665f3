"""Bytes in the store that ackd has not written: a StoreError, and not one of Python's."""

from collections.abc import Callable

import pytest

from ackd.core.outbox import MessageStatus
from ackd.engine.publishing import outbox_codec
from ackd.errors import StoreDataError, StoreUnknownError
from ackd.store import codec
from ackd.store.answers import replies


@pytest.mark.parametrize(
    "read",
    [
        codec.decode_reply,
        codec.decode_texts,
        lambda data: codec.decode_head([data]),
        lambda data: codec.decode_head([data][1:]),
        codec.decode_cold,
        lambda data: codec.decode_member(b"s1", data),
        lambda data: codec.decode_member(data, codec._MEMBER.pack(1, 1)),
        lambda data: outbox_codec.read_status("b", 1, MessageStatus("sent", 0, result=data)),
    ],
)
@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff" * 5])
def test_what_is_cut_short_or_foreign_is_a_store_error(
    read: Callable[[bytes], object], data: bytes
) -> None:
    with pytest.raises(StoreDataError):
        read(data)


def test_slots_that_are_cut_short_or_of_no_state_are_a_store_error() -> None:
    opened = codec._OPENED.pack(0, False, False, *range(10), False)
    for slots in (bytes(codec.SLOT_BYTES - 1), b"\xff" * codec.SLOT_BYTES):
        _, found = codec.decode_head([opened, b"s1", b"s1", slots])
        with pytest.raises(StoreDataError):
            list(found)


@pytest.mark.parametrize("data", [b"", b"\0", b"\x09" * 80])
def test_an_answer_that_nobody_can_read_decided_something_unknown(data: bytes) -> None:
    [reply] = replies([data], 1)
    assert isinstance(reply, StoreUnknownError)
