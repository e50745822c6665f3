"""Open conditions of a connection: reported once when they begin and once when they end.

librdkafka reports when something breaks and never when it works again. So while a condition is
open, the thread that polls a client asks a small question every second; an answer ends it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from ackd.ports import Condition
from ackd_adapters.kafka import errors

PROBE_INTERVAL_S = 1.0
PROBE_TIMEOUT_S = 1.0


class Conditions:
    """What is wrong now, by code. `tell` gets every beginning and end, from any thread."""

    def __init__(self, tell: Callable[[Condition], None]) -> None:
        self._tell = tell
        self._open: dict[str, Condition] = {}
        self._lock = threading.Lock()

    def report(self, code: str, detail: str, *, fatal: bool = False) -> None:
        """Open a condition; reported only when this code is not open yet."""
        condition = Condition(code, detail, fatal=fatal, away="/connection/" in code)
        with self._lock:
            known = self._open.get(code)
            if known is not None and known.fatal >= fatal:
                return
            self._open[code] = condition
        self._tell(condition)

    def clear(self, *codes: str) -> None:
        """End these conditions, where they were open."""
        with self._lock:
            ended = [self._open.pop(code) for code in codes if code in self._open]
        for condition in ended:
            self._tell(
                Condition(condition.code, condition.detail, fatal=condition.fatal, cleared=True)
            )

    def clear_all(self, prefix: str) -> None:
        """End every condition whose code starts so, except fatal ones."""
        with self._lock:
            codes = [
                code
                for code, condition in self._open.items()
                if code.startswith(prefix) and not condition.fatal
            ]
        self.clear(*codes)

    def now(self) -> list[Condition]:
        with self._lock:
            return list(self._open.values())

    def any(self, prefix: str = "") -> bool:
        """Whether a non-fatal condition is open whose code starts so."""
        with self._lock:
            return any(
                code.startswith(prefix) and not condition.fatal
                for code, condition in self._open.items()
            )


class ClientHealth:
    """The connection of one client; all calls come from the thread that polls it.

    Codes are `<role>/<broker's name of the error>`, then `/<topic>` where it concerns one.
    """

    def __init__(self, conditions: Conditions, role: str) -> None:
        self.conditions = conditions
        self.role = role
        self.fatal = False
        self._connection = f"{role}/connection/"
        self._topic = f"{role}/topic/"
        self._last_detail = ""
        self._suspicion: tuple[str, str] | None = None
        self._probed_at = 0.0
        # Read for every batch of records, so a plain attribute without the lock.
        self.unhealthy_topics: set[str] = set()

    def on_error(self, error: KafkaError) -> None:
        """The client's `error_cb`: connections, credentials, fatal errors."""
        code = error.code()
        if errors.is_fatal(error):
            self.fatal = True
            self.conditions.report(self._code("fatal", error), error.str(), fatal=True)
        elif code in errors.PASSING:
            self._last_detail = error.str()
        elif code == errors.ALL_BROKERS_DOWN:
            # Also reported for connections that were replaced long ago: believed when a question
            # fails.
            detail = f"{error.str()}: {self._last_detail}" if self._last_detail else error.str()
            self._suspicion = (self._code("connection", error), detail)
        elif code in errors.CONNECTION:
            self.conditions.report(self._code("connection", error), error.str())
        else:
            self.conditions.report(self._code("client", error), error.str())

    def on_topic_error(self, topic: str, error: KafkaError) -> None:
        """Report a message that carries an error about a topic."""
        self.unhealthy_topics.add(topic)
        self.conditions.report(self._code("topic", error, topic), error.str())

    def topic_works(self, topic: str) -> None:
        """This topic delivered something: end its conditions."""
        if topic in self.unhealthy_topics:
            self.unhealthy_topics.discard(topic)
            ended = [
                condition.code
                for condition in self.conditions.now()
                if condition.code.startswith(self._topic) and condition.code.endswith(f"/{topic}")
            ]
            self.conditions.clear(*ended)

    def probe(self, client: Any, topic: str | None) -> None:
        """While a condition is open, ask something once a second (blocks <= 1 s)."""
        if self._suspicion is None and not self.conditions.any(self._connection):
            return
        if time.monotonic() < self._probed_at + PROBE_INTERVAL_S:
            return
        suspicion, self._suspicion = self._suspicion, None
        try:
            if topic is None:
                client.list_topics(timeout=PROBE_TIMEOUT_S)
            else:
                client.list_topics(topic, timeout=PROBE_TIMEOUT_S)
        except KafkaException:
            if suspicion is not None:
                self.conditions.report(*suspicion)
            return
        finally:
            self._probed_at = time.monotonic()
        self._last_detail = ""
        self.conditions.clear_all(self._connection)
        self.conditions.clear_all(f"{self.role}/client/")

    def _code(self, kind: str, error: KafkaError, topic: str = "") -> str:
        name = errors.code_name(error).lower().replace("_", "-")
        return f"{self.role}/{kind}/{name}" + (f"/{topic}" if topic else "")
