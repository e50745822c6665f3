"""What a partition is given by its subscription: whom to tell, and what its ledger goes by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ackd.core.effects import SendBack, SendDead
from ackd.core.stuck import Rules
from ackd.core.wire import Call, Reply

if TYPE_CHECKING:
    from ackd.engine.partition import Partition


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a partition tells its subscription."""

    ready: Callable[[Partition], None]
    reload: Callable[[Partition], None]
    lost: Callable[[Partition], None]
    send: Callable[[Partition, SendDead | SendBack], None]
    claim: Callable[[Partition, int], None]
    close_home: Callable[[Partition, int], None]
    restore: Callable[[Partition, int], None]
    due: Callable[[int], None]
    confirmed: Callable[[], bool]
    landed: Callable[[Partition, Call, Reply], None] | None = None


class Policy(NamedTuple):
    """What the ledger of a partition goes by; see `ackd.core.ledger.Ledger`."""

    rules: Rules | None
    deliveries_max: int
    carriers: bool
    give_up_ms: int = 0
