"""Links to other sidecars: made on demand, one to each, and frames go to their subscription."""

import asyncio

import pytest

from ackd.engine.peers.frames import (
    Frame,
    PeerAnswer,
    PeerAsk,
    PeerCancel,
    PeerExpired,
    PeerLost,
    PeerQuestion,
    PeerReady,
    PeerReply,
    PeerTaken,
    PeerWatch,
    write_frame,
)
from ackd.engine.peers.link_room import UNSENT_MAX
from ackd.engine.peers.links import AGAIN, FORGET_MS, IDLE_MS, LOOK_MS, PeerLinks, Sides
from ackd.ports import PeerLink
from tests.unit.engine.peers.pair import TestLink, TestNetwork
from tests.unit.engine.world import World


class Side:
    """Both sides of a subscription; notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []
        self.waiting = self.serving = False

    def waits(self) -> bool:
        return self.waiting

    def unwatch(self, link: PeerLink) -> None:
        self.told.append(("unwatch", link.name))

    def serves(self, _: PeerLink) -> bool:
        return self.serving

    def opened(self, link: PeerLink) -> None:
        self.told.append(("opened", link))

    def closed(self, link: PeerLink) -> None:
        self.told.append(("closed", link))

    def writable(self, link: PeerLink) -> None:
        self.told.append(("writable", link))

    def answered(self, _: PeerLink, answer: PeerAnswer) -> None:
        self.told.append(("answered", answer.number))

    def ready(self, _: PeerLink, ready: PeerReady) -> None:
        self.told.append(("ready", ready.ready))

    def expired(self, count: int) -> None:
        self.told.append(("expired", count))

    def asked(self, _: PeerLink, ask: PeerAsk | PeerQuestion) -> None:
        self.told.append(("asked", ask.number))

    def replied(self, _: PeerLink, reply: PeerReply) -> None:
        self.told.append(("replied", reply.number))

    def cancelled(self, _: PeerLink, number: int) -> None:
        self.told.append(("cancelled", number))

    def taken(self, _: PeerLink, number: int) -> None:
        self.told.append(("taken", number))

    def lost(self, _: PeerLink, numbers: list[int]) -> None:
        self.told.append(("lost", numbers))

    def watched(self, _: PeerLink, *, on: bool) -> None:
        self.told.append(("watched", on))


async def started(world: World, network: TestNetwork) -> PeerLinks:
    links = PeerLinks(network, world.clock, world.context.vitals)
    await links.start(lambda: b"")
    return links


async def test_a_link_is_made_once(world: World) -> None:
    network = TestNetwork()
    links = await started(world, network)
    assert (links.address, links.to("pod-2")) == ("127.0.0.1:1", None)
    links.want("pod-2", "there")
    links.want("pod-2", "there")  # a try is under way
    await asyncio.sleep(0.001)
    assert links.to("pod-2") is not None
    links.want("pod-2", "there")
    await asyncio.sleep(0.001)
    assert network.tried == [("pod-2", "there")]
    await links.stop()


async def test_who_can_not_be_reached_is_tried_again_after_a_while(world: World) -> None:
    network = TestNetwork()
    network.fails = "refused"
    links = await started(world, network)
    waits_ms = [AGAIN.delay_ms(failures) for failures in (1, 2, 3)]
    for wait_ms in waits_ms:
        links.want("pod-2", "there")
        await asyncio.sleep(0.001)
        assert links.unreachable() == {"pod-2": "refused"}
        links.want("pod-2", "there")  # too early
        world.clock.pass_ms(wait_ms)
    assert len(network.tried) == len(waits_ms)
    network.fails = ""
    links.want("pod-2", "there")
    await asyncio.sleep(0.001)
    assert (links.unreachable(), links.to("pod-2") is None) == ({}, False)


async def test_a_sidecar_that_can_not_listen_connects_to_others(world: World) -> None:
    network = TestNetwork()
    network.deaf = "the port is taken"
    links = await started(world, network)
    assert (links.on, links.address, links.problem) == (True, "", "the port is taken")
    links.want("pod-2", "there")
    await asyncio.sleep(0.001)
    assert links.to("pod-2") is not None
    await links.stop()


def idle(world: World, link: TestLink, side: Side) -> PeerLinks:
    """A link on which nothing has come for as long as it may stay."""
    links = PeerLinks(None, world.clock, world.context.vitals)
    links.register("work", Sides(side, side, side))
    links.opened(link)
    side.told.clear()
    links.close_idle()
    world.clock.pass_ms(IDLE_MS)
    return links


async def test_a_link_that_nobody_uses_is_closed_after_a_while(world: World) -> None:
    link, side = TestLink("pod-2"), Side()
    links = idle(world, link, side)
    links.close_idle()
    assert (link.closed, side.told) == (False, [])
    world.clock.pass_ms(LOOK_MS)
    links.close_idle()
    assert (link.closed, side.told) == (True, [("unwatch", "pod-2")])


@pytest.mark.parametrize("use", ["waiting", "serving"])
async def test_a_link_over_which_somebody_waits_stays(world: World, use: str) -> None:
    link, side = TestLink("pod-2"), Side()
    links = idle(world, link, side)
    setattr(side, use, True)
    world.clock.pass_ms(LOOK_MS)
    links.close_idle()
    assert not link.closed
    assert (("unwatch", "pod-2") in side.told) is (use == "serving")


async def test_a_link_on_which_something_came_stays(world: World) -> None:
    link, side = TestLink("pod-2"), Side()
    links = idle(world, link, side)
    links.received(link, write_frame(PeerTaken("work", 1)))
    world.clock.pass_ms(LOOK_MS)
    links.close_idle()
    assert not link.closed


async def test_i8_who_is_not_needed_any_more_is_forgotten(world: World) -> None:
    network = TestNetwork()
    network.fails = "refused"
    links = await started(world, network)
    links.want("pod-2", "there")
    await asyncio.sleep(0.001)
    world.clock.pass_ms(FORGET_MS + AGAIN.ceiling_ms)
    assert links.unreachable() == {}


async def test_without_a_network_nobody_is_tried(world: World) -> None:
    links = PeerLinks(None, world.clock, world.context.vitals)
    links.want("pod-2", "there")
    assert (links.on, links.address, links.unreachable()) == (False, "", {})


async def test_the_newest_link_to_a_sidecar_is_used_and_then_an_older_one(world: World) -> None:
    links, side = PeerLinks(None, world.clock, world.context.vitals), Side()
    links.register("work", Sides(side, side, side))
    first, second = TestLink(), TestLink(outgoing=False)
    links.opened(first)
    links.opened(second)
    assert (links.to("pod-2"), list(links.all())) == (second, [first, second])
    links.closed(second)
    assert links.to("pod-2") is first
    links.closed(first)
    assert (links.to("pod-2"), list(links.all())) == (None, [])
    links.closed(TestLink())  # of which nothing was known
    names = [told[0] for told in side.told]
    assert names == ["opened"] * 6 + ["closed"] * 9


FRAMES: list[tuple[Frame, tuple[str, object]]] = [
    (PeerAsk("work", 1, 1, 1, 1, 1, ""), ("asked", 1)),
    (PeerAnswer("work", 2, 0, 0, []), ("answered", 2)),
    (PeerTaken("work", 3), ("taken", 3)),
    (PeerCancel("work", 4), ("cancelled", 4)),
    (PeerLost("work", [5]), ("lost", [5])),
    (PeerReady("work", 6), ("ready", 6)),
    (PeerWatch("work", on=True), ("watched", True)),
    (PeerExpired("work", 7), ("expired", 7)),
    (PeerQuestion("work", 8, "lag", b""), ("asked", 8)),
    (PeerReply("work", 9, b"", ""), ("replied", 9)),
]


@pytest.mark.parametrize(("frame", "told"), FRAMES, ids=lambda each: type(each).__name__)
async def test_each_frame_goes_to_its_subscription(
    world: World, frame: Frame, told: tuple[str, object]
) -> None:
    links = PeerLinks(None, world.clock, world.context.vitals)
    side, other, link = Side(), Side(), TestLink()
    links.register("work", Sides(side, side, side))
    links.register("play", Sides(other, other, other))
    links.received(link, write_frame(frame))
    assert (side.told, other.told, link.said) == ([told], [], [])


@pytest.mark.parametrize(("frame", "_"), FRAMES)
async def test_a_subscription_that_is_not_here_has_no_messages(
    world: World, frame: Frame, _: object
) -> None:
    links, link = PeerLinks(None, world.clock, world.context.vitals), TestLink()
    links.received(link, write_frame(frame))
    answers: list[Frame] = []
    if isinstance(frame, PeerAsk | PeerCancel):
        answers = [PeerAnswer("work", frame.number, 0, 0, [])]
    if isinstance(frame, PeerQuestion):
        answers = [PeerReply("work", frame.number, b"", "it has no such subscription")]
    assert link.said == answers


async def test_who_is_registered_last_gets_the_frames(world: World) -> None:
    links, before, now = PeerLinks(None, world.clock, world.context.vitals), Side(), Side()
    links.register("work", Sides(before, before, before))
    links.register("work", Sides(now, now, now))
    link = TestLink()
    links.received(link, write_frame(PeerTaken("work", 1)))
    assert (before.told, now.told) == ([], [("taken", 1)])


async def test_i8_where_there_was_no_room_all_subscriptions_hear_of_it(world: World) -> None:
    """Once: when all has been sent, or when less was granted than was asked for."""
    links = PeerLinks(None, world.clock, world.context.vitals)
    one, two, link = Side(), Side(), TestLink()
    links.register("one", Sides(one, one, one))
    links.register("two", Sides(two, two, two))
    links.opened(link)
    one.told.clear()
    two.told.clear()
    room = links.room(link)
    links.writable(link)
    room.promise(UNSENT_MAX)
    assert (room.left(), one.told) == (0, [])
    room.promise(-UNSENT_MAX)
    assert one.told == two.told == [("writable", link)]
    link.unsent = UNSENT_MAX
    room.promise(1)
    assert room.left() == -1
    room.promise(-1)
    assert len(one.told) == 1
    link.unsent = 0
    links.writable(link)
    links.writable(link)
    assert len(one.told) == 2
    links.closed(link)
    assert room.left() == 0


async def test_what_is_no_frame_is_the_transports_to_refuse(world: World) -> None:
    links = PeerLinks(None, world.clock, world.context.vitals)
    with pytest.raises(ValueError, match="invalid frame"):
        links.received(TestLink(), b"hello")


async def test_numbers_are_used_once(world: World) -> None:
    links = PeerLinks(None, world.clock, world.context.vitals)
    assert [links.number() for _ in range(3)] == [1, 2, 3]
