"""Receives of this sidecar that wait here and elsewhere: the dispatcher, with peers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from ackd.api.messages import Delivery, ReceiveRequest, SettleVerb, Status
from ackd.engine.cluster.members import LostAnswers, MemberNote, write_note
from ackd.engine.delivery.waiters import Waiter
from ackd.engine.partition.partition import Partition
from ackd.engine.peers.frames import (
    Frame,
    PeerAnswer,
    PeerAsk,
    PeerCancel,
    PeerExpired,
    PeerLost,
    PeerMessage,
    PeerQuestion,
    PeerWatch,
    write_frame,
)
from ackd.engine.peers.links import PeerLinks
from ackd.engine.peers.sharing import PeerSharing
from ackd.errors import DrainingError
from ackd.ports import Member, Members
from tests.support.wait import wait_until_async
from tests.unit.engine.peers.pair import TestLink
from tests.unit.engine.world import NAME, World

TURN_S = 0.001


def message(lease: str = "v1.x") -> PeerMessage:
    return PeerMessage(lease, "orders", 1, 7, None, b"", [], 0, 1, 17, 0, 0)


class Bench:
    """A sidecar that owns nothing yet, with a link to pod-2. `released`: leases on partitions of
    others that go back; `brought`: those that the application has; `failed`: how many expired.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.released: list[str] = []
        self.brought: list[str] = []
        self.failed: list[int] = []
        self.links = PeerLinks(None, world.clock, world.context.vitals)
        self.dispatcher = world.dispatcher()
        world.state.signals.deliver.connect(self.dispatcher.serve)
        self.sharing = self.shares()
        self.dispatcher.elsewhere.connect(self.sharing)
        self.link = TestLink()
        self.links.opened(self.link)

    def shares(self) -> PeerSharing:
        def release(leases: Sequence[str]) -> None:
            self.released += leases

        def brought(leases: Iterable[str]) -> None:
            self.brought += leases

        world = self.world
        sharing = PeerSharing(
            world.state,
            world.context,
            world.membership,
            self.dispatcher,
            self.dispatcher.elsewhere,
            world.notes,
            self.links,
            release,
            brought,
            self.failed.append,
        )
        world.state.signals.deliver.connect(sharing.look_again)
        return sharing

    def seen(self, ready: int = 0, *, peer: str = "there", owned: Sequence[str] = ("x",)) -> None:
        """A heartbeat has read of pod-2."""
        note = write_note(MemberNote(peer=peer, ready=ready))
        member = Member("pod-2", 1, 0, "run-1", tuple(owned), note)
        self.world.membership.view.update(Members(0, (member,), superseded=False))
        self.sharing.others_seen()

    def hears(self, lost: LostAnswers) -> None:
        """A heartbeat has read of pod-2 that it has lost this."""
        note = write_note(MemberNote(peer="there", lost=[lost]))
        member = Member("pod-2", 1, 0, "run-1", ("x",), note)
        self.world.membership.view.update(Members(0, (member,), superseded=False))
        self.sharing.others_seen()

    async def owns(self, *offsets: int) -> Partition:
        wiring = replace(self.world.events.wiring(), ready=self.dispatcher.ready)
        return await self.world.owns(0, offsets, wiring=wiring)

    def says(self, frame: Frame) -> None:
        self.links.received(self.link, write_frame(frame))

    def heard(self) -> list[Frame]:
        return [frame for frame in self.link.heard() if not isinstance(frame, PeerWatch)]

    def enter(self, wait_ms: int = 5_000, most: int = 1) -> Waiter:
        return self.dispatcher.enter(ReceiveRequest(max=most, wait_ms=wait_ms))


@pytest.fixture
async def bench(world: World) -> Bench:
    made = Bench(world)
    made.seen()
    return made


async def test_a_receive_that_finds_nothing_here_gets_messages_of_another(bench: Bench) -> None:
    waiter = bench.enter()
    (ask,) = bench.heard()
    assert isinstance(ask, PeerAsk)
    bench.says(PeerAnswer(NAME, ask.number, 0, 0, [message()]))
    received = await bench.dispatcher.answer(waiter)
    assert [each.id for each in received.messages] == ["orders/1/7"]
    assert (bench.heard(), bench.brought) == ([], ["v1.x"])
    assert len(bench.dispatcher._line) == 0


