"""Judges whether copies are safe in a topic as it is configured, whoever created it (rule R25)."""

from __future__ import annotations

from collections.abc import Mapping

from ackd.config.rules import RETENTION_MARGIN_MS
from ackd.config.units import format_duration

POLICY, AGE, BYTES, SIZE = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
)
ADDED_BYTES = 64 * 1024
"""Most bytes that ackd's headers add to a message."""


def refusal(topic: str, actual: Mapping[str, str]) -> str:
    """Why nothing may be stored in the topic; empty when it is fit."""
    policy = actual.get(POLICY, "delete")
    if "compact" in policy:
        return f"{POLICY} of {topic} is {policy}: it has to be delete, compaction eats copies"
    return ""


def warnings(topic: str, actual: Mapping[str, str], waits_ms: int, origin_bytes: int) -> list[str]:
    """Settings that may lose or refuse copies. `waits_ms`: the longest time that a copy waits in
    the topic; `origin_bytes`: the largest message of the topics that are copied, 0 = not known.
    """
    found = []
    least_ms = waits_ms + RETENTION_MARGIN_MS
    kept_ms = int(actual.get(AGE, -1))
    if waits_ms and 0 <= kept_ms < least_ms:
        found.append(
            f"{topic} keeps copies for {format_duration(kept_ms)} ({AGE}), and they may wait "
            f"{format_duration(waits_ms)}; with a week to spare it should be "
            f"{format_duration(least_ms)}"
        )
    if int(actual.get(BYTES, -1)) >= 0:
        found.append(f"{topic} is cut at a size ({BYTES} = {actual[BYTES]}), whatever waits there")
    size = int(actual.get(SIZE, 0))
    if origin_bytes and size and size < origin_bytes + ADDED_BYTES:
        found.append(
            f"{topic} takes messages of {size} bytes ({SIZE}), and copies may have "
            f"{origin_bytes + ADDED_BYTES}"
        )
    return found
