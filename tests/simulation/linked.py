"""Everything else that a subscription can ask for, while its messages go through other sidecars.

`Bounds` judges what all sidecars together may hand out: the rate, the leases at once, and what the
circuit breaker lets through beside an application that fails.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Final

from tests.simulation.book import Coordinate, Holding
from tests.simulation.plan import Plan, Story
from tests.simulation.repeats import Repeats
from tests.simulation.shares import CUT, JOINED_US, LINKS, SETTINGS
from tests.simulation.world import MS, START_US, S, World

ANY: Final = Story(settings=(("peers", 1), ("sidecars", 3)))
"""Any faults, and what else a seed draws."""
TWICE: Final = Story((*LINKS, "peer_twice", "peer_twice"), CUT.settings)
"""Frames come again, some of them out of order, while links break."""
AGAIN: Final = Story(("peer_twice", "peer_twice"), (*CUT.settings, ("replays", 1)))
"""The same on links that hold, while applications lose answers and repeat their receives."""
MOVING: Final = ("peer_twice", "peer_cut", "peer_slow", "fuse", "rebalance", "broker_net")
STUCK: Final = (("peers", 1), ("sidecars", 3), ("apps", 3), ("wait_ms", 2_000), ("stuck_ms", 1_500))
SENT_BACK: Final = Story(MOVING, STUCK, "slow")
"""Messages are sent back, and their copies are delivered through other sidecars."""
KEYS_IN_ORDER: Final = Story(MOVING, (*STUCK, ("partitions", 1), ("ordered", 2)), "retry")
"""The same in the order of two keys."""
SAME_KEYS: Final = Story(
    ("peer_twice", "peer_cut", "kill", "fuse", "net"),
    (*STUCK, ("stuck_ms", 0), ("keys", 8)),
    "forget",
)
"""Messages share business keys, and applications die with their leases."""
NOTED: Final = Story((*MOVING, "app"), STUCK, "note")
"""Workers say how far they are and die, beside sidecars that own nothing."""
LIMITED: Final = Story(
    ("peer_twice", "peer_cut", "peer_slow"), (*SETTINGS, ("rate", 8), ("messages", 120)), "retry"
)
"""So many messages a second from all sidecars together, whoever hands them out."""
FEW: Final = Story(("peer_twice", "peer_cut", "peer_slow"), (*SETTINGS, ("in_flight", 4)), "slow")
"""So many leases at once."""
FAILING: Final = Story(
    ("peer_twice", "peer_twice"),
    (*CUT.settings, ("breaker", 3), ("lease_ms", 700), ("faults_us", 24 * S), ("messages", 200)),
    "forget",
)
"""Applications let every lease end, beside the owner and elsewhere."""
TRIAL_MS: Final = 2_000
OPEN_US: Final = JOINED_US + 6 * S
"""When an application that always failed has no more than trials."""
HELD_S: Final = 1.0
"""For how long tokens may have been taken before the leases that they pay for are there."""


class Bounds:
    """What is handed out."""

    def __init__(self, world: World, repeats: Repeats, plan: Plan) -> None:
        self._world = world
        self._repeats = repeats
        self._plan = plan
        self._tokens = float(plan.rate) * (1 + HELD_S)
        self._seen_us = world.now_us
        self._given_back = 0
        self._held: deque[Holding] = deque()
        self._served: defaultdict[str, list[int]] = defaultdict(list)
        self.calm = False
        self.judged = True

    def granted(self, at: Coordinate, holding: Holding) -> None:
        """The store has granted a lease."""
        del at
        if not self.judged:
            return
        if self._plan.rate:
            self._by_rate()
        if self._plan.in_flight:
            self._at_once(holding)

    def _by_rate(self) -> None:
        """Never more than a full bucket and what has come into it since. The lease of a repeat is
        acked without delivery (R18), and its token pays for another message.
        """
        now_us, rate = self._world.now_us, self._plan.rate
        passed_s = (now_us - self._seen_us) / S
        self._seen_us = now_us
        back, self._given_back = self._repeats.count - self._given_back, self._repeats.count
        self._tokens = min(self._tokens + back + passed_s * rate, rate * (1 + HELD_S)) - 1
        if self._tokens < 0:
            self._world.fail(f"I8: more leases than {rate} a second")

    def _at_once(self, holding: Holding) -> None:
        """The shares of all are the bound; nobody's is less than one."""
        self._held.append(holding)
        now_ms = holding.granted_ms
        live = [each for each in self._held if not each.ended and each.until_ms > now_ms]
        self._held = deque(live)
        most = max(self._plan.in_flight, self._plan.sidecars)
        if len(live) > most and self._world.now_us > START_US + JOINED_US:
            self._world.fail(f"I8: {len(live)} leases at once, {most} are allowed")

    def served(self, sidecar: str, count: int) -> None:
        """An application beside this sidecar got so many."""
        now_us = self._world.now_us
        judged = self._plan.breaker and self.judged and not self.calm
        if not judged or not count or now_us < START_US + OPEN_US:
            return
        before = [at_us for at_us in self._served[sidecar] if at_us > now_us - TRIAL_MS * MS // 2]
        self._served[sidecar] = [*before, now_us]
        if count > 1 or before:
            self._world.fail(f"I8: {count} at once at {sidecar}, where the circuit breaker is open")