async def test_r5_who_leaves_tells_its_successors_over_their_links(bench: Bench) -> None:
    """They need not wait for their next heartbeat."""
    membership = bench.world.membership
    membership.leave(left=False)
    membership.handed_over(["a"])
    membership.describe((), 0, 0)
    bench.seen()
    (look,) = [each for each in bench.heard() if isinstance(each, PeerQuestion)]
    beat = bench.world.listens("beat")
    bench.says(look)

    async def beaten() -> bool:
        return beat == ["beat"]

    await wait_until_async(beaten, "a heartbeat to be asked for")
    bench.seen()
    assert not any(isinstance(each, PeerQuestion) for each in bench.heard())


async def test_what_becomes_ready_here_comes_first(bench: Bench) -> None:
    partition = await bench.owns()
    waiter = bench.enter()
    bench.heard()
    bench.world.fetches(partition, [0])
    assert bench.heard() == [PeerCancel(NAME, 1)]
    bench.says(PeerAnswer(NAME, 1, 0, 0, [message()]))  # both at once: one of them goes back
    assert bench.heard() == [PeerLost(NAME, [1])]
    received = await bench.dispatcher.answer(waiter)
    assert [each.id for each in received.messages] == ["orders/0/0"]
    assert bench.brought == []


async def test_grants_that_fail_here_let_it_ask_again(bench: Bench) -> None:
    partition = await bench.owns()
    waiter = bench.enter()
    bench.heard()
    await bench.world.leases(await bench.world.owns(0, [0]))  # another owner was faster
    bench.world.fetches(partition, [0])
    bench.says(PeerAnswer(NAME, 1, 0, 0, []))
    await asyncio.sleep(TURN_S)
    assert not waiter.future.done()
    assert [type(frame) for frame in bench.heard()] == [PeerCancel, PeerAsk]


async def test_a_receive_ends_in_its_time(bench: Bench) -> None:
    waiter = bench.enter(wait_ms=300)
    await asyncio.sleep(0.299)
    assert not waiter.future.done()
    await asyncio.sleep(0.002)
    assert waiter.future.result() == []
    assert [type(frame) for frame in bench.heard()] == [PeerAsk, PeerCancel]


async def test_without_a_wait_it_asks_if_another_has_messages(bench: Bench) -> None:
    assert bench.enter(0).future.done()
    assert bench.heard() == []
    bench.seen(ready=1)
    waiter = bench.enter(0)
    assert not waiter.future.done()
    bench.says(PeerAnswer(NAME, 1, 0, 0, []))
    assert waiter.future.result() == []


@pytest.mark.parametrize(
    ("peer", "owned"),
    [("", ["x"]), ("there", [])],
    ids=["it takes no links", "it owns nothing"],
)
async def test_who_can_not_help_is_not_asked(bench: Bench, peer: str, owned: list[str]) -> None:
    bench.seen(9, peer=peer, owned=owned)
    waiter = bench.enter()
    assert (waiter.elsewhere, bench.heard()) == (0, [])
    bench.dispatcher.leave(waiter)


async def test_a_caller_that_goes_is_not_waited_for(bench: Bench) -> None:
    bench.dispatcher.leave(bench.enter())
    assert [type(frame) for frame in bench.heard()] == [PeerAsk, PeerCancel]
    bench.says(PeerAnswer(NAME, 1, 0, 0, [message()]))
    assert bench.heard() == [PeerLost(NAME, [1])]


async def test_r21_without_a_link_heartbeats_tell_what_was_lost(bench: Bench) -> None:
    bench.enter()
    beat = bench.world.listens("beat")
    bench.links.closed(bench.link)
    bench.seen()
    lost = [LostAnswers(bench.link.instance, "", [1])]
    assert (bench.world.membership.note.lost, beat) == (lost, ["beat"])
    bench.links.opened(TestLink())
    bench.seen()
    assert bench.world.membership.note.lost == []


async def test_r21_heartbeats_tell_an_owner_what_others_have_lost(bench: Bench) -> None:
    """That of a process of before is none of this one's."""
    partition = await bench.owns(0)
    bench.says(PeerAsk(NAME, 5, 1, 1_000, 30_000, 1_000, "", []))

    async def leased() -> bool:
        return partition.ledger.leased == 1

    async def back() -> bool:
        return partition.ledger.leased == 0

    await wait_until_async(leased, "a grant")
    bench.links.closed(bench.link)
    bench.hears(LostAnswers("before", bench.link.instance, [5]))
    await asyncio.sleep(TURN_S)
    assert await leased()
    bench.hears(LostAnswers("", bench.link.instance, [5]))
    await wait_until_async(back, "it to go back")


