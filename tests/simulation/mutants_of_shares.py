"""Planted mistakes of messages that reach applications through other sidecars."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ackd.engine.cluster.members import LostAnswers, read_note, write_note
from ackd.engine.peers.frames import (
    Frame,
    PeerAnswer,
    PeerAsk,
    PeerCancel,
    PeerLost,
    PeerTaken,
    write_frame,
)
from ackd.ports import NOTHING_READY, Members, ReadyReport
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts
from tests.simulation.peers import SimLink, SimPeers, Wires
from tests.simulation.process import Process
from tests.simulation.shares import CUT, KILLED, LATE, PLAIN
from tests.simulation.store_client import SimStore


class GivesNothingBack(SimPeers):
    """An owner does not hear that an answer was lost."""

    def hears(self, link: SimLink, frame: Frame) -> Frame | None:
        """All but that."""
        del link
        return None if isinstance(frame, PeerLost) else frame


class TellsOfNoLoss(SimStore):
    """Heartbeats say nothing of lost answers; links are all that there is."""

    async def heartbeat(
        self,
        subscription: str,
        name: str,
        boot: int,
        owned: Sequence[str],
        note: str,
        ready: ReadyReport = NOTHING_READY,
    ) -> Members:
        """Without them."""
        said = write_note(replace(read_note(note), lost=[]))
        return await super().heartbeat(subscription, name, boot, owned, said, ready)


class TellsOfMoreLoss(SimStore):
    """Heartbeats call lost what applications have."""

    async def heartbeat(
        self,
        subscription: str,
        name: str,
        boot: int,
        owned: Sequence[str],
        note: str,
        ready: ReadyReport = NOTHING_READY,
    ) -> Members:
        """All requests up to the last one that was lost."""
        said = read_note(note)
        lost = [
            LostAnswers(each.owner, each.asker, list(range(max(each.numbers) + 1)))
            for each in said.lost
        ]
        return await super().heartbeat(
            subscription, name, boot, owned, write_note(replace(said, lost=lost)), ready
        )


class SaysTaken(SimPeers):
    """What nobody took is told as taken."""

    def says(self, link: SimLink, frame: Frame) -> Frame | None:
        """A word of thanks."""
        del link
        return (
            PeerTaken(frame.subscription, frame.numbers[0])
            if isinstance(frame, PeerLost)
            else frame
        )


class NamesNoRequest(SimPeers):
    """Requests whose link has closed are not named on the next one."""

    def __init__(self, wires: Wires, process: Process) -> None:
        super().__init__(wires, process)
        self._answered: set[int] = set()

    def hears(self, link: SimLink, frame: Frame) -> Frame | None:
        """Notes what was answered."""
        del link
        if isinstance(frame, PeerAnswer):
            self._answered.add(frame.number)
        return frame

    def says(self, link: SimLink, frame: Frame) -> Frame | None:
        """Only of answers that came."""
        del link
        named = not isinstance(frame, PeerLost) or self._answered.issuperset(frame.numbers)
        return frame if named else None


class NeverTooLate(SimPeers):
    """An answer counts for as long as its owner may have waited, and longer."""

    def hears(self, link: SimLink, frame: Frame) -> Frame | None:
        """An hour."""
        del link
        if not isinstance(frame, PeerAnswer):
            return frame
        return PeerAnswer(frame.subscription, frame.number, 3_600_000, frame.ready, frame.messages)


class ForgetsTheCancelled(SimPeers):
    """What is granted to a request after its cancel is not given back."""

    def __init__(self, wires: Wires, process: Process) -> None:
        super().__init__(wires, process)
        self._cancelled: set[tuple[str, int]] = set()

    def hears(self, link: SimLink, frame: Frame) -> Frame | None:
        """A cancel is answered, and that is all."""
        if not isinstance(frame, PeerCancel):
            return frame
        link.send(write_frame(PeerAnswer(frame.subscription, frame.number, 0, 0, [])))
        self._cancelled.add((link.instance, frame.number))
        return None

    def says(self, link: SimLink, frame: Frame) -> Frame | None:
        """Nobody waits for it any more."""
        if isinstance(frame, PeerAnswer) and (link.instance, frame.number) in self._cancelled:
            return None
        return frame


class HearsNoRequest(SimPeers):
    """A request waits at an owner that does not know of it."""

    def hears(self, link: SimLink, frame: Frame) -> Frame | None:
        """All but that."""
        del link
        return None if isinstance(frame, PeerAsk) else frame


MUTANTS = (
    Mutant(
        "a lost answer is not given back",
        "R21",
        Parts(peers=GivesNothingBack, store=TellsOfNoLoss),
        CUT,
        4,
    ),
    Mutant(
        "what nobody took is told as taken",
        "R21",
        Parts(peers=SaysTaken, store=TellsOfNoLoss),
        CUT,
        4,
    ),
    Mutant(
        "requests of a closed link are not named",
        "R21",
        Parts(peers=NamesNoRequest, store=TellsOfNoLoss),
        CUT,
    ),
    Mutant("heartbeats call lost what was taken", "I4", Parts(store=TellsOfMoreLoss), CUT),
    Mutant("an answer is never too late", "R21", Parts(peers=NeverTooLate), LATE, 4),
    Mutant("what a cancel missed is forgotten", "R21", Parts(peers=ForgetsTheCancelled), CUT, 2),
    Mutant("an owner hears no request", "I5", Parts(peers=HearsNoRequest), CUT, 2),
    Mutant("a receive gets from here and from there", "I8", story=PLAIN, first=28),
    Mutant("requests of a closed link wait on", "R21", story=KILLED, first=120),
    Mutant("a receive asks two owners at once", "I8", story=PLAIN, first=3),
    Mutant("a request of another sidecar is passed on", "I8", story=PLAIN),
)
