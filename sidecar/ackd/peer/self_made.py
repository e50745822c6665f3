"""TLS between sidecars without files: each sidecar makes itself a certificate at its start.

The connecting side does not verify that certificate against an authority. Instead both sides
include it in their proofs. An attacker between two sidecars has another certificate, and can't
compute a proof over that one without the store's secret (ADR 17).
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from ackd.certificates import builder, cert_pem, common_name, key_pem, load
from ackd.peer.tls import PeerTls, context, digest_of

_START, _END = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Nobody checks these dates: the certificate exists as long as the process."""


def listening() -> PeerTls:
    """Make a key and a certificate. Neither is written to a file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = common_name("ackd sidecar")
    made = builder(name, name, key.public_key(), _START, _END).sign(key, hashes.SHA256())
    tls = context(ssl.PROTOCOL_TLS_SERVER)
    load(tls, key_pem(key), cert_pem(made))
    digest = digest_of(made.public_bytes(Encoding.DER))
    return PeerTls(tls, lambda _: digest)
