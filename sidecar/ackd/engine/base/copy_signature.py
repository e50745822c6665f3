"""Signatures of what ackd writes into its own topics: retry copies and dead letters.

Whoever may write into such a topic can write any header. The signature says that a sidecar of this
store wrote the record: a keyed BLAKE2b over all headers, the key and the value. It does not name
the partition, which the broker may choose; a repeat of a genuine copy is refused by its claim.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from hashlib import blake2b
from hmac import compare_digest
from operator import itemgetter

from ackd.ports import Headers, Outgoing, Record

SIGNATURE = "ackd-signature"
MAC_BYTES = 16
KEY_ID_BYTES = 4
_WRITTEN = re.compile(rb"([0-9a-f]{%d})\.([0-9a-f]{%d})" % (2 * KEY_ID_BYTES, 2 * MAC_BYTES))


class CopyKind(Enum):
    """What a record is. The signature of one kind is none of another."""

    RETRY = b"ackd-retry-copy"
    DEAD = b"ackd-dead-letter"


class Proof(Enum):
    """What speaks for a record. `EARLIER`: it was there before signatures came into force;
    `UNDECIDED`: since when they are is about to be found out.
    """

    SIGNED = "signed"
    EARLIER = "earlier"
    UNDECIDED = "undecided"
    NOT_SIGNED = "not-signed"
    BAD = "bad-signature"

    @property
    def believed(self) -> bool:
        """Whether nobody has to be asked."""
        return self in (Proof.SIGNED, Proof.EARLIER)


def key_id(key: bytes) -> bytes:
    """Return what names a key in signatures, in hex."""
    return blake2b(key, digest_size=KEY_ID_BYTES, person=b"ackd-copy-key").hexdigest().encode()


def signed(outgoing: Outgoing, kind: CopyKind, key: bytes) -> Outgoing:
    """Return the record with its signature as the first header."""
    mac = _mac(key, kind, outgoing.headers, outgoing.key, outgoing.value)
    written = (SIGNATURE, key_id(key) + b"." + mac.hex().encode())
    return Outgoing(
        outgoing.topic,
        outgoing.key,
        outgoing.value,
        (written, *outgoing.headers),
        outgoing.partition,
    )


def signing_key(record: Record) -> bytes | None:
    """Return the id of the key that a record says it is signed with; None if it has no signature
    that ackd would write.
    """
    found = _signature(record.headers)
    return None if found is None else found[0]


def proof(record: Record, kind: CopyKind, keys: Mapping[bytes, bytes]) -> Proof:
    """Verify a record. `keys`: by their ids."""
    if all(name != SIGNATURE for name, _ in record.headers):
        return Proof.NOT_SIGNED
    found = _signature(record.headers)
    key = None if found is None else keys.get(found[0])
    if found is None or key is None:
        return Proof.BAD
    mac = _mac(key, kind, record.headers, record.key, record.value)
    return Proof.SIGNED if compare_digest(mac, found[1]) else Proof.BAD


def _signature(headers: Headers) -> tuple[bytes, bytes] | None:
    """Return (id of the key, MAC) as the first such header says."""
    written = next((value for name, value in headers if name == SIGNATURE), None)
    parts = None if written is None else _WRITTEN.fullmatch(written)
    return None if parts is None else (parts[1], bytes.fromhex(parts[2].decode()))


def _mac(
    key: bytes, kind: CopyKind, headers: Headers, message_key: bytes | None, value: bytes | None
) -> bytes:
    """Compute it. Nothing and an empty text count as the same, as on Pulsar, and so does any order
    of headers of different names: RocketMQ keeps none.
    """
    mac = blake2b(digest_size=MAC_BYTES, key=key, person=kind.value)
    texts = [message_key or b""]
    for name, text in sorted(headers, key=itemgetter(0)):
        if name != SIGNATURE:
            texts += (name.encode(), text or b"")
    mac.update(b"".join([b"%d:%b" % (len(text), text) for text in texts]))
    mac.update(b"|")
    mac.update(value or b"")
    return mac.digest()
