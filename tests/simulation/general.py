"""The general world: whatever a subscription can ask for, in any combination, under any faults.

Each feature is on with a chance, each kind of fault is there with a chance; a run in which
everything goes wrong hides mistakes, so the chances differ from run to run. A few promises can be
judged only where little goes wrong (`PROMISES`); some runs are so.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.plan import Act, Plan
from tests.simulation.world import MS, S

CRASHES: Final = ("kill", "fuse", "stop", "freeze", "cut", "rebalance", "app", "broker_fatal")
STORE: Final = ("store_restart", "store_failover", "store_freeze", "clock", "net")
BROKER: Final = ("broker_net", "broker_down", "compact")
OPERATOR: Final = ("redrive", "cancel", "seek", "change")
LINKS: Final = ("peer_cut", "peer_slow", "peer_deaf", "peer_refuse", "peer_twice")
SELDOM: Final = (
    "flush",
    "evict",
    "remake",
    "outgrow",
    "reset",
    "copied",
    "store_silent",
    "retain",
    "copy_keys",
)
PUSH: Final = ("push_down", "push_cut", "push_slow", "push_busy")
KINDS: Final = (*CRASHES, *STORE, *BROKER, *OPERATOR, *LINKS, *SELDOM, *PUSH)
PROMISES: Final = ("links", "killed", "repeats", "rate", "in flight", "breaker")
"""What can be judged only where little else goes wrong (`shares`, `linked`)."""
PROMISED: Final = 0.2
"""So many runs are for one of these."""
PUSHED: Final = 0.2
"""In so many ackd calls applications; in so many of these nothing else goes wrong (`PROMISED`)."""
FORGETS: Final = ("store_restart", "store_failover", "store_silent", "flush", "evict")
"""The store's data goes back."""
FAULTLESS: Final = frozenset(("nothing", *LINKS))


def _one_of(random: Random, chance: float, choices: tuple[int, ...]) -> int:
    """One of these with a chance, else 0."""
    return random.choice(choices) if random.random() < chance else 0


def turn_on(random: Random, plan: Plan) -> tuple[str, ...]:
    """Draw the features of a plan. Returns the kinds of faults that it has."""
    plan.gap_us = plan.faults_us // plan.messages // random.choice([1, 1, 5])
    if random.random() < PROMISED:
        return _promise(random, plan)
    plan.stuck_ms = _one_of(random, 0.65, (700, 1_000, 1_500, 3_000))
    plan.keys = _one_of(random, 0.25, (3, 8))
    plan.ordered = _one_of(random, 0.35, (1, 2, 5, 5, -1))
    plan.outbox = _one_of(random, 0.2, (6, 1_000))
    plan.foreign_delays = _one_of(random, 0.2, (1,))
    plan.peers = _one_of(random, 0.5, (1,)) if plan.sidecars > 1 else 0
    plan.forgers = _one_of(random, 0.2, (1,)) if plan.stuck_ms else 0
    plan.replays = _one_of(random, 0.15, (1,))
    plan.wait_ms = _one_of(random, 0.3, (2_000, 7_000)) if plan.peers else 0
    plan.rate = _one_of(random, 0.08, (8, 30))
    plan.in_flight = _one_of(random, 0.08, (4, 20))
    plan.breaker = _one_of(random, 0.08, (3,))
    # What another client tried twice would be dead at once with a smaller number.
    plan.attempts = _one_of(random, 0.3, (3,) if plan.foreign_delays else (1, 2, 3))
    for style in ("note", "shorten", "again"):
        plan.weights[style] = random.choice([0, 0, 1, 5])
    if random.random() < 0.5:  # what most applications do, and more often
        plan.weights[random.choice(list(plan.weights))] = 20
    return _kinds(random, plan)


def _kinds(random: Random, plan: Plan) -> tuple[str, ...]:
    """Few kinds or many; each run leaves some out (swarm testing)."""
    chance = random.choice([0.05, 0.12, 0.25])
    found = [
        kind
        for kind in KINDS
        if kind not in PUSH
        and random.random() < chance * _weight(kind, plan)
        and not (kind in LINKS and not plan.peers)
        and not (kind == "copy_keys" and not plan.forgers)
        and not (kind == "redrive" and not plan.weights["dead"])
    ]
    if "seek" in found:
        found = [kind for kind in found if kind not in FORGETS]
    return tuple(found)


def _promise(random: Random, plan: Plan) -> tuple[str, ...]:
    """Three sidecars that hand on each other's messages, while little goes wrong."""
    plan.peers, plan.sidecars, plan.apps = 2, 3, random.choice([2, 3])
    plan.partitions, plan.replicated = random.choice([1, 2]), False
    plan.buffer_max, plan.batch_max, plan.store_timeout_ms = 1_000, 1_500, 1_500
    plan.wait_ms, plan.lease_ms = random.choice([2_000, 2_000, 7_000]), random.choice([700, 8_000])
    match random.choice(PROMISES):
        case "links":
            return random.choice([("nothing",), LINKS, LINKS[:-1], ("peer_slow",), ("peer_cut",)])
        case "killed":
            return ("kill", "freeze")
        case "repeats":
            plan.replays = 1
            return ("peer_twice",)
        case "rate":
            plan.rate, plan.messages, plan.gap_us = 8, 120, plan.faults_us // 120
            return ("peer_twice", "peer_cut", "peer_slow")
        case "in flight":
            plan.in_flight = 4
            return ("peer_twice", "peer_cut", "peer_slow")
        case _:
            plan.breaker, plan.messages, plan.faults_us = 3, 200, 24 * S
            plan.gap_us = plan.faults_us // plan.messages
            plan.weights, plan.partitions, plan.lease_ms = {"forget": 1}, 1, 700
            return ("peer_twice",)


def calm_but_for_links(plan: Plan) -> bool:
    """What sidecars may hand out together can be judged."""
    return not plan.general or {act.kind for act in plan.acts} <= FAULTLESS


def repeats_are_kept(plan: Plan) -> bool:
    """A receive that is repeated gets its answer again: whoever has it is there, and is reached."""
    return not plan.general or {act.kind for act in plan.acts} <= {"nothing", "peer_twice"}


def push_on(random: Random, plan: Plan, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """With a stream of its own: a seed without push does what it did before there was push."""
    if random.random() < 1 - PUSHED or plan.peers > 1:
        return kinds
    plan.push = random.choice([1, 2])
    found = [kind for kind in PUSH if random.random() < 0.4] or ["nothing"]
    return tuple(found) if random.random() < PROMISED else (*kinds, *found)


def _weight(kind: str, plan: Plan) -> float:
    """What the store forgets at a failover reaches most of the rare transitions. Lost keys of
    copies matter to nothing but who forges some, so there they are as frequent as anything.
    """
    if kind == "copy_keys" and plan.forgers:
        return 2
    if kind in SELDOM:
        return 1 / 3
    return 2 if kind in ("store_failover", "store_restart", "rebalance") else 1


def add_acts(random: Random, plan: Plan, kinds: tuple[str, ...]) -> None:
    """So many of each kind, at any time."""
    for kind in kinds:
        for _ in range(1 if kind in SELDOM else random.randint(1, 4)):
            plan.acts.append(Act(random.randint(500 * MS, max(plan.faults_us, S)), kind))