async def test_a_receive_in_place_of_another_ends_that(bench: Bench) -> None:
    waiter = bench.enter()
    bench.dispatcher.end(waiter)
    assert waiter.future.result() == []
    assert [type(frame) for frame in bench.heard()] == [PeerAsk, PeerCancel]


async def test_a_draining_sidecar_calls_its_receives_back(bench: Bench) -> None:
    waiter = bench.enter()
    bench.dispatcher.stop()
    assert [type(frame) for frame in bench.heard()] == [PeerAsk, PeerCancel]
    with pytest.raises(DrainingError):
        await bench.dispatcher.answer(waiter)
    with pytest.raises(DrainingError):
        bench.enter()


async def test_a_paused_sidecar_gets_nothing_from_others_either(bench: Bench) -> None:
    waiter = bench.enter()
    bench.heard()
    bench.world.state.paused = True
    bench.says(PeerAnswer(NAME, 1, 0, 0, [message()]))
    assert bench.heard() == [PeerLost(NAME, [1])]
    later = bench.enter()
    assert (waiter.elsewhere, later.elsewhere, bench.heard()) == (0, 0, [])
    bench.world.state.paused = False
    bench.world.state.signals.deliver()
    assert [type(frame) for frame in bench.heard()] == [PeerAsk, PeerAsk]


async def test_an_open_breaker_lets_one_message_of_another_through(bench: Bench) -> None:
    """Else it could never close where nothing is owned."""
    bench.world.sets(circuit_breaker_failures=1, circuit_breaker_trial_ms=60_000)
    bench.world.breaker.settled(SettleVerb.RETRY, Status.RETRYING, 1)
    assert bench.world.breaker.on
    early = bench.enter(most=5)
    assert bench.heard() == []
    await asyncio.sleep(60)
    waiter, other = bench.enter(most=5), bench.enter(most=5)
    asked = bench.heard()
    assert [frame.max for frame in asked if isinstance(frame, PeerAsk)] == [1, 1]
    for frame in asked:
        assert isinstance(frame, PeerAsk)
        bench.says(PeerAnswer(NAME, frame.number, 0, 0, [message()]))
    assert early.future.done()
    assert [type(frame) for frame in bench.heard()] == [PeerLost]
    assert [len(each.future.result()) for each in (waiter, other) if each.future.done()] == [1]
    bench.world.breaker.stop()


async def test_it_holds_nothing_back_from_others(bench: Bench) -> None:
    """Their applications may work well."""
    bench.world.sets(circuit_breaker_failures=1, circuit_breaker_trial_ms=60_000)
    bench.world.breaker.settled(SettleVerb.RETRY, Status.RETRYING, 1)
    partition = await bench.owns()
    mine = bench.enter()
    bench.link.heard()
    bench.says(PeerAsk(NAME, 1, 1, 1_000, 700, 5_000, "packer"))
    bench.world.fetches(partition, [0])
    await asyncio.sleep(TURN_S)
    answers = [frame for frame in bench.heard() if isinstance(frame, PeerAnswer)]
    assert [len(each.messages) for each in answers] == [1]
    assert not mine.future.done()
    bench.world.breaker.stop()


async def test_a_paused_sidecar_gives_its_messages_to_others(bench: Bench) -> None:
    """The application here is unwell, or is held by hand. A pause of the group holds them, too."""
    partition, state = await bench.owns(), bench.world.state
    state.paused = state.paused_everywhere = True
    mine = bench.enter()
    bench.link.heard()
    bench.says(PeerAsk(NAME, 1, 1, 1_000, 700, 5_000, "packer"))
    bench.world.fetches(partition, [0])
    await asyncio.sleep(TURN_S)
    assert bench.heard() == []
    state.paused_everywhere = False
    state.signals.deliver()
    await asyncio.sleep(TURN_S)
    answers = [frame for frame in bench.heard() if isinstance(frame, PeerAnswer)]
    assert [len(each.messages) for each in answers] == [1]
    assert not mine.future.done()


