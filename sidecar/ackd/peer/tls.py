"""The certificate of a sidecar among others, from files that somebody renews while ackd runs."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import ssl
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
class Certificate:
    """What the files held at one time, ready for connections of both directions."""

    listening: ssl.SSLContext
    connecting: ssl.SSLContext
    digest: bytes
    """SHA-256 of the certificate, which proofs include: who stands between two sidecars has
    another one.
    """

    def both(self, transport: asyncio.Transport, *, outgoing: bool) -> bytes:
        """The digests of both sides' certificates, of the connecting one first."""
        secured = transport.get_extra_info("ssl_object")
        theirs = hashlib.sha256(secured.getpeercert(binary_form=True) or b"").digest()
        return self.digest + theirs if outgoing else theirs + self.digest


class TlsFiles:
    """The three files; `now` is what new connections use."""

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
        """Those that the settings name, if they do. Raises ConfigError."""
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
        """Read them if they have changed. While they are broken the old ones stay in use."""
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
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(block[0])).digest()
        return Certificate(
            self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT), digest
        )

    def _context(self, side: int) -> ssl.SSLContext:
        """Both sides show a certificate. Its names are not looked at: the handshake above proves
        who is there, and pods get their addresses after their certificates.
        """
        tls = ssl.SSLContext(side)
        tls.minimum_version = ssl.TLSVersion.TLSv1_3
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(self._authorities)
        tls.load_cert_chain(self._cert, self._key)
        return tls
