"""Headers of copies: written and read alike, bounded, and nothing of a stranger is believed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.core.ids import LedgerKey
from ackd.core.origin import OFFSET_MAX, PARTITION_MAX, Origin
from ackd.core.record.operations import ClaimOrigin, CloseOrigin, CopyRef, Op, PlaceCopy
from ackd.core.record.protocol import RecordCall
from ackd.engine.partition.copy_headers import (
    FIRST_MS_MAX,
    GENERATION_MAX,
    KEY_MAX,
    TEXT_BYTES_MAX,
    TIME_MS_MAX,
    RetryCopy,
    copy_partition,
    original,
    retry_copy_headers,
    retry_copy_of,
)
from ackd.ports import Headers, Record
from ackd.store.codec import encode_call
from tests.support.forged import by_seed, one_by_one

ORIGIN = Origin("cluster/one", bytes(range(16)), "orders", 3, 2101)
RETRY_COPY = RetryCopy(ORIGIN, "work", 1 << 50, 7, 9, 4, 1_000, 900, 800, "age", "first", "last")
PLACE = f"c/{'00' * 16}/orders"

WHOLE = replace(
    RETRY_COPY, redriven=Origin("c", bytes(16), "ackd.dead.work", 1, 4), order_key=5, reset_epoch=2
)


def record(headers: Headers, key: bytes | None = b"k") -> Record:
    return Record(17, key, b"body", headers, 12_345)


@given(
    st.integers(0, GENERATION_MAX),
    st.integers(0, TIME_MS_MAX),
    st.integers(0, 65_535),
    st.text(max_size=50),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
)
def test_what_was_written_is_read(
    generation: int, due_ms: int, attempt: int, error: str, own: list[tuple[str, bytes | None]]
) -> None:
    own = [each for each in own if not each[0].startswith("ackd-")]
    error = error.encode("utf-8", "replace").decode()
    made = RetryCopy(ORIGIN, "work", generation, 7, 9, attempt, due_ms, 1, 2, "age", error, error)
    copy = record(retry_copy_headers(made, tuple(own)))
    assert retry_copy_of(copy, "work") == made
    again = original(copy, made)
    assert again == Record(2101, b"k", b"body", tuple(own), 2)


def test_a_copy_of_a_copy_has_one_set_of_headers() -> None:
    once = retry_copy_headers(RETRY_COPY, (("mine", b"1"),))
    assert retry_copy_headers(RETRY_COPY, once) == once


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ackd-origin", b"orders/3/2101"),
        ("ackd-origin", b"c/zz/orders/3/2101"),
        ("ackd-origin", b"c/00ff/orders/3/2101"),
        ("ackd-generation", b"many"),
        ("ackd-due-ms", None),
        ("ackd-subscription", b"\xff"),
        ("ackd-origin", f"{PLACE}/-1/4".encode()),
        ("ackd-origin", f"{PLACE}/99999999999/4".encode()),
        ("ackd-origin", f"{PLACE}/1/{1 << 63}".encode()),
        ("ackd-origin", f"{PLACE}/1/{(1 << 53) - 1}".encode()),
        ("ackd-origin", f"{PLACE}/1/-4".encode()),
        ("ackd-origin", f"{PLACE}/01/4".encode()),
        ("ackd-origin", f"{PLACE}/1/ 4".encode()),
        ("ackd-origin", f"{PLACE}/1/1_0".encode()),
        ("ackd-origin", f"{PLACE}/1/\u0664".encode()),
        ("ackd-origin", f"c/{'AA' * 16}/orders/1/4".encode()),
        ("ackd-origin", f"c/{'00' * 16}/{'o' * 5_000}/1/4".encode()),
        ("ackd-redriven", f"{PLACE}/1/{1 << 70}".encode()),
        ("ackd-redriven", b""),
        ("ackd-generation", b"-1"),
        ("ackd-generation", b"%d" % (1 << 70)),
        ("ackd-generation", b"%d" % (1 << 52)),
        ("ackd-generation", b"9" * 5_000),
        ("ackd-incarnation", b"0"),
        ("ackd-incarnation", b"-7"),
        ("ackd-incarnation", b"%d" % (1 << 48)),
        ("ackd-rollback-epoch", b"65536"),
        ("ackd-rollback-epoch", b"-1"),
        ("ackd-attempt", b"65536"),
        ("ackd-attempt", b"+4"),
        ("ackd-attempt", b" 4"),
        ("ackd-attempt", "\u0664".encode()),
        ("ackd-due-ms", b"%d" % (1 << 48)),
        ("ackd-due-ms", b"1_000"),
        ("ackd-first-ms", b"%d" % (FIRST_MS_MAX + 1)),
        ("ackd-first-ms", b"-0"),
        ("ackd-published-ms", b"%d" % (1 << 63)),
        ("ackd-order-key", b"%d" % (1 << 48)),
        ("ackd-order-key", b"-1"),
        ("ackd-reset-epoch", b"%d" % (1 << 32)),
    ],
)
def test_what_is_no_retry_copy_is_told_apart(name: str, value: bytes | None) -> None:
    headers = retry_copy_headers(WHOLE, ())
    assert retry_copy_of(record(headers), "work") == WHOLE
    broken = tuple((each, value if each == name else old) for each, old in headers)
    assert retry_copy_of(record(broken), "work") is None
    assert retry_copy_of(record(()), "work") is None
    assert retry_copy_of(record(headers), "other") is None


@pytest.mark.parametrize(
    "name", ["ackd-origin", "ackd-generation", "ackd-due-ms", "ackd-subscription"]
)
def test_a_retry_copy_says_all_that_is_needed(name: str) -> None:
    headers = retry_copy_headers(RETRY_COPY, ())
    assert retry_copy_of(record(tuple(each for each in headers if each[0] != name)), "work") is None


def test_names_with_slashes_and_times_that_brokers_take_are_read() -> None:
    origin = Origin("cluster/one", bytes(16), "tenant/space/orders", 3, OFFSET_MAX)
    made = RetryCopy(origin, "work", 1, 7, 9, 4, 0, 0, -1)
    assert retry_copy_of(record(retry_copy_headers(made, ())), "work") == made


TEXTS = st.one_of(
    st.binary(max_size=40),
    st.integers(-(1 << 70), 1 << 70).map(lambda number: b"%d" % number),
    st.sampled_from([1 << 31, 1 << 32, 1 << 48, 1 << 53, 1 << 63, 1 << 64]).flatmap(
        lambda edge: st.integers(edge - 2, edge + 2).map(lambda number: b"%d" % number)
    ),
    st.tuples(st.integers(-2, 1 << 70), st.integers(-2, 1 << 70)).map(
        lambda pair: f"{PLACE}/{pair[0]}/{pair[1]}".encode()
    ),
    st.text(st.characters(categories=["Nd"]), min_size=1, max_size=5).map(str.encode),
)


@given(st.dictionaries(st.sampled_from([name for name, _ in retry_copy_headers(WHOLE, ())]), TEXTS))
def test_whatever_the_headers_say_a_retry_copy_is_within_what_the_store_takes(
    forged: dict[str, bytes],
) -> None:
    is_taken_by_the_store(
        tuple((name, forged.get(name, value)) for name, value in retry_copy_headers(WHOLE, ()))
    )


def test_copies_forged_by_seed_are_none_or_within_what_the_store_takes() -> None:
    base = retry_copy_headers(WHOLE, (("own", b"1"),))
    taken = sum(is_taken_by_the_store(by_seed(seed, base)) for seed in range(1_000))
    assert 50 < taken < 800
    for _, headers in one_by_one(base):
        is_taken_by_the_store(headers)


def is_taken_by_the_store(headers: Headers) -> bool:
    """Whether it is a copy at all; if so, every field is within bounds."""
    retry_copy = retry_copy_of(record(headers), "work")
    if retry_copy is None:
        return False
    for origin in (retry_copy.origin, retry_copy.origin_record):
        assert 0 <= origin.partition <= PARTITION_MAX
        assert 0 <= origin.offset <= OFFSET_MAX
    assert 0 <= retry_copy.order_key <= KEY_MAX
    key = LedgerKey(
        retry_copy.origin_record.cluster,
        "work",
        retry_copy.origin_record.topic_id,
        retry_copy.origin_record.partition,
    )
    key.text().encode()
    ops: list[Op] = [
        ClaimOrigin(
            retry_copy.origin_record.offset,
            retry_copy.generation,
            retry_copy.rollback_epoch,
            CopyRef(0, OFFSET_MAX),
            attempt=retry_copy.attempt,
        ),
        CloseOrigin(retry_copy.origin_record.offset, retry_copy.generation, finished=CopyRef(0, 0)),
        PlaceCopy(
            17,
            retry_copy.generation,
            attempt=retry_copy.attempt,
            due_ms=retry_copy.due_ms,
            first_s=retry_copy.first_ms // 1000,
        ),
    ]
    encode_call(RecordCall(key, ops, incarnation=retry_copy.incarnation), b"run")
    assert (
        retry_copy_of(record(retry_copy_headers(retry_copy, ())), "work") == retry_copy
    )  # one text for each
    return True


def test_texts_are_cut_at_a_character() -> None:
    long = RetryCopy(ORIGIN, "work", 1, 7, 9, 4, 0, 0, 0, "ü" * 5_000)
    reason = dict(retry_copy_headers(long, ()))["ackd-reason"]
    assert reason is not None
    assert len(reason) == TEXT_BYTES_MAX
    assert set(reason.decode()) == {"ü"}


def test_copies_of_a_key_go_to_one_partition_and_those_without_spread() -> None:
    origins = [Origin("c", bytes(16), "orders", 0, offset) for offset in range(200)]
    keyed = {copy_partition(record((), b"one"), origin, 8) for origin in origins}
    assert len(keyed) == 1
    free = [copy_partition(record((), None), origin, 8) for origin in origins]
    assert set(free) == set(range(8))
    assert free == [copy_partition(record((), None), origin, 8) for origin in origins]
