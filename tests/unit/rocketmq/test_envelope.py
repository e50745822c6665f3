"""What is published comes back as it was, whatever a property can't hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.ports import Headers, Outgoing
from ackd_adapters.rocketmq import envelope
from ackd_adapters.rocketmq.message import MessageToSend, Taken

NAMES = st.one_of(st.text(max_size=8), st.sampled_from(["trace", "KEYS", "a-b", envelope.TAG]))
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=8)), max_size=4)


def back(outgoing: MessageToSend, *, fifo: bool = False) -> Taken:
    """As the broker would hand it over."""
    keys, group = (() if fifo else outgoing.keys), outgoing.group
    return Taken(
        "id",
        outgoing.topic,
        0,
        0,
        "",
        1,
        outgoing.body,
        outgoing.tag,
        keys,
        group,
        outgoing.properties,
    )


@given(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=8), HEADERS)
def test_round_trip(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    message = Outgoing("t", key, value, tuple(headers))
    made = envelope.outgoing(message, fifo=False, due_ms=0)
    assert made.body
    assert len(made.properties) <= len(headers) + 1
    found = envelope.record(back(made))
    assert (found.key, found.value) == (key, value)
    assert sorted(found.headers, key=str) == sorted(headers, key=str)


def test_a_tag_is_a_header_and_a_header_a_tag() -> None:
    headers: Headers = ((envelope.TAG, b"paid"), ("trace", b"1"))
    made = envelope.outgoing(Outgoing("t", b"k", b"v", headers), fifo=False, due_ms=0)
    assert (made.tag, made.keys, made.group) == ("paid", ("k",), "")
    assert made.properties == {"trace": "1"}
    assert set(envelope.record(back(made)).headers) == set(headers)


def test_i6_the_key_is_the_message_group_of_a_fifo_topic_and_must_be_there() -> None:
    made = envelope.outgoing(Outgoing("t", b"account", b"v"), fifo=True, due_ms=0)
    assert (made.group, made.keys) == ("account", ())
    assert envelope.record(back(made, fifo=True)).key == b"account"
    with pytest.raises(ValueError, match="key"):
        envelope.outgoing(Outgoing("t", None, b"v"), fifo=True, due_ms=0)


def test_what_somebody_else_wrote_into_our_property_does_no_harm() -> None:
    for text in ("", "{", "[]", '{"key": 3}', '{"headers": [1]}', '{"key": []}', '{"empty": []}'):
        taken = Taken("id", "t", 0, 0, "", 1, b"v", properties={envelope.PACKED: text})
        assert envelope.record(taken).value == b"v"
