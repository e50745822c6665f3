"""Headers of copies: written and read alike, bounded, and nothing of a stranger is believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.core.origin import Origin
from ackd.engine.partition.copy_headers import (
    TEXT_BYTES_MAX,
    Carrier,
    carrier_headers,
    carrier_of,
    original,
    place_of,
)
from ackd.ports import Headers, Record

ORIGIN = Origin("cluster/one", bytes(range(16)), "orders", 3, 2101)
CARRIER = Carrier(ORIGIN, "work", 1 << 50, 7, 9, 4, 1_000, 900, 800, "age", "first", "last")
NUMBERS = st.integers(0, 1 << 53)


def record(headers: Headers, key: bytes | None = b"k") -> Record:
    return Record(17, key, b"body", headers, 12_345)


@given(
    NUMBERS,
    NUMBERS,
    st.integers(0, 65_535),
    st.text(max_size=50),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
)
def test_what_was_written_is_read(
    generation: int, due_ms: int, attempt: int, error: str, own: list[tuple[str, bytes | None]]
) -> None:
    own = [each for each in own if not each[0].startswith("ackd-")]
    error = error.encode("utf-8", "replace").decode()
    made = Carrier(ORIGIN, "work", generation, 7, 9, attempt, due_ms, 1, 2, "age", error, error)
    copy = record(carrier_headers(made, tuple(own)))
    assert carrier_of(copy, "work") == made
    again = original(copy, made)
    assert again == Record(2101, b"k", b"body", tuple(own), 2)


def test_a_copy_of_a_copy_has_one_set_of_headers() -> None:
    once = carrier_headers(CARRIER, (("mine", b"1"),))
    assert carrier_headers(CARRIER, once) == once


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ackd-origin", b"orders/3/2101"),
        ("ackd-origin", b"c/zz/orders/3/2101"),
        ("ackd-origin", b"c/00ff/orders/3/2101"),
        ("ackd-generation", b"many"),
        ("ackd-due-ms", None),
        ("ackd-subscription", b"\xff"),
    ],
)
def test_what_is_no_carrier_is_told_apart(name: str, value: bytes | None) -> None:
    headers = carrier_headers(CARRIER, ())
    assert carrier_of(record(headers), "work") == CARRIER
    broken = tuple((each, value if each == name else old) for each, old in headers)
    assert carrier_of(record(broken), "work") is None
    assert carrier_of(record(tuple(each for each in headers if each[0] != name)), "work") is None
    assert carrier_of(record(()), "work") is None
    assert carrier_of(record(headers), "other") is None


def test_texts_are_cut_at_a_character() -> None:
    long = Carrier(ORIGIN, "work", 1, 7, 9, 4, 0, 0, 0, "ü" * 5_000)
    reason = dict(carrier_headers(long, ()))["ackd-reason"]
    assert reason is not None
    assert len(reason) == TEXT_BYTES_MAX
    assert set(reason.decode()) == {"ü"}


def test_copies_of_a_key_go_to_one_partition_and_those_without_spread() -> None:
    origins = [Origin("c", bytes(16), "orders", 0, offset) for offset in range(200)]
    keyed = {place_of(record((), b"one"), origin, 8) for origin in origins}
    assert len(keyed) == 1
    free = [place_of(record((), None), origin, 8) for origin in origins]
    assert set(free) == set(range(8))
    assert free == [place_of(record((), None), origin, 8) for origin in origins]
