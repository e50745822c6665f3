"""Tokens can't be forged (R27); commit metadata is read as it was written (R8)."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from ackd.core.commit_metadata import decode, encode
from ackd.core.lease_token import (
    BadTokenError,
    LeaseKeys,
    Token,
    UnknownKeyError,
    subscription_hash,
)

KEYS = LeaseKeys({5: b"k" * 32}, current=5)
OTHERS = LeaseKeys({5: b"k" * 32}, current=5)
"""Of another sidecar: it has to look at the MAC, and does not know a text that it has signed."""
TOPIC_IDS = st.binary(min_size=16, max_size=16)
U64 = st.integers(0, 2**64 - 1)
U16 = st.integers(0, 2**16 - 1)


@given(st.text(), TOPIC_IDS, st.integers(0, 2**32 - 1), U64, U64, U16, U16)
def test_a_token_carries_its_lease(
    name: str,
    topic_id: bytes,
    partition: int,
    offset: int,
    fence: int,
    rollback_epoch: int,
    attempt: int,
) -> None:
    text = KEYS.signer(name, topic_id, partition).token(offset, fence, rollback_epoch, attempt)
    said = Token(
        subscription_hash(name), topic_id, partition, offset, fence, rollback_epoch, attempt
    )
    assert KEYS.open(text) == OTHERS.open(text) == said


@given(U64, st.data())
def test_a_changed_token_settles_nothing(offset: int, data: st.DataObject) -> None:
    """Any change of any character is refused, or was no change of the content."""
    text = KEYS.signer("orders", b"t" * 16, 0).token(offset, 7, 1, 1)
    place = data.draw(st.integers(3, len(text) - 1))
    other = data.draw(st.sampled_from("ABCabc019-_.= \n"))
    forged = text[:place] + other + text[place + 1 :]
    with suppress(BadTokenError, UnknownKeyError):
        assert OTHERS.open(forged) == OTHERS.open(text)
    with suppress(BadTokenError, UnknownKeyError):
        assert KEYS.open(forged) == KEYS.open(text)


@given(st.text(max_size=300))
def test_any_text_is_refused_in_one_way(text: str) -> None:
    with suppress(BadTokenError, UnknownKeyError):
        KEYS.open("v1." + text)
        raise AssertionError(text)


RANGES = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(1, 10**6)), max_size=40
).map(lambda steps: tuple(_ranges(steps)))  # fmt: skip


def _ranges(steps: list[tuple[int, int]], base: int = 1000) -> list[tuple[int, int]]:
    made = []
    for gap, length in steps:
        made.append((base + gap, base + gap + length))
        base += gap + length
    return made


@given(st.text(), TOPIC_IDS, U64, U64, RANGES, st.integers(80, 4095))
def test_metadata_is_read_as_written(
    cluster: str,
    topic_id: bytes,
    epoch: int,
    version: int,
    ranges: tuple[tuple[int, int], ...],
    chars_max: int,
) -> None:
    """Never longer than allowed; ranges are a prefix of what is finished, never more (I1)."""
    try:
        text = encode(cluster, topic_id, epoch, 1000, version, ranges, chars_max)
    except ValueError:
        assert chars_max < 100
        return
    assert len(text) <= chars_max
    assert text.isascii()
    read = decode(text)
    assert read is not None
    assert read.fits(cluster, topic_id, 1000)
    assert (read.epoch, read.base, read.version) == (epoch, 1000, version)
    assert read.ranges == ranges[: len(read.ranges)]


@given(st.text(max_size=200))
def test_foreign_metadata_never_fails(text: str) -> None:
    """Anybody may write anything there."""
    for metadata in (text, "ackd1 " + text, "ackd1 a b 0 0 0|" + text):
        decode(metadata)
