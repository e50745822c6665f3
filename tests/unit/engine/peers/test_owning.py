"""Receives of other sidecars among those of this one: served alike, and what is lost goes back."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from msgspec import structs

from ackd.api.messages import Delivery, ReceiveRequest
from ackd.core.ledger.entry import EntryStatus
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.handed_leases import RELAYED
from ackd.engine.delivery.waiters import Waiter
from ackd.engine.partition.partition import Partition
from ackd.engine.peers import link_room, owning, sent_answers
from ackd.engine.peers.frames import Frame, PeerAnswer, PeerAsk, PeerReady
from ackd.engine.peers.link_room import UNSENT_MAX, PlaceOnLink
from ackd.engine.peers.links import PeerLinks, Sides
from ackd.engine.peers.owning import PeerOffers
from ackd.engine.peers.peer_receives import PeerReceives
from ackd.engine.peers.questions import PeerQuestions
from ackd.errors import StoreError
from ackd.telemetry.metrics import FOR_PEERS
from tests.unit.engine.peers.pair import TestLink
from tests.unit.engine.world import LEASE_MS, NAME, World

TURN_S = 0.001


@pytest.fixture
def dispatcher(world: World) -> Dispatcher:
    made = world.dispatcher()
    world.state.signals.deliver.connect(made.serve)
    return made


@pytest.fixture
def links(world: World) -> PeerLinks:
    return PeerLinks(None, world.clock, world.context.vitals)


@pytest.fixture
def offers(world: World, dispatcher: Dispatcher, links: PeerLinks) -> PeerOffers:
    made = PeerOffers(world.state, world.context, dispatcher, world.notes, links.room)
    asking = PeerReceives(world.state, world.clock, links, NoReceives())
    links.register(NAME, Sides(asking, made, PeerQuestions(NAME, links)))
    return made


class NoReceives:
    """Nobody waits here; implements `Receives` of the asking side."""

    def most(self, _: Waiter) -> int:
        return 0

    def bring(self, _: Waiter, deliveries: list[Delivery]) -> bool:
        return not deliveries

    def nothing_elsewhere(self, _: Waiter) -> None:
        """Nothing waits."""

    def failed(self, _: int) -> None:
        """No lease expires."""


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


async def test_r21_a_request_says_which_answers_were_taken(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    """They are the application's now: nothing of them goes back, whatever is said of them later."""
    partition, link = await owns(world, dispatcher, 0), TestLink()
    offers.asked(link, ask(1))
    await asyncio.sleep(TURN_S)
    assert len(offers._sent) == 1
    offers.asked(link, structs.replace(ask(2), taken=[1]))
    assert len(offers._sent) == 0
    offers.lost(link, [1])
    await asyncio.sleep(TURN_S)
    assert leased(partition) == 1


