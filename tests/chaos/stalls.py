"""For how long nobody got anything although messages were there, read from the histories."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ackd_torture.history import Event, EventKind
from tests.support.starved import Starved


@dataclass(frozen=True, slots=True)
class Flow:
    """What went through between the first fault and the end of the last, in `seconds`.

    `stall_s`: the longest time in which nobody got a message, less what the clients' process
    starved; `stalled_at_s`: when it began, after the first fault.
    """

    seconds: float
    published: int
    delivered: int
    finished: int
    stall_s: float
    stalled_at_s: float


def flow(events: Sequence[Event], starved: Starved | None = None) -> Flow:
    """Judge it. Publishers never pause for long, so messages were always there. `starved`: of the
    process that has most of the clients.
    """
    faults = [each.mono_us for each in events if each.kind in (EventKind.FAULT, EventKind.HEALED)]
    first_us, last_us = min(faults), max(faults)
    during = [each for each in events if first_us <= each.mono_us <= last_us]
    got_us = sorted(each.mono_us for each in during if each.kind is EventKind.DELIVERED)
    stall_s, from_us = _stall([first_us, *got_us, last_us], starved or Starved())
    return Flow(
        seconds=(last_us - first_us) / 1e6,
        published=sum(each.kind is EventKind.PUBLISHED for each in during),
        delivered=len(got_us),
        finished=sum(each.status == "acked" for each in during),
        stall_s=stall_s,
        stalled_at_s=(from_us - first_us) / 1e6,
    )


def _stall(edges_us: Sequence[int], starved: Starved) -> tuple[float, int]:
    """The longest of these gaps, without what of it was starved, and where it begins."""
    stall_s, from_us = 0.0, edges_us[0]
    for gap_us, begin_us in sorted(((b - a, a) for a, b in pairwise(edges_us)), reverse=True):
        if gap_us / 1e6 <= stall_s:
            break
        begin_s, gap_s = begin_us / 1e6, gap_us / 1e6
        gap_s -= starved.within(begin_s, begin_s + gap_s)
        if gap_s > stall_s:
            stall_s, from_us = gap_s, begin_us
    return stall_s, from_us
