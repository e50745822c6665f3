"""Name this machine: a sidecar's loopback address can be reached from its own machine only."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

ON = "/"
"""Separates a loopback address from the name of its machine."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")


def this_machine() -> str:
    """Return a name for this machine, or for the container if it has a network of its own."""
    try:
        found = _BOOT.read_text() + str(_NETWORK.readlink())
    except OSError:  # not Linux
        found = platform.node()
    return hashlib.sha256(found.encode()).hexdigest()[:12]
