"""The options of a section `[brokers.<name>]` with `adapter = "redis-stream"`."""

from __future__ import annotations

from dataclasses import dataclass

from ackd.options import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisStreamOptions:
    """One Redis server; all subscriptions of the connection share it."""

    url: str = setting(
        "redis://127.0.0.1:6379/0",
        "The server, `redis://` or with TLS `rediss://`.",
        pattern=r"rediss?://.+",
        pattern_doc="an address that begins with redis:// or rediss://",
    )
    prefix: str = setting("stream", "What all its keys begin with.", len_min=1, len_max=64)
    fetch_records_max: int = setting(
        500, "Most messages of a partition that wait for the engine.", min=1, max=100_000
    )
    publish_bytes_max: int = setting(
        64 * 1024 * 1024, "Most bytes on their way to the server.", min=1024, max=2**31
    )
    message_bytes_max: int = setting(
        1024 * 1024, "Largest message to publish.", min=1024, max=256 * 1024 * 1024
    )
    beat_ms: int = setting(
        300, "How often a member shows itself and looks for its partitions.", min=50, max=60_000
    )
    session_ms: int = setting(
        3_000, "A member that is silent for so long loses its partitions.", min=200, max=600_000
    )
    request_timeout_ms: int = setting(
        5_000, "How long an answer of the server may take.", min=100, max=120_000
    )
