"""PURE: what the clients' histories prove about single leases: when each one certainly lived.

A client sees two instants of everything that happened inside: when it sent the request and when it
had read the answer. The true instant lies between. So every fact here is an interval, and a word
like "overlap" is only used where *no* choice of true instants could avoid it.

One more fact narrows the interval of a grant. A lease starts when it is handed out, so the deadline
that ackd tells is the instant of the grant plus the lease's length: a long poll of 20 s is known to
the millisecond, by ackd's clock. How far that clock is behind the clients' (or ahead, if negative)
the run itself bounds from both sides: no grant was before its receive was asked, none after its
answer was read. With thousands of deliveries these bounds are about a millisecond apart, and any
distance between them is allowed for (and `SLACK_US`, as ackd tells whole milliseconds). Bounds that
contradict each other say that no constant distance explains the run; everything between them is
allowed for all the same, and `apart_us` tells how much that is. So clocks that are off make the
checker milder, never wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ackd_torture.history import Event, EventKind

SLACK_US = 2_000
ENDINGS = frozenset({"ack", "retry", "dead", "release"})
Key = tuple[str, str]


@dataclass(slots=True)
class SettleTry:
    """One item as sent and answered. `answered_us` None and `status` "" = no answer for sure.

    `deadline_us` is the new deadline of an extend, on the monotonic clock.
    """

    lease: str
    do: str
    client: str
    sent_us: int
    lease_ms: int = 0
    answered_us: int | None = None
    status: str = ""
    late: bool = False
    deadline_us: int = 0


# tidy: long-class attributes=16 -- all that a history says of one delivery
@dataclass(slots=True)
class JudgedDelivery:
    """One message of one answer. The grant happened in [`granted_from_us`, `granted_to_us`]."""

    sub: str
    id: str
    msg: str
    lease: str
    client: str
    attempt: int
    asked_us: int
    received_us: int
    granted_from_us: int
    granted_to_us: int
    deadline_us: int
    key: str = ""
    attempts_max: int = 0
    stated_us: int = 0
    first_of_lease: bool = True
    settles: list[SettleTry] = field(default_factory=list)

    def lives(self, but: SettleTry | None = None) -> list[tuple[int, int]]:
        """Intervals in which this lease certainly lived, as far as its settles (all `but` one) say.

        It lives from its receipt to the deadline told, or to the moment an ending settle is *sent*
        (it may work at once). An extend is certain from its answer on; in between the earlier of
        both deadlines holds. One that was late (`late`) opens a second interval: what was between
        the old deadline and the answer is not known.
        """
        intervals: list[tuple[int, int]] = []
        start, end = self.received_us, self.deadline_us
        for settle in sorted(self.settles, key=lambda each: each.sent_us):
            if settle is but or settle.status == "invalid":
                continue
            if settle.do in ENDINGS:
                end = min(end, settle.sent_us)
                break
            if settle.status == "extended" and settle.answered_us is not None:
                if end < settle.answered_us:
                    intervals.append((start, end))
                    start = settle.answered_us
                end = settle.deadline_us
            elif settle.status == "lost":
                end = min(end, settle.sent_us)
                break
            else:
                # Nobody knows whether it was applied, and an extend may shorten a lease.
                end = min(end, settle.sent_us + settle.lease_ms * 1000)
        intervals.append((start, end))
        return [(start, end) for start, end in intervals if start < end]

    def ended_by_client(self, before_us: int) -> bool:
        """Whether an ending settle, or an extend without an answer, was sent before this time."""
        return any(
            settle.sent_us < before_us and (settle.do in ENDINGS or settle.answered_us is None)
            for settle in self.settles
        )

    def deadline_at_end_us(self) -> int:
        """The last deadline that this lease was told."""
        stated = [each.deadline_us for each in self.settles if each.status == "extended"]
        return max([self.deadline_us, *stated])


@dataclass(slots=True)
class Leases:
    """All deliveries and settles of a run, by message and by lease."""

    by_message: dict[Key, list[JudgedDelivery]] = field(default_factory=lambda: defaultdict(list))
    by_lease: dict[str, JudgedDelivery] = field(default_factory=dict)
    settles: dict[Key, list[SettleTry]] = field(default_factory=lambda: defaultdict(list))
    asks: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    replays: int = 0
    # At least and at most so far is ackd's clock behind the clients'.
    clock_lag_us: tuple[int, int] = (0, 0)

    @property
    def apart_us(self) -> int:
        """How far the clocks were apart for certain, in whichever direction."""
        return max(self.clock_lag_us[0], -self.clock_lag_us[1], 0)


def collect(events: Iterable[Event]) -> Leases:
    """Put the events together (they come in the order of time)."""
    leases = Leases()
    asked: dict[tuple[str, int], int] = {}
    open_settles: dict[tuple[str, int, str, str], SettleTry] = {}
    for event in events:
        match event.kind:
            case EventKind.ASK:
                # A repeat with the same attempt_id has the same call: the grant may be older.
                asked.setdefault((event.client, event.call), event.mono_us)
            case EventKind.ANSWERED:
                begun = asked.get((event.client, event.call), event.mono_us)
                leases.asks[event.sub].append((begun, event.mono_us))
            case EventKind.DELIVERED:
                begun = asked.get((event.client, event.call), event.mono_us)
                _deliver(leases, event, begun)
            case EventKind.SETTLE:
                settle = SettleTry(
                    event.lease, event.do, event.client, event.mono_us, lease_ms=event.lease_ms
                )
                open_settles[event.client, event.call, event.lease, event.do] = settle
                _attach(leases, event, settle)
            case EventKind.SETTLED:
                open_item = open_settles.pop(
                    (event.client, event.call, event.lease, event.do), None
                )
                if open_item is not None:
                    _answer(open_item, event)
            case _:
                pass
    _narrow(leases)
    for deliveries in leases.by_message.values():
        deliveries.sort(key=lambda each: (each.granted_to_us, each.attempt))
    return leases


def _deliver(leases: Leases, event: Event, asked_us: int) -> None:
    deadline_us = event.deadline_ms * 1000 - event.wall_us + event.mono_us
    delivery = JudgedDelivery(
        event.sub,
        event.id,
        event.msg,
        event.lease,
        event.client,
        event.attempt,
        asked_us,
        event.mono_us,
        asked_us,
        event.mono_us,
        deadline_us,
        key=event.key,
        attempts_max=event.attempts_max,
        stated_us=deadline_us - event.lease_ms * 1000 if event.lease_ms else 0,
    )
    if event.lease in leases.by_lease:
        delivery.first_of_lease = False
        leases.replays += 1
    else:
        leases.by_lease[event.lease] = delivery
    leases.by_message[event.sub, event.id].append(delivery)


def _narrow(leases: Leases) -> None:
    """Narrow each grant's interval by the instant told, as far as the clocks allow.

    Deadlines are put on the clients' clock too: the earliest instant that one may have been.
    """
    stated = [each for several in leases.by_message.values() for each in several if each.stated_us]
    stated = [each for each in stated if each.first_of_lease]
    if not stated:
        return
    leases.clock_lag_us = (
        max(each.asked_us - each.stated_us for each in stated),
        min(each.received_us - each.stated_us for each in stated),
    )
    least_us, most_us = sorted(leases.clock_lag_us)
    for each in stated:
        each.granted_from_us = max(each.asked_us, each.stated_us + least_us - SLACK_US)
        each.granted_to_us = min(each.received_us, each.stated_us + most_us + SLACK_US)
    for each in leases.by_lease.values():
        each.deadline_us += least_us
        for settle in each.settles:
            settle.deadline_us += least_us


def _attach(leases: Leases, event: Event, settle: SettleTry) -> None:
    delivery = leases.by_lease.get(event.lease)
    if delivery is not None:
        delivery.settles.append(settle)
        leases.settles[delivery.sub, delivery.id].append(settle)


def _answer(settle: SettleTry, event: Event) -> None:
    if event.status == "unavailable":
        return
    settle.answered_us = event.mono_us
    settle.status = event.status
    settle.late = event.late
    settle.deadline_us = event.deadline_ms * 1000 - event.wall_us + event.mono_us
