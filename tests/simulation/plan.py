"""What is decided before a run: its size, settings and faults; `draw` decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

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
RARE = ("flush", "evict", "remake", "reset", "reset_frozen", "copied", "store_silent", "retain")
STYLES = ("ack", "slow", "stale", "twice", "extend", "retry", "dead", "release", "forget")
STORE_LOSES = ("store_restart", "store_failover", "store_silent")


@dataclass(frozen=True, slots=True)
class Act:
    """A fault of a kind at a moment. `number`: its place in its plan."""

    at_us: int
    kind: str
    number: int = 0


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
    attempts: int = 0  # after so many a message is dead; 0: as many as the default says
    gap_us: int = 0  # messages come about so far apart; 0: any time
    drain_ms: int = 0  # a clean stop waits so long for leases to be settled
    push: int = 0  # 1: ackd calls applications beside it, too; 2: there are no others
    general: int = 0  # 1: any features together (`general`)
    weights: dict[str, int] = field(default_factory=dict)
    acts: list[Act] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Story:
    """What is not left to the seed: the kinds of faults (empty: it is), settings by name, and a
    style that applications like. `keep`: the numbers of the faults that happen; None: all.
    """

    faults: tuple[str, ...] = ()
    settings: tuple[tuple[str, int], ...] = ()
    style: str = ""
    keep: tuple[int, ...] | None = None


ANY = Story()
GENERAL = Story(settings=(("general", 1),))
"""Everything that a subscription can ask for, in any combination, under any faults."""
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

DRAINED = Story(
    ("stop", "stop", "store_restart", "store_failover", "kill"), (("drain_ms", 4_000),), "slow"
)
"""Sidecars wait for leases when they stop, while the store restarts and sidecars die."""

RESET = Story(
    ("reset", "reset", "fuse", "rebalance"), (("stuck_ms", 1_000), ("session_ms", 3_000)), "slow"
)
"""Somebody else's commit moves the group while copies wait in the retry topic."""

RESET_LOST = Story(("reset_frozen", "reset_frozen", "rebalance"), (("session_ms", 3_000),))
"""Somebody else's commit moves the group while all its members are lost, and go on later."""

SEEK = Story(("seek", "kill", "fuse", "rebalance"), (("stuck_ms", 1_000),), "slow")
"""The group is moved while messages are sent back and sidecars die.

Not among `KINDS`: a store that forgets a reset may forget what was acked after it (as
docs/guides/progress.md says).
"""

OUTGROWN = Story(("outgrow", "rebalance", "kill", "broker_net"), (("ordered", 0),))
"""Topics are made again with a longer log while sessions stand in the old one."""
