"""Headers of copies: what a copy says of the message that it stands for (rules R2, R25).

A copy in the retry topic is a *retry copy*: it is delivered under the name
of its origin, and only after it has claimed its origin record. A dead letter has the same headers
but for the claim. ackd writes its own headers once, before the message's own; headers that the
reader does not know stay.

Anybody who may write to the retry or the dead-letter topic may write any header, so `retry_copy_of`
treats every field as untrusted input: a record with headers that ackd would not write is no retry
copy. Everything after it (the store's records, its 53-bit numbers) relies on that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from ackd.core.ids import TOPIC_ID_BYTES
from ackd.core.origin import Origin
from ackd.ports import Headers, Record

PREFIX = "ackd-"
ORIGIN = "ackd-origin"
SUBSCRIPTION = "ackd-subscription"
KEPT = "said-"
EPOCH = "ackd-reset-epoch"
HISTORY = "ackd-history"
REDRIVEN_FROM = "ackd-redriven-from"
TEXT_BYTES_MAX = 1_024
"""Bound of a reason or an error: headers count against the broker's largest message."""
ORIGIN_BYTES_MAX = 4_096
"""Bound of a coordinate: it becomes the name of a record in the store."""
GENERATION_MAX = (1 << 52) - 1
"""A generation is a fence: microseconds of the store's clock (these are of the year 2112), or one
more than the fence before. The fences of the copy's partition go on from there, and the store's
scripts, which count in doubles, tell neighbours apart up to 2^53.
"""
ATTEMPT_MAX = (1 << 16) - 1
ROLLBACK_EPOCH_MAX = (1 << 16) - 1
INCARNATION_MAX = (1 << 48) - 1
TIME_MS_MAX = (1 << 48) - 1
"""Bound of a due time: a slot has six bytes for it."""
FIRST_MS_MAX = (1 << 32) * 1_000 - 1
"""A slot keeps it in seconds, in four bytes."""
KEY_MAX = (1 << 48) - 1
EPOCH_MAX = (1 << 32) - 1
TIMESTAMP_MAX = (1 << 63) - 1
"""Brokers let producers write any time of 64 bits, -1 included: for people only."""


@dataclass(frozen=True, slots=True)
class RetryCopy:
    """What a copy says of its message. Times in Unix ms; `due_ms` by the store's clock, 0 = now.

    `generation`, `incarnation`, `rollback_epoch`: which origin record it may claim. `first_error`,
    `last_error`: the reasons that the application gave with its first and its last failure.
    `redriven`: the coordinate of the dead letter that it was redriven from. `order_key`: the key in
    whose queue its origin record is (R19), 0 = none; then `first_ms` may be 0, which means that the
    message was never delivered. `reset_epoch`: of the origin when the message left its window, for
    the traces. `history`: of a dead letter, its deliveries, written by
    `histories.history_header`.
    """

    origin: Origin
    subscription: str
    generation: int
    incarnation: int
    rollback_epoch: int
    attempt: int
    due_ms: int
    first_ms: int
    published_ms: int
    reason: str = ""
    first_error: str = ""
    last_error: str = ""
    redriven: Origin | None = None
    order_key: int = 0
    reset_epoch: int = 0
    history: bytes = b""

    @property
    def origin_record(self) -> Origin:
        """The coordinate whose origin record it must claim: its own, or that of its dead letter."""
        return self.redriven or self.origin


def retry_copy_headers(retry_copy: RetryCopy, own: Headers) -> Headers:
    """Return the headers of a copy: ackd's, then the message's own."""
    numbers = (
        ("ackd-generation", retry_copy.generation),
        ("ackd-incarnation", retry_copy.incarnation),
        ("ackd-rollback-epoch", retry_copy.rollback_epoch),
        ("ackd-attempt", retry_copy.attempt),
        ("ackd-due-ms", retry_copy.due_ms),
        ("ackd-first-ms", retry_copy.first_ms),
        ("ackd-published-ms", retry_copy.published_ms),
    )
    texts = (
        ("ackd-reason", retry_copy.reason),
        ("ackd-first-error", retry_copy.first_error),
        ("ackd-last-error", retry_copy.last_error),
    )
    ours: list[tuple[str, bytes | None]] = [
        (ORIGIN, retry_copy.origin.text().encode()),
        (SUBSCRIPTION, retry_copy.subscription.encode()),
    ]
    if retry_copy.redriven is not None:
        ours.append(("ackd-redriven", retry_copy.redriven.text().encode()))
    ours += [(name, b"%d" % number) for name, number in numbers]
    if retry_copy.order_key:
        ours.append(("ackd-order-key", b"%d" % retry_copy.order_key))
    if retry_copy.reset_epoch:
        ours.append((EPOCH, b"%d" % retry_copy.reset_epoch))
    ours += [(name, bounded(text)) for name, text in texts if text]
    if retry_copy.history:
        ours.append((HISTORY, retry_copy.history))
    return (*ours, *own_headers(own))


def retry_copy_of(record: Record, subscription: str) -> RetryCopy | None:
    """Read the headers of a record in the retry topic; None when it is no retry copy of this
    subscription, or has headers that no ackd would write.
    """
    found = _found(record)
    if found.get(SUBSCRIPTION) != subscription.encode():
        return None
    try:
        return _parsed(found, subscription)
    except _WrongHeaderError:
        return None


def not_by_ackd(record: Record) -> str:
    """Say why no ackd can have written a record of the retry topic; empty if one can have, for
    another subscription maybe.
    """
    try:
        _parsed(_found(record), "")
    except _WrongHeaderError as wrong:
        return f"not written by ackd: {wrong}"
    return ""


