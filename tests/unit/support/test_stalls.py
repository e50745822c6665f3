"""The judge of stalls: what is no fault of the sidecars does not count, and all else does."""

import pytest

from ackd_torture.history import Event, EventKind
from tests.chaos.stalls import flow
from tests.support.starved import Starved


def at(second: float, kind: EventKind) -> Event:
    return Event(kind=kind, client="c", mono_us=round(second * 1e6), wall_us=0)


@pytest.mark.parametrize(
    ("starved", "stall_s", "from_s"),
    [
        ([], 5.0, 1.0),
        ([(2.0, 2.5)], 4.5, 1.0),
        ([(0.0, 1.5), (2.0, 5.5)], 2.5, 6.0),  # then another gap is the longest one
    ],
)
def test_a_stall_is_the_longest_gap_less_what_the_clients_starved(
    starved: list[tuple[float, float]], stall_s: float, from_s: float
) -> None:
    came = [at(second, EventKind.DELIVERED) for second in (0.5, 1.0, 6.0, 8.5, 10.0)]
    faults = [at(0.0, EventKind.FAULT), at(10.0, EventKind.HEALED)]
    seen = flow([*came, *faults], Starved(starved))
    assert (seen.stall_s, seen.stalled_at_s) == (stall_s, from_s)
