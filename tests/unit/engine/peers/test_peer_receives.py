"""Receives that wait at other sidecars: where, for how long, and what becomes of answers."""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import count

import pytest

from ackd.api.messages import Delivery, ReceiveRequest
from ackd.core.peer_choice import SKIP_MS
from ackd.engine.delivery.waiters import Waiter
from ackd.engine.peers import answer_reports
from ackd.engine.peers.answer_reports import ARRIVED_MS, UNTOLD_MAX
from ackd.engine.peers.frames import (
    Frame,
    PeerAnswer,
    PeerAsk,
    PeerCancel,
    PeerLost,
    PeerMessage,
    PeerReady,
    PeerTaken,
    PeerWatch,
)
from ackd.engine.peers.peer_receives import (
    ANSWER_BYTES_MAX,
    AT_ONCE_MS,
    MARGIN_MS,
    PeerReceives,
)
from ackd.ports import PeerLink
from tests.unit.engine.peers.pair import TestLink
from tests.unit.engine.world import LEASE_MS, World

MESSAGE = PeerMessage("v1.x", "orders", 0, 1, None, b"", [], 0, 1, 17, 0, 0)


class TestLinks:
    """Links by name. `wanted`: whom the subscription wants to reach."""

    __test__ = False

    def __init__(self) -> None:
        self.there: dict[str, TestLink] = {}
        self.wanted: list[str] = []
        self._numbers = count(1)

    def to(self, name: str) -> PeerLink | None:
        return self.there.get(name)

    def all(self) -> Iterable[PeerLink]:
        return self.there.values()

    def want(self, name: str, address: str) -> None:
        del address
        self.wanted.append(name)

    def number(self) -> int:
        return next(self._numbers)


class TestReceives:
    """The receives here: answers them as the dispatcher does. `holds`: nothing may come."""

    __test__ = False

    def __init__(self) -> None:
        self.holds = False

    def most(self, waiter: Waiter) -> int:
        return 0 if self.holds else waiter.request.max

    def bring(self, waiter: Waiter, deliveries: list[Delivery]) -> bool:
        if not waiter.waits or waiter.grants:
            return False
        waiter.deliveries = deliveries
        waiter.answer()
        return True

    def failed(self, count: int) -> None:
        raise AssertionError(count)  # no story here lets a lease expire

    def nothing_elsewhere(self, waiter: Waiter) -> None:
        if waiter.waits and waiter.end_s <= asyncio.get_running_loop().time():
            waiter.answer()


