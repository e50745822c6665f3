"""What a sidecar brings into each handshake: who it is, and what it proves that with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ackd.peer.handshake import Hello, NoLinkError, Terms
from ackd.peer.tls import Certificate, TlsFiles


@dataclass(frozen=True, slots=True)
class Local:
    """This sidecar, as the others see it."""

    name: str
    instance: str
    key: Callable[[], bytes]
    """The store's secret as it is now."""
    tls: TlsFiles | None

    def certificate(self) -> Certificate | None:
        """What a new connection uses; None without TLS."""
        return None if self.tls is None else self.tls.now

    def terms(
        self,
        certificate: Certificate | None,
        done: Callable[[asyncio.Transport, Hello | NoLinkError], None],
        *,
        expected: str = "",
        room: Callable[[Hello], bool] = lambda _: True,
    ) -> Terms:
        """One side of one handshake, with a nonce of its own; `expected` as in `Terms`."""
        digests: Callable[[asyncio.Transport], bytes] = lambda _: b""  # noqa: E731
        if certificate is not None:
            digests = partial(certificate.both, outgoing=bool(expected))
        return Terms(
            hello=Hello.fresh(self.name, self.instance),
            key=self.key(),
            expected=expected,
            room=room,
            certificates=digests,
            done=done,
        )
