"""What a sidecar brings into each handshake: who it is, and what it proves that with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ackd.config.address import TcpAddress
from ackd.peer.handshake import Hello, NoLinkError, Terms
from ackd.peer.tls import PeerTls, TlsFiles

_ALONE = "if it has TLS files, this sidecar needs them, too"


@dataclass(frozen=True, slots=True)
class Local:
    """This sidecar, as the others see it."""

    name: str
    instance: str
    machine: str
    """Where its loopback addresses mean something."""
    key: Callable[[], bytes]
    """The store's secret as it is now."""
    files: TlsFiles | None
    own: PeerTls | None
    """For who connects where there are no files; None: without TLS."""
    unverified: PeerTls
    """For connecting to other machines where there are no files."""

    def listening(self) -> PeerTls | None:
        """What a connection that comes uses; None without TLS."""
        return self.own if self.files is None else self.files.now.listening

    def connecting(self, address: TcpAddress) -> PeerTls | None:
        """What a connection to there uses; None without TLS."""
        if self.files is not None:
            return self.files.now.connecting
        return None if address.local else self.unverified

    def terms(
        self,
        tls: PeerTls | None,
        done: Callable[[asyncio.Transport, Hello | NoLinkError], None],
        *,
        expected: str = "",
        room: Callable[[Hello], bool] = lambda _: True,
    ) -> Terms:
        """One side of one handshake, with a nonce of its own; `expected` as in `Terms`."""
        return Terms(
            hello=Hello.fresh(self.name, self.instance),
            key=self.key(),
            expected=expected,
            room=room,
            certificates=(lambda _: b"") if tls is None else tls.bound,
            hint=_ALONE if expected and tls is self.unverified else "",
            done=done,
        )
