"""Where the spans of a sidecar go: into files, to a collector, or to both.

The first exporter's losses count as the sidecar's: files, if there are any.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from ackd.config.traces import TraceSettings
from ackd.hidden import HIDDEN
from ackd.telemetry.metrics import Metrics
from ackd.telemetry.tracefile import TraceFiles
from ackd.telemetry.traceway import Done, FileOutput, OtlpOutput, TraceBatch, TraceExporter


class TraceExports:
    """The exporters, and their figures in the metrics. `deleted`: files, for want of room."""

    def __init__(
        self, settings: TraceSettings, identity: str, folder: Path, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._folder = folder
        self._metrics = metrics
        self._seen: dict[tuple[str, str], int] = {}
        self._seen_deleted = 0
        self.exporters: list[TraceExporter] = []
        self.deleted = 0
        metrics.before_scrape(self.fill_metrics)

    def open(self, done: Done) -> None:
        """Make the exporters. `done`: told of the first one's batches, by its thread.

        Raises ConfigError, OSError.
        """
        settings = self._settings
        if settings.files:
            files = TraceFiles(
                self._folder,
                self._identity,
                datetime.now(UTC).strftime("%Y%m%dT%H%M%S"),
                bytes_max=settings.file_bytes_max,
                ms_max=settings.file_ms_max,
                disk_bytes_max=settings.disk_bytes_max,
                deleted=self._were_deleted,
            )
            self.exporters.append(
                TraceExporter("file", FileOutput(files), settings.buffer_max, done)
            )
        if settings.otlp_url:
            output = OtlpOutput(settings.otlp_url, _token(settings.otlp_token_file))
            on_done = _nothing if self.exporters else done
            self.exporters.append(TraceExporter("otlp", output, settings.buffer_max, on_done))

    def start(self) -> None:
        """Start the threads. The one of the files also names those that a killed run left."""
        for exporter in self.exporters:
            exporter.start()

    async def stop(self) -> None:
        """Write what is queued and name the last file; bounded."""
        await asyncio.gather(*(asyncio.to_thread(each.stop) for each in self.exporters))
        self.fill_metrics()

    def offer(self, batch: TraceBatch) -> bool:
        """Pass a batch to each exporter. False: the first one has no room, so it is dropped."""
        taken = [exporter.offer(batch) for exporter in self.exporters]
        return not taken or taken[0]

    def lost_in_crash(self, spans: int) -> None:
        """Count what the run before has lost."""
        self._metrics.trace_spans.at(self.exporters[0].name, "crash").inc(spans)

    def fill_metrics(self) -> None:
        """Copy the threads' numbers into the metrics."""
        for each in self.exporters:
            now = {"written": each.written, "full": each.full, "failed": each.failed}
            for outcome, count in now.items():
                more = count - self._seen.get((each.name, outcome), 0)
                self._metrics.trace_spans.at(each.name, outcome).inc(more)
                self._seen[each.name, outcome] = count
        self._metrics.trace_files_deleted.at().inc(self.deleted - self._seen_deleted)
        self._seen_deleted = self.deleted

    def _were_deleted(self, files: int) -> None:
        self.deleted += files


def _nothing(_: TraceBatch, __: int) -> None:
    """Do nothing: the exporter itself counts its losses."""


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    token = path.read_text().split("\n", 1)[0].strip()
    HIDDEN.add(token)
    return token
