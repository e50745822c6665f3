"""The options of the local queue, as they stand in the configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ackd.options import setting

SECOND_MS = 1_000
DAY_MS = 86_400 * SECOND_MS
KIB = 1024
MIB = 1024 * KIB
TIB = 1024 * 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """Where the queue lives and how much it keeps. The defaults work with no configuration."""

    path: Path = setting(
        Path("local"),
        "Folder of the queue; made when it is missing. All sidecars of one host that name the same "
        "folder share its topics and groups. It must be on a local file system, not on NFS.",
        base="state_dir",
    )
    partitions: int = setting(4, "Partitions of a topic that is made by itself.", min=1, max=1024)
    auto_create: bool = setting(
        True,
        "Make a topic when something is published to it or a subscription names it; else such a "
        "message is refused, and the subscription waits.",
    )
    sync: Literal["full", "normal"] = setting(
        "full",
        "When a message counts as stored: `full` once it would survive a power cut (one disk sync "
        "for each group of messages), `normal` once it would survive the death of every process.",
    )
    retention_ms: int = setting(
        7 * DAY_MS,
        "How long a message is kept, read or unread; 0 keeps it for ever.",
        min=0,
        max=3650 * DAY_MS,
    )
    retention_bytes: int = setting(
        0,
        "How many bytes of messages a partition keeps, the newest ones; 0 sets no bound.",
        min=0,
        max=TIB,
    )
    value_bytes_max: int = setting(
        16 * MIB, "Largest message body; a larger one is refused.", min=1, max=256 * MIB
    )
    fetch_buffer_bytes: int = setting(
        16 * MIB,
        "Fetched messages that wait for the engine, for each subscription.",
        min=64 * KIB,
        max=1024 * MIB,
    )
    publish_buffer_bytes: int = setting(
        64 * MIB,
        "Messages on their way to the disk; beyond it, publishing is answered with back-pressure.",
        min=64 * KIB,
        max=1024 * MIB,
    )
    session_ms: int = setting(
        3 * SECOND_MS,
        "A member that is frozen so long loses its partitions. One whose process has ended is "
        "noticed at once.",
        min=500,
        max=60 * SECOND_MS,
    )
