"""What goes wrong, and when: the acts of a plan, done to the parts of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ackd.api.control import CancelTo, Scope
from ackd.api.dead_letters import DeadRequest, Kind
from ackd.api.progress import Position, SeekRequest, SeekTo
from ackd.core.commit_metadata import encode
from ackd.core.ids import TopicPartition, message_id
from ackd.engine.runtime import Runtime
from ackd.ports import Committed
from tests.simulation.book import Place, Rollback
from tests.simulation.cancels import chosen
from tests.simulation.general import LINKS, PUSH
from tests.simulation.peers import Wires
from tests.simulation.plan import Act
from tests.simulation.sidecar import Sidecar
from tests.simulation.world import MS, S

if TYPE_CHECKING:
    from tests.simulation.run import Run

TOPIC = "orders"


class Nemesis:
    """Does the acts. Everything it breaks it also mends, at the latest at `stop`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._world = run.world
        self._random = run.world.random("nemesis")
        self._stopped = False
        self._held: set[str] = set()

    def schedule(self) -> None:
        """Plan the acts."""
        for act in self._run.plan.acts:
            self._world.after(act.at_us, self._act, act)

    def _act(self, act: Act) -> None:
        if self._stopped:
            return
        if self._run.plan.general:  # what it does depends on no other fault that may be left out
            self._random = self._world.random(f"act/{act.number}")
        pushing = self._run.pushing
        if (act.kind in LINKS and self._run.wires is None) or (act.kind in PUSH and not pushing):
            return
        self._run.pairs.began(act.kind)
        if act.kind in PUSH and pushing is not None:
            pushing.fault(act.kind, self._random)
            return
        do: Callable[[], None] = getattr(self, f"_{act.kind}")
        do()

    def stop(self) -> None:
        """No more faults; everything comes up."""
        run = self._run
        self._stopped = True
        run.server.faults.active = run.broker_faults.active = False
        run.cluster.up = True
        run.server.frozen_until_us = 0
        if run.wires is not None:
            run.wires.mend()
        if run.pushing is not None:
            run.pushing.mend()
        if not run.server.up:
            run.server.start(0)
        for sidecar in run.sidecars:
            self._held.discard(sidecar.name)
            sidecar.process.loop.fuse = None
            sidecar.process.thaw()
            if sidecar.store is not None:
                sidecar.store.cut = False
            sidecar.boot()

    # --- sidecars

    def _sidecar(self) -> Sidecar:
        return self._random.choice(self._run.sidecars)

    def _boot_later(self, sidecar: Sidecar, most_ms: int = 4_000, drain_ms: int = 0) -> None:
        after_ms = drain_ms + self._random.randint(20, most_ms)
        self._world.after(after_ms * MS, self._boot, sidecar)

    def _boot(self, sidecar: Sidecar) -> None:
        if sidecar.name not in self._held:
            sidecar.boot()

    def _kill(self) -> None:
        sidecar = self._sidecar()
        sidecar.kill()
        self._boot_later(sidecar)

    def _fuse(self) -> None:
        """Dies in mid-action, between any two steps of its loop."""
        sidecar = self._sidecar()
        sidecar.process.loop.fuse = self._random.randint(0, 400)

        def fused() -> None:
            sidecar.kill()
            self._boot_later(sidecar)

        sidecar.process.loop.on_fuse = fused

    def _stop(self) -> None:
        sidecar = self._sidecar()
        drain_ms = self._run.plan.drain_ms
        sidecar.stop(drain_ms)
        self._boot_later(sidecar, 8_000, drain_ms)

    def _freeze(self) -> None:
        """A zombie: everybody else goes on meanwhile."""
        process = self._sidecar().process
        process.freeze()
        self._world.after(self._random.randint(200, 12_000) * MS, process.thaw)

    def _cut(self) -> None:
        """One sidecar can't reach the store."""
        sidecar = self._sidecar()
        store = sidecar.store
        if store is not None:
            store.cut = True
            sidecar.process.disturb()
            self._world.after(self._random.randint(100, 5_000) * MS, setattr, store, "cut", False)

    def _app(self) -> None:
        self._random.choice(self._run.apps).restart()

    def _change(self) -> None:
        """Somebody pauses, bounds or changes the lease time at one of the sidecars."""
        random, lease_ms = self._random, self._run.plan.lease_ms
        scope: Scope = random.choice(["pod", "group"])
        for_ms, pause = random.randint(50, 3_000), random.random() < 0.5
        rate, burst = random.randint(20, 200), random.randint(1, 20)
        choices: list[dict[str, object]] = [
            {"rate_per_s": rate, "rate_burst": burst},
            {"rate_per_s": None, "in_flight_max": None},
            {"in_flight_max": random.randint(10, 40)},
            {"lease_ms": lease_ms * 2},
        ]
        changes = random.choice(choices)

        async def change(runtime: Runtime) -> None:
            (name,) = runtime.settings.subscriptions
            if pause:
                await runtime.pause(name, scope, "", for_ms)
            else:
                await runtime.configure(name, changes)

        self._sidecar().request(change, lambda *_: None)

    def _seek(self) -> None:
        """Somebody moves the group: pauses it, asks for a seek, resumes it whenever."""
        random, run = self._random, self._run
        positions = []
        for number in range(run.plan.partitions):
            log = run.cluster.log(TopicPartition(TOPIC, number))
            if random.random() < 0.8:
                positions.append(Position(TOPIC, number, random.randint(log.start, log.end)))
        request = SeekRequest(SeekTo.POSITIONS, positions=tuple(positions))

        async def seek(runtime: Runtime) -> None:
            (name,) = runtime.settings.subscriptions
            await runtime.pause(name, "group", "seek", random.randint(500, 8_000))
            if positions:
                await runtime.progress.seek(name, request)

        async def resume(runtime: Runtime) -> None:
            (name,) = runtime.settings.subscriptions
            await runtime.resume(name, "group")

        self._sidecar().request(seek, lambda *_: None)

        def later() -> None:
            self._sidecar().request(resume, lambda *_: None)

        self._world.after(random.randint(50, 4_000) * MS, later)

    def _redrive(self) -> None:
        """Somebody puts dead letters back to the group."""
        request = DeadRequest(Kind.REDRIVE, max=self._random.choice([None, None, 1, 5]))

        async def redrive(runtime: Runtime) -> None:
            (name,) = runtime.settings.subscriptions
            await runtime.dead.begin(name, replace(request, confirm=name))

        self._sidecar().request(redrive, lambda *_: None)

    def _cancel(self) -> None:
        """Somebody ends a message that is in flight, and hears what became of it."""
        run = self._run
        topic = run.cluster.topics[TOPIC]
        at = chosen(run.checker.book, topic.topic_id, self._random)
        if at is None:
            return
        then: CancelTo = self._random.choice(["ack", "dead"])
        run.checker.book.message(at).cancelled.add(then)
        self._world.note("operator", f"cancel {at.partition}/{at.offset}", then)

        async def cancel(runtime: Runtime) -> str:
            (name,) = runtime.settings.subscriptions
            message = message_id(TOPIC, at.partition, at.offset)
            return (await runtime.cancel(name, message, then, "")).done

        def told(result: object, error: Exception | None) -> None:
            if error is None:
                run.checker.cancelled(at, str(result))

        self._sidecar().request(cancel, told)

    def _broker_fatal(self) -> None:
        """One sidecar's client can't go on; another one is made."""
        broker = self._sidecar().broker
        if broker is not None and broker.consumers:
            broker.consumers[-1].fail()

    # --- links between sidecars

    def _wires(self) -> Wires:
        wires = self._run.wires
        assert wires is not None
        wires.fault()
        return wires

    def _nothing(self) -> None:
        """All goes well."""

    def _peer_cut(self) -> None:
        """A connection breaks with all that is on it; the ends hear of it one after the other."""
        wires, random = self._wires(), self._random
        for wire in wires.open_wires():
            if random.random() < 0.6:
                wire.break_off(random.randint(0, 1_400) * MS for _ in wire.ends)

    def _peer_slow(self) -> None:
        """Frames come late for a while."""
        wires, random = self._wires(), self._random
        wires.latency_us = (50, random.choice([20, 200, 1_200]) * MS)
        self._mend_later(random.randint(200, 3_000))

    def _peer_deaf(self) -> None:
        """Nothing reaches one sidecar, though the others hear it."""
        wires = self._wires()
        wires.deaf.add(self._sidecar().name)
        self._mend_later(self._random.randint(500, 3_000))

    def _peer_refuse(self) -> None:
        """New connections often fail, and the old ones break."""
        wires = self._wires()
        wires.refused = self._random.choice([0.5, 1.0])
        self._peer_cut()
        self._mend_later(self._random.randint(200, 2_000))

    def _peer_twice(self) -> None:
        """Frames come again for a while, some of them out of order."""
        self._wires().twice = self._random.choice([0.2, 0.6, 1.0])
        self._mend_later(self._random.randint(500, 4_000))

    def _mend_later(self, after_ms: int) -> None:
        def mend() -> None:
            self._wires().mend()

        self._world.after(after_ms * MS, mend)

    # --- store

    def _lost(self) -> int:
        return self._random.choice([0, 0, 1, 2, 5, 20, 60])

    def _store_restart(self) -> None:
        server = self._run.server
        if server.up:
            server.restart()
            delay_us = self._random.randint(50, 3_000) * MS
            self._world.after(delay_us, self._come_up, self._lost())

    def _come_up(self, lost: int) -> None:
        if not self._run.server.up:
            self._roll_back(lost, silent=False)

    def _store_failover(self) -> None:
        if self._run.server.up:
            self._run.server.clock_us += self._random.choice([0, 0, -3 * S, 40 * MS])
            self._roll_back(self._lost(), silent=False)

    def _store_silent(self) -> None:
        if self._run.server.up:
            self._roll_back(self._lost(), silent=True)

    def _roll_back(self, lost: int, *, silent: bool) -> None:
        run, now_us = self._run, self._world.now_us
        before = list(run.server.data.records)
        run.checker.book.failovers += 1
        from_us = run.server.start(lost, silent=silent)
        if from_us is None:
            return
        run.checker.book.rollbacks.append(Rollback(from_us, now_us, silent))
        for key in before:
            if key not in run.server.data.records:
                place = Place(key.topic_id, key.partition)
                run.checker.book.ledger(place).gone_us.append(now_us)

    def _store_freeze(self) -> None:
        self._run.server.freeze(self._random.randint(50, 4_000) * MS)

    def _clock(self) -> None:
        step_us = self._random.choice([-20 * S, -2 * S, 300 * MS, 2 * S, 20 * S])
        self._run.checker.jumped_ms += max(step_us // MS, 0)
        self._run.server.step_clock(step_us)

    def _flush(self) -> None:
        run = self._run
        book = run.checker.book
        for number in range(run.plan.partitions):
            tp = TopicPartition(TOPIC, number)
            place = Place(run.cluster.topics[TOPIC].topic_id, number)
            base, ranges = run.committed_progress(tp)
            book.ledger(place).losses.append((base, ranges, self._world.now_us))
        book.flushed_us.append(self._world.now_us)
        run.server.flush()

    def _evict(self) -> None:
        run = self._run
        evicted = run.server.evict(self._random)
        if evicted is not None:
            key, index = evicted
            place = Place(key.topic_id, key.partition)
            owner = run.owner_of(key)
            run.checker.book.evicted[place, index] = (self._world.now_us, owner)

    def _copy_keys(self) -> None:
        """The keys of copies are evicted, and nothing else."""
        self._run.server.lose_values("copy-keys:")
        self._run.checker.book.copy_keys_lost = True

    def _net(self) -> None:
        faults, random = self._run.server.faults, self._random
        faults.request_lost = random.choice([0, 0.02, 0.1])
        faults.request_late = random.choice([0, 0.02, 0.1])
        faults.answer_lost = random.choice([0, 0.02, 0.1])
        faults.slow = random.choice([0, 0.05, 0.3])
        faults.active = True
        self._world.after(random.randint(200, 4_000) * MS, setattr, faults, "active", False)

    # --- broker

    def _broker_net(self) -> None:
        faults, random = self._run.broker_faults, self._random
        faults.request_lost = random.choice([0, 0.1, 0.3])
        faults.request_late = random.choice([0, 0.1, 0.3])
        faults.answer_lost = random.choice([0, 0.1, 0.3])
        faults.active = True
        self._world.after(random.randint(200, 6_000) * MS, setattr, faults, "active", False)

    def _broker_down(self) -> None:
        cluster = self._run.cluster
        self._world.note("broker", "down")
        cluster.up = False
        self._world.after(self._random.randint(200, 4_000) * MS, setattr, cluster, "up", True)

    def _rebalance(self) -> None:
        self._run.group.shuffle()

    def _remake(self) -> None:
        run = self._run
        known = any(ledger.start >= 0 for ledger in run.checker.book.ledgers.values())
        run.checker.book.retired.add(run.cluster.topics[TOPIC].topic_id)
        topic = run.cluster.remake(TOPIC)
        for number in range(run.plan.partitions if known else 0):
            run.checker.book.ledger(Place(topic.topic_id, number)).start = 0

    def _outgrow(self) -> None:
        """Made again with a log that is longer than the old one at once (R1)."""
        run = self._run
        ends = [log.end for log in run.cluster.topics[TOPIC].logs]
        self._remake()
        for number, end in enumerate(ends):
            for _ in range(end + self._random.randint(1, 20)):
                run.cluster.publish(TOPIC, number, b"of the longer topic")

    def _reset(self) -> None:
        """An operator stops everything, waits for the sessions to end, and sets a position."""
        self._operator(self._plain)

    def _reset_frozen(self) -> None:
        """The same, but he freezes them until their sessions have ended, and they go on."""
        self._operator(self._plain, frozen=True)

    def _copied(self) -> None:
        """Metadata of another cluster, beside a translated offset (R8-S2)."""
        self._operator(self._mirrored)

    def _operator(
        self, metadata: Callable[[TopicPartition, int], str], *, frozen: bool = False
    ) -> None:
        run = self._run
        for sidecar in run.sidecars:
            if frozen:
                sidecar.process.freeze()
            else:
                self._held.add(sidecar.name)
                sidecar.kill()

        def commit() -> None:
            if self._stopped or run.group.members:
                return
            tp = TopicPartition(TOPIC, self._random.randrange(run.plan.partitions))
            log = run.cluster.log(tp)
            position = self._random.randint(log.start, log.end)
            committed = Committed(position, metadata(tp, position))
            run.group.commit(None, None, {tp: committed})

        def go_on() -> None:
            for sidecar in run.sidecars:
                self._held.discard(sidecar.name)
                if frozen:
                    sidecar.process.thaw()
                else:
                    self._boot_later(sidecar, 1_000)

        wait_us = run.group.session_us + 1_000 * MS
        self._world.after(wait_us, commit)
        self._world.after(wait_us + 1, go_on)

    def _plain(self, tp: TopicPartition, position: int) -> str:
        del tp, position
        return ""

    def _mirrored(self, tp: TopicPartition, position: int) -> str:
        """Ranges that would mean other messages here."""
        cluster = self._run.cluster
        identity = cluster.topics[tp.topic].topic_id
        ranges = [(position + 1, position + 50)]
        if self._random.random() < 0.5:
            return encode("another", identity, 0, position, 1, ranges, 4_095)
        ranges = [(position + 8, position + 50)]
        return encode(cluster.name, identity, 0, position + 7, 1, ranges, 4_095)

    # --- logs

    def _log(self) -> TopicPartition:
        return TopicPartition(TOPIC, self._random.randrange(self._run.plan.partitions))

    def _compact(self) -> None:
        tp = self._log()
        log = self._run.cluster.log(tp)
        for offset in list(log.records)[:-1]:
            if self._random.random() < 0.3:
                self._run.remove(tp, offset)
        log.skip(self._random.randint(0, 3))

    def _retain(self) -> None:
        tp = self._log()
        log = self._run.cluster.log(tp)
        if log.end:
            start = self._random.randint(log.start, log.end)
            for offset in [each for each in log.records if each < start]:
                self._run.remove(tp, offset)
            log.retain(start)
