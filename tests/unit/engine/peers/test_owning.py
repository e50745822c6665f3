"""Receives of other sidecars among those of this one: served alike, and what is lost goes back."""

import asyncio
from dataclasses import replace

import pytest

from ackd.api.messages import ReceiveRequest
from ackd.core.ledger.entry import EntryStatus
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.handed_leases import RELAYED
from ackd.engine.partition.partition import Partition
from ackd.engine.peers import owning
from ackd.engine.peers.frames import Frame, PeerAnswer, PeerAsk, PeerReady
from ackd.engine.peers.owning import UNSENT_MAX, PeerOffers
from tests.unit.engine.peers.pair import TestLink
from tests.unit.engine.world import LEASE_MS, NAME, World

TURN_S = 0.001


@pytest.fixture
def dispatcher(world: World) -> Dispatcher:
    made = world.dispatcher()
    world.state.signals.deliver.connect(made.serve)
    return made


@pytest.fixture
def offers(world: World, dispatcher: Dispatcher) -> PeerOffers:
    return PeerOffers(world.state, world.context, dispatcher, world.notes)


async def owns(world: World, dispatcher: Dispatcher, *offsets: int) -> Partition:
    wiring = replace(world.events.wiring(), ready=dispatcher.ready)
    return await world.owns(0, offsets, wiring=wiring)


def ask(
    number: int = 1, most: int = 1, wait_ms: int = 5_000, lease_ms: int = LEASE_MS, size: int = 1000
) -> PeerAsk:
    return PeerAsk(NAME, number, most, size, lease_ms, wait_ms, "packer")


def answers(link: TestLink) -> list[tuple[int, list[int]]]:
    """The numbers of the answers, and the offsets in them."""
    found = [frame for frame in link.heard() if isinstance(frame, PeerAnswer)]
    return [(each.number, [message.offset for message in each.messages]) for each in found]


def leased(partition: Partition) -> int:
    return partition.ledger.leased


