"""Answers by idempotency key: a repeat publishes what is missing and nothing else, and says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackd.api.messages import Accepted, Published, PublishRequest
from ackd.config.schema import PublishSettings
from ackd.engine.publishing.idempotency import RUNNING_EXTRA_MS, Answers, KeyClaim
from ackd.errors import (
    AckdError,
    BrokerError,
    IdempotencyMismatchError,
    IdempotencyRunningError,
    OutcomeUnknownError,
    PressureError,
)
from ackd.ports import Outgoing, Stored
from tests.unit.engine.clock import TestClock
from tests.unit.engine.world import World as Given

SETTINGS = PublishSettings()
REQUEST = PublishRequest([Outgoing("t", None, b"%d" % n) for n in range(2)], "k", b"print")
FIRST, SECOND = Stored("t", 0, 7), Stored("t", 0, 8)


class World:
    """Sidecars that share a store; `answers` is one of them."""

    def __init__(self, settings: PublishSettings = SETTINGS) -> None:
        self.clock = TestClock()
        self.context = Given(self.clock).context
        self.settings = settings
        self.answers = self.sidecar()

    def sidecar(self, broker: str = "main") -> Answers:
        return Answers(broker, self.settings, self.context)

    async def claim(self, request: PublishRequest = REQUEST, *, boxed: bool = False) -> KeyClaim:
        found = await self.answers.begin(request, boxed=boxed)
        assert isinstance(found, KeyClaim)
        return found


async def test_the_answer_of_all_is_given_again_by_any_sidecar() -> None:
    world = World()
    claim = await world.claim()
    assert claim.known == [None, None]
    await world.answers.end(claim, [FIRST, SECOND])
    for each in (world.answers, world.sidecar()):
        assert await each.begin(REQUEST, boxed=False) == Published([FIRST, SECOND], replayed=True)


async def test_the_outbox_can_be_the_answer() -> None:
    world = World()
    accepted: list[Stored | Accepted | AckdError] = [
        Accepted("main", 3, 5),
        Accepted("main", 4, 6),
    ]
    await world.answers.end(await world.claim(), accepted)
    assert await world.answers.begin(REQUEST, boxed=False) == Published(accepted, replayed=True)


async def test_a_key_of_another_broker_is_another_key() -> None:
    world = World()
    await world.answers.end(await world.claim(), [FIRST, SECOND])
    assert isinstance(await world.sidecar("other").begin(REQUEST, boxed=False), KeyClaim)


async def test_another_request_under_the_key_is_refused() -> None:
    """Also while the first one runs."""
    world = World()
    claim = await world.claim()
    other = replace(REQUEST, fingerprint=b"other")
    with pytest.raises(IdempotencyMismatchError):
        await world.answers.begin(other, boxed=False)
    await world.answers.end(claim, [FIRST, SECOND])
    with pytest.raises(IdempotencyMismatchError):
        await world.answers.begin(other, boxed=False)


async def test_what_failed_of_a_batch_and_only_that_is_tried_again() -> None:
    world = World()
    await world.answers.end(await world.claim(), [BrokerError(), SECOND])
    claim = await world.claim()
    assert claim.known == [None, SECOND]
    with pytest.raises(IdempotencyRunningError):  # two repeats at once: one of them
        await world.sidecar().begin(REQUEST, boxed=False)
    await world.answers.end(claim, [FIRST, SECOND])
    assert await world.answers.begin(REQUEST, boxed=False) == Published(
        [FIRST, SECOND], replayed=True
    )


async def test_of_two_repeats_at_the_same_moment_one_publishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both have read what failed before; the store decides who goes on."""
    world = World()
    await world.answers.end(await world.claim(), [BrokerError(), SECOND])
    swap = world.context.store.swap

    async def overtaken(name: str, expected: bytes | None, value: bytes) -> bytes | None:
        monkeypatch.undo()
        world.clock.pass_ms(1)
        assert isinstance(await world.sidecar().begin(REQUEST, boxed=False), KeyClaim)
        return await swap(name, expected, value)

    monkeypatch.setattr(world.context.store, "swap", overtaken)
    with pytest.raises(IdempotencyRunningError):
        await world.answers.begin(REQUEST, boxed=False)


