"""Runs of the simulator, followed by the model.

`python -m tests.proof.traces 100 200` checks the runs of these seeds in each story, and prints what
the model does not allow.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from typing import Any

from ackd.api.messages import Delivery, SettleItem, SettleResult
from ackd.core.ids import TopicPartition
from ackd.core.record.protocol import RecordCall, RecordReply
from ackd.ports import Headers
from ackd.store.memory import MemoryStore
from tests.proof import tlc
from tests.proof.events import Trace, module, tla
from tests.proof.recorder import Before, Recorder
from tests.simulation.draw import draw
from tests.simulation.parts import PARTS, Parts
from tests.simulation.plan import Story
from tests.simulation.process import Process
from tests.simulation.run import Run
from tests.simulation.world import MS, Violation, World

_SHORT = (("partitions", 1), ("messages", 4), ("before", 0), ("apps", 2), ("lease_ms", 700))
_STUCK = (*_SHORT, ("stuck_ms", 700), ("faults_us", 4_000 * MS))
OWNERS = Story(
    ("kill", "net", "rebalance", "freeze", "cut"), (*_SHORT, ("faults_us", 3_000 * MS)), "slow"
)
"""Owners die, freeze and are cut off; calls are lost or come late."""
MOVES = Story(("kill", "net", "rebalance", "broker_net"), _STUCK, "slow")
"""Messages move to the retry topic meanwhile."""
RESTARTS = Story(("store_restart", "net", "kill"), (*_SHORT, ("faults_us", 4_000 * MS)), "slow")
"""The store forgets its last calls."""
ALL = Story(("store_restart", "net", "kill", "rebalance"), _STUCK, "slow")
"""It does so while messages move to the retry topic."""
STORIES = (OWNERS, MOVES, RESTARTS, ALL)
MESSAGES_MAX, COPIES_MAX = 8, 12
"""As many as `trace.cfg` has."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What the model says of traces. `refused`: those that it does not allow, with the place."""

    traces: int
    events: int
    states: int
    depth: int
    refused: tuple[tuple[Trace, int], ...]

    def lines(self) -> list[str]:
        """For each trace that was refused its last events."""
        said = []
        for trace, at in self.refused:
            said.append(f"seed {trace.seed}: event {at + 1} of {len(trace.events)} is refused:")
            said += [f"    {tla(event)}" for event in trace.events[max(at - 6, 0) : at + 1]]
        return said


class _Enough(BaseException):
    """The faults are over."""


def _stop() -> None:
    raise _Enough


def record(seed: int, story: Story, parts: Parts = PARTS) -> Trace | None:
    """What a run does until its faults are over. None: it is of another kind, or too long."""
    if draw(World(seed), story).start != "earliest":
        return None
    watching: list[Recorder] = []
    run = Run(seed, story, _watched(parts, watching))
    recorder = Recorder(run)
    watching.append(recorder)
    run.server.observer = recorder
    run.group.on_commit.append(recorder.committed)
    _watch(run, recorder)
    with suppress(Violation, _Enough):
        run.world.after(run.plan.faults_us, _stop)
        run.execute()
    run.clean_up()
    if recorder.words.messages > MESSAGES_MAX or len(recorder.words.places) > COPIES_MAX:
        return None
    return recorder.trace()


def traces(story: Story, many: int, first: int = 0, parts: Parts = PARTS) -> list[Trace]:
    """The traces of so many runs."""
    found = (record(seed, story, parts) for seed in count(first))
    return list(islice((trace for trace in found if trace is not None), many))


def follow(found: Sequence[Trace], seconds: float) -> Followed:
    """Ask TLC which of them the model allows, all at once."""
    said = tlc.run("trace.cfg", "Trace.tla", {"Traces.tla": module(found)}, seconds)
    states = re.search(r"(\d+) states generated, (\d+) distinct states found, 0 states left", said)
    depth = re.search(r"depth of the complete state graph search is (\d+)", said)
    if "No error has been found" not in said or states is None or depth is None:
        raise tlc.ModelError(said[-5_000:])
    reached = [0] * len(found)
    for which, at in re.findall(r'<<"followed", (\d+), (\d+)>>', said):
        reached[int(which) - 1] = max(reached[int(which) - 1], int(at))
    pairs = zip(found, reached, strict=True)
    refused = tuple((trace, at) for trace, at in pairs if at < len(trace.events))
    events = sum(len(trace.events) for trace in found)
    return Followed(len(found), events, int(states[2]), int(depth[1]), refused)


def _killed(watching: Sequence[Recorder], name: str) -> None:
    for each in watching:
        each.killed(name)


def _watched(parts: Parts, watching: list[Recorder]) -> Parts:
    """The same parts, and somebody looks on."""

    class Memory(parts.memory):  # type: ignore[misc, name-defined]  # of any class
        def _apply(self, call: RecordCall) -> RecordReply:
            for each in watching:
                if not each.run.server._replay_us:
                    each.befores.append(Before.of(self.data.records.get(call.key)))
            reply: RecordReply = super()._apply(call)
            return reply

    class Way(parts.store):  # type: ignore[misc, name-defined]  # of any class
        def __init__(self, server: Any, process: Process, timeout_ms: int) -> None:
            super().__init__(server, process, timeout_ms)
            process.on_kill.append(partial(_killed, watching, process.name))

        async def _call(self, work: Any, seen: Any = None) -> Any:
            result = await super()._call(work, seen)
            for each in watching:
                each.heard(result)
            return result

    assert issubclass(Memory, MemoryStore)
    return replace(parts, memory=Memory, store=Way)


def _watch(run: Run, recorder: Recorder) -> None:
    """Hear of what is not said to the store's observer."""
    appended, start = run.cluster.on_append, run.server.start
    settled, delivered = run.checker.settled, run.checker.delivered
    assert appended is not None
    tell = appended

    def on_append(tp: TopicPartition, offset: int, value: bytes, headers: Headers) -> None:
        recorder.appended(tp, offset, headers)
        tell(tp, offset, value, headers)

    def on_start(lost: int, *, silent: bool = False) -> int | None:
        from_us = start(lost, silent=silent)
        recorder.started(run.server.writes)
        return from_us

    def on_settled(by: Process, item: SettleItem, result: SettleResult, asked_us: int) -> None:
        recorder.read(item, result)
        settled(by, item, result, asked_us)

    def on_delivered(by: Process, delivery: Delivery, asked_us: int) -> None:
        recorder.delivered_to(delivery)
        delivered(by, delivery, asked_us)

    run.cluster.on_append = on_append
    run.server.start = on_start  # type: ignore[method-assign]
    run.checker.settled = on_settled  # type: ignore[method-assign]
    run.checker.delivered = on_delivered  # type: ignore[method-assign]


def _main(first: int, end: int) -> bool:
    every: list[Trace] = []
    for story in STORIES:
        found = (record(seed, story) for seed in range(first, end))
        every += [trace for trace in found if trace is not None]
    followed = follow(every, 3_600)
    lines = followed.lines()
    lines.append(
        f"{followed.traces} traces, {followed.events} events, {followed.states} states, "
        f"depth {followed.depth}: {len(followed.refused)} refused"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return bool(followed.refused)


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), int(sys.argv[2])))
