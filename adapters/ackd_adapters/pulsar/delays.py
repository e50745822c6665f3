"""Finds out when messages with a client-set delay are due: from their retry letter, or by one
question to the admin interface for each.

A reader gets a message that was published with `deliverAfter` or `deliverAt` at once, and the
client does not report its time. The admin interface reports the time of one entry. Only a message
outside of a batch can have one: the clients send delayed messages one by one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from ackd.errors import AckdError, BrokerError
from ackd.ports import Delay, Record
from ackd_adapters.pulsar.config import PulsarOptions
from ackd_adapters.pulsar.letters import DEAD, bounded, holds_letters, is_own, letter
from ackd_adapters.pulsar.numbering import Position
from ackd_adapters.pulsar.rest import RestError

LOG: Final = logging.getLogger("ackd.pulsar")
AT_ONCE: Final = 8
"""Questions that a connection may have pending at once."""
AGAIN_S: Final = 0.2
"""Constant: messages wait for the answer."""
NOT_FOUND: Final = 404
HEADER: Final = "x-pulsar-deliver-at-time"

Ask = Callable[[str], Mapping[str, str]]
Going = Callable[[], bool]


@dataclass(slots=True)
class _QuestionBatch:
    """Questions that belong together. `failed`: the last error of a question without an answer."""

    until: float
    going: Going
    due: dict[int, int]
    failed: str = ""

    @property
    def over(self) -> bool:
        """Whether the batch needs no further answers."""
        return not self.going() or (bool(self.failed) and time.monotonic() >= self.until)


class Questions:
    """A connection's questions: its threads, and whether the admin interface answers. Blocks.

    `ask` returns the headers of an answer, or raises AckdError. `in_vain`: why the last batch that
    was waited for got no answers. A later batch does not wait then: it goes on without its due
    times as soon as its first question fails, too.
    """

    def __init__(self, options: PulsarOptions, ask: Ask) -> None:
        self.wanted = options.honor_client_delays
        self.in_vain = ""
        self._wait_s = options.client_delays_wait_ms / 1000
        self._ask = ask
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def due(self, paths: Mapping[int, str], going: Going) -> dict[int, int]:
        """Due times by offset, of the messages that have one. `paths`: their entries in the admin
        interface. The call ends soon once `going` returns False.
        """
        batch = _QuestionBatch(time.monotonic() + self._wait_s, going, {})
        left = dict(paths)
        if self.in_vain and left:
            first = next(iter(left))
            if not self._answered(batch, (first, left.pop(first))):
                return {}
            self.in_vain = ""
        while left:
            batch.failed = ""
            answered = self._threads().map(partial(self._answered, batch), left.items())
            left = {
                offset: path
                for (offset, path), known in zip(left.items(), answered, strict=True)
                if not known
            }
            if left and (batch.over or time.monotonic() + AGAIN_S >= batch.until):
                if going():
                    self.in_vain = batch.failed
                    LOG.warning(
                        "ackd delivers %d messages without delay: %s", len(left), batch.failed
                    )
                break
            if left:
                time.sleep(AGAIN_S)
        return batch.due

    def close(self) -> None:
        """Ask nothing more; does not wait for pending questions."""
        with self._lock:
            pool, self._pool, self._closed = self._pool, None, True
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._closed:
                raise BrokerError("not connected")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(AT_ONCE, "ackd-pulsar-delays")
            return self._pool

    def _answered(self, batch: _QuestionBatch, message: tuple[int, str]) -> bool:
        """Whether the due time of one message is known, or will never be known."""
        offset, path = message
        if batch.over:
            return False
        try:
            due_ms = moment(self._ask(path).get(HEADER))
        except AckdError as error:
            if isinstance(error, RestError) and error.status_code == NOT_FOUND:
                return True
            batch.failed = error.detail
            return False
        if due_ms:
            batch.due[offset] = due_ms
        return True


class Delays:
    """When the messages of one partition are due."""

    def __init__(self, questions: Questions, topic: str, rest_path: Callable[[], str]) -> None:
        self._questions = questions
        self._path = rest_path
        self._letters = holds_letters(topic)
        self._asks = questions.wanted and not is_own(topic) and not topic.endswith(DEAD)
        self.wanted = self._letters or self._asks

    @property
    def in_vain(self) -> str:
        """Why messages come without their due times at present; empty when they have them."""
        return self._questions.in_vain if self._asks else ""

    def find(
        self, records: Sequence[Record], entries: Mapping[int, Position], going: Going
    ) -> dict[int, Delay]:
        """Due times by offset. `entries`: positions of the messages outside of batches. Blocks; a
        message whose question is not answered in time has no due time.
        """
        found: dict[int, Delay] = {}
        if self._letters:
            parsed = ((record.offset, letter(record)) for record in records)
            found = {offset: delay for offset, delay in parsed if delay is not None}
        if self._asks:
            path = self._path()
            asked = {
                offset: f"{path}/ledger/{at.ledger}/entry/{at.entry}"
                for offset, at in entries.items()
                if offset not in found or not found[offset].due_ms
            }
            for offset, due_ms in self._questions.due(asked, going).items():
                attempts = found[offset].attempts if offset in found else 0
                found[offset] = Delay(bounded(due_ms), attempts)
        return found


def moment(text: str | None) -> int:
    """Milliseconds of a time as the admin interface writes it (ISO 8601 with an offset); 0 for
    none.
    """
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return 0
    return 0 if found.tzinfo is None else int(found.timestamp() * 1000 + 0.5)
