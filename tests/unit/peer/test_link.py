"""What a link does: whole frames in order, bounded, and an end that is always noticed."""

from __future__ import annotations

import asyncio
import random
import socket
from struct import pack

import pytest
import uvloop

from ackd.config.units import MIB
from ackd.peer.link import LONG, PART, READ_BYTES, TcpLink
from ackd.peer.peer_limits import PeerLimits
from ackd.ports import PeerLink
from tests.unit.peer.recorder import STILL, Node, linked, make_node, running
from tests.unit.peer.stranger import stranger


def tcp(link: PeerLink) -> TcpLink:
    """The link as what it is."""
    assert isinstance(link, TcpLink)
    return link


async def test_frames_arrive_whole_and_in_order_both_ways() -> None:
    seeded = random.Random(2101)
    sizes = [seeded.choice((0, 1, 3, 100, 40_000, 70_000, 300_000)) for _ in range(300)]
    frames = [number.to_bytes(4, "big") + bytes(size) for number, size in enumerate(sizes)]
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        here, there = await linked(one, other)
        for frame in frames:
            here.send(frame)
            there.send(frame)
        for node in (one, other):
            await node.user.has(frames)


@pytest.mark.parametrize("size", [READ_BYTES - 4, READ_BYTES - 3, 20 * MIB])
async def test_large_frames_arrive(size: int) -> None:
    one, other = make_node("one"), make_node("other")
    body = random.Random(size).randbytes(size)
    async with running(one, other):
        here, _ = await linked(one, other)
        here.send(b"before")
        here.send(body)
        here.send(b"")
        await other.user.until(lambda: len(other.user.frames) == 3)
        assert sorted(other.user.bodies(), key=len) == [b"", b"before", body]


@pytest.mark.parametrize("piece", [1, 2, 3, 5])
async def test_frames_may_come_in_any_pieces(piece: int) -> None:
    node = make_node("node", limits=STILL)
    frames = [b"abc", b"", b"d", b"efghij"]
    stream = b"".join(pack(">I", len(frame)) + frame for frame in frames)
    async with running(node), stranger(node.address) as who:
        await who.prove("one", "i1")
        link = tcp(await node.user.told("opened"))
        for at in range(0, len(stream), piece):
            part = stream[at : at + piece]
            while part:
                # Other links read into the same buffer meanwhile.
                link._share.buffer[:8] = b"\xaa" * 8
                place = link.get_buffer(-1)
                size = min(len(place), len(part))
                place[:size] = part[:size]
                link.buffer_updated(size)
                part = part[size:]
        assert node.user.bodies() == frames


async def test_an_over_long_frame_closes_the_link() -> None:
    limits = PeerLimits(frame_bytes_max=1000, beat_s=3600, quiet_s=3600)
    node = make_node("node", limits=limits)
    async with running(node), stranger(node.address) as who:
        await who.prove("one", "i1")
        who.frame(b"x" * 1000)
        await node.user.until(lambda: node.user.bodies() == [b"x" * 1000])
        who.say(pack(">I", 1001))
        await node.user.told("closed")
        link = await node.user.told("opened")
        link.send(b"after the end")
        assert link.unsent == 0


async def test_nobody_sends_a_frame_that_the_other_side_would_refuse() -> None:
    one = make_node("one", limits=PeerLimits(frame_bytes_max=1000))
    other = make_node("other")
    async with running(one, other):
        here, _ = await linked(one, other)
        here.send(b"x" * 1001)
        assert one.user.count("closed") == 0  # never from inside a call to the link
        await one.user.told("closed")
        assert other.user.bodies() == []


async def test_a_frame_that_makes_no_sense_closes_the_link() -> None:
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        here, _ = await linked(one, other)
        for frame in (b"before", b"nonsense", b"after"):
            here.send(frame)
        await one.user.told("closed")
        await other.user.told("closed")
        assert other.user.bodies() == [b"before"]


async def test_who_does_not_read_holds_nobody_up() -> None:
    """`unsent` grows and says so; `writable` is told once all has gone."""
    node = make_node("node", limits=STILL)
    body = bytes(MIB)
    async with running(node), stranger(node.address) as who:
        who.writer.transport.set_write_buffer_limits(0)
        await who.prove("one", "i1")
        link = await node.user.told("opened")
        frames = 0
        while link.unsent < 8 * MIB:
            link.send(body)
            frames += 1
            await asyncio.sleep(0)
        before = node.user.count("writable")
        for _ in range(frames):
            assert await who.read(4) == pack(">I", MIB)
            await who.read(MIB)
        await node.user.told("writable", before + 1)
        assert link.unsent == 0


