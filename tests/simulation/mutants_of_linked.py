"""Planted mistakes of what a subscription asks for while its messages go through other sidecars."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from ackd.api.messages import Received, ReceiveRequest
from ackd.engine.peers.frames import Frame, PeerAnswer, PeerAsk, PeerExpired
from tests.simulation.linked import (
    AGAIN,
    FAILING,
    FEW,
    KEYS_IN_ORDER,
    LIMITED,
    NOTED,
    SAME_KEYS,
    SENT_BACK,
)
from tests.simulation.mutant import Mutant
from tests.simulation.mutants_of_copies import Claimless
from tests.simulation.mutants_of_order import KeepsNoOrder
from tests.simulation.mutants_of_repeats import KeepsKeysAtOnce
from tests.simulation.parts import Parts, SeededRuntime
from tests.simulation.peers import SimLink, SimPeers, Wires
from tests.simulation.process import Process

ANOTHER = 1 << 40


class BringsNoNote(SimPeers):
    """Messages come without what their last worker said."""

    def hears(self, link: SimLink, frame: Frame) -> Frame | None:
        """Cut off."""
        del link
        if not isinstance(frame, PeerAnswer):
            return frame
        return replace(frame, messages=[replace(each, note=None) for each in frame.messages])


class HidesExpired(SimPeers):
    """A sidecar is not told which leases of its application have ended."""

    def hears(self, link: SimLink, frame: Frame) -> Frame | None:
        """All but that."""
        del link
        return None if isinstance(frame, PeerExpired) else frame


class TakesRepeats(SimPeers):
    """A request that comes again is another one."""

    def __init__(self, wires: Wires, process: Process) -> None:
        super().__init__(wires, process)
        self._known: set[tuple[str, int]] = set()

    def hears(self, link: SimLink, frame: Frame) -> Frame | None:
        """With a number of its own, inside this sidecar."""
        if not isinstance(frame, PeerAsk):
            return frame
        key = link.instance, frame.number
        if key in self._known:
            return replace(frame, number=frame.number + ANOTHER)
        self._known.add(key)
        return frame

    def says(self, link: SimLink, frame: Frame) -> Frame | None:
        """To the other one it is the same."""
        del link
        if isinstance(frame, PeerAnswer) and frame.number >= ANOTHER:
            return replace(frame, number=frame.number - ANOTHER)
        return frame


class ForgetsAttempts(SeededRuntime):
    """A repeat of a receive is another receive."""

    async def receive(self, name: str, request: ReceiveRequest) -> Received:
        """Without its name."""
        return await super().receive(name, dataclasses.replace(request, attempt_id=None))


MUTANTS = (
    Mutant("a request that comes again is another", "R21", Parts(peers=TakesRepeats), AGAIN),
    Mutant("a repeated receive gets others", "R21", Parts(runtime=ForgetsAttempts), AGAIN),
    Mutant("messages of others have no note", "I7", Parts(peers=BringsNoNote), NOTED),
    Mutant("who asked hears of no lease that ended", "I8", Parts(peers=HidesExpired), FAILING),
    Mutant("leases for other sidecars cost no token", "I8", story=LIMITED),
    Mutant("each owner has the whole bound", "I8", story=FEW),
    Mutant(
        "any message of a key may go to others", "I6", Parts(runtime=KeepsNoOrder), KEYS_IN_ORDER
    ),
    Mutant(
        "a key that went to others is kept before its ack",
        "R18",
        Parts(memory=KeepsKeysAtOnce),
        SAME_KEYS,
    ),
    Mutant("a copy goes to others without a claim", "R2", Parts(store=Claimless), SENT_BACK),
)