async def test_what_lies_ready_is_the_answer(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition, link = await owns(world, dispatcher, 0, 1, 2), TestLink()
    offers.asked(link, ask(most=2))
    await asyncio.sleep(TURN_S)
    (answer,) = link.heard()
    assert isinstance(answer, PeerAnswer)
    assert (answer.number, answer.ready, len(answer.messages)) == (1, 1, 2)
    entry = partition.ledger.entry(0)
    assert entry is not None
    assert (entry.status, entry.holder) == (EntryStatus.LEASED, f"{RELAYED}pod-2: packer")


async def test_it_waits_among_the_receives_of_this_sidecar(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition, link = await owns(world, dispatcher), TestLink()
    before = dispatcher.enter(ReceiveRequest(wait_ms=5_000))
    offers.asked(link, ask())
    after = dispatcher.enter(ReceiveRequest(wait_ms=5_000))
    await asyncio.sleep(1)
    world.fetches(partition, [0, 1])
    await asyncio.sleep(TURN_S)
    assert [each.record.offset for each in before.future.result()] == [0]
    (answer,) = link.heard()
    assert isinstance(answer, PeerAnswer)
    assert [each.offset for each in answer.messages] == [1]
    assert answer.waited_ms == 1_000  # its lease began no earlier (R21)
    assert not after.future.done()
    dispatcher.leave(after)


async def test_it_is_answered_when_its_wait_is_over(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    await owns(world, dispatcher)
    link = TestLink()
    offers.asked(link, ask(1, wait_ms=0))
    offers.asked(link, ask(2, wait_ms=300))
    await asyncio.sleep(0.299)
    assert answers(link) == [(1, [])]
    await asyncio.sleep(0.002)
    assert answers(link) == [(2, [])]


@pytest.mark.parametrize("lease_ms", [0, 1 << 50])
async def test_a_lease_time_that_is_not_allowed_here_gets_nothing(
    world: World, dispatcher: Dispatcher, offers: PeerOffers, lease_ms: int
) -> None:
    await owns(world, dispatcher, 0)
    link = TestLink()
    offers.asked(link, ask(lease_ms=lease_ms))
    assert answers(link) == [(1, [])]


async def test_while_this_sidecar_drains_it_gets_nothing(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    await owns(world, dispatcher, 0)
    link = TestLink()
    dispatcher.stop()
    offers.asked(link, ask())
    (answer,) = link.heard()
    assert answer == PeerAnswer(NAME, 1, 0, 0, [])  # and no word of the message


async def test_i8_requests_have_a_bound(
    world: World, dispatcher: Dispatcher, offers: PeerOffers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await owns(world, dispatcher)
    monkeypatch.setattr(owning, "OFFERS_MAX", 2)
    link = TestLink()
    for number in (1, 2, 3):
        offers.asked(link, ask(number))
    assert answers(link) == [(3, [])]


async def test_a_request_that_comes_twice_counts_once(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition, link = await owns(world, dispatcher), TestLink()
    offers.asked(link, ask())
    offers.asked(link, ask())
    world.fetches(partition, [0, 1])
    await asyncio.sleep(TURN_S)
    offers.asked(link, ask())
    await asyncio.sleep(TURN_S)
    assert (answers(link), leased(partition)) == ([(1, [0])], 1)


# --- cancels


async def test_a_cancel_is_answered_and_nothing_is_granted_any_more(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition, link = await owns(world, dispatcher), TestLink()
    offers.asked(link, ask())
    offers.cancelled(link, 1)
    assert answers(link) == [(1, [])]
    world.fetches(partition, [0])
    await asyncio.sleep(TURN_S)
    assert (answers(link), leased(partition)) == ([], 0)


async def test_r21_what_is_granted_meanwhile_goes_back(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition, link = await owns(world, dispatcher, 0), TestLink()
    offers.asked(link, ask())  # the store is asked now
    offers.cancelled(link, 1)
    await asyncio.sleep(2 * TURN_S)
    entry = partition.ledger.entry(0)
    assert entry is not None
    assert (answers(link), entry.status, entry.attempt) == ([(1, [])], EntryStatus.READY, 0)


async def test_a_cancel_of_what_is_not_known_is_answered_too(offers: PeerOffers) -> None:
    link = TestLink()
    offers.cancelled(link, 9)
    assert answers(link) == [(9, [])]


# --- what became of answers


async def test_r21_a_lost_answer_goes_back(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition, link = await owns(world, dispatcher, 0, 1), TestLink()
    offers.asked(link, ask(1))
    offers.asked(link, ask(2))
    await asyncio.sleep(TURN_S)
    offers.taken(link, 2)
    again = TestLink()
    offers.closed(link)
    offers.lost(again, [1, 2])
    await asyncio.sleep(TURN_S)
    entry, taken = partition.ledger.entry(0), partition.ledger.entry(1)
    assert entry is not None
    assert taken is not None
    assert (entry.status, entry.attempt) == (EntryStatus.READY, 0)
    assert taken.status is EntryStatus.LEASED


async def test_r21_a_request_that_is_lost_before_it_is_answered_ends(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition, link = await owns(world, dispatcher), TestLink()
    offers.asked(link, ask())
    offers.lost(link, [1, 2])
    world.fetches(partition, [0])
    await asyncio.sleep(TURN_S)
    assert (answers(link), leased(partition)) == ([], 0)
    offers.asked(link, ask(2))  # it was on its way on another link
    await asyncio.sleep(TURN_S)
    assert (answers(link), leased(partition)) == ([], 0)


async def test_another_process_with_the_same_numbers_changes_nothing(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition, link = await owns(world, dispatcher, 0), TestLink()
    offers.asked(link, ask())
    await asyncio.sleep(TURN_S)
    offers.lost(TestLink(instance="restarted"), [1])
    await asyncio.sleep(TURN_S)
    assert leased(partition) == 1


async def test_what_has_ended_by_itself_is_not_given_back(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    await owns(world, dispatcher, 0)
    link = TestLink()
    offers.asked(link, ask(lease_ms=500))
    await asyncio.sleep(0.5)
    calls = len(world.store.asked)
    offers.lost(link, [1])
    await asyncio.sleep(TURN_S)
    assert len(world.store.asked) == calls


async def test_i8_answers_that_nobody_confirms_are_forgotten_with_their_leases(
    world: World, dispatcher: Dispatcher, offers: PeerOffers, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await owns(world, dispatcher, 0)
    monkeypatch.setattr(owning, "OFFERS_MAX", 1)
    link = TestLink()
    offers.asked(link, ask(1, lease_ms=500))
    await asyncio.sleep(0.4)
    offers.asked(link, ask(2))
    assert answers(link) == [(1, [0]), (2, [])]
    await asyncio.sleep(0.1)
    world.fetches(partition, [1])
    offers.asked(link, ask(3))
    await asyncio.sleep(TURN_S)
    assert answers(link) == [(3, [1])]


# --- links


async def test_requests_end_with_their_link(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition, link, other = await owns(world, dispatcher), TestLink(), TestLink("pod-3")
    offers.asked(link, ask())
    offers.asked(other, ask())
    offers.closed(link)
    world.fetches(partition, [0, 1])
    await asyncio.sleep(TURN_S)
    assert (answers(link), answers(other), leased(partition)) == ([], [(1, [0])], 1)


async def test_i8_a_sidecar_that_reads_slowly_waits(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition, link = await owns(world, dispatcher, 0, 1), TestLink()
    link.unsent = UNSENT_MAX + 1
    for number in (1, 2, 3):
        offers.asked(link, ask(number))
    await asyncio.sleep(TURN_S)
    assert leased(partition) == 0
    offers.cancelled(link, 2)
    assert answers(link) == [(2, [])]
    link.unsent = 0
    offers.writable(link)
    await asyncio.sleep(TURN_S)
    assert answers(link) == [(1, [0]), (3, [1])]
    link.unsent = UNSENT_MAX + 1
    offers.asked(link, ask(4))
    offers.closed(link)
    offers.writable(link)
    assert answers(link) == []


def readies(link: TestLink) -> list[Frame]:
    return [frame for frame in link.heard() if isinstance(frame, PeerReady)]


async def test_as_many_sidecars_are_told_of_messages_as_there_are(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition = await owns(world, dispatcher)
    links = [TestLink(f"pod-{number}") for number in (2, 3, 4)]
    for link in links:
        offers.watched(link, on=True)
    world.fetches(partition, [0, 1])
    offers.surplus()
    assert [readies(link) for link in links] == [[PeerReady(NAME, 2)], [PeerReady(NAME, 2)], []]
    offers.surplus()
    assert readies(links[2]) == [PeerReady(NAME, 2)]
    offers.surplus()
    assert [readies(link) for link in links] == [[], [], []]  # each once
    offers.asked(links[0], ask())
    await asyncio.sleep(TURN_S)
    links[0].heard()
    offers.surplus()
    assert readies(links[0]) == [PeerReady(NAME, 1)]
    offers.watched(links[1], on=False)
    offers.closed(links[2])
    offers.surplus()
    assert [readies(link) for link in links] == [[], [], []]


# --- built again


async def test_stopping_answers_and_the_next_one_gives_back_what_is_lost(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    partition, link = await owns(world, dispatcher, 0), TestLink()
    offers.watched(link, on=True)
    offers.asked(link, ask(1))
    await asyncio.sleep(TURN_S)
    offers.asked(link, ask(2))
    await offers.stop()
    assert answers(link) == [(1, [0]), (2, [])]
    after = PeerOffers(world.state, world.context, dispatcher, world.notes)
    after.inherit(offers)
    after.lost(link, [1])
    await asyncio.sleep(TURN_S)
    assert leased(partition) == 0
    after.surplus()
    assert readies(link) == [PeerReady(NAME, 1)]


async def test_a_link_serves_whose_receive_waits_here(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    await owns(world, dispatcher)
    link, other = TestLink(), TestLink("pod-3")
    offers.asked(link, ask())
    assert (offers.serves(link), offers.serves(other)) == (True, False)
    offers.cancelled(link, 1)
    assert not offers.serves(link)


async def test_a_link_serves_who_waits_for_word_of_messages(offers: PeerOffers) -> None:
    link = TestLink()
    offers.watched(link, on=True)
    assert offers.serves(link)
    offers.watched(link, on=False)
    assert not offers.serves(link)
    link.unsent = UNSENT_MAX + 1
    offers.asked(link, ask())
    assert offers.serves(link)  # it is asked once there is room
