"""One run: build the parts from the seed, let faults happen, then calm, drain and judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TypedDict
from unittest.mock import patch

from ackd.config.dedup import DedupSettings
from ackd.config.push import PushSettings
from ackd.config.schema import BrokerSettings, PublishSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.core.commit_metadata import decode
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.ledger import intake
from ackd.ports import Headers
from tests.simulation.apps import App, Habits
from tests.simulation.book import Coordinate, Holding, Place
from tests.simulation.broker import BrokerFaults
from tests.simulation.checker import ATTEMPTS_MAX, Checker
from tests.simulation.coverage import Coverage, Pairs, watched
from tests.simulation.draw import draw
from tests.simulation.faults import TOPIC, Nemesis
from tests.simulation.forgers import Forgers
from tests.simulation.general import calm_but_for_links, repeats_are_kept
from tests.simulation.group import Group
from tests.simulation.guard import guarded
from tests.simulation.handovers import Handovers
from tests.simulation.linked import TRIAL_MS, Bounds
from tests.simulation.log import Cluster
from tests.simulation.outboxes import OUT, PARTITIONS, Deliveries
from tests.simulation.parts import PARTS, Parts
from tests.simulation.peers import Wires
from tests.simulation.plan import ANY, Plan, Story
from tests.simulation.process import Process
from tests.simulation.pushing import ONLY, Pushing
from tests.simulation.redrives import redriven, under_way
from tests.simulation.returns import Returns
from tests.simulation.senders import Sender
from tests.simulation.shares import LATE_US, LINKS, PROMPT_US, Shares
from tests.simulation.sidecar import Place as SidecarPlace
from tests.simulation.sidecar import Sidecar
from tests.simulation.store import StoreServer
from tests.simulation.world import MS, START_US, S, Violation, World

DRAIN_US = 150 * S
NAME = "orders"
LATE_CALL_US = 3 * S
WATCH_US = 100 * MS
QUIET_US = 4 * S
WATCH_TIMES = 13
"""A watermark may stand over finished messages for this many looks; then it is stuck (R16)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run was like. `digest` is equal for equal runs."""

    seed: int
    digest: str
    virtual_ms: int
    events: int
    delivered: int
    acked: int
    violation: str | None
    tail: str
    repeats: int = 0
    redriven: int = 0
    served: dict[str, int] = field(default_factory=dict)
    story: Story = ANY
    coverage: Coverage = field(default_factory=Coverage)

    def summary(self) -> str:
        """In one line."""
        said = self.violation or "no violation"
        return (
            f"seed {self.seed}: {said}; {self.virtual_ms / 1000:.1f} simulated s, "
            f"{self.delivered} delivered, {self.acked} acked, trace {self.digest}"
        )


class Run:
    """The parts of one run."""

    def __init__(self, seed: int, story: Story = ANY, parts: Parts = PARTS) -> None:
        self.world = World(seed)
        self.plan = draw(self.world, story)
        self.cluster = Cluster(self.world)
        self.cluster.on_append = self._appended
        self.cluster.foreign_delays = bool(self.plan.foreign_delays)
        self.cluster.at_once = bool(self.plan.outbox)
        self.cluster.make(TOPIC, self.plan.partitions)
        self.group = Group(self.world, self.cluster, (TOPIC,), self.plan.session_ms * MS)
        self.checker = Checker(self.world, self.cluster)
        self.checker.ordered = self.plan.ordered
        self.checker.attempts_max = self.plan.attempts or ATTEMPTS_MAX
        self.returns = Returns(self.checker, self.plan)
        self.group.on_commit.append(self.checker.committed)
        self.coverage = Coverage()
        self.pairs = Pairs(self.world, self.coverage)
        self.checker.on_verb = self.pairs.decided
        self.forgers = self.checker.forgers = Forgers(
            self.world, self.cluster, lambda: self.server.data
        )
        self.forgers.active = bool(self.plan.forgers)
        self.server = StoreServer(
            self.world, self.checker, parts.memory, replicated=self.plan.replicated
        )
        self.broker_faults = BrokerFaults()
        self._random = self.world.random("traffic")
        self.wires = Wires(self.world) if self.plan.peers else None
        self.shares = Shares(self.world, self.checker.book, self.wires)
        self.shares.strict = self.plan.peers > 1
        if self.shares.strict:
            kinds = {act.kind for act in self.plan.acts}
            self.shares.lies_us = PROMPT_US if kinds == {"nothing"} else LATE_US
            limited = self.plan.rate or self.plan.in_flight or self.plan.breaker
            if limited or not kinds <= {"nothing", "peer_twice", *LINKS}:
                self.shares.lies_us = 0
        self.bounds = Bounds(self.world, self.checker.repeats, self.plan)
        self.bounds.judged = calm_but_for_links(self.plan)
        self.checker.on_grant = self._granted
        self.handovers = Handovers(self.world, self.group)
        self.handovers.strict = {act.kind for act in self.plan.acts} == {"rebalance"}
        self.checker.on_take = self.handovers.taken
        self.shares.on_reached = self.bounds.served
        self.pushing = Pushing(self.world, self.plan, self.checker) if self.plan.push else None
        if self.pushing is not None:
            self.pushing.judge.took = self.shares.took
        place = SidecarPlace(
            self.world, self.server, self.cluster, self.group, self.broker_faults, parts,
            self.wires, self.shares.reached if self.plan.peers else None,
            None if self.pushing is None else self.pushing.wires,
        )  # fmt: skip
        self.sidecars = [
            Sidecar(place, f"s{number}", self._settings(f"s{number}"), self.plan.store_timeout_ms)
            for number in range(self.plan.sidecars)
        ]
        self.apps: list[App] = []
        self.senders: list[Sender] = []
        self._produced = self.redriven = 0

    def _settings(self, identity: str) -> Settings:
        plan = self.plan
        subscription = SubscriptionSettings(
            broker="broker",
            topics=(TOPIC,),
            group=NAME,
            lease_ms=plan.lease_ms,
            start=plan.start,
            buffer_max=plan.buffer_max,
            commit_interval_ms=plan.commit_ms,
            ordering="key" if plan.ordered > 0 else "partition" if plan.ordered else "none",
            retry_topic=plan.stuck_ms > 0,
            retry_topic_partitions=2,
            stuck_after_ms=plan.stuck_ms or 60_000,
            stuck_min_age_ms=plan.stuck_ms or 60_000,
            push=PushSettings() if self.pushing is None else self.pushing.settings,
            dedup=DedupSettings(key="key" if plan.keys else ""),
            **_bounds(plan),
        )
        return Settings(
            identity=identity,
            store=StoreSettings(url="memory", grace_ms=plan.grace_ms, batch_max=plan.batch_max),
            brokers={"broker": BrokerSettings(adapter="simulated")},
            subscriptions={NAME: subscription},
            publish=_publish(plan),
        )

    def _granted(self, at: Coordinate, holding: Holding) -> None:
        self.shares.granted(at, holding)
        self.bounds.granted(at, holding)
        if self.pushing is not None:
            self.pushing.judge.granted(at, holding)

    # --- what faults and checks ask

    def owner_of(self, key: LedgerKey) -> Process | None:
        """The process that owns a record."""
        record = self.server.data.records.get(key)
        for sidecar in self.sidecars:
            subscription = sidecar.runtime and sidecar.runtime._subscriptions.get(NAME)
            if record and subscription and record.owner == subscription.partitions.me.text():
                return sidecar.process
        return None

    def committed_progress(self, tp: TopicPartition) -> tuple[int, set[int]]:
        """The committed position and the offsets in the ranges beside it."""
        committed = self.group.offsets.get(tp)
        if committed is None:
            return 0, set()
        progress = decode(committed.metadata)
        topic_id = self.cluster.topics[tp.topic].topic_id
        if progress is None or not progress.fits(self.cluster.name, topic_id, committed.offset):
            return committed.offset, set()
        return committed.offset, {o for a, b in progress.ranges for o in range(a, b)}

    def remove(self, tp: TopicPartition, offset: int) -> None:
        """Compaction or retention."""
        log = self.cluster.log(tp)
        if offset in log.records:
            self.checker.removed(
                Place(self.cluster.topics[tp.topic].topic_id, tp.partition), offset
            )
            log.compact(offset)

    def _appended(self, tp: TopicPartition, offset: int, value: bytes, headers: Headers) -> None:
        if not self.forgers.appended(tp, offset, headers):
            self.checker.copied(headers, tp, offset)
        if tp.topic == TOPIC:
            self.shares.published(tp.partition, offset)
        if tp.topic == OUT:
            self.checker.deliveries.arrived(tp, offset, value)

    # --- traffic

    def _produce(self, random: Random | None = None) -> None:
        random = random or self._random
        partition = random.randrange(self.plan.partitions)
        keys = max(self.plan.keys, self.plan.ordered)
        key = b"k%d" % random.randrange(keys) if keys > 0 else None
        self.cluster.publish(TOPIC, partition, f"message {self._produced}".encode(), key=key)
        self._produced += 1
        if random.random() < 0.05:
            self.cluster.log(TopicPartition(TOPIC, partition)).skip(1)

    # --- the run

    def execute(self) -> None:
        """Run to the end. Raises Violation."""
        plan, world = self.plan, self.world
        for _ in range(plan.before):
            self._produce()
        for number in range(plan.messages):
            if plan.gap_us:  # no message depends on another one, which may be left out
                random = world.random(f"message/{number}")
                at_us = plan.gap_us * number + random.randint(0, 8 * plan.gap_us)
                world.after(min(at_us, plan.faults_us), self._produce, random)
            else:
                world.after(self._random.randint(0, plan.faults_us), self._produce)
        for sidecar in self.sidecars:
            world.after(self._random.randint(0, 2_000) * MS, sidecar.boot)
        self._employ()
        if plan.outbox:
            self._send(self.checker.deliveries)
        nemesis = Nemesis(self)
        nemesis.schedule()
        world.run(START_US + plan.faults_us)
        nemesis.stop()
        world.note("run", "calm")
        self.shares.calm_us = world.now_us
        self.bounds.calm = True
        self.forgers.active = False
        for app in self.apps:
            app.calm = True
        for sender in self.senders:
            sender.calm = True
        world.after(QUIET_US, self._watch, {})
        self._drain()
        if plan.outbox:  # a late request may have put something in it
            world.run(world.now_us + LATE_CALL_US)
            self._drain()
        self._judge()

    def _employ(self) -> None:
        """Applications that receive, and those that ackd calls."""
        plan = self.plan
        random = self.world.random("habits")
        for number in range(plan.apps if plan.push != ONLY else 0):
            at = self.sidecars
            if plan.wait_ms:  # each at one of its own
                at = [at[number % len(at)]]
            habits = self._habits(random)
            self.apps.append(App(self.world, f"app{number}", at, habits, self.checker))
        if self.pushing is not None:
            self.apps += self.pushing.begin(self.sidecars, self._habits(random))

    def _habits(self, random: Random) -> Habits:
        plan = self.plan
        return Habits(
            lease_ms=plan.lease_ms,
            receive_max=random.choice([1, 5, 20]),
            wait_ms=random.choice([0, 200, 2_000]) if not plan.wait_ms else plan.wait_ms,
            weights=plan.weights,
            lease_given=random.random() < 0.5,
            attempt_ids=random.random() < 0.3 or bool(plan.replays),
            joined=random.random() < 0.3 and not plan.replays,
            loses_answers=bool(plan.replays),
            answers_kept=repeats_are_kept(plan),
        )

    def _send(self, deliveries: Deliveries) -> None:
        """Applications that publish."""
        self.server.faults.late_us = LATE_CALL_US
        self.cluster.make(OUT, PARTITIONS)
        random = self.world.random("senders")
        for number in range(random.choice([1, 2, 4])):
            pause_ms = random.choice([20, 100, 500])
            name = f"sender{number}"
            self.senders.append(Sender(self.world, name, self.sidecars, deliveries, pause_ms))

    def _watch(self, stood: dict[LedgerKey, tuple[int, int]]) -> None:
        """R16, I5: in calm, a watermark that could move does so, whoever served the ack."""
        standing = {}
        for key, record in self.server.data.records.items():
            if key.topic_id == self.cluster.topics[TOPIC].topic_id:
                mark = record.watermark
                if mark in record.finished and self._settled_down(key):
                    before, times = stood.get(key, (mark, 0))
                    standing[key] = (mark, times + 1 if before == mark else 1)
                    if standing[key][1] >= WATCH_TIMES:
                        self.world.fail(
                            f"R16: watermark stands at {key.partition}/{mark}, finished"
                        )
        for outbox in self.server.data.outboxes.values():
            now_ms = max(outbox.clock_ms, (self.world.now_us + self.server.clock_us) // MS)
            calm_us = START_US + self.plan.faults_us
            self.checker.deliveries.late(now_ms, calm_us)
        if self.plan.general:
            self.returns.late(START_US + self.plan.faults_us)
        self.world.after(WATCH_US, self._watch, standing)

    def _settled_down(self, key: LedgerKey) -> bool:
        """Its owner has had the partition, undisturbed, for a while."""
        owner, since_us = self.owner_of(key), self.world.now_us - QUIET_US
        taken_us = self.checker.book.ledger(Place(key.topic_id, key.partition)).taken_us
        quiet = all(each.at_us < since_us for each in self.checker.book.rollbacks)
        calm = bool(owner and owner.undisturbed_since(since_us)) and self._held(key)
        return quiet and taken_us < since_us and calm

    def _held(self, key: LedgerKey) -> bool:
        """Somebody has it now; after a revocation for a dead member nobody has, for a while."""
        return any(
            (key.topic_id, key.partition) in subscription.partitions.by_ledger
            for sidecar in self.sidecars
            if sidecar.runtime is not None and sidecar.process.alive
            for subscription in sidecar.runtime._subscriptions.values()
        )

    def _drain(self) -> None:
        """Let everything come to its end, and some more time pass."""
        world = self.world
        if not world.run(world.now_us + DRAIN_US, self._drained):
            raise Violation(f"I5: not drained after {DRAIN_US // S} s: {self._standing()}")
        world.run(world.now_us + 2 * S)

    def _drained(self) -> bool:
        if self.world.events % 64 or under_way(self.server.data.values):
            return False
        publishing = any(not sender.idle for sender in self.senders)
        boxed = any(outbox.items for outbox in self.server.data.outboxes.values())
        return not (publishing or boxed or self._standing())

    def _standing(self) -> list[str]:
        """Partitions whose progress has not reached their end."""
        standing = []
        read = [self.cluster.topics[name] for name in self.group.topics]
        for topic, number, log in [(t, n, log) for t in read for n, log in enumerate(t.logs)]:
            key = LedgerKey(self.cluster.name, NAME, topic.topic_id, number)
            record = self.server.data.records.get(key)
            tp = TopicPartition(topic.name, number)
            committed = self.group.offsets.get(tp)
            position = -1 if committed is None else committed.offset
            # A record that was lost at rest is missed when there is something to hand out.
            watermark = position if record is None else record.watermark
            if watermark < log.end or position < log.end:
                standing.append(
                    f"{topic.name} {number}: end {log.end} at {watermark} committed {position}"
                )
            elif record is not None and record.blocked:
                standing.append(f"{topic.name} {number}: blocked {record.blocked}")
        return standing

    def _judge(self) -> None:
        """I1: everything that exists was finished. I8: nothing was left behind."""
        for topic in [self.cluster.topics[name] for name in self.group.topics]:
            for number, log in enumerate(topic.logs):
                for offset in log.records:
                    at = Coordinate(topic.topic_id, number, offset)
                    if not self.checker.done(at):
                        raise Violation(f"I1: {topic.name} {number}/{offset} is never finished")
                    message = self.checker.book.message(at)
                    if message.sent and not message.done:
                        raise Violation(f"I1: no copy of {topic.name} {number}/{offset} was kept")
        self.checker.deliveries.judge(self.server.data.outboxes)
        self.redriven = redriven(self.checker.book, self.cluster)
        for sidecar in self.sidecars:
            runtime = sidecar.runtime
            if runtime is None or not sidecar.process.alive:
                continue
            for subscription in runtime._subscriptions.values():
                for partition in subscription.partitions.owned.values():
                    left = len(partition.ledger.entries)
                    if left:
                        raise Violation(f"I8: {left} entries left in {sidecar.name}")

    def clean_up(self) -> None:
        """Take everything apart, so that the next run starts clean."""
        self.world.clear()
        for sidecar in self.sidecars:
            sidecar.clean_up()
        for app in self.apps:
            app.clean_up()
        for sender in self.senders:
            sender.clean_up()


class _BoundSettings(TypedDict, total=False):
    """Those of which the default stands unless a plan has them."""

    rate_per_s: float
    in_flight_max: int
    circuit_breaker_failures: int
    circuit_breaker_trial_ms: int
    attempts_max: int


def _bounds(plan: Plan) -> _BoundSettings:
    settings = _BoundSettings()
    if plan.rate:
        settings["rate_per_s"] = float(plan.rate)
    if plan.attempts:
        settings["attempts_max"] = plan.attempts
    if plan.in_flight:
        settings["in_flight_max"] = plan.in_flight
    if plan.breaker:
        settings["circuit_breaker_failures"] = plan.breaker
        settings["circuit_breaker_trial_ms"] = TRIAL_MS
    return settings


def _publish(plan: Plan) -> PublishSettings:
    if not plan.outbox:
        return PublishSettings(outbox="off")
    return PublishSettings(outbox="when_away", outbox_messages_max=plan.outbox)


def simulate(
    seed: int, story: Story = ANY, *, parts: Parts = PARTS, lines: int = 60, about: str = ""
) -> Outcome:  # fmt: skip
    """One run from a seed. `tail` has the last `lines` of the trace that have `about` in them."""
    with guarded(lambda: Run(seed, story, parts)) as guard:
        skips = patch.object(intake, "SKIP_MIN_OFFSETS", guard.run.plan.skip_min)
        with skips, watched(guard.run.coverage):
            guard.run.execute()
    run, violation = guard.run, guard.violation
    world = run.world
    return Outcome(
        seed=seed,
        digest=world.digest(),
        virtual_ms=world.at_ms,
        events=world.events,
        delivered=run.checker.delivered_count,
        acked=run.checker.acked_count,
        repeats=run.checker.repeats.count,
        redriven=run.redriven,
        served=dict(run.shares.served),
        story=story,
        coverage=run.coverage,
        violation=violation,
        tail="" if violation is None and not about else world.tail(lines, about),
    )