async def test_a_request_that_comes_again_after_its_answer_gets_nothing(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    """Nobody waits for it: a lease would lie there until it ends, and count as a delivery."""
    partition, link = await owns(world, dispatcher, 0), TestLink()
    offers.asked(link, ask(1))
    await asyncio.sleep(TURN_S)
    offers.taken(link, 1)
    offers.asked(link, ask(2, wait_ms=0, lease_ms=0))  # refused
    offers.asked(link, ask(3))
    offers.cancelled(link, 3)
    world.fetches(partition, [1, 2, 3])
    for number in (1, 2, 3):
        offers.asked(link, ask(number))
    await asyncio.sleep(TURN_S)
    assert (answers(link), leased(partition)) == ([(1, [0]), (2, []), (3, [])], 1)


async def test_i8_requests_that_are_over_have_a_bound(
    offers: PeerOffers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owning, "OVER_MAX", 2)
    link = TestLink()
    offers.lost(link, [1, 2, 3])
    for number in (1, 2, 3):
        offers.asked(link, ask(number, wait_ms=0))
    await asyncio.sleep(TURN_S)
    assert answers(link) == [(1, [])]  # 2 and 3 are known to be over


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


async def test_r21_what_has_notes_that_cannot_be_read_goes_back(
    world: World, dispatcher: Dispatcher, offers: PeerOffers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody gets a message without its note, and nobody keeps its lease."""
    add = Waiter.add

    def noted(self: Waiter, deliveries: list[Delivery], **_: object) -> None:
        add(self, deliveries, noted=True)

    async def away(_: object) -> None:
        raise StoreError

    monkeypatch.setattr(Waiter, "add", noted)
    monkeypatch.setattr(world.notes, "attach", away)
    partition, link = await owns(world, dispatcher, 0, 1), TestLink()
    offers.asked(link, ask(most=2))
    await asyncio.sleep(TURN_S)
    assert (answers(link), leased(partition), len(offers._sent)) == ([(1, [])], 0, 0)
    entry = partition.ledger.entry(0)
    assert entry is not None
    assert (entry.status, entry.attempt) == (EntryStatus.READY, 0)


async def test_each_message_that_was_taken_counts_as_served(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    _, link = await owns(world, dispatcher, 0, 1, 2, 3), TestLink()
    offers.asked(link, ask(1, most=3))
    offers.asked(link, ask(2, most=1))
    await asyncio.sleep(TURN_S)
    labels = {"subscription": NAME, "way": FOR_PEERS}
    served = partial(world.metrics.registry.get_sample_value, "ackd_messages_served_total", labels)
    assert not served(), "nobody has said yet that it has them"
    for number, count in ((1, 3), (2, 4), (1, 4)):
        offers.taken(link, number)
        assert served() == count


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


async def test_i8_leases_that_nobody_confirms_are_forgotten_when_they_end(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    """Also behind one of twelve hours; and they keep nobody from being served."""
    await owns(world, dispatcher, *range(30))
    link = TestLink()
    offers.asked(link, ask(1, lease_ms=12 * 3_600_000))
    for number in range(2, 22):
        offers.asked(link, ask(number, lease_ms=500))
    await asyncio.sleep(TURN_S)
    assert len(answers(link)) == 21
    assert len(offers._sent) == 21
    world.clock.pass_ms(500)
    offers.asked(link, ask(22))
    await asyncio.sleep(TURN_S)
    assert answers(link) == [(22, [21])]
    assert len(offers._sent) == 2


async def test_i8_leases_that_nobody_confirms_have_a_bound(
    world: World,
    dispatcher: Dispatcher,
    offers: PeerOffers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever asks is served all the same; the one sent first is forgotten."""
    partition, link = await owns(world, dispatcher, *range(9)), TestLink()
    monkeypatch.setattr(sent_answers, "LEASES_MAX", 4)
    for number in (1, 2, 3):
        offers.asked(link, ask(number, most=2))
    await asyncio.sleep(TURN_S)
    assert answers(link) == [(1, [0, 1]), (2, [2, 3]), (3, [4, 5])]
    offers.lost(link, [1, 2, 3])
    await asyncio.sleep(TURN_S)
    assert leased(partition) == 2


async def test_what_a_process_was_sent_is_forgotten_when_another_takes_its_place(
    world: World, dispatcher: Dispatcher, offers: PeerOffers
) -> None:
    await owns(world, dispatcher, 0, 1)
    link, other = TestLink(), TestLink("pod-3")
    offers.asked(link, ask())
    offers.asked(other, ask())
    await asyncio.sleep(TURN_S)
    offers.opened(TestLink())  # the same process again
    assert len(offers._sent) == 2
    offers.opened(TestLink(instance="restarted"))
    assert len(offers._sent) == 1


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
    world: World, dispatcher: Dispatcher, offers: PeerOffers, links: PeerLinks
) -> None:
    """And nobody else: those who have asked before, too, and however many there are."""
    partition, link, other = await owns(world, dispatcher), TestLink(), TestLink("pod-3")
    for each in (link, other):
        links.opened(each)
    for number in (1, 2, 3):
        offers.asked(link, ask(number))
    offers.asked(other, ask())
    link.unsent = UNSENT_MAX
    world.fetches(partition, [0, 1, 2])
    await asyncio.sleep(TURN_S)
    assert (answers(link), answers(other), leased(partition)) == ([], [(1, [0])], 1)
    here = dispatcher.enter(ReceiveRequest(wait_ms=5_000))
    await asyncio.sleep(TURN_S)
    assert [each.record.offset for each in here.future.result()] == [1]
    offers.cancelled(link, 2)
    assert answers(link) == [(2, [])]
    link.unsent = 0
    links.writable(link)
    world.fetches(partition, [3])
    await asyncio.sleep(TURN_S)
    assert answers(link) == [(1, [2]), (3, [3])]
    link.unsent = UNSENT_MAX
    offers.asked(link, ask(4))
    links.closed(link)
    world.fetches(partition, [4])
    await asyncio.sleep(TURN_S)
    assert (answers(link), leased(partition)) == ([], 4)


async def test_i8_of_a_slow_link_that_closes_nothing_stays(
    world: World, dispatcher: Dispatcher, offers: PeerOffers, links: PeerLinks
) -> None:
    await owns(world, dispatcher, 0)
    link = TestLink()
    links.opened(link)
    link.unsent = UNSENT_MAX
    offers.asked(link, ask())
    assert len(dispatcher._line.all()) == 1
    links.closed(link)
    assert dispatcher._line.all() == []


async def test_i8_what_the_store_was_asked_for_counts_as_unsent(
    world: World,
    dispatcher: Dispatcher,
    offers: PeerOffers,
    links: PeerLinks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else all that wait were granted before the first answer is sent."""
    monkeypatch.setattr(link_room, "UNSENT_MAX", 3)
    partition, link = await owns(world, dispatcher), TestLink()
    links.opened(link)
    for number in range(1, 6):
        offers.asked(link, ask(number))
    world.fetches(partition, range(5), size=2)
    assert partition.ledger.ready == 3  # the last one may go beyond
    await asyncio.sleep(10 * TURN_S)
    assert [number for number, _ in answers(link)] == [1, 2, 3, 4, 5]


async def test_a_message_that_is_too_long_for_a_link_holds_nobody_up(
    world: World,
    dispatcher: Dispatcher,
    offers: PeerOffers,
    links: PeerLinks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The application beside its owner gets it, others what comes after it."""
    monkeypatch.setattr(PlaceOnLink, "message_bytes_max", 0)
    partition, link = await owns(world, dispatcher, 0), TestLink()
    links.opened(link)
    offers.asked(link, ask())
    await asyncio.sleep(TURN_S)
    assert (answers(link), leased(partition)) == ([], 0)
    here = dispatcher.enter(ReceiveRequest(wait_ms=5_000))
    await asyncio.sleep(TURN_S)
    assert [each.record.offset for each in here.future.result()] == [0]
    monkeypatch.setattr(PlaceOnLink, "message_bytes_max", 1_000)
    world.fetches(partition, [1])
    await asyncio.sleep(TURN_S)
    assert answers(link) == [(1, [1])]


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
    offers.asked(links[0], ask(1))
    await asyncio.sleep(TURN_S)
    (answer,) = links[0].heard()
    assert isinstance(answer, PeerAnswer)
    assert answer.ready == 1
    offers.surplus()
    assert readies(links[0]) == []
    offers.asked(links[0], ask(2))
    await asyncio.sleep(TURN_S)
    (answer,) = links[0].heard()
    assert isinstance(answer, PeerAnswer)
    assert answer.ready == 0
    world.fetches(partition, [2])
    offers.surplus()
    assert readies(links[0]) == [PeerReady(NAME, 1)]
    offers.watched(links[1], on=False)
    offers.closed(links[2])
    offers.surplus()
    assert [readies(link) for link in links] == [[], [], []]


# --- built again


async def test_stopping_answers_and_the_next_one_gives_back_what_is_lost(
    world: World, dispatcher: Dispatcher, offers: PeerOffers, links: PeerLinks
) -> None:
    partition, link = await owns(world, dispatcher, 0), TestLink()
    offers.watched(link, on=True)
    offers.asked(link, ask(1))
    await asyncio.sleep(TURN_S)
    offers.asked(link, ask(2))
    await offers.stop()
    assert answers(link) == [(1, [0]), (2, [])]
    after = PeerOffers(world.state, world.context, dispatcher, world.notes, links.room)
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
    link.unsent = UNSENT_MAX
    offers.asked(link, ask())
    assert offers.serves(link)  # it is served once there is room
