"""What a seed decides before the run starts: its size, settings and which faults it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal

from tests.simulation.world import MS, S, World

KINDS = (
    "kill",
    "fuse",
    "stop",
    "freeze",
    "cut",
    "store_restart",
    "store_failover",
    "store_silent",
    "store_freeze",
    "clock",
    "flush",
    "evict",
    "net",
    "broker_net",
    "broker_down",
    "rebalance",
    "remake",
    "reset",
    "copied",
    "app",
    "compact",
    "retain",
    "change",
)
RARE = ("flush", "evict", "remake", "reset", "copied", "store_silent", "retain")
STYLES = ("ack", "slow", "stale", "twice", "extend", "retry", "dead", "release", "forget")
STORE_LOSES = ("store_restart", "store_failover", "store_silent")


@dataclass(frozen=True, slots=True)
class Act:
    """A fault of a kind at a moment."""

    at_us: int
    kind: str


@dataclass(slots=True)
class Plan:
    """One run. Times in us from its start unless a name says otherwise."""

    sidecars: int
    partitions: int
    apps: int
    messages: int
    faults_us: int
    lease_ms: int
    grace_ms: int
    replicated: bool
    start: Literal["latest", "earliest"]
    before: int
    buffer_max: int
    batch_max: int
    store_timeout_ms: int
    skip_min: int
    session_ms: int
    commit_ms: int
    stuck_ms: int = 0  # 0: nothing is sent back
    keys: int = 0  # business keys, of which repeats are settled; 0: none
    outbox: int = 0  # applications publish for later, with room for so many; 0: they don't
    foreign_delays: int = 0  # 1: other clients have delayed messages
    ordered: int = 0  # in the order of so many keys; -1: each partition as a whole; 0: no order
    peers: int = (
        0  # 1: sidecars give messages to each other; 2: and none is lost on the way for long
    )
    rate: int = 0  # so many messages a second, from all sidecars together; 0: any number
    in_flight: int = 0  # so many leases at once; 0: as many as the default says
    breaker: int = 0  # after so many failures in a row only trials are delivered; 0: everything
    replays: int = 0  # 1: answers are lost, and every receive is repeated with its attempt_id
    forgers: int = 0  # 1: somebody writes copies of his own into the retry topic
    wait_ms: int = 0  # applications wait so long, each at a sidecar of its own; 0: drawn, anywhere
    weights: dict[str, int] = field(default_factory=dict)
    acts: list[Act] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Story:
    """What is not left to the seed: the kinds of faults (empty: it is), settings by name, and a
    style that applications like.
    """

    faults: tuple[str, ...] = ()
    settings: tuple[tuple[str, int], ...] = ()
    style: str = ""


ANY = Story()
KEYS = Story(("kill", "fuse", "net", "rebalance"), (("keys", 8), ("sidecars", 2)), "forget")
"""Messages share business keys, and applications die with their leases."""
SEND_BACK = Story(("fuse", "broker_net", "rebalance"), (("stuck_ms", 1_500),), "slow")
"""Messages get stuck and are sent back, while answers of the broker are lost."""
FAILOVER = Story(("store_failover", "fuse"), (("stuck_ms", 1_500),), "slow")
"""Messages are sent back, and the store fails over to a replica that is some writes behind."""
PROMOTED = Story(("store_failover", "rebalance", "kill"), FAILOVER.settings, FAILOVER.style)
"""The same while partitions move and sidecars die."""
PROMOTED_KEYS = Story(PROMOTED.faults, (*FAILOVER.settings, ("ordered", 2)), FAILOVER.style)
"""The same with keys that are blocked."""
BLOCKED = Story(
    ("fuse", "broker_net", "rebalance", "kill"), (("stuck_ms", 1_500), ("ordered", 2)), "slow"
)
"""The same in the order of two keys, so that keys are blocked."""
ORDERED = 0.2
"""How often a seed of its own choice keeps an order."""

REDRIVE = Story(("redrive", "redrive", "kill", "fuse", "rebalance"), (("stuck_ms", 1_500),), "dead")
"""Dead letters are put back to the group while sidecars die."""

RESET = Story(
    ("reset", "reset", "fuse", "rebalance"), (("stuck_ms", 1_000), ("session_ms", 3_000)), "slow"
)
"""Somebody else's commit moves the group while copies wait in the retry topic."""

SEEK = Story(("seek", "kill", "fuse", "rebalance"), (("stuck_ms", 1_000),), "slow")
"""The group is moved while messages are sent back and sidecars die.

Not among `KINDS`: a store that forgets a reset may forget what was acked after it (as
docs/guides/progress.md says).
"""

OUTGROWN = Story(("outgrow", "rebalance", "kill", "broker_net"), (("ordered", 0),))
"""Topics are made again with a longer log while sessions stand in the old one."""


def draw(world: World, story: Story = ANY) -> Plan:
    """Draw a plan."""
    random = world.random("plan")
    plan = Plan(
        sidecars=random.choice([1, 2, 2, 3]),
        partitions=random.choice([1, 1, 2, 3]),
        apps=random.choice([1, 2, 3]),
        messages=random.randint(20, 90),
        faults_us=random.randint(5, 14) * S,
        lease_ms=random.choice([700, 1_500, 3_000, 8_000]),
        grace_ms=random.choice([0, 500, 1_500]),
        replicated=random.random() < 0.3,
        start=random.choice(["latest", "earliest"]),
        before=random.choice([0, 5, 20]),
        buffer_max=random.choice([1, 10, 1_000]),
        batch_max=random.choice([1, 7, 1_500]),
        store_timeout_ms=random.choice([100, 500, 1_500]),
        skip_min=random.choice([2, 5, 1_000]),
        session_ms=random.choice([3_000, 6_000, 10_000]),
        commit_ms=random.choice([50, 200, 2_000]),
        weights=_weights(random),
    )
    if not story.faults and not story.settings:
        _in_order(world.random("order"), plan)
    for name, value in story.settings:
        setattr(plan, name, value)
    if story.style:
        plan.weights[story.style] = 10
    if plan.breaker:  # one success would close it
        plan.weights = {"forget": 1}
    for kind in story.faults or KINDS:
        if random.random() < (1.0 if story.faults else 0.08 if kind in RARE else 0.25):
            for _ in range(1 if kind in RARE else random.randint(1, 4)):
                plan.acts.append(Act(random.randint(500 * MS, plan.faults_us), kind))
    plan.acts.sort(key=lambda act: act.at_us)
    return plan


def _in_order(random: Random, plan: Plan) -> None:
    """With a stream of its own: what a seed without an order does, it did before there was one."""
    if random.random() < ORDERED:
        plan.ordered = random.choice([1, 2, 5, 5, -1])


def _weights(random: Random) -> dict[str, int]:
    """Some styles are left out in a run, others are frequent (swarm testing)."""
    weights = {style: random.choice([0, 0, 1, 5]) for style in STYLES}
    weights["ack"] = random.choice([3, 10, 30])
    return weights