async def test_a_request_of_which_nothing_succeeded_leaves_nothing() -> None:
    world = World()
    await world.answers.end(await world.claim(), [BrokerError(), BrokerError()])
    assert await world.context.store.get("idem:main:k") is None
    assert (await world.claim(replace(REQUEST, fingerprint=b"other"))).known == [None, None]


async def test_a_claim_that_is_undone_is_as_if_it_had_not_been() -> None:
    world = World()
    await world.answers.undo(await world.claim())
    await world.answers.end(await world.claim(), [BrokerError(), SECOND])
    await world.answers.undo(await world.claim())
    assert (await world.claim()).known == [None, SECOND]


async def test_a_request_that_a_crash_cut_off_is_in_doubt_once() -> None:
    """I7: nobody knows whether it was stored; then the client may repeat it."""
    world = World()
    await world.claim()
    world.clock.pass_ms(SETTINGS.timeout_ms + RUNNING_EXTRA_MS - 1)
    with pytest.raises(IdempotencyRunningError):
        await world.answers.begin(REQUEST, boxed=False)
    world.clock.pass_ms(1)
    with pytest.raises(OutcomeUnknownError):
        await world.answers.begin(REQUEST, boxed=False)
    assert (await world.claim()).known == [None, None]


async def test_after_a_crash_what_is_known_stays_known() -> None:
    world = World()
    await world.answers.end(await world.claim(), [BrokerError(), SECOND])
    await world.claim()
    world.clock.pass_ms(SETTINGS.timeout_ms + RUNNING_EXTRA_MS)
    with pytest.raises(OutcomeUnknownError):
        await world.answers.begin(REQUEST, boxed=False)
    assert (await world.claim()).known == [None, SECOND]


async def test_a_request_for_the_outbox_is_never_in_doubt() -> None:
    """The outbox knows its repeats by itself, so a repeat goes there at once, whoever crashed."""
    world = World()
    await world.claim(boxed=True)
    again = await world.claim()
    assert again.boxed
    assert again.known == [None, None]


async def test_an_answer_is_kept_for_its_time() -> None:
    world = World()
    await world.answers.end(await world.claim(), [FIRST, SECOND])
    world.clock.pass_ms(SETTINGS.idempotency_ms - 1)
    assert isinstance(await world.answers.begin(REQUEST, boxed=False), Published)
    world.clock.pass_ms(1)
    assert isinstance(await world.answers.begin(REQUEST, boxed=False), KeyClaim)


async def test_keys_are_bounded_and_room_comes_with_time() -> None:
    """I8."""
    world = World(replace(SETTINGS, idempotency_max=3))
    for number in range(3):
        await world.claim(replace(REQUEST, idempotency_key=f"k{number}"))
        world.clock.pass_ms(10)
    with pytest.raises(PressureError) as refused:
        await world.claim()
    assert refused.value.facts["retry_after_s"] == SETTINGS.idempotency_ms // 1000
    world.clock.pass_ms(SETTINGS.idempotency_ms - 30)
    await world.claim()
    with pytest.raises(PressureError):
        await world.claim(replace(REQUEST, idempotency_key="one more"))


async def test_the_bound_counts_keys_and_a_repeat_is_answered_beyond_it() -> None:
    """I8: repeats, and keys under which nothing was published, take no room."""
    world = World(replace(SETTINGS, idempotency_max=2))
    first, second = (replace(REQUEST, idempotency_key=name) for name in ("first", "second"))
    await world.answers.end(await world.claim(first), [FIRST, SECOND])
    for _ in range(5):
        assert isinstance(await world.answers.begin(first, boxed=False), Published)
    await world.answers.end(await world.claim(second), [BrokerError(), BrokerError()])
    await world.answers.end(await world.claim(second), [FIRST, SECOND])
    with pytest.raises(PressureError):
        await world.claim()
    for each in (first, second):
        assert isinstance(await world.answers.begin(each, boxed=False), Published)
