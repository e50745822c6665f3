"""Questions to other sidecars: answered over a link that is made for it, or failed in time."""

import asyncio

import pytest

from ackd.engine.peers import questions as module
from ackd.engine.peers.frames import PeerQuestion, PeerReply
from ackd.engine.peers.link_room import UNSENT_MAX
from ackd.engine.peers.links import PeerLinks
from ackd.engine.peers.questions import PeerQuestions
from ackd.errors import PeerError, StoreError
from tests.unit.engine.peers.pair import TestLink
from tests.unit.engine.world import NAME, World

TURN_S = 0.001
SOON_MS = 1_000


class Bench:
    """The questions of one subscription, and a link to pod-2."""

    def __init__(self, world: World) -> None:
        self.links = PeerLinks(None, world.clock, world.context.vitals)
        self.questions = PeerQuestions(NAME, self.links)
        self.link = TestLink()
        self.links.opened(self.link)

    def begin(self, name: str = "pod-2", timeout_ms: int = SOON_MS) -> asyncio.Task[bytes]:
        asking = self.questions.ask(name, "lag", b"?", timeout_ms)
        return asyncio.create_task(asking)  # noqa: TID251  awaited by the test

    async def asked(self) -> PeerQuestion:
        await asyncio.sleep(TURN_S)
        (frame,) = self.link.heard()
        assert isinstance(frame, PeerQuestion)
        return frame

    async def replies(self, kind: str, body: bytes = b"?") -> PeerReply:
        self.questions.asked(self.link, PeerQuestion(NAME, 7, kind, body))
        await asyncio.sleep(TURN_S)
        (frame,) = self.link.heard()
        assert isinstance(frame, PeerReply)
        return frame


@pytest.fixture
async def bench(world: World) -> Bench:
    return Bench(world)


async def test_a_question_gets_its_answer(bench: Bench) -> None:
    first, second = bench.begin(), bench.begin()
    await asyncio.sleep(TURN_S)
    one, two = bench.link.heard()
    assert isinstance(one, PeerQuestion)
    assert isinstance(two, PeerQuestion)
    assert (one.subscription, one.kind, one.body) == (NAME, "lag", b"?")
    bench.questions.replied(bench.link, PeerReply(NAME, two.number, b"second", ""))
    bench.questions.replied(bench.link, PeerReply(NAME, one.number, b"first", ""))
    assert (await first, await second) == (b"first", b"second")


async def test_a_refusal_is_an_error_that_says_who_and_why(bench: Bench) -> None:
    asking = bench.begin()
    number = (await bench.asked()).number
    bench.questions.replied(bench.link, PeerReply(NAME, number, b"", "too busy"))
    with pytest.raises(PeerError, match="sidecar pod-2: too busy"):
        await asking


async def test_an_answer_on_another_link_or_for_nobody_changes_nothing(bench: Bench) -> None:
    asking = bench.begin()
    number = (await bench.asked()).number
    bench.questions.replied(TestLink("pod-3"), PeerReply(NAME, number, b"forged", ""))
    bench.questions.replied(bench.link, PeerReply(NAME, number + 1, b"of long ago", ""))
    bench.questions.replied(bench.link, PeerReply(NAME, number, b"right", ""))
    bench.questions.replied(bench.link, PeerReply(NAME, number, b"twice", ""))
    assert await asking == b"right"


async def test_who_does_not_answer_is_named_in_time(bench: Bench) -> None:
    with pytest.raises(PeerError, match="pod-2 did not answer within 5 ms"):
        await bench.begin(timeout_ms=5)
    bench.questions.replied(bench.link, PeerReply(NAME, 1, b"late", ""))


async def test_a_link_that_closes_fails_what_was_asked_over_it(bench: Bench) -> None:
    asking = bench.begin()
    await bench.asked()
    bench.questions.closed(TestLink("pod-3"))
    await asyncio.sleep(TURN_S)
    assert not asking.done()
    bench.questions.closed(bench.link)
    with pytest.raises(PeerError, match="has closed"):
        await asking