class Bench:
    """A subscription's asking side, and the links to pod-2 and pod-3."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.links = TestLinks()
        self.receives = TestReceives()
        self.two, self.three = self.link("pod-2"), self.link("pod-3")
        self.asking = PeerReceives(world.state, world.clock, self.links, self.receives)

    def link(self, name: str, instance: str = "") -> TestLink:
        link = self.links.there[name] = TestLink(name, instance)
        return link

    def seen(self, owners: Mapping[str, int], *more: str) -> None:
        names = [*owners, *more]
        addresses = {name: f"{name}:1" for name in names}
        ready = {name: count for name, count in owners.items() if count}
        self.asking.seen(addresses, list(owners), ready, whole=True)

    def waits(self, wait_ms: int = 10_000, **request: object) -> Waiter:
        """A receive for which nothing is ready here."""
        loop = asyncio.get_running_loop()
        asked = ReceiveRequest(wait_ms=wait_ms, **request)  # type: ignore[arg-type]
        waiter = Waiter(asked, loop.create_future(), loop.time())
        self.asking.wait(waiter)
        return waiter

    def answer(self, link: TestLink, number: int, ready: int = 0, *, empty: bool = False) -> None:
        messages = [] if empty else [MESSAGE]
        self.asking.answered(link, PeerAnswer("work", number, 0, ready, messages))


@pytest.fixture
async def bench(world: World) -> Bench:
    made = Bench(world)
    made.seen({"pod-2": 0})
    return made


def asks(link: TestLink) -> list[Frame]:
    """What was sent, without watching."""
    return [frame for frame in link.heard() if not isinstance(frame, PeerWatch)]


def numbers(link: TestLink) -> list[int]:
    return [frame.number for frame in asks(link) if isinstance(frame, PeerAsk)]


async def test_a_receive_asks_an_owner_and_takes_what_it_answers(bench: Bench) -> None:
    waiter = bench.waits(10_000, max=5, bytes_max=100, holder="me")
    watch, ask = bench.two.heard()
    assert watch == PeerWatch("work", on=True)
    assert ask == PeerAsk("work", 1, 5, 100, LEASE_MS, 10_000 - MARGIN_MS, "me")
    bench.answer(bench.two, 1)
    assert [each.lease for each in waiter.future.result()] == ["v1.x"]
    assert bench.two.heard() == []
    bench.waits(10_000, max=5, bytes_max=100, holder="me")
    assert bench.two.heard() == [
        PeerAsk("work", 2, 5, 100, LEASE_MS, 10_000 - MARGIN_MS, "me", taken=[1])
    ]


async def test_what_was_taken_is_told_after_a_heartbeat_if_nothing_is_asked(bench: Bench) -> None:
    bench.waits()
    bench.answer(bench.two, 1)
    bench.two.heard()
    bench.seen({"pod-2": 0})
    assert bench.two.heard() == [PeerTaken("work", 1)]
    bench.seen({"pod-2": 0})
    assert bench.two.heard() == []


async def test_i8_untold_answers_are_bounded(bench: Bench) -> None:
    """So many at once: their receives all waited, and none has come since."""
    for _ in range(UNTOLD_MAX + 1):
        bench.waits()
    assert len(numbers(bench.two)) == UNTOLD_MAX + 1
    for number in range(UNTOLD_MAX):
        bench.answer(bench.two, number + 1)
    assert bench.two.heard() == []
    bench.answer(bench.two, UNTOLD_MAX + 1)
    assert len(bench.two.heard()) == UNTOLD_MAX + 1


async def test_receives_that_were_queued_ask_an_owner_that_has_some_left(bench: Bench) -> None:
    """The owner sends no `PeerReady` beside such an answer."""
    bench.waits()
    bench.asking._choice.skip("pod-2", bench.world.clock.monotonic_ms())
    bench.waits()
    assert numbers(bench.two) == [1]
    bench.answer(bench.two, 1, ready=3)
    assert numbers(bench.two) == [2]


async def test_its_own_lease_time_and_the_bounds_travel(bench: Bench) -> None:
    bench.waits(lease_ms=700, holder="h" * 5_000)
    (ask,) = asks(bench.two)
    assert isinstance(ask, PeerAsk)
    assert (ask.lease_ms, ask.bytes_max, len(ask.holder)) == (700, ANSWER_BYTES_MAX, 1_024)


async def test_it_asks_where_messages_lie(bench: Bench) -> None:
    bench.seen({"pod-2": 1, "pod-3": 4})
    bench.waits(max=4)
    bench.waits()
    assert (numbers(bench.three), numbers(bench.two)) == ([1], [2])


async def test_without_a_wait_it_asks_only_who_has_messages(bench: Bench) -> None:
    waiter = bench.waits(0)
    assert (waiter.elsewhere, asks(bench.two)) == (0, [])
    bench.seen({"pod-2": 1})
    waiter = bench.waits(0)
    assert (waiter.elsewhere, numbers(bench.two)) == (1, [1])
    bench.answer(bench.two, 1, ready=9, empty=True)  # it can't grant them
    assert waiter.future.result() == []
    assert numbers(bench.two) == []  # not again and again


async def test_i8_it_is_answered_when_an_owner_is_silent(bench: Bench) -> None:
    bench.seen({"pod-2": 1})
    waiter = bench.waits(0)
    await asyncio.sleep((AT_ONCE_MS - 1) / 1000)
    assert not waiter.future.done()
    await asyncio.sleep(0.002)
    assert waiter.future.result() == []
    assert asks(bench.two)[1:] == [PeerCancel("work", 1)]
    bench.answer(bench.two, 1)
    assert asks(bench.two) == [PeerLost("work", [1])]


async def test_r21_what_comes_too_late_goes_back(bench: Bench, world: World) -> None:
    first = bench.waits(lease_ms=700)
    world.clock.pass_ms(699)
    bench.answer(bench.two, 1)
    assert first.future.done()
    bench.two.heard()
    second = bench.waits(lease_ms=700)
    world.clock.pass_ms(700)
    bench.answer(bench.two, 2)
    assert not second.future.done()
    assert asks(bench.two)[1:2] == [PeerLost("work", [2])]
    assert second.elsewhere == 3  # it asks anew


async def test_r21_the_owners_wait_counts(bench: Bench, world: World) -> None:
    waiter = bench.waits(lease_ms=700)
    world.clock.pass_ms(5_699)
    bench.asking.answered(bench.two, PeerAnswer("work", 1, 5_000, 0, [MESSAGE]))
    assert waiter.future.done()


async def test_r21_what_nobody_waits_for_goes_back(bench: Bench) -> None:
    waiter = bench.waits()
    waiter.grants = 1  # it gets messages here
    bench.asking.end(waiter)
    assert asks(bench.two)[1:] == [PeerCancel("work", 1)]
    bench.asking.end(waiter)
    bench.answer(bench.two, 1)
    assert asks(bench.two) == [PeerLost("work", [1])]
    assert not waiter.future.done()
    bench.answer(bench.two, 77)  # of which nothing is known
    assert asks(bench.two) == [PeerLost("work", [77])]
    bench.answer(bench.two, 78, empty=True)
    assert asks(bench.two) == []


async def test_an_answer_counts_on_its_own_link_alone(bench: Bench) -> None:
    waiter = bench.waits()
    bench.answer(bench.three, 1)
    assert (waiter.future.done(), asks(bench.three)) == (False, [PeerLost("work", [1])])


async def test_a_receive_asks_one_owner_at_a_time(bench: Bench) -> None:
    """Its grants here have failed while the answer to a cancel was under way."""
    bench.seen({"pod-2": 0, "pod-3": 0})
    waiter = bench.waits()
    bench.asking.end(waiter)
    assert bench.asking.wait(waiter)
    asked = waiter.elsewhere
    bench.answer(bench.two, 1, empty=True)
    assert (waiter.elsewhere, numbers(bench.two), numbers(bench.three)) == (asked, [1], [2])


async def test_an_owner_that_ends_the_wait_early_is_left_alone_for_a_while(
    bench: Bench, world: World
) -> None:
    waiter = bench.waits()
    bench.answer(bench.two, 1, ready=5, empty=True)
    assert (waiter.elsewhere, numbers(bench.two)) == (0, [1])
    bench.seen({"pod-2": 5})
    assert numbers(bench.two) == []
    world.clock.pass_ms(SKIP_MS)
    bench.seen({"pod-2": 5})
    assert numbers(bench.two) == [2]
    assert waiter.elsewhere == 2


async def test_a_receive_waits_until_an_owner_is_known(bench: Bench) -> None:
    bench.seen({})
    waiter = bench.waits()
    assert waiter.elsewhere == 0
    bench.seen({"pod-3": 0})
    assert numbers(bench.three) == [1]


async def test_i8_a_receive_that_ends_is_not_kept(bench: Bench) -> None:
    bench.seen({})
    waiter = bench.waits()
    bench.asking.end(waiter)
    bench.seen({"pod-2": 9})
    assert asks(bench.two) == []


async def test_an_owner_without_a_link_is_connected_and_another_one_asked(bench: Bench) -> None:
    del bench.links.there["pod-2"]
    bench.seen({"pod-2": 5, "pod-3": 0})
    bench.waits()
    assert (bench.links.wanted, numbers(bench.three)) == (["pod-2"], [1])
    bench.asking.opened(bench.link("pod-2"))
    bench.waits()
    assert numbers(bench.links.there["pod-2"]) == [2]


async def test_receives_that_could_not_ask_do_so_when_a_link_is_there(bench: Bench) -> None:
    bench.links.there.clear()
    waiter = bench.waits()
    assert (waiter.elsewhere, bench.links.wanted) == (0, ["pod-2"])
    bench.asking.opened(bench.link("pod-2"))
    assert waiter.elsewhere == 1


# --- moving


async def test_a_receive_moves_to_who_says_that_it_has_messages(bench: Bench) -> None:
    bench.seen({"pod-2": 0, "pod-3": 0})
    one, two = bench.waits(max=2), bench.waits(max=2)
    bench.waits()
    assert (numbers(bench.two), numbers(bench.three)) == ([1, 3], [2])
    bench.answer(bench.three, 2, empty=True)  # nobody waits there now
    bench.two.heard()
    assert two.elsewhere == 4
    bench.asking.ready(bench.three, PeerReady("work", 2))
    assert asks(bench.two) == [PeerCancel("work", 1)]  # as many as it has
    bench.answer(bench.two, 1, empty=True)
    assert one.elsewhere == 5
    assert numbers(bench.three) == [5]


async def test_who_waits_there_already_gets_them(bench: Bench) -> None:
    bench.seen({"pod-2": 0, "pod-3": 0})
    bench.waits()
    bench.waits()
    bench.two.heard()
    bench.asking.ready(bench.three, PeerReady("work", 5))
    assert asks(bench.two) == []


async def test_when_nobody_waits_owners_need_not_say_anything(bench: Bench) -> None:
    bench.waits()
    bench.answer(bench.two, 1)
    bench.two.heard()
    bench.asking.ready(bench.two, PeerReady("work", 1))
    assert bench.two.heard() == [PeerWatch("work", on=False)]
    bench.waits()
    assert PeerWatch("work", on=True) in bench.two.heard()


async def test_messages_that_lie_for_two_heartbeats_are_asked_for(bench: Bench) -> None:
    bench.seen({"pod-2": 0, "pod-3": 0})
    waiter = bench.waits()
    other = bench.waits()
    other.gone = True
    bench.asking.end(other)
    bench.answer(bench.three, 2, empty=True)
    bench.two.heard()
    bench.seen({"pod-2": 0, "pod-3": 3})
    assert asks(bench.two) == []  # somebody there may just be taking them
    bench.seen({"pod-2": 0, "pod-3": 3})
    assert asks(bench.two) == [PeerCancel("work", 1)]
    bench.answer(bench.two, 1, empty=True)
    assert waiter.elsewhere == 3
    assert numbers(bench.three)[-1:] == [3]


async def test_a_pause_calls_receives_back(bench: Bench) -> None:
    waiter = bench.waits()
    bench.receives.holds = True
    bench.seen({"pod-2": 0})
    assert asks(bench.two)[1:] == [PeerCancel("work", 1)]
    bench.answer(bench.two, 1, empty=True)
    assert waiter.elsewhere == 0
    bench.receives.holds = False
    bench.asking.ask_idle()
    assert waiter.elsewhere == 2


async def test_who_owns_nothing_any_more_is_not_waited_for(bench: Bench) -> None:
    bench.waits()
    bench.seen({"pod-3": 0}, "pod-2")
    assert (bench.two.closed, asks(bench.two)[1:]) == (False, [PeerCancel("work", 1)])
    bench.answer(bench.two, 1, empty=True)
    assert numbers(bench.three) == [2]


async def test_the_link_to_a_silent_sidecar_is_closed(bench: Bench) -> None:
    bench.waits()
    bench.seen({"pod-3": 0})
    assert bench.two.closed


# --- links that close


async def test_r21_requests_of_a_closed_link_are_named_on_the_next(bench: Bench) -> None:
    bench.seen({"pod-2": 0}, "pod-3")
    waiter = bench.waits()
    del bench.links.there["pod-2"]
    bench.asking.closed(bench.two)
    assert (waiter.elsewhere, bench.links.wanted) == (0, ["pod-2"])
    again = bench.link("pod-2")
    bench.asking.opened(again)
    assert asks(again)[0] == PeerLost("work", [1])
    assert waiter.elsewhere == 2


async def test_r21_or_on_another_link_that_is_there(bench: Bench) -> None:
    waiter = bench.waits()
    other = bench.link("pod-2")
    bench.asking.closed(bench.two)
    assert asks(other)[0] == PeerLost("work", [1])
    assert waiter.elsewhere == 2


async def test_a_new_process_hears_nothing_of_that(bench: Bench) -> None:
    bench.waits()
    del bench.links.there["pod-2"]
    bench.asking.closed(bench.two)
    again = bench.link("pod-2", "restarted")
    bench.asking.opened(again)
    assert numbers(again) == [2]
    assert not any(isinstance(frame, PeerLost) for frame in again.said)


async def test_r21_what_was_refused_shortly_before_is_named_too(bench: Bench) -> None:
    bench.answer(bench.two, 9)
    await asyncio.sleep(ARRIVED_MS / 1000 + 0.001)
    bench.answer(bench.two, 10)
    del bench.links.there["pod-2"]
    bench.asking.closed(bench.two)
    again = bench.link("pod-2")
    bench.asking.opened(again)
    assert again.heard() == [PeerLost("work", [10])]  # of the other one it has heard
    del bench.links.there["pod-2"]
    bench.asking.closed(again)
    last = bench.link("pod-2")
    bench.asking.opened(last)
    assert last.heard() == [PeerLost("work", [10])]


async def test_a_receive_without_a_wait_ends_with_its_link(bench: Bench) -> None:
    bench.seen({"pod-2": 1})
    waiter = bench.waits(0)
    del bench.links.there["pod-2"]
    bench.asking.closed(bench.two)
    assert waiter.future.result() == []


async def test_what_is_owed_is_kept_while_the_sidecar_lives_and_handed_on(
    bench: Bench, world: World
) -> None:
    bench.waits()
    del bench.links.there["pod-2"]
    bench.asking.closed(bench.two)
    bench.links.wanted.clear()
    bench.seen({}, "pod-2")
    assert bench.links.wanted == ["pod-2"]
    after = PeerReceives(world.state, world.clock, bench.links, bench.receives)
    after.inherit(bench.asking)
    again = bench.link("pod-2")
    after.opened(again)
    assert again.heard() == [PeerLost("work", [1])]


async def test_r21_a_sidecar_that_was_silent_for_a_while_hears_of_it(bench: Bench) -> None:
    """Its heartbeat was late: it lives, with the leases of an answer that nobody got."""
    bench.waits()
    del bench.links.there["pod-2"]
    bench.asking.closed(bench.two)
    bench.seen({"pod-3": 0})
    bench.links.wanted.clear()
    bench.seen({"pod-2": 0, "pod-3": 0})
    assert bench.links.wanted == ["pod-2"]
    again = bench.link("pod-2")
    bench.asking.opened(again)
    assert PeerLost("work", [1]) in again.said


async def test_i8_only_so_many_silent_sidecars_are_remembered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_reports, "UNHEARD_MAX", 2)
    for name in ("pod-4", "pod-5", "pod-6"):
        link = bench.link(name)
        bench.seen({name: 1})
        bench.waits()
        del bench.links.there[name]
        bench.asking.closed(link)
    assert list(bench.asking._reports.unheard()) == ["pod-5", "pod-6"]


async def test_r21_what_was_taken_shortly_before_is_told_again(bench: Bench) -> None:
    """Else the owner would keep its leases in mind until their end."""
    waiter = bench.waits()
    bench.answer(bench.two, 1)
    assert waiter.future.done()
    bench.answer(bench.two, 9)
    del bench.links.there["pod-2"]
    bench.asking.closed(bench.two)
    again = bench.link("pod-2")
    bench.asking.opened(again)
    assert again.heard() == [PeerTaken("work", 1), PeerLost("work", [9])]


async def test_r21_an_answer_that_comes_twice_is_taken_once(bench: Bench) -> None:
    """It must not go back: the application has it."""
    bench.waits()
    bench.two.heard()
    bench.answer(bench.two, 1)
    bench.answer(bench.two, 1)
    bench.seen({"pod-2": 0})
    assert bench.two.heard() == [PeerTaken("work", 1)]


async def test_where_no_receive_waits_the_other_side_may_stop_watching(bench: Bench) -> None:
    """So that it can close a link that nobody uses; once is enough, until a receive waits again."""
    bench.waits()
    assert bench.asking.waits()
    bench.answer(bench.two, 1)
    assert not bench.asking.waits()
    bench.two.heard()
    for _ in range(2):
        bench.asking.unwatch(bench.two)
    assert bench.two.heard() == [PeerWatch("work", on=False)]
    bench.waits()
    assert bench.two.heard()[0] == PeerWatch("work", on=True)


async def test_a_receive_that_no_owner_can_take_waits_as_well(bench: Bench) -> None:
    bench.seen({})
    bench.waits()
    assert bench.asking.waits()
