"""Makes an authority and a server's certificate in memory, which end with the process.

The authority's key signs one certificate and is then dropped, so no Secret holds a key that
somebody could steal. `trust.py` makes the next pair long before this one expires.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from ackd.certificates import builder, cert_pem, common_name, key_pem

NAME = "ackd injector"
SKEW = timedelta(minutes=5)
"""Clocks of nodes differ, so a certificate becomes valid this long before its creation."""
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Identity:
    """A server's key and certificate and its authority as PEM texts, and when they are valid."""

    ca: str
    cert: str
    key: str
    start: datetime
    end: datetime

    def renew_at(self) -> datetime:
        """The time to renew: after two thirds of the validity."""
        return self.start + (self.end - self.start) * 2 / 3


def make(hosts: list[str], life: timedelta, now: datetime | None = None) -> Identity:
    """Create an authority and one certificate of it for these DNS names."""
    start = now or datetime.now(UTC)
    valid, end = start - SKEW, start + life
    ca_key = ec.generate_private_key(ec.SECP256R1())
    subject = common_name(f"{NAME} {start:%Y-%m-%dT%H:%M:%SZ}")
    ca = (
        builder(subject, subject, ca_key.public_key(), valid, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    cert = (
        builder(common_name(NAME), subject, key.public_key(), valid, end)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    return Identity(cert_pem(ca), cert_pem(cert), key_pem(key), start, end)


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def merged(bundle: str, ours: list[str], now: datetime, most: int) -> str:
    """Add our authorities to a bundle, and drop those that have expired or can't be read.

    If there are more than `most`, drop the oldest of the others: their processes are gone. Sort by
    creation, so that all replicas write the same text.
    """
    wanted = {each.strip() for each in ours}
    alive = [
        (start, each)
        for each in {*_split(bundle), *wanted}
        if (start := _alive(each, now)) is not None or each in wanted
    ]
    alive.sort(key=lambda pair: (pair[0] or now, pair[1]))
    others = [each for _, each in alive if each not in wanted]
    gone = set(others[: max(len(alive) - most, 0)])
    return "".join(f"{each}\n" for _, each in alive if each not in gone)


def _split(bundle: str) -> list[str]:
    parts = bundle.split(_END)[:-1]
    return [f"{part[part.find(_BEGIN) :]}{_END}" for part in parts if _BEGIN in part]


def _alive(pem: str, now: datetime) -> datetime | None:
    """The start of a certificate's validity; None if it has expired."""
    try:
        cert = x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        return None
    return cert.not_valid_before_utc if cert.not_valid_after_utc > now else None