async def test_expired_leases_are_told_to_the_sidecar_whose_application_had_them(
    bench: Bench,
) -> None:
    bench.sharing.expired({"pod-2": 3, "pod-9": 1})
    assert bench.heard() == [PeerExpired(NAME, 3)]
    bench.says(PeerExpired(NAME, 2))
    assert bench.failed == [2]


def finds(message: Delivery | None) -> Callable[[str], Awaitable[Delivery | None]]:
    """What one answers that has this message."""

    async def find(lease: str) -> Delivery | None:
        assert lease == "v1.x"
        return message

    return find


async def test_the_message_of_a_lease_is_had_from_its_owner(bench: Bench) -> None:
    partition = await bench.owns(0)
    (message,) = await bench.world.leases(partition)
    bench.world.partitions.remove(partition)
    token = bench.world.context.keys.open(message.lease)
    text = f"cluster:{NAME}:{token.topic_id.hex()}:{token.partition}"
    bench.seen(owned=[text])
    for found in (message, None):
        bench.sharing.answer_leased(finds(found))
        asking = asyncio.create_task(  # noqa: TID251  awaited below
            bench.sharing.leased_elsewhere(token, "v1.x")
        )
        await asyncio.sleep(TURN_S)
        (question,) = bench.heard()
        bench.says(question)  # it asks itself
        await asyncio.sleep(TURN_S)
        (reply,) = bench.heard()
        bench.says(reply)
        assert await asking == found
    # One that owns something else may have its copy.
    bench.sharing.answer_leased(finds(message))
    asking = asyncio.create_task(  # noqa: TID251  awaited below
        bench.sharing.leased_elsewhere(token._replace(partition=9), "v1.x")
    )
    await asyncio.sleep(TURN_S)
    (question,) = bench.heard()
    bench.says(question)
    await asyncio.sleep(TURN_S)
    (reply,) = bench.heard()
    bench.says(reply)
    assert await asking == message
    bench.seen(owned=[])
    assert await bench.sharing.leased_elsewhere(token, "v1.x") is None
    bench.links.closed(bench.link)
    bench.seen(owned=[text])
    assert await bench.sharing.leased_elsewhere(token, "v1.x") is None


async def test_who_reaches_an_owner_is_not_short_of_partitions(bench: Bench) -> None:
    assert bench.dispatcher.limit() is None
    bench.links.closed(bench.link)
    assert bench.dispatcher.limit() == "no-partitions"


async def test_a_request_of_another_sidecar_is_not_passed_on(bench: Bench) -> None:
    bench.seen(ready=9)
    bench.says(PeerAsk(NAME, 1, 1, 1_000, 700, 5_000, "packer"))
    assert bench.heard() == []


async def test_r21_leases_of_others_go_back_to_them(bench: Bench) -> None:
    partition = await bench.owns(0)
    (lease,) = await bench.world.leases(partition)
    bench.world.partitions.remove(partition)
    bench.dispatcher.give_back([lease])
    assert bench.released == [lease.lease]


async def test_r27_leases_that_were_signed_with_another_key_are_left_alone(bench: Bench) -> None:
    partition = await bench.owns(0)
    (lease,) = await bench.world.leases(partition)
    bench.dispatcher.give_back([replace(lease, lease="v1.of another key")])
    assert bench.released == []


async def test_what_lies_ready_is_counted_only_if_it_is_granted(bench: Bench) -> None:
    await bench.owns(0, 1)
    assert bench.dispatcher.ready_count() == 2
    bench.world.state.paused = True  # the application here; others get them all the same
    assert bench.dispatcher.ready_count() == 2
    bench.world.state.paused_everywhere = True
    assert bench.dispatcher.ready_count() == 0
    bench.world.state.paused = bench.world.state.paused_everywhere = False
    bench.dispatcher.stop()
    assert bench.dispatcher.ready_count() == 0


async def test_a_subscription_that_is_built_again_goes_on(bench: Bench) -> None:
    bench.enter()
    bench.dispatcher.stop()
    await bench.sharing.stop()
    again = bench.shares()
    again.inherit(bench.sharing)
    bench.heard()
    bench.says(PeerAnswer(NAME, 1, 0, 0, [message()]))
    assert bench.heard() == [PeerLost(NAME, [1])]
