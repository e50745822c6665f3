"""TLS between sidecars, with certificates of one authority. Files hold them, and are read again
when they change.

Without files: `ackd.peer.self_made`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ackd.config.peers import PeerSettings
from ackd.errors import ConfigError

LOG = logging.getLogger("ackd.peer")
LOOK_S = 1.0
_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)


@dataclass(frozen=True, slots=True)
class PeerTls:
    """TLS for connections of one direction. `bound` returns the digests of a connection's
    certificates. The proofs of a handshake include them, so that nobody can relay a proof over
    another certificate.
    """

    context: ssl.SSLContext
    bound: Callable[[asyncio.Transport], bytes]


def digest_of(certificate: bytes) -> bytes:
    """Return the SHA-256 of a certificate (DER), as `tls-server-end-point` of RFC 5929 does."""
    return hashlib.sha256(certificate).digest()


def shown(transport: asyncio.Transport) -> bytes:
    """Return the digest of the other side's certificate."""
    secured = transport.get_extra_info("ssl_object")
    return digest_of(secured.getpeercert(binary_form=True) or b"")


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the files held when they were read last. Proofs include the certificates of both
    sides, that of the connecting side first.
    """

    listening: PeerTls
    connecting: PeerTls
    digest: bytes


class TlsFiles:
    """The three TLS files. `now` holds what new connections use."""

    def __init__(self, cert: Path, key: Path, authorities: Path) -> None:
        """Reads the files. Raises ConfigError."""
        self._cert, self._key, self._authorities = cert, key, authorities
        try:
            self._seen = self._mark()
            self.now = self._read()
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise ConfigError(f"peers: the TLS files can't be used: {error}") from error

    @classmethod
    def of(cls, settings: PeerSettings) -> TlsFiles | None:
        """Read the files that the settings name; None if they name none. Raises ConfigError."""
        files = (settings.tls_cert_file, settings.tls_key_file, settings.tls_ca_file)
        cert, key, authorities = files
        if cert is None or key is None or authorities is None:
            if any(files):
                raise ConfigError("peers: the three TLS files go together")
            return None
        return cls(cert, key, authorities)

    async def watch(self) -> None:
        """Read the files again when they change, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Read the files if they have changed. While they are invalid, keep what was read last."""
        try:
            mark = self._mark()
            if mark == self._seen:
                return
            self.now = self._read()
        except (OSError, ValueError) as error:
            LOG.warning("peers: the TLS files can't be read again, the old ones stay: %s", error)
            return
        self._seen = mark
        LOG.info("peers: the TLS files were read again")

    def _mark(self) -> tuple[tuple[int, int, int], ...]:
        found = (path.stat() for path in (self._cert, self._key, self._authorities))
        return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in found)

    def _read(self) -> Certificate:
        """Raises OSError, ValueError."""
        block = _CERTIFICATE.search(self._cert.read_text("ascii", "replace"))
        if block is None:
            message = f"{self._cert} holds no certificate"
            raise ValueError(message)
        digest = digest_of(ssl.PEM_cert_to_DER_cert(block[0]))
        return Certificate(
            PeerTls(self._context(ssl.PROTOCOL_TLS_SERVER), lambda wire: shown(wire) + digest),
            PeerTls(self._context(ssl.PROTOCOL_TLS_CLIENT), lambda wire: digest + shown(wire)),
            digest,
        )

    def _context(self, side: int) -> ssl.SSLContext:
        """Require a certificate of the authority from the other side, whatever host names it has.

        The handshake proves which sidecar is there, and a pod gets its address only after its
        certificate was issued.
        """
        tls = context(side)
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(self._authorities)
        tls.load_cert_chain(self._cert, self._key)
        return tls


def context(side: int) -> ssl.SSLContext:
    """Make a context for TLS 1.3 that does not verify the other side's certificate."""
    tls = ssl.SSLContext(side)
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    return tls


def unverified() -> PeerTls:
    """Make the TLS of outgoing connections without files. It accepts any certificate, as the
    proofs include it.
    """
    return PeerTls(context(ssl.PROTOCOL_TLS_CLIENT), shown)


_MEANINGS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not of peers.tls_ca_file",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no TLS files and this sidecar has some",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it has TLS files and this sidecar has none",
    "TLSV1_ALERT_UNKNOWN_CA": "this sidecar's certificate is not of its peers.tls_ca_file",
    "WRONG_VERSION_NUMBER": "it speaks no TLS",
}


def explained(error: ssl.SSLError) -> str:
    """Tell the operator why TLS failed."""
    meaning = _MEANINGS.get(error.reason or "", "")
    return f"TLS failed: {meaning} ({error})" if meaning else f"TLS failed: {error}"
