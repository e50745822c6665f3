"""What certificates that this process makes for itself have in common."""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    """Begin a certificate with a number of its own."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def common_name(text: str) -> x509.Name:
    """A name that is only a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def cert_pem(cert: x509.Certificate) -> str:
    """The certificate as text."""
    return cert.public_bytes(Encoding.PEM).decode()


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """The key as text, in the clear."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def load(tls: ssl.SSLContext, key: str, cert: str) -> None:
    """Load both through a file that this deletes at once: Python lets OpenSSL read files only."""
    with TemporaryDirectory(prefix="ackd-tls-") as folder:
        file = Path(folder) / "both.pem"
        file.touch(mode=0o600)
        file.write_text(key + cert)
        tls.load_cert_chain(file)
