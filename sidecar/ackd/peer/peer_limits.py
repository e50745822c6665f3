"""Bounds on the connections between sidecars, in time and size."""

from __future__ import annotations

from dataclasses import dataclass

from ackd.config.units import MIB

FRAME_BYTES_MAX = 280 * MIB
"""Room for the longest message that the engine offers, beside others of the same answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLimits:
    """Times in seconds of the event loop's clock, sizes in bytes."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """A longer frame closes the link. Below 1 GiB."""
    unsent_bytes_high: int = MIB
    """When more than this was unsent on a link, `PeerUser.writable` is called once all is sent."""
    handshake_s: float = 2.0
    handshakes_max: int = 64
    """Incoming connections whose handshake runs, at most. The outgoing ones of this sidecar have
    as many of their own, so that strangers cannot use these up.
    """
    beat_s: float = 0.5
    """A sidecar that has sent nothing on a link for this long sends a beat."""
    quiet_s: float = 1.5
    """A sidecar closes a link on which nothing came for this long: the other side hangs, or the
    network has lost it.
    """
