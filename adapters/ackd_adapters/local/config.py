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
        "Folder of the queue; ackd makes it if it is missing. All sidecars of one host that name "
        "the same folder share its topics and groups. It must be on a local file system, not on "
        "NFS.",
        base="state_dir",
    )
    partitions: int = setting(
        4, "Partitions of a topic that ackd makes by `auto_create`.", min=1, max=1024
    )
    auto_create: bool = setting(
        True,
        "Whether ackd makes a topic when a message is published to it or a subscription names "
        "it. If not, it refuses the message, and the subscription waits for the topic.",
    )
    sync: Literal["full", "normal"] = setting(
        "full",
        "When a message counts as stored: `full` once it would survive a power cut (one disk sync "
        "for each group of messages), `normal` once it would survive the death of every process.",
    )
    retention_ms: int = setting(
        7 * DAY_MS,
        "How long the queue keeps a message, read or unread; 0: for ever.",
        min=0,
        max=3650 * DAY_MS,
    )
    retention_bytes: int = setting(
        0,
        "Most bytes of messages in a partition; beyond it the queue drops the oldest. 0: no bound.",
        min=0,
        max=TIB,
    )
    value_bytes_max: int = setting(
        16 * MIB, "Largest message body; a larger one is refused.", min=1, max=256 * MIB
    )
    fetch_buffer_bytes: int = setting(
        16 * MIB,
        "Most bytes of fetched messages of a subscription in the adapter, before ackd takes them "
        "over.",
        min=64 * KIB,
        max=1024 * MIB,
    )
    publish_buffer_bytes: int = setting(
        64 * MIB,
        "Most bytes of messages on their way to the disk; beyond it publishing waits.",
        min=64 * KIB,
        max=1024 * MIB,
    )
    session_ms: int = setting(
        3 * SECOND_MS,
        "How long a member may be frozen before it loses its partitions. The queue notices at "
        "once if its process ends.",
        min=500,
        max=60 * SECOND_MS,
    )