async def test_who_saw_much_unsent_is_told_when_it_has_gone() -> None:
    """Also where it only waited for the next turn of the event loop, and the system took it all."""
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        here, _ = await linked(one, other)
        here.send(bytes(MIB))
        assert here.unsent > MIB
        await one.user.told("writable")
        assert here.unsent == 0
        here.send(bytes(1000))
        await other.user.has([bytes(MIB), bytes(1000)])
        assert one.user.count("writable") == 1


async def test_what_is_sent_in_one_turn_goes_out_together() -> None:
    """Also what waits for that counts as unsent."""
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        here, _ = await linked(one, other)
        for _ in range(3):
            here.send(b"abc")
        assert here.unsent == 21
        await other.user.until(lambda: len(other.user.frames) == 3)
        assert here.unsent == 0
        bytes_sent = one.metrics.peer_bytes.at("sent").value
        assert bytes_sent == other.metrics.peer_bytes.at("received").value == 21


async def test_small_frames_do_not_wait_for_others() -> None:
    """Nagle's algorithm would hold an ask up until the last answer is acknowledged."""
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        for link in await linked(one, other):
            wire = tcp(link)._transport.get_extra_info("socket")
            assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("closing", ["one", "other"])
async def test_both_sides_hear_of_the_end_once(closing: str) -> None:
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        here, there = await linked(one, other)
        end = here if closing == "one" else there
        end.send(b"never sent")
        end.close()
        end.close()
        who = one if closing == "one" else other
        assert who.user.count("closed") == 0  # never from inside a call to the link
        await one.user.told("closed")
        await other.user.told("closed")
        here.send(b"x")
        here.close()
        assert (one.user.bodies(), other.user.bodies()) == ([], [])
        await linked(one, other)
    assert [node.user.count("closed") for node in (one, other)] == [2, 2]


async def test_a_user_may_close_while_it_receives() -> None:
    one, other = make_node("one"), make_node("other")
    received = other.user.received

    def close(link: PeerLink, frame: bytes) -> None:
        received(link, frame)
        link.close()

    other.user.received = close  # type: ignore[method-assign]
    async with running(one, other):
        here, _ = await linked(one, other)
        here.send(b"first")
        here.send(b"second")
        await other.user.told("closed")
        assert other.user.bodies() == [b"first"]


async def test_a_new_link_of_a_process_ends_its_older_one_first() -> None:
    """A process that connects again has lost the first: what is unread there comes too late."""
    node = make_node("node", limits=STILL)
    async with running(node), stranger(node.address) as first:
        await first.prove("one", "i1")
        older = await node.user.told("opened")
        async with stranger(node.address) as second:
            await second.prove("one", "i1")
            newer = await node.user.told("opened", 2)
            assert node.user.events == [("opened", older), ("closed", older), ("opened", newer)]
            assert await first.rest() == b""
            first.frame(b"late")
            second.frame(b"new")
            await node.user.has([b"new"])
            assert "ackd_peers_connected 1.0" in node.shown()


async def test_a_restarted_sidecar_is_another_instance() -> None:
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        await linked(one, other)
        await other.peers.stop()
        await one.user.told("closed")
        again = make_node("other")
        async with running(again):
            await linked(one, again)
            instances = [(await one.user.told("opened", each)).instance for each in (1, 2)]
            assert instances == [other.peers.instance, again.peers.instance]
            assert instances[0] != instances[1]


async def test_a_link_on_which_nothing_comes_is_closed() -> None:
    """1.5 s are six ticks and the part of one before the first."""
    node = make_node("node", limits=STILL)
    async with running(node), stranger(node.address) as who:
        await who.prove("one", "i1")
        link = tcp(await node.user.told("opened"))
        for _ in range(6):
            link.tick()
        who.frame(b"x")
        await node.user.has([b"x"])
        open_after = []
        for _ in range(7):
            link.tick()
            open_after.append(link.open)
        assert open_after == [True] * 6 + [False]
        await node.user.told("closed")


