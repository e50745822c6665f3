"""What bounds connections between sidecars, in time and size."""

from __future__ import annotations

from dataclasses import dataclass

from ackd.config.units import MIB

FRAME_BYTES_MAX = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLimits:
    """Times in seconds of the event loop's clock, sizes in bytes."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """A longer frame closes the link."""
    unsent_bytes_high: int = MIB
    """A link is told to be writable after more than this has been sent."""
    handshake_s: float = 2.0
    handshakes_max: int = 64
    """Connections that have not proved anything yet, at once. Those that this sidecar makes count
    apart, so that no stranger can hold them up.
    """
    beat_s: float = 0.5
    """Whoever has sent nothing for this long sends a beat."""
    quiet_s: float = 1.5
    """A link on which nothing came for this long is closed: the other side stands still, or the
    network has lost it.
    """
