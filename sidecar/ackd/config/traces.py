"""Settings of traces: where spans go, how many are kept, how much disk they may use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ackd.config.units import DAY_MS, GIB, KIB, MIB, MINUTE_MS, SECOND_MS
from ackd.options import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Spans of messages: off without `files` and `otlp_url`. See docs/operate/traces.md."""

    files: bool = setting(
        False,
        "Whether ackd writes spans into compressed files of OTLP JSON lines, for reports.",
    )
    folder: Path | None = setting(
        None,
        "Folder of these files; default: `traces` in `state_dir`. Several sidecars may share one.",
    )
    otlp_url: str = setting(
        "",
        "Address to which ackd POSTs spans (OTLP/HTTP with JSON), say "
        "`http://collector:4318/v1/traces`. Empty: none.",
        pattern=r"(https?://([^\s/?#@:\[\]]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?(/[^\s#]*)?)?",
        pattern_doc="`http://` or `https://` with a host, without user and password",
    )
    otlp_token_file: Path | None = setting(
        None, "File with the bearer token for `otlp_url` (its first line). Read at each start."
    )
    sample: float = setting(
        1.0,
        "Share of the messages acked at the first attempt whose spans ackd keeps; their weights "
        "make up for the others. Spans of all other messages (retries, expiries, dead letters, "
        "errors) are always kept.",
        min=0.0001,
        max=1.0,
    )
    application: str = setting(
        "",
        "Name of the application behind this sidecar, for reports.",
        pattern=r"[ -~]{0,100}",
        pattern_doc="up to 100 printable ASCII characters",
    )
    flush_ms: int = setting(
        SECOND_MS,
        "How long ackd collects spans before it writes them; a crash can lose these.",
        min=20,
        max=MINUTE_MS,
    )
    buffer_max: int = setting(
        20_000,
        "Most spans that wait for each exporter; more are dropped and counted.",
        min=100,
        max=1_000_000,
    )
    file_bytes_max: int = setting(
        64 * MIB,
        "Size of a file (compressed) at which ackd closes it and begins the next one.",
        min=KIB,
        max=4 * GIB,
    )
    file_ms_max: int = setting(
        5 * MINUTE_MS,
        "Age of a file at which ackd closes it and begins the next one.",
        min=SECOND_MS,
        max=DAY_MS,
    )
    disk_bytes_max: int = setting(
        GIB,
        "Most bytes of this sidecar's trace files; beyond it ackd deletes the oldest, and counts "
        "them.",
        min=MIB,
        max=1024 * GIB,
    )

    @property
    def on(self) -> bool:
        """Whether spans are made at all."""
        return self.files or bool(self.otlp_url)
