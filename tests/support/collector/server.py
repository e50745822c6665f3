"""A collector that writes what it gets into one file."""

from pathlib import Path
from typing import Self

from ackd_torture.ports import free_port, give_back, listens
from tests.support.collector.install import NAME, found
from tests.support.proc import Process
from tests.support.started import Started
from tests.support.wait import wait_until

CONFIG = """
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:{port}
exporters:
  file:
    path: {path}
    flush_interval: 100ms
    append: true
service:
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [file]
"""
"""The file exporter's format is JSON lines without compression unless it is told another."""
START_TIMEOUT_S = 60.0


class Collector(Started):
    """OTLP/HTTP in, JSON lines out; what it wrote outlives a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file = folder / "traces.jsonl"
        self.port = free_port()
        config = folder / "collector.yaml"
        config.write_text(CONFIG.format(port=self.port, path=self.file))
        argv: list[str | Path] = [found().program(NAME), f"--config=file:{config}"]
        self.process = Process(argv, log_path=folder / "collector.log")

    @property
    def url(self) -> str:
        """Where spans go to."""
        return f"http://127.0.0.1:{self.port}/v1/traces"

    def start(self) -> Self:
        """Start it (again) and wait until it listens."""
        self.process.start()
        try:
            wait_until(self._listens, "the collector listens", timeout_s=START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill it. Its file stays."""
        self.process.kill()
        give_back(self.port)

    def _listens(self) -> bool:
        assert self.process.running, self.process.log()
        return listens(self.port)
