"""A thread that owns one librdkafka client: commands in, events out, never more than one owner.

Its thread alone makes, polls and closes a client. So nothing can close it while another thread uses
it, and a call that hangs (a commit while the coordinator is gone) delays this client and never the
event loop: whoever waits for the thread waits with a bound and then abandons it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaException

from ackd.errors import AckdError
from ackd_adapters.kafka.errors import config_error
from ackd_adapters.kafka.mailbox import call_loop

T = TypeVar("T")
Command = Callable[[], None]
CLOSE_BOUND_S = 5.0


class Worker(ABC):
    """One client and its thread. Commands are called in order, between two polls."""

    def __init__(self, name: str) -> None:
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.closing = False
        self._opened: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = False

    async def start(self) -> None:
        """Make the client. Raises `ConfigError` or `BrokerError` when its properties are wrong."""
        self._started = True
        self._thread.start()
        await settled(self._opened)

    async def close(self, bound_s: float = CLOSE_BOUND_S) -> None:
        """Ask the thread to close its client; wait a bounded time. Never raises."""
        if not self._started:
            return
        self.commands.put(self._close)
        try:
            async with asyncio.timeout(bound_s):
                await settled(self._ended)
        except TimeoutError:
            return

    @abstractmethod
    def open_client(self) -> None: ...

    @abstractmethod
    def step(self) -> None:
        """Take one turn: poll once, for a bounded time."""

    @abstractmethod
    def close_client(self) -> None:
        """Close the client for good."""

    @abstractmethod
    def on_crash(self, error: BaseException) -> None:
        """An unexpected error has ended the thread."""

    def serve_commands(self) -> None:
        """Run the commands that were put so far."""
        while not self.commands.empty():
            self.commands.get()()

    def wait_command(self, timeout_s: float) -> None:
        """Wait for a command and run it; for turns that have nothing to poll."""
        try:
            command = self.commands.get(timeout=timeout_s)
        except queue.Empty:
            return
        command()

    def _close(self) -> None:
        self.closing = True

    def _run(self) -> None:
        try:
            self.open_client()
        except (KafkaException, AckdError, ValueError, TypeError) as error:
            made = error if isinstance(error, AckdError) else config_error(error)
            self._opened.set_exception(made)
            self._ended.set_result(None)
            return
        self._opened.set_result(None)
        try:
            while not self.closing:
                self.step()
                self.serve_commands()
        except Exception as error:  # noqa: BLE001  a thread's last words must be heard
            self.on_crash(error)
        finally:
            self.closing = True
            try:
                self.close_client()
            except (KafkaException, RuntimeError) as error:
                self.on_crash(error)
            self.serve_commands()
            self._ended.set_result(None)


async def settled(future: Future[T]) -> T:
    """Wait on the loop for a thread's future. Cancelling the wait does not cancel the future."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(lambda _: call_loop(loop, wake))
    await waiter
    return future.result()
