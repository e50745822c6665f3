"""The broker's half of a seek, where the broker hands messages out by itself: it has to begin at
the same offsets. Ackd moves it, or, where it can't be asked, readiness names the command that does.

A broker that is away holds nobody up: the seek ends without it, and whoever owns the partition
moves it later (`AwaitedSeeks`).
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from ackd.core.ids import TopicPartition
from ackd.core.log_generations import split
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.operations.seek_document import SeekDocument, SeekTarget
from ackd.engine.ownership.expected import NOT_MOVED, Expectation, Expected
from ackd.errors import BrokerError
from ackd.ports import BrokerPositions, Store

LOG = logging.getLogger("ackd.engine")


async def move_broker(state: SubscriptionState, store: Store, document: SeekDocument) -> None:
    """Let the broker bring what the seek brings again; it may be done twice. Raises StoreError.

    What an import finishes comes as well, and is settled: the broker is left where it is.
    """
    positions = state.broker_positions
    if positions is None:
        return
    expected = Expected(store)
    lowest: dict[TopicPartition, int] = {}
    found: dict[TopicPartition, list[tuple[SeekTarget, Expectation]]] = {}
    for target in document.targets:
        if target.done:
            queue = _queue(target)
            lowest[queue] = min(target.offset, lowest.get(queue, target.offset))
            found.setdefault(queue, []).append((target, _wanted(target, document)))

    async def note(queue: TopicPartition, **how: int | str) -> None:
        for target, wanted in found[queue]:
            key = target.key(state.cluster, state.name)
            await expected.note(key, replace(wanted, **how) if wanted.brings else wanted)

    to_move = [] if document.increase_only else list(lowest)
    for queue, targets in found.items():
        how: dict[str, int | str] = {}
        if any(wanted.brings for _, wanted in targets):
            how = await _run_of(positions, queue, lowest[queue])
        await note(queue, **how)
        if "by_hand" in how:
            to_move.remove(queue)
    for queue in to_move if positions.on else ():
        try:
            await positions.move({queue: lowest[queue]})
        except BrokerError as error:
            LOG.warning("%s: %s is not moved yet: %s", state.name, queue, error.detail)
            await note(queue, **_not_moved(positions, queue, lowest[queue], error))


def _wanted(target: SeekTarget, document: SeekDocument) -> Expectation:
    finished = [(0, target.offset), *target.finished]
    brings = not document.increase_only and target.offset < target.end
    return Expectation(target.offset, max(target.end, target.offset), finished, brings=brings)


async def _run_of(
    positions: BrokerPositions, queue: TopicPartition, offset: int
) -> dict[str, int | str]:
    """What is needed for it to come: a command, or the broker's run that will know of the move."""
    if not positions.on:
        return {"by_hand": positions.by_hand(queue, offset)}
    try:
        return {"boot_ms": await positions.booted_ms(queue)}
    except BrokerError as error:
        return _not_moved(positions, queue, offset, error)


def _not_moved(
    positions: BrokerPositions, queue: TopicPartition, offset: int, error: BrokerError
) -> dict[str, int | str]:
    if positions.refused(error):
        return {"by_hand": positions.by_hand(queue, offset)}
    return {"boot_ms": NOT_MOVED}


def _queue(target: SeekTarget) -> TopicPartition:
    return TopicPartition(target.topic, split(target.partition)[0])
