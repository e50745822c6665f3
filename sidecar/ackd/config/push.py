"""Settings of push delivery: ackd calls the application instead of waiting to be asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ackd.config.units import HOUR_MS, MINUTE_MS
from ackd.options import setting

PushMode = Literal["single", "batch"]
PushFormat = Literal["plain", "cloudevents", "cloudevents-structured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Push delivery of a subscription: off without `url`. See docs/guides/push.md."""

    url: str = setting(
        "",
        "Address to which ackd POSTs messages; empty: no push, the application receives.",
        pattern=r"(https?://([^\s/?#@:\[\]]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?(/[^\s#]*)?)?",
        pattern_doc="`http://` or `https://` with a host, without user and password",
    )
    mode: PushMode = setting("single", "Whether a call has one message, or several.")
    format: PushFormat = setting(
        "plain",
        "`plain`: the value with `Ackd-` headers (batch: JSON as a receive answers it); "
        "`cloudevents`: binary mode; `cloudevents-structured`: JSON (batch: both the JSON batch).",
    )
    batch_max: int = setting(
        10, 'Most messages in one call with `mode = "batch"`.', min=1, max=1000
    )
    concurrency: int = setting(4, "Most calls at once of this sidecar.", min=1, max=1000)
    kept_max: int = setting(
        100,
        "Most messages that the application may keep by an answer 202; at that bound ackd sends "
        "no more.",
        min=1,
        max=100_000,
    )
    timeout_ms: int = setting(
        30_000,
        "How long the application may take to answer; then ackd retries the message.",
        min=10,
        max=12 * HOUR_MS,
    )
    auto_extend: bool = setting(
        True,
        "Whether ackd extends the lease while the call lasts, each time half of it has passed.",
    )
    auto_extend_max_ms: int = setting(
        HOUR_MS,
        "Longest time for which ackd extends the lease of one call; then it ends the call.",
        min=0,
        max=12 * HOUR_MS,
    )
    pressure_hold_ms: int = setting(
        10 * MINUTE_MS,
        "How long ackd keeps a message, under its lease, for an application that answers 429 or "
        "503 with `Retry-After`. It sends the message again after each pause, and no attempt is "
        "spent. Then the message goes back to the queue, uncounted. Needs `auto_extend`.",
        min=0,
        max=12 * HOUR_MS,
    )
    trial_ms: int = setting(
        1_000,
        "First pause before ackd tries an unreachable application again; later pauses grow to "
        "ten times as long.",
        min=10,
        max=HOUR_MS,
    )
    signature_file: Path | None = setting(
        None,
        "File with the secret that signs calls by Standard Webhooks (`whsec_...`, or plain "
        "text). A second line has a further secret, for changing it. ackd reads it at its start.",
    )
