"""Where a message's deduplication key comes from, and what has none."""

import pytest

from ackd.engine.delivery.deduplication_key import deduplication_key
from ackd.ports import Headers, Record


def message(value: bytes = b"", key: bytes | None = None, headers: Headers = ()) -> Record:
    return Record(1, key, value, headers, 0)


def same(how: str, one: Record, other: Record) -> bool:
    """Whether both have a key, and the same."""
    find = deduplication_key(how)
    return find(one) is not None and find(one) == find(other)


def test_the_key_of_a_message_is_one() -> None:
    assert same("key", message(b"1", b"k"), message(b"2", b"k"))
    assert not same("key", message(key=b"k"), message(key=b"K"))
    assert deduplication_key("key")(message()) is None
    assert deduplication_key("key")(message(key=b"")) is not None


def test_the_first_header_with_a_value_counts() -> None:
    a = message(headers=(("other", b"1"), ("id", None), ("id", b"7"), ("id", b"8")))
    assert same("header:id", a, message(headers=(("id", b"7"),)))
    assert not same("header:id", a, message(headers=(("id", b"8"),)))
    assert deduplication_key("header:id")(message(headers=(("Id", b"7"),))) is None


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/id", b'{"id": 7}'),
        ("/order/id", b'{"order": {"id": 7}}'),
        ("/orders/1", b'{"orders": [1, 7]}'),
        ("/a~1b", b'{"a/b": 7}'),
        ("/a~0b", b'{"a~b": 7}'),
        ("/a~01b", b'{"a~1b": 7}'),
        ("", b"7"),
    ],
)
def test_a_pointer_finds_a_whole_number_in_json(pointer: str, value: bytes) -> None:
    find = deduplication_key(f"pointer:{pointer}")
    assert find(message(value)) == deduplication_key("pointer:")(message(b"7"))


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/id", b"{"),
        ("/id", b""),
        ("/id", b'{"id": null}'),
        ("/id", b'{"id": true}'),
        ("/id", b'{"id": 1.5}'),
        ("/id", b'{"id": [1]}'),
        ("/id", b'{"ID": 1}'),
        ("/id/x", b'{"id": 1}'),
        ("/1", b"[1]"),
        ("/-", b"[1]"),
        ("/\u0661", b"[0, 1]"),
        ("/99999999999999999999999999", b"[1]"),
    ],
)
def test_anything_else_has_no_key(pointer: str, value: bytes) -> None:
    assert deduplication_key(f"pointer:{pointer}")(message(value)) is None


def test_a_key_of_one_kind_is_none_of_another() -> None:
    number, text = message(b'{"id": 1}'), message(b'{"id": "1"}')
    find = deduplication_key("pointer:/id")
    assert len({find(number), find(text), deduplication_key("key")(message(key=b"1"))}) == 3
    header = deduplication_key("header:id")(message(headers=(("id", b"1"),)))
    assert header not in {find(number), find(text), deduplication_key("key")(message(key=b"1"))}


def test_text_that_is_no_unicode_has_a_key() -> None:
    assert deduplication_key("pointer:/id")(message(b'{"id": "\\ud83d\\ude00"}')) is not None
