"""The broker's half of a seek, where the broker hands messages out by itself: it has to begin at
the same offsets. Ackd moves it, or, where it can't be asked, readiness names the command that does.
"""

from __future__ import annotations

from msgspec.structs import replace

from ackd.core.ids import TopicPartition
from ackd.core.log_generations import split
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.operations.seek_document import SeekDocument, SeekTarget
from ackd.engine.ownership.expected import Expectation, Expected
from ackd.ports import BrokerPositions, Store


async def move_broker(state: SubscriptionState, store: Store, document: SeekDocument) -> None:
    """Let the broker bring what the seek brings again; it may be done twice. Raises BrokerError,
    StoreError.

    What an import finishes comes as well, and is settled: the broker is left where it is.
    """
    positions = state.broker_positions
    if positions is None:
        return
    expected = Expected(store)
    done = [each for each in document.targets if each.done]
    lowest: dict[TopicPartition, int] = {}
    for target in done:
        queue = _queue(target)
        lowest[queue] = min(target.offset, lowest.get(queue, target.offset))
    for target in done:
        finished = [(0, target.offset), *target.finished]
        expectation = Expectation(target.offset, max(target.end, target.offset), finished)
        if not document.increase_only and target.offset < target.end:
            queue = _queue(target)
            expectation = await _brought(positions, queue, lowest[queue], expectation)
        await expected.note(target.key(state.cluster, state.name), expectation)
    if positions.on and not document.increase_only:
        await positions.move(lowest)


async def _brought(
    positions: BrokerPositions, queue: TopicPartition, offset: int, expectation: Expectation
) -> Expectation:
    """Add what is needed for it to come: a command, or the broker's run that knows of the move."""
    if positions.on:
        return replace(expectation, brings=True, boot_ms=await positions.booted_ms(queue))
    return replace(expectation, brings=True, by_hand=positions.by_hand(queue, offset))


def _queue(target: SeekTarget) -> TopicPartition:
    return TopicPartition(target.topic, split(target.partition)[0])
