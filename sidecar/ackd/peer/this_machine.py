"""Which machine this is: a loopback address means something there only."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

ON = "/"
"""Stands between a loopback address and its machine."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")


def this_machine() -> str:
    """Name it, and the container's own network if it has one."""
    try:
        found = _BOOT.read_text() + str(_NETWORK.readlink())
    except OSError:  # not Linux
        found = platform.node()
    return hashlib.sha256(found.encode()).hexdigest()[:12]
