"""A signature fits what ackd wrote, and nothing else."""

from dataclasses import replace

import pytest

from ackd.engine.base.copy_signature import (
    SIGNATURE,
    CopyKind,
    Proof,
    key_id,
    proof,
    signed,
    signing_key,
)
from ackd.ports import Outgoing, Record

KEY, OTHER = b"k" * 32, b"o" * 32
KEYS = {key_id(KEY): KEY}
HEADERS = (("ackd-origin", b"c/0/t/0/1"), ("own", None), ("own", b"2"))
SENT = signed(Outgoing("retry", b"key", b"value", HEADERS, 1), CopyKind.RETRY, KEY)


def read(sent: Outgoing, **more: object) -> Record:
    facts = {"key": sent.key, "value": sent.value, "headers": sent.headers, **more}
    return Record(7, timestamp_ms=1, **facts)  # type: ignore[arg-type]


def test_what_was_written_is_signed() -> None:
    assert proof(read(SENT), CopyKind.RETRY, KEYS) is Proof.SIGNED
    assert (SENT.topic, SENT.partition, SENT.headers[1:]) == ("retry", 1, HEADERS)
    assert signing_key(read(SENT)) == key_id(KEY)


def test_nothing_and_an_empty_text_count_as_the_same() -> None:
    """Pulsar has no empty key."""
    empty = signed(replace(SENT, key=b"", value=None, headers=()), CopyKind.DEAD, KEY)
    assert proof(read(empty, key=None, value=b""), CopyKind.DEAD, KEYS) is Proof.SIGNED


@pytest.mark.parametrize(
    "change",
    [
        {"key": b"another"},
        {"key": None},
        {"value": b"another"},
        {"value": b""},
        {"headers": (*SENT.headers, ("more", b"1"))},
        {"headers": SENT.headers[:-1]},
        {"headers": (*SENT.headers[:2], SENT.headers[3], SENT.headers[2])},
        {"headers": (SENT.headers[0], ("ackd-origin", b"c/0/t/0/2"), *SENT.headers[2:])},
        {"headers": (SENT.headers[0], ("ackd-originc", b"/0/t/0/1"), *SENT.headers[2:])},
        {"headers": (SENT.headers[0], *SENT.headers[1:-1], ("own2", b""))},
    ],
)
def test_each_change_is_noticed(change: dict[str, object]) -> None:
    assert proof(read(SENT, **change), CopyKind.RETRY, KEYS) is Proof.BAD


@pytest.mark.parametrize(
    "written", [b"", b"x", b"%b." % key_id(KEY), b"%b.%b" % (key_id(KEY), b"0" * 32), None]
)
def test_what_is_no_signature_is_a_bad_one(written: bytes | None) -> None:
    headers = ((SIGNATURE, written), *SENT.headers)
    assert proof(read(SENT, headers=headers), CopyKind.RETRY, KEYS) is Proof.BAD


def test_no_other_key_and_no_other_kind_fits() -> None:
    assert proof(read(SENT), CopyKind.RETRY, {key_id(OTHER): OTHER}) is Proof.BAD
    assert proof(read(SENT), CopyKind.RETRY, {key_id(KEY): OTHER}) is Proof.BAD
    assert proof(read(SENT), CopyKind.DEAD, KEYS) is Proof.BAD
    assert proof(read(SENT, headers=HEADERS), CopyKind.RETRY, KEYS) is Proof.NOT_SIGNED


def test_headers_of_different_names_may_come_in_any_order() -> None:
    """RocketMQ keeps none."""
    moved = (*SENT.headers[2:], *SENT.headers[:2])
    assert proof(read(SENT, headers=moved), CopyKind.RETRY, KEYS) is Proof.SIGNED
