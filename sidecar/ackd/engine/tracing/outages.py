"""Spans of outages of the store or a broker: written when it is back, or at the stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ackd.ports import Broker
from ackd.store.measured import MeasuredStore

if TYPE_CHECKING:
    from ackd.telemetry.traces import Traces


class Outages:
    """Checks at each flush. Shorter outages of the store show in the metric that counts them; they
    become spans without duration.
    """

    def __init__(
        self,
        traces: Traces,
        store: MeasuredStore,
        brokers: Mapping[str, Broker],
        connected: Mapping[str, asyncio.Event],
    ) -> None:
        self._traces = traces
        self._store = store
        self._brokers = brokers
        self._connected = connected
        self._away: dict[tuple[str, str], tuple[int, str]] = {}
        self._was_up: dict[tuple[str, str], None] = {}
        self._counted = store.outages
        traces.collect(self, self.look)

    def look(self) -> None:
        """Compare with the last check."""
        known = ("store", "") in self._away
        self._note(("store", ""), "store-unavailable", up=self._store.up)
        missed = self._store.outages - self._counted
        self._counted = self._store.outages
        if missed and not known and ("store", "") not in self._away:
            self._tell(("store", ""), _now_us(), "store-unavailable")
        for name, broker in self._brokers.items():
            conditions = broker.conditions()
            why = conditions[0].code if conditions else "broker-unavailable"
            up = self._connected[name].is_set() and not conditions
            self._note(("broker", name), why, up=up)

    def end(self) -> None:
        """Write spans of outages that still last, and check no more."""
        self._traces.collected(self)
        for part, (since_us, why) in self._away.items():
            self._tell(part, since_us, why)
        self._away.clear()

    def _note(self, part: tuple[str, str], why: str, *, up: bool) -> None:
        if up:
            self._was_up[part] = None
            away = self._away.pop(part, None)
            if away is not None:
                self._tell(part, *away)
        elif part in self._was_up:
            self._away.setdefault(part, (_now_us(), why))

    def _tell(self, part: tuple[str, str], since_us: int, why: str) -> None:
        of, name = part
        more: dict[str, str | int] = {"ackd.outage.of": of, "error.type": why}
        if name:
            more["ackd.broker"] = name
        self._traces.own("outage", more, start_us=since_us, error=True, of=of)


def _now_us() -> int:
    return time.time_ns() // 1000
