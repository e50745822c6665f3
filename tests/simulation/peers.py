"""The simulated network between sidecars (`ackd.ports.PeerNetwork`): links that carry frames whole
and in order, with a latency, until they break.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ackd.engine.peers.frames import Frame, read_frame, write_frame
from ackd.errors import PeerError
from ackd.ports import PeerUser
from tests.simulation.process import Process
from tests.simulation.world import MS, World

QUIET_US = 1_500 * MS
"""A link on which nothing came for this long is closed."""
LOOK_US = 300 * MS
HANDSHAKE_S = 2.0
AGAIN_US = 700 * MS
"""The most that a repeat of a frame is behind it, on a link that is not slow."""


@dataclass(slots=True)
class Wires:
    """What lies between all sidecars of a run, and what is wrong with it.

    `deaf`: names of sidecars whom nothing reaches, though they are heard. `twice`: how many of the
    frames arrive again, later than others that were sent after them. `frames`: how many of each
    kind were sent. `troubled_us`: the last moment at which something was wrong.
    """

    world: World
    listening: dict[str, SimPeers] = field(default_factory=dict)
    wires: list[Wire] = field(default_factory=list)
    latency_us: tuple[int, int] = (50, 1_500)
    refused: float = 0.0
    twice: float = 0.0
    deaf: set[str] = field(default_factory=set)
    frames: Counter[str] = field(default_factory=Counter)
    troubled_us: int = 0
    watch: Callable[[SimLink, Frame], None] = lambda *_: None

    def fault(self) -> None:
        """Something is wrong now."""
        self.troubled_us = self.world.now_us

    def open_wires(self) -> list[Wire]:
        """Those that carry something, oldest first."""
        self.wires = [wire for wire in self.wires if not wire.over]
        return self.wires

    def mend(self) -> None:
        """Nothing is wrong any more; what has broken stays broken."""
        self.latency_us, self.refused, self.twice = (50, 1_500), 0.0, 0.0
        self.deaf.clear()
        for wire in self.wires:
            for end in wire.ends:
                end.flush()


class SimLink:
    """One end of a connection (`ackd.ports.PeerLink`)."""

    def __init__(self, wire: Wire, mine: SimPeers, number: int) -> None:
        self.wire = wire
        self.mine = mine
        self.outgoing = number == 0
        self.opened = self.closed = False
        self.over = False  # the user knows that it is closed
        self.quiet_us = 0
        self.unsent = 0
        self._number = number
        self._early: list[bytes] = []
        self._held_up: list[bytes | None] = []
        self._arrival_us = 0

    @property
    def other(self) -> SimLink:
        """The other end."""
        return self.wire.ends[1 - self._number]

    @property
    def name(self) -> str:
        """The other sidecar."""
        return self.other.mine.process.name

    @property
    def instance(self) -> str:
        """The other sidecar's process."""
        return self.other.mine.instance

    def send(self, frame: bytes) -> None:
        """On its way, unless this end is closed."""
        wires, world = self.mine.wires, self.mine.wires.world
        said = None if self.closed else self.mine.says(self, read_frame(frame))
        if said is None:
            return
        frame = write_frame(said)
        wires.frames[type(said).__name__] += 1
        world.note(self.mine.process.name, "says", self.name, _text(said))
        wires.watch(self, said)
        latency_us = self.mine.random.randint(*wires.latency_us)
        self._arrival_us = max(self._arrival_us, world.now_us + latency_us)
        world.at(self._arrival_us, self._arrives, frame)
        if wires.twice and self.mine.random.random() < wires.twice:
            later_us = self.mine.random.choice([0, *wires.latency_us, AGAIN_US])
            world.at(self._arrival_us + later_us, self._arrives, frame)

    def _arrives(self, frame: bytes | None) -> None:
        """At the other end; None: this end has closed. What is held up keeps its order."""
        if self.wire.cut:
            return
        self._held_up.append(frame)
        if self.other.mine.process.name not in self.mine.wires.deaf:
            self.flush()

    def flush(self) -> None:
        """Hand over what has come to the other end."""
        other = self.other
        held_up, self._held_up = self._held_up, []
        for frame in held_up:
            if frame is None:
                other.mine.process.post(other.close)
            else:
                other.mine.process.post(other.receive, frame)

    def receive(self, frame: bytes) -> None:
        """Read, unless it is dropped as unread."""
        if self.closed:
            return
        if not self.opened:
            self._early.append(frame)
            return
        heard = self.mine.hears(self, read_frame(frame))
        if heard is None:
            return
        try:
            self.mine.user().received(self, write_frame(heard))
        except ValueError as error:
            self.mine.wires.world.fail(f"bug: a frame makes no sense: {error}")

    def open(self) -> None:
        """It may be used from now on."""
        self.opened = True
        self.mine.user().opened(self)
        early, self._early = self._early, []
        for frame in early:
            self.receive(frame)

    def close(self) -> None:
        """What is unsent and unread is lost; the other end hears of it if it can."""
        if self.closed:
            return
        self.closed = True
        world = self.mine.wires.world
        world.note(self.mine.process.name, "closes link", self.name)
        self.mine.process.loop.call_soon(self.end)
        delay_us = self.mine.random.randint(*self.mine.wires.latency_us)
        world.at(max(self._arrival_us, world.now_us + delay_us), self._arrives, None)

    def drop(self) -> None:
        """Closed, and its user knows."""
        self.close()
        self.end()

    def end(self) -> None:
        """The user hears of it, once."""
        if self.over:
            return
        self.over = True
        self.mine.ended(self)
        if self.opened:
            self.mine.user().closed(self)

    def died(self) -> None:
        """Its process was killed: what it has sent still arrives, and then the end of it."""
        if not self.closed:
            self.closed = self.over = True
            world = self.mine.wires.world
            world.at(max(self._arrival_us, world.now_us) + MS, self._arrives, None)


