"""Which part of the retry room does each effect of a ledger, except those that the partition does
itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from ackd.core.ledger.effects import (
    Claim,
    CloseOriginRecord,
    Effect,
    LeaveKeyQueue,
    Restore,
    SendBack,
    SendDead,
    StoreForeignDelays,
)
from ackd.engine.partition import foreign_delays
from ackd.engine.partition.ordering import OriginRecordRef
from ackd.engine.partition.partition import EffectHandler, Partition
from ackd.engine.retry.body_spill import BodySpill
from ackd.engine.retry.claims import CopyClaims
from ackd.engine.retry.copier import Copier
from ackd.engine.retry.key_queues import KeyQueues


def effect_handlers(
    send_back: Copier,
    dead_letters: Copier,
    claims: CopyClaims,
    key_queues: KeyQueues,
    bodies: BodySpill,
) -> Mapping[type[Effect], EffectHandler]:
    """The handler of each effect."""

    def leave_key_queue(partition: Partition, effect: LeaveKeyQueue) -> None:
        if isinstance(effect.origin_record, OriginRecordRef):
            key_queues.over(partition, effect.offset, effect.origin_record)

    return {
        SendBack: send_back.send,
        SendDead: dead_letters.send,
        Claim: lambda partition, effect: claims.claim(partition, effect.offset),
        CloseOriginRecord: lambda partition, effect: claims.close(partition, effect.offset),
        LeaveKeyQueue: leave_key_queue,
        StoreForeignDelays: foreign_delays.write,
        Restore: lambda partition, effect: bodies.restore(partition, effect.offset),
    }
