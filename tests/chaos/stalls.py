"""For how long nobody got anything although messages were there, read from the histories."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ackd_torture.history import Event, EventKind


@dataclass(frozen=True, slots=True)
class Flow:
    """What went through between the first fault and the end of the last, in `seconds`.

    `stall_s`: the longest time in which nobody got a message; `stalled_at_s`: when it began, after
    the first fault.
    """

    seconds: float
    published: int
    delivered: int
    finished: int
    stall_s: float
    stalled_at_s: float


def flow(events: Sequence[Event]) -> Flow:
    """Judge it. Publishers never pause for long, so messages were always there."""
    faults = [each.mono_us for each in events if each.kind in (EventKind.FAULT, EventKind.HEALED)]
    first_us, last_us = min(faults), max(faults)
    during = [each for each in events if first_us <= each.mono_us <= last_us]
    got_us = sorted(each.mono_us for each in during if each.kind is EventKind.DELIVERED)
    edges = [first_us, *got_us, last_us]
    gap_us, from_us = max((b - a, a) for a, b in pairwise(edges))
    return Flow(
        seconds=(last_us - first_us) / 1e6,
        published=sum(each.kind is EventKind.PUBLISHED for each in during),
        delivered=len(got_us),
        finished=sum(each.status == "acked" for each in during),
        stall_s=gap_us / 1e6,
        stalled_at_s=(from_us - first_us) / 1e6,
    )
