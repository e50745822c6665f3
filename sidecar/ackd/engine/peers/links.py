"""This sidecar's links to other sidecars. All its subscriptions share them. A link is opened when a
subscription first needs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import NamedTuple, Protocol

from ackd.core.backoff import Backoff
from ackd.engine.base.tasks import Tasks, Vitals
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
    read_frame,
    write_frame,
)
from ackd.engine.peers.link_room import LinkRoom
from ackd.errors import PeerError
from ackd.ports import Clock, PeerLink, PeerNetwork

LOG = logging.getLogger("ackd.engine")

AGAIN = Backoff(300, 3_000)
"""Waits between attempts to reach a sidecar."""
IDLE_MS = 300_000
LOOK_MS = 10_000
"""The interval at which idle links are looked for."""
FORGET_MS = 60_000
"""How long a failure to reach a sidecar is remembered after the next attempt was due."""


class Asking(Protocol):
    """The half of a subscription that asks owners for messages."""

    def opened(self, link: PeerLink) -> None: ...
    def closed(self, link: PeerLink) -> None: ...
    def answered(self, link: PeerLink, answer: PeerAnswer) -> None: ...
    def ready(self, link: PeerLink, ready: PeerReady) -> None: ...
    def waits(self) -> bool: ...
    def unwatch(self, link: PeerLink) -> None: ...
    def expired(self, count: int) -> None: ...


class Owning(Protocol):
    """The half of a subscription that other sidecars ask for messages."""

    def asked(self, link: PeerLink, ask: PeerAsk) -> None: ...
    def cancelled(self, link: PeerLink, number: int) -> None: ...
    def taken(self, link: PeerLink, number: int) -> None: ...
    def lost(self, link: PeerLink, numbers: list[int]) -> None: ...
    def watched(self, link: PeerLink, *, on: bool) -> None: ...
    def opened(self, link: PeerLink) -> None: ...
    def writable(self, link: PeerLink) -> None: ...
    def serves(self, link: PeerLink) -> bool: ...
    def closed(self, link: PeerLink) -> None: ...


class QuestionSide(Protocol):
    """The part of a subscription that asks and answers other questions (`questions.py`)."""

    def opened(self, link: PeerLink) -> None: ...
    def closed(self, link: PeerLink) -> None: ...
    def asked(self, link: PeerLink, question: PeerQuestion) -> None: ...
    def replied(self, link: PeerLink, reply: PeerReply) -> None: ...


class Sides(NamedTuple):
    """The parts of a subscription that take its frames."""

    asking: Asking
    owning: Owning
    questions: QuestionSide


class _Unreached:
    """The attempts to reach a sidecar without a link, and why the last one failed."""

    __slots__ = ("again_ms", "detail", "failures", "trying")

    def __init__(self) -> None:
        self.trying = False
        self.failures = 0
        self.again_ms = 0
        self.detail = ""


class PeerLinks:
    """Implements `ackd.ports.PeerUser`.

    `address`: where other sidecars reach this one. It is empty before `start`, without a network,
    and if this sidecar can't listen; then `problem` tells why.
    """

    def __init__(self, network: PeerNetwork | None, clock: Clock, vitals: Vitals) -> None:
        self._network = network
        self._clock = clock
        self._tasks = Tasks("peers", vitals)
        # By sidecar, the newest link last. There are several if both sides connected at once, or if
        # the other process was started again.
        self._links: dict[str, list[PeerLink]] = {}
        self._unreached: dict[str, _Unreached] = {}
        self._sides: dict[str, Sides] = {}
        self._numbers = count(1)
        self.address = ""
        self.problem = ""
        # When the last frame came on each link, and when to look for idle ones next.
        self._received_ms: dict[PeerLink, int] = {}
        self._look_ms = 0
        self._rooms: dict[PeerLink, LinkRoom] = {}

    @property
    def on(self) -> bool:
        """Whether there is a network."""
        return self._network is not None

    @property
    def instance(self) -> str:
        """How other sidecars name this process; empty without a network."""
        return "" if self._network is None else self._network.instance

    async def start(self, key: Callable[[], bytes]) -> None:
        """Listen. If that fails, this sidecar can still connect to others, but not they to it.
        `key`: as in `PeerNetwork.start`. Raises ConfigError.
        """
        if self._network is None:
            return
        try:
            self.address = await self._network.start(self, key)
        except PeerError as error:
            self.problem = error.detail
            LOG.warning("no other sidecar can connect to this one: %s", error.detail)

    async def stop(self) -> None:
        if self._network is not None:
            await self._network.stop()
        await self._tasks.stop()

    def number(self) -> int:
        """Return a number that no request of this process has had before."""
        return next(self._numbers)

    def register(self, subscription: str, sides: Sides) -> None:
        """Pass the subscription's frames to `sides` from now on, in place of those before."""
        self._sides[subscription] = sides

    # --- links

    def to(self, name: str) -> PeerLink | None:
        """Return the newest link to a sidecar, if there is one."""
        links = self._links.get(name)
        return links[-1] if links else None

    def room(self, link: PeerLink) -> LinkRoom:
        """Return the room for answers on a link."""
        room = self._rooms.get(link)
        return LinkRoom(link, self._has_room) if room is None else room

    def all(self) -> Iterable[PeerLink]:
        return [link for links in self._links.values() for link in links]

    def want(self, name: str, address: str) -> None:
        """Connect to a sidecar, unless the last attempt was too recent. `opened` is called if it
        succeeds.
        """
        if self._network is None or name in self._links:
            return
        now_ms = self._clock.monotonic_ms()
        found = self._unreached.get(name)
        if found is None:
            self._forget(now_ms)
            found = self._unreached[name] = _Unreached()
        if found.trying or now_ms < found.again_ms:
            return
        found.trying = True
        self._tasks.start(self._connect(self._network, name, address, found), name, ends=True)

    async def _connect(
        self, network: PeerNetwork, name: str, address: str, found: _Unreached
    ) -> None:
        try:
            await network.connect(name, address)
        except PeerError as error:
            found.failures += 1
            found.again_ms = self._clock.monotonic_ms() + AGAIN.delay_ms(found.failures)
            if found.detail != error.detail:
                LOG.warning("sidecar %s can't be reached at %s: %s", name, address, error.detail)
            found.detail = error.detail
        else:
            self._unreached.pop(name, None)
        finally:
            found.trying = False

    def unreachable(self) -> Mapping[str, str]:
        """Return the sidecars that could not be reached when last needed, and why."""
        self._forget(self._clock.monotonic_ms())
        return {name: found.detail for name, found in self._unreached.items() if found.detail}

    def _forget(self, now_ms: int) -> None:
        """Forget failures to reach sidecars that nobody has needed since for `FORGET_MS`."""
        before_ms = now_ms - FORGET_MS
        kept = self._unreached.items()
        self._unreached = {n: each for n, each in kept if each.trying or each.again_ms > before_ms}

    def close_idle(self) -> None:
        """Close links that brought nothing for `IDLE_MS` and that no receive waits on."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._look_ms:
            return
        self._look_ms = now_ms + LOOK_MS
        for link in self.all():
            if now_ms - self._received_ms[link] > IDLE_MS and not self._used(link):
                LOG.info("the link to %s is closed: nobody has used it for a while", link.name)
                link.close()

    def _used(self, link: PeerLink) -> bool:
        """Whether a receive of either side waits. If none of this side does, tell the other."""
        used = False
        for sides in self._sides.values():
            if sides.asking.waits():
                used = True
            else:
                sides.asking.unwatch(link)
            used = used or sides.owning.serves(link)
        return used

    # --- ackd.ports.PeerUser

    def opened(self, link: PeerLink) -> None:
        self._received_ms[link] = self._clock.monotonic_ms()
        self._rooms[link] = LinkRoom(link, self._has_room)
        self._links.setdefault(link.name, []).append(link)
        self._unreached.pop(link.name, None)
        for sides in self._sides.values():
            sides.owning.opened(link)
            sides.asking.opened(link)
            sides.questions.opened(link)

    def closed(self, link: PeerLink) -> None:
        self._received_ms.pop(link, None)
        room = self._rooms.pop(link, None)
        if room is not None:
            room.shut()
        links = self._links.get(link.name, [])
        if link in links:
            links.remove(link)
        if not links:
            self._links.pop(link.name, None)
        for sides in self._sides.values():
            sides.asking.closed(link)
            sides.owning.closed(link)
            sides.questions.closed(link)

    def writable(self, link: PeerLink) -> None:
        self.room(link).writable()

    def _has_room(self, link: PeerLink) -> None:
        for sides in self._sides.values():
            sides.owning.writable(link)

    def received(self, link: PeerLink, frame: bytes) -> None:
        """Pass a frame to its subscription. Answer for a subscription that this sidecar does not
        have: it has no messages.
        """
        self._received_ms[link] = self._clock.monotonic_ms()
        found = read_frame(frame)
        sides = self._sides.get(found.subscription)
        if sides is None:
            if isinstance(found, PeerAsk | PeerCancel):
                link.send(write_frame(PeerAnswer(found.subscription, found.number, 0, 0, [])))
            elif isinstance(found, PeerQuestion):
                why = "it has no such subscription"
                link.send(write_frame(PeerReply(found.subscription, found.number, b"", why)))
            return
        _pass_on(link, found, sides)


def _pass_on(link: PeerLink, frame: Frame, sides: Sides) -> None:
    asking, owning, questions = sides
    match frame:
        case PeerAsk():
            owning.asked(link, frame)
        case PeerAnswer():
            asking.answered(link, frame)
        case PeerTaken():
            owning.taken(link, frame.number)
        case PeerCancel():
            owning.cancelled(link, frame.number)
        case PeerLost():
            owning.lost(link, frame.numbers)
        case PeerReady():
            asking.ready(link, frame)
        case PeerExpired():
            asking.expired(frame.count)
        case PeerQuestion():
            questions.asked(link, frame)
        case PeerReply():
            questions.replied(link, frame)
        case PeerWatch():
            owning.watched(link, on=frame.on)
