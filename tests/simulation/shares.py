"""Messages that reach applications through other sidecars: stories of it, and what it promises.

A grant that reaches nobody goes back soon and uncounted (R21); every application that waits gets
messages, wherever they are owned, and none lies for long while somebody waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from ackd.api.messages import Received
from ackd.engine.delivery.handed_leases import RELAYED
from ackd.engine.peers.frames import Frame, PeerAnswer, PeerAsk, PeerCancel
from tests.simulation.book import (
    FOREVER_US,
    Book,
    Coordinate,
    Holding,
    Lease,
    name_of,
    read_token,
)
from tests.simulation.peers import SimLink, Wires
from tests.simulation.plan import Story
from tests.simulation.process import Process
from tests.simulation.world import MS, START_US, S, World

SETTINGS: Final = (
    ("peers", 2),
    ("sidecars", 3),
    ("apps", 3),
    ("partitions", 2),
    ("buffer_max", 1_000),
    ("batch_max", 1_500),
    ("store_timeout_ms", 1_500),
    ("replicated", 0),
    ("wait_ms", 2_000),
    ("lease_ms", 8_000),
)
PLAIN: Final = Story(("nothing",), SETTINGS)
"""Two partitions, three sidecars, an application at each; nothing goes wrong."""
LINKS: Final = ("peer_cut", "peer_slow", "peer_deaf", "peer_refuse")
CUT: Final = Story(
    LINKS,
    (*SETTINGS, ("partitions", 1), ("apps", 2)),
)
"""One partition, applications at two of three sidecars, while links between the sidecars break."""
AWAY: Final = Story(
    (
        *LINKS,
        "kill",
        "fuse",
        "stop",
        "freeze",
        "net",
        "cut",
        "rebalance",
        "store_failover",
        "broker_fatal",
    ),
    (("peers", 1), ("sidecars", 3), ("apps", 3), ("partitions", 2), ("wait_ms", 2_000)),
)
"""The same while everything else goes wrong, too."""
KILLED: Final = Story(("kill", "freeze", "kill", "freeze"), (*SETTINGS, ("wait_ms", 7_000)))
"""Sidecars die and stand still, with requests that wait for long."""
LATE: Final = Story(("peer_slow", "peer_slow"), (*CUT.settings, ("lease_ms", 700)))
"""Leases end while answers are on their way."""
JOINED_US: Final = 6 * S
"""When every sidecar has started and the group has settled down."""
PROMPT_US: Final = 300 * MS
LATE_US: Final = 5 * S
"""For how long a message may lie while applications wait: when all is well, and when links break.
"""
SOON_US: Final = 4 * S
HEARD_US: Final = 2_500 * MS
"""When a sidecar has died, the others know it after this time at the latest."""
MARGIN_US: Final = 100 * MS
ASKS_MAX: Final = 300
"""Requests that a sidecar makes in a second, for at most three applications."""
Key = tuple[Coordinate, int, int]


class Shares:
    """What became of grants. `strict`: nothing goes wrong but with links. `lies_us`: a message that
    lies for longer than that is a failure; 0: it may.
    """

    def __init__(self, world: World, book: Book, wires: Wires | None) -> None:
        self.world = world
        self.strict = False
        self.lies_us = 0
        self.calm_us = 1 << 62
        self.on_reached: Callable[[str, int], None] = lambda *_: None
        self.served: Counter[str] = Counter()
        self._book = book
        self._wires = wires
        if wires is not None:
            wires.watch = self.said
        self._reached: set[Key] = set()
        self._sent: dict[Key, tuple[Process, int]] = {}
        self._waiting: dict[tuple[Process, str], tuple[SimLink, int]] = {}
        self._asks: dict[Process, list[int]] = {}
        self._published: dict[tuple[int, int], int] = {}
        self.slowest_us = 0

    def published(self, partition: int, offset: int) -> None:
        """A message is there."""
        self._published[partition, offset] = self.world.now_us

    def reached(self, sidecar: str, result: object) -> None:
        """A request got this result."""
        received = result[1] if isinstance(result, tuple) else result
        if isinstance(received, Received):
            self.served[sidecar] += len(received.messages)
            if not received.replayed:
                self.on_reached(sidecar, len(received.messages))
            for message in received.messages:
                lease = read_token(message.lease)
                self.took(lease)
                if self.strict and not received.replayed:
                    self._in_time(lease, message.deadline_ms)

    def took(self, lease: Lease) -> None:
        """Somebody has it: by an answer, or a call."""
        self._reached.add((lease.coordinate, lease.fence, lease.rollback_epoch))

    def _in_time(self, lease: Lease, deadline_ms: int) -> None:
        """R21: what somebody else may have by now is handed to nobody."""
        holding = self._book.message(lease.coordinate).holdings.get(lease.key)
        end_us, *_ = holding.deadlines.get(deadline_ms, (FOREVER_US,)) if holding else (FOREVER_US,)
        if self.world.now_us > end_us + MARGIN_US:
            self.world.fail(f"R21: {name_of(lease.coordinate)} handed over after its lease's end")

    # --- what sidecars say to each other

    def said(self, link: SimLink, frame: Frame) -> None:
        """A frame is on its way."""
        by, other = link.mine.process, link.other.mine.process
        match frame:
            case PeerAsk():
                self._asked(link, by, frame)
            case PeerCancel():
                self._over(by, frame.number)
            case PeerAnswer():
                self._over(other, frame.number)
                for message in frame.messages:
                    lease = read_token(message.lease)
                    key = lease.coordinate, lease.fence, lease.rollback_epoch
                    self._sent[key] = other, self.world.now_us
            case _:
                pass

    def _asked(self, link: SimLink, by: Process, ask: PeerAsk) -> None:
        """I8: at one owner at a time, not again and again, and for an application of its own."""
        if ask.holder.startswith(RELAYED):
            self.world.fail(f"I8: {by.name} passes a request on")
        now_us = self.world.now_us
        asks = self._asks.setdefault(by, [])
        asks.append(now_us)
        self._asks[by] = asks = [at_us for at_us in asks if at_us > now_us - S]
        if len(asks) > ASKS_MAX:
            self.world.fail(f"I8: {by.name} has asked {len(asks)} times in a second")
        before = self._waiting.get((by, ask.holder))
        if self.strict and before is not None and not before[0].closed:
            self.world.fail(f"I8: {by.name} asks {link.name} and {before[0].name} at once")
        self._waiting[by, ask.holder] = link, ask.number

    def _over(self, by: Process, number: int) -> None:
        for key, (_, waiting) in list(self._waiting.items()):
            if key[0] is by and waiting == number:
                del self._waiting[key]

    # --- grants

    def granted(self, at: Coordinate, holding: Holding) -> None:
        """The store has granted a lease."""
        now_us = self.world.now_us
        if self._wires is None:
            return
        if self.strict or now_us > self.calm_us + SOON_US:
            self.world.after(SOON_US, self._look, at, holding)
        since_us = self._published.pop((at.partition, at.offset), now_us)
        if self.lies_us and since_us > START_US + JOINED_US:
            self.slowest_us = max(self.slowest_us, now_us - since_us)
            if now_us - since_us > self.lies_us:
                self.world.fail(f"I5: {name_of(at)} lay for {(now_us - since_us) // MS} ms")

    def _look(self, at: Coordinate, holding: Holding) -> None:
        """R21: it has reached somebody, or it went back."""
        assert self._wires is not None
        message = self._book.message(at)
        key = holding.at, holding.fence, holding.rollback_epoch
        if key in self._reached:
            return
        if message.newest is not holding and not holding.ended:
            return  # an older lease of it was settled, or it ended by itself
        if holding.ended:
            # A repeat is acked without delivery (R18); what an operator cancels is over anyhow.
            over = "ACKED" in holding.outcomes or message.cancelled
            if "RELEASED" not in holding.outcomes and not over:
                self.world.fail(f"R21: {name_of(at)} reached nobody, and went back counted")
            return
        if message.done:
            return
        now_us = self.world.now_us
        if self._wires.troubled_us > now_us - SOON_US:
            end_us = max(at_us for at_us, *_ in holding.deadlines.values())
            if now_us + S < end_us:
                self.world.after(S, self._look, at, holding)
            return
        if not holding.by.undisturbed_since(holding.granted_us):
            return
        to, sent_us = self._sent.get(key, (holding.by, self.world.now_us))
        if not to.undisturbed_since(sent_us - HEARD_US):
            return  # who asked for it is gone, or was when it was granted
        self.world.fail(
            f"R21: {name_of(at)} was granted by {holding.by.name}, reached nobody, and did not go "
            f"back"
        )
