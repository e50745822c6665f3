"""Mistakes of push: when ackd calls applications, and what it makes of their answers.

Each is in `inside`: no part of the simulator stands between the pusher and what it decides.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.general import PUSH
from tests.simulation.mutant import Mutant
from tests.simulation.plan import Story
from tests.simulation.world import S

CALLED: Final = Story(
    (*PUSH, *PUSH),
    (("general", 1), ("push", 2), ("lease_ms", 700), ("faults_us", 14 * S), ("ordered", 0),
     ("rate", 0), ("breaker", 0), ("in_flight", 0), ("stuck_ms", 0)),
)  # fmt: skip
"""Applications answer late, not at all, or ask for pauses; nothing else goes wrong."""

MUTANTS = (
    Mutant("a pause holds nobody back", "I8", story=CALLED),
    Mutant("nobody is away", "I8", story=CALLED),
    Mutant("the breaker opens after the settle", "I8", story=CALLED),
    Mutant("who is back gets as many calls as before", "I8", story=CALLED),
    Mutant("a call keeps no lease", "I4", story=CALLED),
    Mutant("what an application refuses is done", "I4", story=CALLED),
    Mutant("a call without an answer is done", "I4", story=CALLED),
)
