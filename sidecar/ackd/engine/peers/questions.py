"""Send questions to other sidecars of one subscription, and answer theirs.

A part of the engine registers for the questions of one kind (`on`) and decides what they mean. A
question that is not answered in time fails. No decision about a message may depend on a question.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from ackd.engine.base.tasks import Tasks
from ackd.engine.peers.frames import BODY_BYTES_MAX, PeerQuestion, PeerReply, write_frame
from ackd.engine.peers.link_room import UNSENT_MAX
from ackd.errors import AckdError, PeerError
from ackd.ports import PeerLink

LOG = logging.getLogger("ackd.engine")

ANSWERS_MAX = 100
"""Questions of other sidecars that a subscription answers at the same time, at most (I8)."""

Answer = Callable[[bytes], Awaitable[bytes]]


class QuestionLinks(Protocol):
    """What is asked of `ackd.engine.peers.links.PeerLinks`."""

    def to(self, name: str) -> PeerLink | None: ...
    def want(self, name: str, address: str) -> None: ...
    def number(self) -> int: ...


class PeerQuestions:
    """Asks other sidecars, and answers what they ask."""

    def __init__(self, subscription: str, links: QuestionLinks) -> None:
        self._subscription = subscription
        self._links = links
        self._answers: dict[str, Answer] = {}
        self._open: dict[int, tuple[PeerLink, asyncio.Future[bytes]]] = {}
        self._opening: dict[str, set[asyncio.Future[PeerLink]]] = {}
        self._answering = 0
        self._tasks = Tasks(f"peers.{subscription}.questions")
        self._addresses: Mapping[str, str] = {}

    def seen(self, addresses: Mapping[str, str]) -> None:
        """Take in where the other sidecars are reached."""
        self._addresses = addresses

    def on(self, kind: str, answer: Answer) -> None:
        """Answer questions of this kind with `answer`. If that raises an `AckdError`, its text goes
        to the sidecar that asked.
        """
        self._answers[kind] = answer

    async def stop(self) -> None:
        """Answer no more questions. This sidecar's own open questions fail."""
        self._answers = {}
        for _, future in self._open.values():
            _fail(future, "this sidecar stops")
        await self._tasks.stop()

    # --- asking

    async def ask(self, name: str, kind: str, body: bytes, timeout_ms: int) -> bytes:
        """Ask one sidecar, over a new link if there is none. Raises PeerError."""
        number = self._links.number()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                link = await self._link(name)
                future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
                self._open[number] = link, future
                link.send(write_frame(PeerQuestion(self._subscription, number, kind, body)))
                return await future
        except TimeoutError:
            raise PeerError(f"sidecar {name} did not answer within {timeout_ms} ms") from None
        finally:
            self._open.pop(number, None)

    def tell(self, name: str, kind: str) -> None:
        """Ask without waiting for the answer, if there is a link."""
        link = self._links.to(name)
        if link is not None:
            number = self._links.number()
            link.send(write_frame(PeerQuestion(self._subscription, number, kind, b"")))

    async def ask_all(
        self, names: Iterable[str], kind: str, body: bytes, timeout_ms: int
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """Ask several sidecars at once. Returns the answers, and why the others gave none, by
        sidecar.
        """
        wanted = list(names)
        asked = (self.ask(name, kind, body, timeout_ms) for name in wanted)
        found = await asyncio.gather(*asked, return_exceptions=True)
        answers: dict[str, bytes] = {}
        missing: dict[str, str] = {}
        for name, each in zip(wanted, found, strict=True):
            if isinstance(each, bytes):
                answers[name] = each
            elif isinstance(each, PeerError):
                missing[name] = each.detail
            else:
                raise each
        return answers, missing

    async def _link(self, name: str) -> PeerLink:
        link = self._links.to(name)
        if link is not None:
            return link
        address = self._addresses.get(name)
        if address is None:
            raise PeerError(f"sidecar {name} takes no links, or is gone")
        future: asyncio.Future[PeerLink] = asyncio.get_running_loop().create_future()
        waiting = self._opening.setdefault(name, set())
        waiting.add(future)
        try:
            self._links.want(name, address)
            return await future
        finally:
            waiting.discard(future)
            if not waiting and self._opening.get(name) is waiting:
                del self._opening[name]

    def replied(self, link: PeerLink, reply: PeerReply) -> None:
        """Pass an answer to the caller of `ask`; drop it if that no longer waits."""
        asked = self._open.get(reply.number)
        if asked is None or asked[0] is not link or asked[1].done():
            return
        if reply.refusal:
            _fail(asked[1], f"sidecar {link.name}: {reply.refusal}")
        else:
            asked[1].set_result(reply.body)

    # --- answering

    def asked(self, link: PeerLink, question: PeerQuestion) -> None:
        """Answer a question of another sidecar, in a task of its own."""
        answer = self._answers.get(question.kind)
        if answer is None:
            self._reply(link, question.number, b"", "it knows no answer to that")
        elif self._answering >= ANSWERS_MAX:
            self._reply(link, question.number, b"", "it answers too many questions already")
        else:
            self._answering += 1
            self._tasks.start(
                self._answer(link, question, answer), "answer", vital=False, ends=True
            )

    async def _answer(self, link: PeerLink, question: PeerQuestion, answer: Answer) -> None:
        try:
            body, refusal = await answer(question.body), ""
            if len(body) > BODY_BYTES_MAX:
                body, refusal = b"", "its answer is too long"
            elif body and link.unsent > UNSENT_MAX:
                body, refusal = b"", "this sidecar reads too slowly"
        except AckdError as error:
            body, refusal = b"", error.detail
        except ValueError:
            body, refusal = b"", "the question makes no sense to it"
        except Exception:
            LOG.exception(
                "a question of sidecar %s failed on a bug of ackd's: %s", link.name, question.kind
            )
            body, refusal = b"", "it failed; its log has the details"
        finally:
            self._answering -= 1
        self._reply(link, question.number, body, refusal)

    def _reply(self, link: PeerLink, number: int, body: bytes, refusal: str) -> None:
        link.send(write_frame(PeerReply(self._subscription, number, body, refusal[:1024])))

    # --- links

    def opened(self, link: PeerLink) -> None:
        for future in self._opening.get(link.name, ()):
            if not future.done():
                future.set_result(link)

    def closed(self, link: PeerLink) -> None:
        for asked, future in self._open.values():
            if asked is link:
                _fail(future, f"the link to sidecar {link.name} has closed")


def _fail(future: asyncio.Future[bytes], why: str) -> None:
    if not future.done():
        future.set_exception(PeerError(why))
        future.exception()  # mark it as retrieved: the caller may have gone