class Wire:
    """One connection. `cut`: nothing that is on its way arrives any more."""

    def __init__(self, made_by: SimPeers, to: SimPeers) -> None:
        self.ends = (SimLink(self, made_by, 0), SimLink(self, to, 1))
        self.cut = False
        self._wires = made_by.wires
        self._wires.wires.append(self)
        self._wires.world.after(LOOK_US, self._look)

    @property
    def over(self) -> bool:
        """Neither end is open."""
        return all(end.closed for end in self.ends)

    def break_off(self, delays_us: Iterable[int]) -> None:
        """Both ends hear of it, each after a while."""
        self.cut = True
        for end, delay_us in zip(self.ends, delays_us, strict=True):
            self._wires.world.after(delay_us, end.mine.process.post, end.close)

    def _look(self) -> None:
        """Whoever hears nothing for long closes its end."""
        for end in self.ends:
            process, other = end.mine.process, end.other
            silent = self.cut or process.name in self._wires.deaf
            silent = silent or not other.mine.process.running
            end.quiet_us = end.quiet_us + LOOK_US if silent else 0
            if end.quiet_us >= QUIET_US:
                process.post(end.close)
        if not self.over:
            self._wires.world.after(LOOK_US, self._look)


class SimPeers:
    """One process's way to the other sidecars (`ackd.ports.PeerNetwork`)."""

    def __init__(self, wires: Wires, process: Process) -> None:
        self.wires = wires
        self.process = process
        self.random = wires.world.random(f"peers/{process.name}/{process.boot}")
        self._user: PeerUser | None = None
        self._links: dict[tuple[str, bool], SimLink] = {}
        self._connecting: set[str] = set()
        process.on_kill.append(self._died)

    @property
    def instance(self) -> str:
        """This process."""
        return f"{self.process.name}.{self.process.boot}"

    def says(self, link: SimLink, frame: Frame) -> Frame | None:
        """What is sent instead, where a mistake is planted; None: nothing."""
        del link
        return frame

    def hears(self, link: SimLink, frame: Frame) -> Frame | None:
        """What arrives instead."""
        del link
        return frame

    def user(self) -> PeerUser:
        """Who uses the links."""
        assert self._user is not None
        return self._user

    async def start(self, user: PeerUser, key: Callable[[], bytes]) -> str:
        """Listen."""
        del key
        self._user = user
        self.wires.listening[self.process.name] = self
        return self.process.name

    async def connect(self, name: str, address: str) -> None:
        """Raises PeerError."""
        while name in self._connecting:  # noqa: ASYNC110 - seldom
            await asyncio.sleep(0.01)
        if any(link.name == name for link in self._links.values()):
            return
        self._connecting.add(name)
        try:
            await self._connect(address)
        finally:
            self._connecting.discard(name)

    async def _connect(self, address: str) -> None:
        wires, world = self.wires, self.wires.world
        await asyncio.sleep(self.random.randint(*wires.latency_us) / 1_000_000)
        to = wires.listening.get(address)
        if to is None or not to.process.alive or self.random.random() < wires.refused:
            raise PeerError("connection refused")
        wire = Wire(self, to)
        accepted: asyncio.Future[object] = self.process.loop.create_future()

        def answer() -> None:
            self.process.resolve(accepted, None, None)

        def accept() -> None:
            if to.listens:
                to.take(wire.ends[1])
                delay_us = to.random.randint(*wires.latency_us)
                world.after(delay_us, answer)

        if not wires.deaf & {self.process.name, to.process.name}:
            to.process.post(accept)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await accepted
        except TimeoutError:
            wire.ends[0].close()
            raise PeerError("it does not answer in time") from None
        except BaseException:
            wire.ends[0].close()
            raise
        if wire.ends[0].closed:
            raise PeerError("connection reset")
        self.take(wire.ends[0])

    @property
    def listens(self) -> bool:
        """It has started and not stopped."""
        return self.wires.listening.get(self.process.name) is self

    def take(self, link: SimLink) -> None:
        """A link is made; an older one of the same process, made by the same side, ends first."""
        older = self._links.get((link.instance, link.outgoing))
        if older is not None:
            older.drop()
        self._links[link.instance, link.outgoing] = link
        self.wires.world.note(self.process.name, "link", link.name)
        link.open()

    def ended(self, link: SimLink) -> None:
        """It is no more."""
        key = link.instance, link.outgoing
        if self._links.get(key) is link:
            del self._links[key]

    async def stop(self) -> None:
        """Close all."""
        if self.listens:
            del self.wires.listening[self.process.name]
        for link in list(self._links.values()):
            link.drop()
        await asyncio.sleep(0)

    def _died(self) -> None:
        for link in list(self._links.values()):
            link.died()


def _text(frame: Frame) -> str:
    """For people; without bodies and leases."""
    facts = [
        len(each) if isinstance(each, list) else each
        for each in (getattr(frame, name) for name in frame.__struct_fields__[1:])
    ]
    return " ".join(map(str, (type(frame).__name__, *facts)))
