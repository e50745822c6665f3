"""Throw-away certificates: one authority, a server on 127.0.0.1, a client, a foreign authority."""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True)
class Certs:
    """Paths of PEM files. Keys are PKCS#8, which is what Kafka wants; the others take it too."""

    ca: Path
    server_cert: Path
    server_key: Path
    server_both: Path
    client_cert: Path
    client_key: Path
    foreign_ca: Path


def make_certs(folder: Path) -> Certs:
    """Write a fresh set into `folder`. The client's common name is `ackd-client`."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    server = authority.issue_cert("127.0.0.1", "localhost", key_type=trustme.KeyType.RSA)
    client = authority.issue_cert(
        "client.example", common_name="ackd-client", key_type=trustme.KeyType.RSA
    )
    certs = Certs(
        ca=folder / "ca.pem",
        server_cert=folder / "server.crt",
        server_key=folder / "server.key",
        server_both=folder / "server.pem",
        client_cert=folder / "client.crt",
        client_key=folder / "client.key",
        foreign_ca=folder / "foreign-ca.pem",
    )
    authority.cert_pem.write_to_path(certs.ca)
    trustme.CA().cert_pem.write_to_path(certs.foreign_ca)
    for leaf, cert_path, key_path in (
        (server, certs.server_cert, certs.server_key),
        (client, certs.client_cert, certs.client_key),
    ):
        cert_path.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        key_path.write_bytes(_pkcs8(leaf.private_key_pem.bytes()))
        key_path.chmod(0o600)
    certs.server_both.write_bytes(certs.server_key.read_bytes() + certs.server_cert.read_bytes())
    certs.server_both.chmod(0o600)
    return certs


def _pkcs8(key_pem: bytes) -> bytes:
    key = load_pem_private_key(key_pem, password=None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
