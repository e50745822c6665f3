"""A pair of links in memory, whose frames the test reads and writes."""

from __future__ import annotations

from collections.abc import Callable

from ackd.engine.peers.frames import Frame, read_frame
from ackd.errors import PeerError
from ackd.ports import PeerUser


class TestLink:
    """Implements `ackd.ports.PeerLink`. `said`: what was sent on it."""

    __test__ = False

    def __init__(self, name: str = "pod-2", instance: str = "", *, outgoing: bool = True) -> None:
        self.name = name
        self.instance = instance or f"{name}-1"
        self.outgoing = outgoing
        self.unsent = 0
        self.closed = False
        self.said: list[Frame] = []

    def send(self, frame: bytes) -> None:
        if not self.closed:
            self.said.append(read_frame(frame))

    def close(self) -> None:
        self.closed = True

    def heard(self) -> list[Frame]:
        """What was sent since the last look."""
        said, self.said = self.said, []
        return said


class TestNetwork:
    """Implements `ackd.ports.PeerNetwork`. `fails`: why nobody can be reached; `deaf`: why it can't
    listen.
    """

    __test__ = False

    def __init__(self) -> None:
        self.instance = "this-process"
        self.fails = ""
        self.deaf = ""
        self.tried: list[tuple[str, str]] = []
        self.user: PeerUser | None = None

    async def start(self, user: PeerUser, key: Callable[[], bytes]) -> str:
        del key
        self.user = user
        if self.deaf:
            raise PeerError(self.deaf)
        return "127.0.0.1:1"

    async def connect(self, name: str, address: str) -> None:
        self.tried.append((name, address))
        if self.fails:
            raise PeerError(self.fails)
        assert self.user is not None
        self.user.opened(TestLink(name))

    async def stop(self) -> None:
        """Nothing to stop."""
