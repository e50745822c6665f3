"""Messages of an outbox as bytes: what is kept comes back, also with what an older ackd wrote."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.core.outbox import MessageStatus
from ackd.engine.publishing.outbox_codec import (
    read_message,
    read_status,
    write_failed,
    write_message,
    write_stored,
)
from ackd.errors import PublishRefusedError
from ackd.ports import Outgoing, Stored

bodies = st.none() | st.binary(max_size=50)
messages = st.builds(
    Outgoing,
    topic=st.text(max_size=20),
    key=bodies,
    value=bodies,
    headers=st.lists(st.tuples(st.text(max_size=9), bodies), max_size=3).map(tuple),
    partition=st.none() | st.integers(0, 1 << 31),
)
SENT = Stored("orders", 3, 2_101)


@given(messages)
def test_what_is_kept_comes_back(message: Outgoing) -> None:
    """Bytes stay bytes; a header without a value, an empty key and no key are three things."""
    assert read_message(write_message(message)) == message


def test_bytes_of_today_are_read_tomorrow() -> None:
    """A sidecar of the next version finds messages that this one has kept."""
    kept = bytes.fromhex("95a66f7264657273c4016bc401769192a16dc0c0")
    message = Outgoing("orders", b"k", b"v", (("m", None),))
    assert write_message(message) == kept
    assert read_message(kept) == message


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", b"\x95\x01\x02\x03\x04\x05", b"{}"])
def test_bytes_that_nobody_has_written_are_told(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_message(body)


def test_the_delay_is_the_outbox_s_own() -> None:
    message = Outgoing("orders", None, b"v", delay_ms=5_000)
    assert read_message(write_message(message)).delay_ms != 5_000


# --- results


@pytest.mark.parametrize("state", ["waiting", "sending", ""])
def test_a_message_that_is_not_sent_has_a_time_and_no_id(state: str) -> None:
    found = read_status("main", 7, MessageStatus(state, due_ms=9_000, in_doubt=True))
    assert (found.id, found.state, found.due_ms, found.in_doubt) == ("main/7", state, 9_000, True)
    assert (found.message, found.error) == (None, None)


@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_sent_message_has_the_id_under_which_it_is_read(*, in_doubt: bool) -> None:
    status = MessageStatus("sent", 9_000, result=write_stored(SENT, in_doubt=in_doubt))
    found = read_status("main", 7, status)
    assert (found.message, found.in_doubt) == ("orders/3/2101", in_doubt)
    assert (found.due_ms, found.error) == (None, None)


def test_a_broker_that_tells_no_offset_leaves_no_id() -> None:
    """A made-up one would name another message."""
    result = write_stored(Stored("orders", 3, -1), in_doubt=False)
    assert read_status("main", 7, MessageStatus("sent", result=result)).message is None


def test_the_first_offset_is_one() -> None:
    result = write_stored(Stored("orders", 0, 0), in_doubt=False)
    assert read_status("main", 7, MessageStatus("sent", result=result)).message == "orders/0/0"


def test_a_refused_message_says_why() -> None:
    result = write_failed(PublishRefusedError("the topic is read-only"))
    found = read_status("main", 7, MessageStatus("failed", in_doubt=True, result=result))
    assert found.error == f"{PublishRefusedError.type}: the topic is read-only"
    assert (found.state, found.in_doubt, found.message) == ("failed", True, None)