def kept_headers(headers: Headers) -> Headers:
    """Rename the headers that a record has in ackd's name without being ackd's, so that its dead
    letter keeps them: `ackd-origin` is `said-origin` then. No name gets longer: it has to fit.
    """
    return tuple(
        (KEPT + name.removeprefix(PREFIX) if name.startswith(PREFIX) else name, value)
        for name, value in headers
    )


def _found(record: Record) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, value in record.headers:
        if name.startswith(PREFIX) and value is not None:
            found.setdefault(name, value)
    return found


def _parsed(found: Mapping[str, bytes], subscription: str) -> RetryCopy:
    """Parse ackd's headers. Raises _WrongHeaderError."""
    if SUBSCRIPTION not in found:
        raise _WrongHeaderError(SUBSCRIPTION, missing=True)
    return RetryCopy(
        origin=_origin(found, ORIGIN),
        subscription=subscription,
        generation=_number(found, "ackd-generation", GENERATION_MAX),
        # 0 would fit every incarnation of the origin's record.
        incarnation=_number(found, "ackd-incarnation", INCARNATION_MAX, least=1),
        rollback_epoch=_number(found, "ackd-rollback-epoch", ROLLBACK_EPOCH_MAX),
        attempt=_number(found, "ackd-attempt", ATTEMPT_MAX),
        due_ms=_number(found, "ackd-due-ms", TIME_MS_MAX),
        first_ms=_number(found, "ackd-first-ms", FIRST_MS_MAX),
        published_ms=_number(found, "ackd-published-ms", TIMESTAMP_MAX, least=-TIMESTAMP_MAX),
        reason=_text(found, "ackd-reason"),
        first_error=_text(found, "ackd-first-error"),
        last_error=_text(found, "ackd-last-error"),
        redriven=_origin(found, "ackd-redriven") if "ackd-redriven" in found else None,
        order_key=_number(found, "ackd-order-key", KEY_MAX, absent=b"0"),
        reset_epoch=_number(found, EPOCH, EPOCH_MAX, absent=b"0"),
        history=found.get(HISTORY, b""),
    )


def original(record: Record, retry_copy: RetryCopy) -> Record:
    """Rebuild the message that a retry copy stands for, as it was in its origin."""
    return Record(
        retry_copy.origin.offset,
        record.key,
        record.value,
        own_headers(record.headers) + redriven_headers(retry_copy.redriven),
        retry_copy.published_ms,
    )


def redriven_headers(dead: Origin | None) -> Headers:
    """Return the header that names an application the dead letter of a redriven message."""
    return () if dead is None else ((REDRIVEN_FROM, dead.id.encode()),)


def own_headers(headers: Headers) -> Headers:
    """Return the application's headers: all but those that ackd adds to copies."""
    return tuple(each for each in headers if not each[0].startswith(PREFIX))


def copy_partition(record: Record, origin: Origin, partitions: int) -> int:
    """Choose the retry topic's partition for a copy: the same for one key, without a key for one
    origin.
    """
    name = origin.text().encode() if record.key is None else record.key
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") % partitions


def bounded(text: str) -> bytes:
    """Encode a text as a header's value: UTF-8, cut at a character."""
    return text.encode("utf-8", "replace")[:TEXT_BYTES_MAX].decode("utf-8", "ignore").encode()


_ORIGIN = re.compile(
    rf"(.*?)/([0-9a-f]{{{2 * TOPIC_ID_BYTES}}})/(.+)/([0-9]{{1,10}})/([0-9]{{1,16}})"
)
_INTEGER = re.compile(rb"-?[0-9]{1,19}")


class _WrongHeaderError(ValueError):
    def __init__(self, name: str, *, missing: bool = False) -> None:
        super().__init__(f"it has no {name}" if missing else f"its {name} is none of ackd's")


def _origin(found: Mapping[str, bytes], name: str) -> Origin:
    """Parse a coordinate. Raises _WrongHeaderError. The names of cluster and topic may hold
    slashes.
    """
    written = found.get(name)
    if written is None:
        raise _WrongHeaderError(name, missing=True)
    try:
        text = "" if len(written) > ORIGIN_BYTES_MAX else written.decode()
    except UnicodeDecodeError:
        raise _WrongHeaderError(name) from None
    parts = _ORIGIN.fullmatch(text)
    if parts is None:
        raise _WrongHeaderError(name)
    cluster, topic_id, topic, partition, offset = parts.groups()
    origin = Origin(cluster, bytes.fromhex(topic_id), topic, int(partition), int(offset))
    if not origin.possible or origin.text() != text:
        raise _WrongHeaderError(name)
    return origin


def _number(
    found: Mapping[str, bytes], name: str, most: int, *, least: int = 0, absent: bytes | None = None
) -> int:
    """Parse a number exactly as ackd writes it. Raises _WrongHeaderError.

    No sign, blank or leading zero is allowed (else one message would have two names), and no digits
    of other scripts.
    """
    written = found.get(name, absent)
    if written is None:
        raise _WrongHeaderError(name, missing=True)
    number = int(written) if _INTEGER.fullmatch(written) else least - 1
    if not least <= number <= most or b"%d" % number != written:
        raise _WrongHeaderError(name)
    return number


def _text(found: Mapping[str, bytes], name: str) -> str:
    return found.get(name, b"")[:TEXT_BYTES_MAX].decode("utf-8", "replace")
