"""The broker's half of a seek: it holds nobody up, whatever the broker says (R8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackd.engine.operations.broker_half import move_broker
from ackd.engine.operations.seek_document import SeekDocument, SeekTarget
from ackd.engine.ownership.expected import NOT_MOVED, Expectation, Expected
from tests.unit.engine.ownership.queue_of_broker import TP, Positions
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World


def document(offset: int, *, ahead: bool = False) -> SeekDocument:
    target = SeekTarget(TOPIC, TOPIC_ID.hex(), 0, offset, done=True, end=40)
    return SeekDocument(
        kind="seek",
        id="op",
        subscription=NAME,
        to="positions",
        increase_only=ahead,
        targets=[target],
        created_ms=1,
    )


async def moved(world: World, positions: Positions, wanted: SeekDocument) -> Expectation | None:
    """What the store keeps after it."""
    world.consumer.broker_positions = positions  # type: ignore[attr-defined]
    await move_broker(world.state, world.context.store, wanted)
    key = wanted.targets[0].key(world.state.cluster, NAME)
    return await Expected(world.context.store).of(key)


async def test_the_broker_goes_back(world: World) -> None:
    positions = Positions()
    assert await moved(world, positions, document(10)) == Expectation(
        10, 40, [(0, 10)], brings=True, boot_ms=positions.boot_ms
    )
    assert positions.moved == [{TP: 10}]


async def test_to_the_end_nothing_is_awaited_and_an_import_moves_nothing(world: World) -> None:
    positions = Positions()
    nothing = Expectation(40, 40, [(0, 40)])
    assert await moved(world, positions, document(40)) == nothing
    assert positions.moved == [{TP: 40}]
    assert await moved(world, positions, document(40, ahead=True)) == nothing
    assert len(positions.moved) == 1


def _away(positions: Positions) -> None:
    positions.away = True


def _may_not(positions: Positions) -> None:
    positions.may = positions.may_ask = False


def _may_only_ask(positions: Positions) -> None:
    positions.may = False


def _off(positions: Positions) -> None:
    positions.on = False


@pytest.mark.parametrize(
    ("breaks", "boot_ms", "by_hand"),
    [
        (_away, NOT_MOVED, ""),
        (_may_not, 0, "mqadmin 0 10"),
        (_may_only_ask, 0, "mqadmin 0 10"),
        (_off, 0, "mqadmin 0 10"),
    ],
)
async def test_what_can_not_be_moved_now_is_left_to_the_owner_or_to_the_operator(
    world: World, breaks: Callable[[Positions], None], boot_ms: int, by_hand: str
) -> None:
    positions = Positions()
    breaks(positions)
    assert await moved(world, positions, document(10)) == Expectation(
        10, 40, [(0, 10)], brings=True, boot_ms=boot_ms, by_hand=by_hand
    )
    # What is skipped comes and is settled, if the broker stays where it is.
    assert await moved(world, positions, document(40)) == Expectation(40, 40, [(0, 40)])
    assert positions.moved == []
