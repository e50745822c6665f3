"""What all subscriptions of a sidecar share: store, clock, identity, keys, metrics, and what only
some parts use, such as the replay log and the spill.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ackd.core.lease_token import LeaseKeys
from ackd.engine.base.lease_events import LeaseEvents
from ackd.engine.base.pace import Pace
from ackd.engine.base.replay_log import ReplayLog
from ackd.engine.base.spill_file import Spill
from ackd.engine.base.tasks import Vitals
from ackd.ports import Clock, Store
from ackd.store.flusher import Flusher
from ackd.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from ackd.telemetry.traces import Traces


class SystemClock:
    """Implements `ackd.ports.Clock` with this machine's clock."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Context:
    """Shared by all subscriptions of a sidecar. `random_bits(n)` returns n random bits,
    `spill(subscription, bytes_max)` a file store for bodies.
    """

    store: Store
    flusher: Flusher
    clock: Clock
    identity: str
    keys: LeaseKeys
    metrics: Metrics
    replay_log: ReplayLog
    grace_ms: int
    spill: Callable[[str, int], Spill]
    random_bits: Callable[[int], int] = secrets.randbits
    lease_events: LeaseEvents = field(default_factory=LeaseEvents)
    traces: Traces | None = None
    vitals: Vitals = field(default_factory=Vitals)
    pace: Pace = field(default_factory=Pace)
