"""A collector for one test, and a sidecar that sends to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackd_torture.ports import give_back
from tests.integration.http.conftest import Sidecar, sidecar_in
from tests.support.collector import install
from tests.support.collector.server import Collector
from tests.support.paths import remove_run_dir, run_dir
from tests.support.require import require

TRACES = """
[traces]
files = true
otlp_url = "{url}"
flush_ms = "100ms"
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where all of a test's servers write."""
    made = run_dir("collector")
    yield made
    remove_run_dir(made)


@pytest.fixture
def collector(folder: Path) -> Iterator[Collector]:
    """Started; a test may kill it."""
    require(install.missing())
    with Collector(folder) as started:
        yield started


@pytest.fixture
def sidecar(folder: Path, collector: Collector) -> Iterator[Sidecar]:
    """Its spans go into files and to the collector."""
    made = sidecar_in(folder)
    with (folder / "ackd.toml").open("a") as config:
        config.write(TRACES.format(url=collector.url))
    made.start()
    yield made
    made.process.kill()
    give_back(made.port, made.admin_port)
