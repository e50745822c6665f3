"""Open queues on one folder, and processes that publish to it until they are killed."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest

from ackd_adapters.local import LocalBroker, LocalOptions, adapter
from tests.support.paths import REPO
from tests.support.proc import Process

Open = Callable[..., Awaitable[LocalBroker]]
Publisher = Callable[..., Process]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What is opened here is closed at the end of the test, last one first."""
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the queue lies."""
    return tmp_path / "queue"


@pytest.fixture
def opened(folder: Path, stack: AsyncExitStack) -> Open:
    """Open the folder's queue once more, with these options."""

    async def make(**options: object) -> LocalBroker:
        broker = adapter.open("test", LocalOptions(path=folder, **options))  # type: ignore[arg-type]
        stack.push_async_callback(broker.close)
        await broker.start()
        return broker

    return make


@pytest.fixture
def publisher(folder: Path, tmp_path: Path) -> Iterator[Publisher]:
    """Start a process that publishes; killed at the end of the test."""
    with ExitStack() as stack:

        def start(name: str, batch: int, delay_ms: int = 0) -> Process:
            process = Process(
                [
                    sys.executable,
                    "-m",
                    "tests.integration.local.publisher",
                    folder,
                    name,
                    str(batch),
                    str(delay_ms),
                ],
                log_path=tmp_path / f"{name}.log",
                cwd=REPO,
            )
            process.start()
            stack.callback(process.kill)
            return process

        yield start
