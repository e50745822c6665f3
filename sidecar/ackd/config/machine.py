"""Defaults that depend on the machine."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path


def default_state_dir() -> Path:
    """`$XDG_STATE_HOME/ackd`, else `~/.local/state/ackd`, else (no home) `.ackd` right here."""
    given = os.environ.get("XDG_STATE_HOME", "")
    if Path(given).is_absolute():
        return Path(given) / "ackd"
    try:
        return Path.home() / ".local" / "state" / "ackd"  # tidy: word -- the user's folder
    except RuntimeError:
        return Path.cwd() / ".ackd"


def default_identity() -> str:
    """Make an identity of the host name: characters that an identity can't have become `-`."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip("._-")
    return name[:100] or "ackd"
