"""The model allows what runs of the simulator do, and not what they do with planted mistakes."""

from collections import Counter
from unittest.mock import patch

import pytest

from ackd.core.record import transitions
from tests.proof.events import Trace, tla
from tests.proof.tlc import missing
from tests.proof.traces import OWNERS, RESTARTS, STORIES, follow, record, traces
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import Story
from tests.support.require import require

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SECONDS = 540
EACH = 60
"""Runs of each story."""

EVENTS = {
    *("call", "refused", "unheard", "leave", "take", "reread", "copies opened", "hear", "grant"),
    *("settle", "move", "publish", "finish", "bury", "claim", "place", "copy ended", "advance"),
    *("commit", "hole", "repair", "repaired", "kept", "clock", "kill", "behind", "failover"),
    *("told", "delivered", "state", "copy state"),
}
REPAIRS = {"ack", "finished", "moved"}

MISTAKES = {
    "the watermark passes over a gap": (OWNERS, 104),
    "any token of a message counts": (OWNERS, 42),
    "an unknown outcome is a yes": (RESTARTS, 7),
    "an ack is answered before the store": (RESTARTS, 11),
}
"""Mistakes of the simulator, with a run that shows each."""


def test_the_model_allows_what_the_simulator_does() -> None:
    """Some hundred short runs, event by event; each kind of event is among them."""
    require(missing())
    found = [trace for story in STORIES for trace in traces(story, EACH)]
    followed = follow(found, SECONDS)
    assert not followed.refused, "\n".join(followed.lines())
    events = [event for trace in found for event in trace.events]
    kinds = Counter(event["do"] for event in events)
    assert set(kinds) >= EVENTS, kinds
    assert {event["what"] for event in events if event["do"] == "repair"} >= REPAIRS
    assert followed.states == len(events) + len(found), "each event is one state"


def trace_with(mutant: Mutant, story: Story, seed: int) -> Trace:
    """A run with a mistake that the simulator plants."""
    with patch.dict(transitions.TABLE, mutant.rows):
        found = record(seed, story, mutant.parts)
    assert found is not None
    return found


def test_the_model_does_not_allow_a_planted_mistake() -> None:
    """And allows the same run without it."""
    require(missing())
    mutants = {mutant.name: mutant for mutant in MUTANTS}
    wrong = [trace_with(mutants[name], *where) for name, where in MISTAKES.items()]
    right = [record(seed, story) for story, seed in MISTAKES.values()]
    followed = follow([*wrong, *(trace for trace in right if trace is not None)], SECONDS)
    assert followed.traces == 2 * len(MISTAKES)
    assert [trace for trace, _ in followed.refused] == wrong, "\n".join(followed.lines())


CHANGED = ("GRANTED", "ACKED", "RETRYING", "RELEASED", "DEAD")


def test_a_trace_that_was_changed_is_refused() -> None:
    """Each event that writes left out; each outcome and each watermark another one."""
    require(missing())
    [trace] = traces(OWNERS, 1, first=13)
    changed = []
    for at, event in enumerate(trace.events):
        before, after = trace.events[:at], trace.events[at + 1 :]
        if event["do"] == "take" or event.get("out") in CHANGED:
            changed.append((event, (*before, *after)))
        if event["do"] in ("grant", "settle"):
            other = "LOST" if event["out"] != "LOST" else "ACKED"
            changed.append((event, (*before, {**event, "out": other}, *after)))
        if event["do"] == "state":
            changed.append((event, (*before, {**event, "wm": event["wm"] + 1}, *after)))
    runs = [Trace(number, trace.holes, events) for number, (_, events) in enumerate(changed)]
    refused = {each.seed for each, _ in follow(runs, SECONDS).refused}
    missed = [tla(event) for number, (event, _) in enumerate(changed) if number not in refused]
    assert len(changed) > 20
    assert missed == []
