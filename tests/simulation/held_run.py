"""Runs of whole sidecars on a broker that keeps an ack for each message (R32): the adapter of
RocketMQ as it is, on virtual time.

Messages are judged by what is in them, as applications see it: whatever place ackd gives them,
none is lost (I1), none comes again after its ack was told (I2), and none has two live leases (I3).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, replace
from typing import Final

from ackd.api.messages import Delivery, SettleItem, SettleResult, SettleVerb, Status
from ackd.config.schema import BrokerSettings, PublishSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.core.record.operations import Settle
from ackd.core.record.protocol import RecordCall, RecordReply
from ackd.core.record.transitions import Outcome
from tests.simulation.apps import App, Habits
from tests.simulation.book import Coordinate, read_token
from tests.simulation.broker import BrokerFaults
from tests.simulation.group import Group
from tests.simulation.guard import guarded
from tests.simulation.held_broker import TOPIC, HeldCluster
from tests.simulation.held_client import (
    HeldBroker,
    HeldConsumer,
    HeldStore,
    NotAsking,
    on_virtual_time,
)
from tests.simulation.parts import Parts
from tests.simulation.process import Process
from tests.simulation.run import NAME
from tests.simulation.sidecar import Place, Sidecar, settle_down
from tests.simulation.store import StoreServer
from tests.simulation.world import MS, START_US, S, Violation, World

PARTS: Final = Parts(store=HeldStore, broker=HeldBroker, consumer=HeldConsumer)  # type: ignore[arg-type]
BLIND_PARTS: Final = replace(PARTS, broker=NotAsking)
KINDS: Final = (
    "kill",
    "fuse",
    "stop",
    "freeze",
    "net",
    "store_freeze",
    "apart",
    "broker_net",
    "crash",
    "reset",
)
SETTLED_US: Final = 10 * S
DRAIN_US: Final = 240 * S
"""A message that was lost is read after a hold and 30 s; a hold may end a few times before."""
QUIET_US: Final = 12 * S


@dataclass(frozen=True, slots=True)
class HeldStory:
    """`more`: kinds of faults beside those of every run. `loses`: what polls that are broken off
    draw may be lost. `filter`: only two of three messages are wanted. `asks`: with name servers.
    """

    only: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    loses: float = 0.0
    filter: str = ""
    asks: bool = True


HELD_STORIES: Final = {
    "plain": HeldStory(),
    "blind": HeldStory(asks=False),
    "cut": HeldStory(more=("cut", "cut", "remade")),
    "clock": HeldStory(more=("clock", "clock")),
    "lost": HeldStory(more=("kill", "kill"), loses=0.5),
    "filtered": HeldStory(filter="wanted", more=("asleep", "freeze")),
    "filtered-blind": HeldStory(filter="wanted", more=("asleep", "freeze"), asks=False),
    "asleep": HeldStory(("asleep", "asleep", "kill", "freeze"), filter="wanted", asks=False),
}


@dataclass(slots=True, eq=False)
class Lease:
    """What an application was told. `over_ms`: when it began to end the lease; 0: it did not."""

    lease: str
    granted_ms: int
    deadline_ms: int
    by: str
    over_ms: int = 0


@dataclass(slots=True)
class Seen:
    """One message, by what is in it. `acked_ms`: when somebody read that it is acked."""

    leases: dict[str, Lease] = field(default_factory=dict)
    places: set[Coordinate] = field(default_factory=set)
    acked_ms: int = 0


class HeldJudge:
    """Hears what applications are told (`Told`), and which acks the store decided (`Observer`)."""

    def __init__(self, world: World, lease_ms: int) -> None:
        self.messages: dict[bytes, Seen] = {}
        self.delivered_count = 0
        self._world = world
        self._lease_ms = lease_ms
        self._of: dict[str, bytes] = {}
        self._acked: set[Coordinate] = set()

    def acked(self) -> set[bytes]:
        """Those whose ack counted, told or not."""
        return {
            value
            for value, seen in self.messages.items()
            if seen.acked_ms or seen.places & self._acked
        }

    def delivered(self, by: Process, delivery: Delivery, asked_us: int) -> None:
        """A message under a lease."""
        del asked_us
        value = delivery.record.value or b""
        seen = self.messages.setdefault(value, Seen())
        granted_ms = delivery.deadline_ms - self._lease_ms
        self.delivered_count += 1
        self._of[delivery.lease] = value
        self._world.note("app", "got", value.decode(), delivery.id, delivery.attempt, by.name)
        if seen.acked_ms and granted_ms > seen.acked_ms:
            self._world.fail(f"I2: {value.decode()} was granted again after its ack")
        mine = Lease(delivery.lease, granted_ms, delivery.deadline_ms, by.name)
        for other in seen.leases.values():
            first, then = sorted((other, mine), key=lambda each: each.granted_ms)
            until_ms = min(first.deadline_ms, first.over_ms or first.deadline_ms)
            if other.lease != mine.lease and then.granted_ms < until_ms:
                self._world.fail(
                    f"I3: {value.decode()} granted at {then.granted_ms}, held until {until_ms}"
                )
        seen.leases[delivery.lease] = mine
        seen.places.add(read_token(delivery.lease).coordinate)

    def asked(self, item: SettleItem) -> None:
        """A settle is on its way."""
        lease = self.messages[self._of[item.lease]].leases[item.lease]
        if item.do is not SettleVerb.EXTEND and not lease.over_ms:
            lease.over_ms = self._world.now_us // MS

    def settled(
        self, by: Process, item: SettleItem, result: SettleResult, asked_us: int
    ) -> None:  # fmt: skip
        """An answer was read."""
        del by, asked_us
        value = self._of[item.lease]
        seen = self.messages[value]
        self._world.note("app", "read", value.decode(), item.do, result.status)
        if result.status is Status.INVALID:
            self._world.fail(f"I7: a real token of {value.decode()} is invalid")
        if result.status is Status.EXTENDED and result.deadline_ms is not None:
            lease = seen.leases[item.lease]
            lease.deadline_ms = max(lease.deadline_ms, result.deadline_ms)
        acked = result.status in (Status.ACKED, Status.ALREADY_ACKED)
        if acked and item.do is SettleVerb.ACK and not seen.acked_ms:
            seen.acked_ms = self._world.now_us // MS

    # --- the store's decisions

    def applied(self, by: Process, call: RecordCall, reply: RecordReply) -> None:
        """A call was decided."""
        del by
        for op, result in zip(call.ops, reply.results, strict=False):
            if isinstance(op, Settle) and result.outcome is Outcome.ACKED:
                self._acked.add(Coordinate(call.key.topic_id, call.key.partition, op.offset))

    def opened(self, *_: object) -> None:
        """A record was taken or read again."""

    def value_set(self, *_: object) -> None:
        """A small value was written."""

    def enqueued(self, *_: object) -> None:
        """An outbox has accepted, or not."""


@dataclass(frozen=True, slots=True)
class HeldOutcome:
    """What a run was like."""

    seed: int
    story: str
    digest: str
    delivered: int
    acked: int
    lost: int
    cuts: int
    violation: str | None
    tail: str


class HeldRun:
    """The parts of one run."""

    def __init__(self, seed: int, story: HeldStory, parts: Parts) -> None:
        self.world = World(seed)
        random = self.world.random("plan")
        self.story = story
        self.faults_us = random.randint(8, 30) * S
        self.cluster = HeldCluster(self.world, random.choice([1, 2, 3]), story.loses)
        self.cluster.hold_ms = random.choice([4_000, 15_000])
        self.lease_ms = random.choice([700, 1_500, 3_000, 9_000])
        self.judge = HeldJudge(self.world, self.lease_ms)
        self.server = StoreServer(self.world, self.judge, parts.memory, replicated=False)
        self.broker_faults = BrokerFaults()
        group = Group(self.world, self.cluster, (TOPIC,), 6 * S)
        place = Place(self.world, self.server, self.cluster, group, self.broker_faults, parts)
        self.place = place
        timeout_ms = random.choice([100, 500, 1_500])
        self.sidecars = [
            Sidecar(place, f"s{number}", self._settings(f"s{number}"), timeout_ms)
            for number in range(random.choice([1, 2, 2, 3]))
        ]
        weights = {name: random.choice([0, 1, 4]) for name in ("slow", "retry", "forget", "extend")}
        weights["ack"] = random.choice([3, 10])
        self.apps = [
            App(
                self.world,
                f"app{number}",
                self.sidecars,
                Habits(
                    self.lease_ms,
                    random.choice([1, 5, 40]),
                    random.choice([0, 200, 1_000]),
                    weights,
                    lease_given=True,
                    attempt_ids=False,
                    joined=False,
                ),
                self.judge,
            )
            for number in range(random.choice([1, 2, 4]))
        ]
        count = random.choice([30, 120, 300])
        for _ in range(count):
            at_us = random.randint(0, self.faults_us + SETTLED_US)
            self.world.after(at_us, self.cluster.store)
        self.count = count
        self._nemesis = self.world.random("nemesis")

    def _settings(self, identity: str) -> Settings:
        subscription = SubscriptionSettings(
            broker="broker",
            topics=(TOPIC,),
            group=NAME,
            lease_ms=self.lease_ms,
            attempts_max=10_000,
            filter=self.story.filter,
        )
        return Settings(
            identity=identity,
            store=StoreSettings(url="memory"),
            brokers={"broker": BrokerSettings(adapter="simulated")},
            subscriptions={NAME: subscription},
            publish=PublishSettings(outbox="off"),
        )

    # --- faults

    def _schedule(self) -> None:
        random = self._nemesis
        kinds = [*(self.story.only or KINDS), *self.story.more]
        for kind in kinds:
            sure = self.story.only or kind in self.story.more
            for _ in range(random.randint(1, 3) if sure or random.random() < 0.4 else 0):
                self.world.after(random.randint(500 * MS, self.faults_us), self._act, kind)

    def _act(self, kind: str) -> None:
        random, world = self._nemesis, self.world
        sidecar = random.choice(self.sidecars)
        process = sidecar.process
        for_us = random.randint(100, 4_000) * MS
        world.note("nemesis", kind, sidecar.name)
        match kind:
            case "kill":
                sidecar.kill()
            case "fuse":
                process.loop.on_fuse = sidecar.kill
                process.loop.fuse = random.randint(0, 400)
            case "stop":
                sidecar.stop()
            case "freeze":
                process.freeze()
                world.after(random.randint(200, 25_000) * MS, process.thaw)
            case "net":
                faults = self.server.faults
                faults.request_lost, faults.request_late, faults.answer_lost = 0.05, 0.05, 0.05
                faults.slow, faults.late_us = 0.1, random.choice([0, 15 * S])
                faults.active = True
                world.after(for_us, setattr, faults, "active", False)
            case "store_freeze":
                self.server.freeze(for_us)
            case "apart" if sidecar.store is not None:
                sidecar.store.cut = True
                world.after(for_us, setattr, sidecar.store, "cut", False)
            case "asleep" if isinstance(sidecar.store, HeldStore):
                sidecar.store.places.sleeps_us = random.randint(5, 30) * S
            case _:
                self._act_at_broker(kind, for_us)
        world.after(random.randint(20, 5_000) * MS, sidecar.boot)

    def _act_at_broker(self, kind: str, for_us: int) -> None:
        match kind:
            case "broker_net":
                self.broker_faults.request_lost = self.broker_faults.request_late = 0.1
                self.broker_faults.answer_lost = 0.3
                self.broker_faults.active = True
                self.world.after(for_us, setattr, self.broker_faults, "active", False)
            case "crash":
                self.cluster.crash()
            case "cut":
                self.cluster.cut()
            case "remade":
                self.cluster.cut(whole=True)
            case "reset":
                self.cluster.reset()
            case "clock":
                self.cluster.step_clock()
            case _:
                pass

    # --- the run

    def execute(self) -> None:
        """Run to the end. Raises Violation."""
        world = self.world
        for sidecar in self.sidecars:
            world.after(self._nemesis.randint(0, 2_000) * MS, sidecar.boot)
        self._schedule()
        world.run(START_US + self.faults_us)
        settle_down(self.place)
        for sidecar in self.sidecars:
            sidecar.process.loop.fuse = None
            sidecar.process.thaw()
            if sidecar.store is not None:
                sidecar.store.cut = False
            sidecar.boot()
        for app in self.apps:
            app.calm = True
        world.note("run", "calm")
        world.run(world.now_us + 6 * S + SETTLED_US)  # what was to happen later has happened
        if not world.run(world.now_us + DRAIN_US, self._drained):
            left = sorted(self._left())
            raise Violation(f"I1: {len(left)} of {self.count} are lost: {left[:5]}")
        world.run(world.now_us + QUIET_US)

    def _left(self) -> set[bytes]:
        """What has to come and was not acked."""
        wanted = {
            value
            for value in self.cluster.stored
            if not (self.story.filter and int(value.split()[1]) % 3 == 2)
        }
        return wanted - self.judge.acked() - self.cluster.gone

    def _drained(self) -> bool:
        return not self.world.events % 64 and not self._left()

    def clean_up(self) -> None:
        """Take everything apart, so that the next run starts clean."""
        self.world.clear()
        for sidecar in self.sidecars:
            sidecar.clean_up()
        for app in self.apps:
            app.clean_up()


def simulate_held(
    seed: int, told: str = "plain", *, lines: int = 60, about: str = ""
) -> HeldOutcome:  # fmt: skip
    """One run from a seed, of the story that has this name."""
    story = HELD_STORIES[told]
    parts = PARTS if story.asks else BLIND_PARTS
    with on_virtual_time(), guarded(lambda: HeldRun(seed, story, parts)) as guard:
        guard.run.execute()
    run, violation = guard.run, guard.violation
    return HeldOutcome(
        seed,
        told,
        run.world.digest(),
        run.judge.delivered_count,
        sum(bool(each.acked_ms) for each in run.judge.messages.values()),
        run.cluster.lost,
        run.cluster.cuts,
        violation,
        "" if violation is None and not about else run.world.tail(lines, about),
    )


def main() -> int:
    """Exit code 1 if a seed was found that breaks an invariant."""
    parser = argparse.ArgumentParser(prog="tests.simulation.held_run", description=__doc__)
    parser.add_argument("--story", default="plain", choices=HELD_STORIES)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this seed, with the end of its trace")
    parser.add_argument("--trace", type=int, default=80, help="lines of trace to print")
    parser.add_argument("--about", default="", help="only lines of the trace with this text")
    given = parser.parse_args()
    first, count = (given.first, given.seeds) if given.seed is None else (given.seed, 1)
    about = given.about or (" " if given.seed is not None else "")
    failed = 0
    for seed in range(first, first + count):
        found = simulate_held(seed, given.story, lines=given.trace, about=about)
        failed += found.violation is not None
        if found.tail:
            sys.stdout.write(found.tail + "\n")
        said = found.violation or "no violation"
        sys.stdout.write(
            f"seed {seed}: {said}; {found.delivered} delivered, {found.acked} acked, "
            f"{found.lost} lost by the broker, {found.cuts} cuts, trace {found.digest}\n"
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
