"""Lease tokens: what they carry, and what is refused (R27)."""

from __future__ import annotations

import pytest

from ackd.core.lease_token import (
    ISSUED_MAX,
    TOKEN_CHARS,
    BadTokenError,
    LeaseKeys,
    Token,
    UnknownKeyError,
    subscription_hash,
)

TOPIC_ID = bytes(range(16))
OLD, NEW = b"o" * 32, b"n" * 32


def test_a_token_says_what_was_signed() -> None:
    keys = LeaseKeys({1: NEW}, current=1)
    text = keys.signer("orders", TOPIC_ID, 3).token(2101, 1 << 50, 9, 2)
    assert keys.open(text) == Token(subscription_hash("orders"), TOPIC_ID, 3, 2101, 1 << 50, 9, 2)
    assert text.startswith("v1.")
    assert "=" not in text
    assert len(text) == TOKEN_CHARS


def test_the_same_lease_has_the_same_token() -> None:
    """The deadline is not in it: an extend never changes the string."""
    keys = LeaseKeys({1: NEW}, current=1)
    assert keys.signer("o", TOPIC_ID, 3).token(1, 2, 3, 4) == keys.signer("o", TOPIC_ID, 3).token(
        1, 2, 3, 4
    )


def test_two_generations_of_keys_verify() -> None:
    """R27: a token of the old key settles while the new one signs."""
    old = LeaseKeys({1: OLD}, current=1).signer("o", TOPIC_ID, 0).token(1, 2, 3, 4)
    assert LeaseKeys({1: OLD, 2: NEW}, current=2).open(old).offset == 1


def test_an_unknown_key_is_another_matter_than_a_broken_token() -> None:
    """R27: after a store loss the lease is lost; the application has no bug."""
    old = LeaseKeys({1: OLD}, current=1).signer("o", TOPIC_ID, 0).token(1, 2, 3, 4)
    with pytest.raises(UnknownKeyError):
        LeaseKeys({2: NEW}, current=2).open(old)
    with pytest.raises(BadTokenError):
        LeaseKeys({1: NEW}, current=1).open(old)


@pytest.mark.parametrize("padding", ["=", "=="])
def test_a_token_whose_end_became_padding_is_refused(padding: str) -> None:
    """It has the right length, and is base64 of fewer bytes. It was an error of ackd's own."""
    text = LeaseKeys({1: NEW}, current=1).signer("o", TOPIC_ID, 0).token(1, 2, 3, 4)
    with pytest.raises(BadTokenError):
        LeaseKeys({1: NEW}, current=1).open(text[: -len(padding)] + padding)


@pytest.mark.parametrize(
    "text", ["", "v1.", "v2.AAAA", "v1.é", "v1." + "A" * 400, "v1.AAA$", "xyz"]
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(BadTokenError):
        LeaseKeys({1: NEW}, current=1).open(text)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        LeaseKeys({1: b"short"}, current=1)


def test_an_adopted_key_signs_and_the_one_before_verifies() -> None:
    """R27: two generations, not three."""
    keys = LeaseKeys({1: OLD}, current=1)
    old = keys.signer("o", TOPIC_ID, 0).token(1, 2, 3, 4)
    keys.adopt(2, NEW)
    new = keys.signer("o", TOPIC_ID, 0).token(1, 2, 3, 4)
    assert LeaseKeys({2: NEW}, current=2).open(new) == keys.open(new) == keys.open(old)
    keys.adopt(3, b"x" * 32)
    assert keys.open(new).offset == 1
    with pytest.raises(UnknownKeyError):
        keys.open(old)


def test_what_was_signed_here_is_known_and_the_rest_is_verified() -> None:
    """I8: a bounded number is known; older ones are read by their MAC, and say the same."""
    keys = LeaseKeys({1: NEW}, current=1)
    signer = keys.signer("o", TOPIC_ID, 7)
    texts = [signer.token(offset, 2, 3, 4) for offset in range(3 * ISSUED_MAX)]
    known = [offset for offset, text in enumerate(texts) if keys.open(text) is keys.open(text)]
    assert len(known) <= 2 * ISSUED_MAX
    assert known == [*range(3 * ISSUED_MAX)][-len(known) :]
    assert [keys.open(text).offset for text in texts] == [*range(3 * ISSUED_MAX)]


def test_a_key_that_is_gone_makes_no_token_good() -> None:
    """R27: not even one that is signed by who has not heard yet that the key is gone."""
    keys = LeaseKeys({1: OLD}, current=1)
    late = keys.signer("o", TOPIC_ID, 0)
    keys.adopt(2, NEW)
    keys.adopt(3, b"x" * 32)
    with pytest.raises(UnknownKeyError):
        keys.open(late.token(1, 2, 3, 4))