async def test_who_has_nothing_to_say_shows_that_it_lives() -> None:
    one, other = make_node("one", limits=STILL), make_node("other", limits=STILL)
    async with running(one, other):
        here, there = map(tcp, await linked(one, other))
        for beats in range(1, 20):
            for link in (here, there):
                link.tick()
                link.tick()
            for node in (one, other):
                await node.has_received(4 * beats)
        assert here.open
        assert there.open
        assert one.user.bodies() == other.user.bodies() == []


async def test_a_frozen_sidecar_is_noticed_by_the_clock() -> None:
    node = make_node("node", limits=PeerLimits(beat_s=0.1, quiet_s=0.3))
    async with running(node), stranger(node.address) as who:
        await who.prove("one", "i1")
        loop = asyncio.get_running_loop()
        link = await node.user.told("opened")
        since = loop.time()
        await node.user.told("closed")
        assert loop.time() - since > 0.25
        link.send(b"x")
        beats = await who.rest()
        assert beats
        assert beats == b"\xff" * len(beats)


async def _story(one: Node, other: Node) -> None:
    async with running(one, other):
        here, there = await linked(one, other)
        here.send(bytes(3 * MIB))
        there.send(b"small")
        await other.user.until(lambda: other.user.bodies() == [bytes(3 * MIB)])
        await one.user.until(lambda: one.user.bodies() == [b"small"])
        here.close()
        await other.user.told("closed")


def test_on_the_other_event_loop_too() -> None:
    """`ackd serve` runs on uvloop where that is installed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_make_and_run())


async def _make_and_run() -> None:
    await _story(make_node("one"), make_node("other"))


async def _apart(one: Node, other: Node) -> None:
    """A frame of 80 MiB is on its way while small ones go to and fro beside it."""
    long = random.Random(80).randbytes(80 * MIB)
    async with running(one, other):
        here, there = await linked(one, other)
        here.send(long)
        here.send(long[:-1])
        for number in range(20):
            here.send(b"ping %d" % number)
            await other.user.until(lambda: len(other.user.frames) > number)  # noqa: B023
            there.send(b"pong")
            await one.user.until(lambda: len(one.user.frames) > number)  # noqa: B023
        assert all(len(body) < 10 for body in other.user.bodies())
        assert here.unsent > 80 * MIB
        await other.user.until(lambda: len(other.user.frames) == 22)
        assert other.user.bodies()[20:] == [long, long[:-1]]
        await one.user.told("writable")
        assert here.unsent == 0
        assert one.user.count("closed") == 0


async def test_nobody_waits_behind_a_long_frame() -> None:
    await _apart(make_node("one"), make_node("other"))


def test_nobody_waits_behind_a_long_frame_on_the_other_event_loop() -> None:
    async def both() -> None:
        await _apart(make_node("one"), make_node("other"))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(both())


@pytest.mark.parametrize("piece", [1, 3, 1000])
async def test_parts_may_come_in_any_pieces(piece: int) -> None:
    node = make_node("node", limits=STILL)
    async with running(node), stranger(node.address) as who:
        await who.prove("one", "i1")
        link = tcp(await node.user.told("opened"))
        stream = b"".join(
            (
                *(pack(">I", LONG | 9), pack(">I", PART | 4), b"abcd", pack(">I", 2), b"xy"),
                *(pack(">I", 0xFFFF_FFFF), pack(">I", PART | 5), b"efghi", pack(">I", 1), b"z"),
                *(pack(">I", LONG | 1), pack(">I", PART | 1), b"q"),
            )
        )
        for at in range(0, len(stream), piece):
            part = stream[at : at + piece]
            place = link.get_buffer(-1)
            place[: len(part)] = part
            link.buffer_updated(len(part))
        assert node.user.bodies() == [b"xy", b"abcdefghi", b"z", b"q"]


@pytest.mark.parametrize(
    "heads",
    [
        *([PART | 1], [LONG | 0], [LONG | 1001], [LONG | 10, LONG | 10]),
        *([LONG | 10, PART | 11], [LONG | 10, PART | 0], [0x4000_0001]),
    ],
)
async def test_i8_parts_that_make_no_sense_close_the_link(heads: list[int]) -> None:
    limits = PeerLimits(frame_bytes_max=1000, beat_s=3600, quiet_s=3600)
    node = make_node("node", limits=limits)
    async with running(node), stranger(node.address) as who:
        await who.prove("one", "i1")
        await node.user.told("opened")
        for head in heads:
            who.say(pack(">I", head))
        await node.user.told("closed")
        assert node.user.bodies() == []
