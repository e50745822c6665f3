"""Draws the plan of a run from its seed and its story."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.simulation.general import add_acts, push_on, turn_on
from tests.simulation.plan import ANY, KINDS, ORDERED, RARE, STYLES, Act, Plan, Story
from tests.simulation.world import MS, S, World


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
    general = dict(story.settings).get("general")
    kinds: tuple[str, ...] = ()
    if general:
        kinds = push_on(world.random("called"), plan, turn_on(world.random("general"), plan))
    elif not story.faults and not story.settings:
        _in_order(world.random("order"), plan)
    for name, value in story.settings:
        setattr(plan, name, value)
    if story.style:
        plan.weights[story.style] = 10
    if plan.breaker and not general:  # one success would close it
        plan.weights = {"forget": 1}
    if general:
        add_acts(world.random("acts"), plan, story.faults or kinds)
    for kind in () if general else story.faults or KINDS:
        if random.random() < (1.0 if story.faults else 0.08 if kind in RARE else 0.25):
            for _ in range(1 if kind in RARE else random.randint(1, 4)):
                plan.acts.append(Act(random.randint(500 * MS, plan.faults_us), kind))
    plan.acts.sort(key=lambda act: act.at_us)
    acts = [replace(act, number=number) for number, act in enumerate(plan.acts)]
    plan.acts = [act for act in acts if story.keep is None or act.number in story.keep]
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
