"""What a sidecar uses in each of its handshakes: its identity, its secret, its certificates."""

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
    """This sidecar, as other sidecars see it."""

    name: str
    instance: str
    machine: str
    """The machine, as `this_machine` names it: loopback addresses are valid there only."""
    key: Callable[[], bytes]
    """Returns the store's present secret."""
    files: TlsFiles | None
    own: PeerTls | None
    """Secures incoming connections when there are no files; None: they have no TLS."""
    unverified: PeerTls
    """Secures outgoing connections to other machines when there are no files."""

    def listening(self) -> PeerTls | None:
        """Return the TLS of an incoming connection, None if it has none."""
        return self.own if self.files is None else self.files.now.listening

    def connecting(self, address: TcpAddress) -> PeerTls | None:
        """Return the TLS of a connection to `address`, None if it has none."""
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
        """Make the terms of one handshake, with a new nonce. Parameters as in `Terms`."""
        return Terms(
            hello=Hello.fresh(self.name, self.instance),
            key=self.key(),
            expected=expected,
            room=room,
            certificates=(lambda _: b"") if tls is None else tls.bound,
            hint=_ALONE if expected and tls is self.unverified else "",
            done=done,
        )
