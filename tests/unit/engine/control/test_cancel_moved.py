"""An operator ends a message whose copy waits in the retry topic for the end of its lease."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ackd.api.control import CancelTo
from ackd.core.ledger.entry import EntryStatus
from ackd.core.record.operations import Settle
from ackd.core.record.transitions import State, Verb
from ackd.engine.control.cancel import Cancels
from ackd.engine.control.control import Control
from ackd.engine.partition.copy_headers import RetryCopy
from ackd.errors import NotInFlightError
from tests.unit.engine.retry_stage import RETRY_ID, RetryStage
from tests.unit.engine.world import NAME, TOPIC_ID, World

MESSAGE = "orders/0/0"
AT = 4
"""Where the copy is in the retry topic."""


class Scene(RetryStage):
    """Message 0 has moved under lease; its copy has come, and waits for the end of the lease."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        control = Control(world.state, world.context)
        self.cancels = Cancels(
            world.state,
            world.context,
            control,
            world.partitions,
            self.bodies,
            self.claims,
            world.topics,
        )
        control.connect(self.cancels.changed)
        self.copy: RetryCopy

    async def begin_moved(self) -> None:
        await self.begin()
        self.start(self.claims)
        self.copy = await self.moves()
        self.arrives(AT, self.copy)
        await self.world.flusher.idle()

    def finished_copy(self) -> bool:
        return AT in self.record(self.copies).finished


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    scene = Scene(world)
    await scene.begin_moved()
    yield scene
    await scene.cancels.stop()
    await scene.tasks.stop()


async def test_the_copy_waits_for_the_lease(scene: Scene) -> None:
    """What these tests stand on."""
    assert scene.copies.ledger.entries[AT].status is EntryStatus.CLAIMING
    assert scene.origin_record(0).slot.state is State.LEASED


@pytest.mark.parametrize(
    ("then", "done", "state"), [("ack", "acked", State.FINISHED), ("dead", "dead", State.DEAD)]
)
async def test_i4_a_message_ends_in_its_origin_record(
    scene: Scene, then: CancelTo, done: str, state: State
) -> None:
    """Long before the end of its lease; the copy learns of it at once."""
    began_ms = scene.world.clock.monotonic_ms()
    found = await scene.cancels.cancel(MESSAGE, then, "wrong file")
    assert scene.world.clock.monotonic_ms() - began_ms < 100
    assert (found.message, found.done) == (MESSAGE, done)
    assert scene.origin_record(0).slot.state is state
    assert scene.world.count("ackd_cancels_total", subscription=NAME, outcome=done) == 1


async def test_an_acked_message_is_never_delivered_and_its_copy_is_finished(scene: Scene) -> None:
    await scene.cancels.cancel(MESSAGE, "ack", "")
    await scene.world.flusher.idle()
    assert AT not in scene.copies.ledger.entries
    assert scene.copies.ledger.ready == 0


async def test_a_dead_message_has_the_operators_reason(scene: Scene) -> None:
    await scene.cancels.cancel(MESSAGE, "dead", "wrong file")
    (call,) = scene.calls(Settle)
    assert [each.last for each in call.texts.items] == [b"cancelled: wrong file"]


@pytest.mark.parametrize("then", ["ack", "dead"])
async def test_i7_its_worker_learns_of_it_under_the_lease_of_the_original(
    scene: Scene, then: CancelTo
) -> None:
    slot = scene.origin_record(0).slot
    signer = scene.world.context.keys.signer(NAME, TOPIC_ID, 0)
    token = scene.world.context.keys.open(signer.token(0, slot.fence, 1, slot.attempt))
    assert scene.cancels.of(token) is None
    found = await scene.cancels.cancel(MESSAGE, then, "")
    assert scene.cancels.of(token) == found
    assert found.places == (f"{RETRY_ID.hex()}/0/{AT}", f"{TOPIC_ID.hex()}/0/0")


async def test_r10_an_ack_in_the_origin_record_is_repeated_after_a_rollback(scene: Scene) -> None:
    replay_log, handle = scene.world.context.replay_log, scene.origin.handle
    assert replay_log.known(handle.key, handle.incarnation) == []
    await scene.cancels.cancel(MESSAGE, "ack", "")
    assert replay_log.known(handle.key, handle.incarnation)


async def test_a_message_that_its_worker_acked_meanwhile_is_not_in_flight(scene: Scene) -> None:
    await scene.settles(Verb.ACK, scene.copy)
    with pytest.raises(NotInFlightError):
        await scene.cancels.cancel(MESSAGE, "dead", "")
    assert scene.origin_record(0).slot.state is State.FINISHED