async def test_a_link_is_made_for_a_question(bench: Bench) -> None:
    bench.questions.seen({"pod-3": "there"})
    asking = bench.begin("pod-3")
    await asyncio.sleep(TURN_S)
    link = TestLink("pod-3")
    bench.links.opened(link)
    bench.questions.opened(link)
    await asyncio.sleep(TURN_S)
    (frame,) = link.heard()
    assert isinstance(frame, PeerQuestion)
    bench.questions.replied(link, PeerReply(NAME, frame.number, b"yes", ""))
    assert await asking == b"yes"
    with pytest.raises(PeerError, match="pod-9 takes no links"):
        await bench.begin("pod-9")


async def test_all_are_asked_at_once_and_who_is_missing_is_told(bench: Bench) -> None:
    asking = asyncio.create_task(  # noqa: TID251  awaited below
        bench.questions.ask_all(["pod-2", "pod-9"], "lag", b"?", SOON_MS)
    )
    number = (await bench.asked()).number
    bench.questions.replied(bench.link, PeerReply(NAME, number, b"mine", ""))
    answers, missing = await asking
    assert answers == {"pod-2": b"mine"}
    assert "takes no links" in missing["pod-9"]


async def test_what_others_ask_is_answered_or_refused_with_the_reason(bench: Bench) -> None:
    async def echo(body: bytes) -> bytes:
        return body * 2

    async def away(_: bytes) -> bytes:
        raise StoreError("the store is away")

    async def confused(_: bytes) -> bytes:
        raise ValueError

    for kind, answer in (("echo", echo), ("away", away), ("confused", confused)):
        bench.questions.on(kind, answer)
    assert await bench.replies("echo", b"ab") == PeerReply(NAME, 7, b"abab", "")
    assert (await bench.replies("away")).refusal == "the store is away"
    assert "makes no sense" in (await bench.replies("confused")).refusal
    assert "no answer to that" in (await bench.replies("else")).refusal


async def test_i8_answers_have_bounds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def long(_: bytes) -> bytes:
        await asyncio.sleep(TURN_S)
        return bytes(11)

    monkeypatch.setattr(module, "ANSWERS_MAX", 2)
    monkeypatch.setattr(module, "BODY_BYTES_MAX", 10)
    bench.questions.on("long", long)
    for number in range(3):
        bench.questions.asked(bench.link, PeerQuestion(NAME, number, "long", b""))
    await asyncio.sleep(3 * TURN_S)
    replies = [frame for frame in bench.link.heard() if isinstance(frame, PeerReply)]
    assert [each.number for each in replies] == [2, 0, 1]
    assert "too many" in replies[0].refusal
    assert all("too long" in each.refusal for each in replies[1:])
    again = PeerQuestion(NAME, 9, "long", b"")
    bench.questions.asked(bench.link, again)
    await asyncio.sleep(3 * TURN_S)
    assert "too long" in str(bench.link.heard())  # there is room again


async def test_a_sidecar_that_stops_fails_its_questions_and_answers_none(bench: Bench) -> None:
    asking = bench.begin()
    await bench.asked()
    await bench.questions.stop()
    with pytest.raises(PeerError, match="stops"):
        await asking
    assert "no answer to that" in (await bench.replies("lag")).refusal


async def test_a_question_that_fails_by_a_bug_is_refused_at_once_and_leaves_room_for_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(_: bytes) -> bytes:
        raise KeyError("planted")

    async def works(body: bytes) -> bytes:
        return body

    monkeypatch.setattr(module, "ANSWERS_MAX", 1)
    bench.questions.on("lag", fails)
    bench.questions.on("echo", works)
    for _ in range(3):
        reply = await bench.replies("lag")
        assert (reply.body, reply.refusal) == (b"", "it failed; its log has the details")
    assert "on a bug of ackd's: lag" in caplog.text
    assert (await bench.replies("echo")).body == b"?"


async def test_i8_who_reads_too_slowly_gets_no_view(bench: Bench) -> None:
    """An answer would wait in memory; one without content says so, and is short."""

    async def works(body: bytes) -> bytes:
        return body

    bench.questions.on("echo", works)
    bench.link.unsent = UNSENT_MAX
    assert (await bench.replies("echo")).body == b"?"
    bench.link.unsent = UNSENT_MAX + 1
    reply = await bench.replies("echo")
    assert (reply.body, reply.refusal) == (b"", "this sidecar reads too slowly")
    assert (await bench.replies("echo", b"")).refusal == ""
