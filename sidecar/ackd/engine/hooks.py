"""What an owned partition tells its subscription."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ackd.core.effects import SendBack, SendDead
from ackd.core.wire import Call, Reply

if TYPE_CHECKING:
    from ackd.engine.partition import Partition


@dataclass(frozen=True, slots=True)
class Hooks:
    """`landed` hears every reply before the ledger does; None: nobody wants to."""

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
