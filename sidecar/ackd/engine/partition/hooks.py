"""What a partition is given: whom it tells, and what its ledger goes by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ackd.core.ids import LedgerKey
from ackd.core.ledger.effects import Effect
from ackd.core.ledger.send_back import Rules
from ackd.core.record.protocol import Call, JournalEntry, Reply, Result
from ackd.engine.partition.ordering import PlaceOf

if TYPE_CHECKING:
    from ackd.engine.partition.partition import Partition


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a partition tells its subscription.

    `journal`: what other sidecars settled. `effect`: what others do for it. `behind`: what holds
    the head of a parked key (R19).
    `over`: something of a scattered partition may be finished.
    """

    ready: Callable[[Partition], None]
    reload: Callable[[Partition], None]
    lost: Callable[[Partition], None]
    effect: Callable[[Partition, Effect], None]
    behind: Callable[[Partition, Result], None]
    journal: Callable[[LedgerKey, Sequence[JournalEntry]], None]
    due: Callable[[int], None]
    confirmed: Callable[[], bool]
    landed: Callable[[Partition, Call, Reply], None] | None = None
    over: Callable[[Partition], None] | None = None


class Policy(NamedTuple):
    """What the ledger of a partition goes by; see `ackd.core.ledger.ledger.Ledger`.

    `place_of`: how its messages are lined up, None without an order. `scattered`: they arrive in
    any order.
    """

    rules: Rules | None
    deliveries_max: int
    carriers: bool
    give_up_ms: int = 0
    place_of: PlaceOf | None = None
    scattered: bool = False
