"""PURE: reads every client's history and says which promises were broken.

The four words of Jepsen's total-queue checker, for each subscription:

* **lost**: confirmed to its publisher, and never handed out by the end of a drained run;
* **unexpected**: handed out, though nobody ever tried to publish it (or its content changed);
* **duplicated**: the broker holds it more than once (one message under several ids);
* **recovered**: its publisher got no clear answer, and it came all the same.

And the words of ackd's own promise:

* **stranded**: handed out, but at the end of a drained run neither finished nor to be had again;
* **acked_then_redelivered** (I2), **double_leases** (I3), **ended_early** (I4), **false_yes** (I7),
  **out_of_order** (I6, judged in `order`).

When does a delivery count as after the ack? Let the ack be sent at s and answered at t, the receive
be asked at a and read at r; the ack took effect somewhere in [s, t], the grant in [a, r].

1. a > t: certainly after. A violation.
2. r < s: certainly before. That is how every message's life goes: nothing is wrong.
3. Else they overlap, and time alone proves nothing. Two more facts decide. First, the deadline told
   minus the lease's length is the instant of the grant (see `leases`); when that lies behind t it
   is case 1 again: this is a long poll which waited already when the ack was answered. Second, by
   the rules of settling, a lease's ack is `acked` only while the message has not been handed on.
   So when lease L was answered `acked`, no lease with a higher attempt may exist at all: had it
   been granted before the ack took effect, the answer would have been `lost`; granted after it,
   it is a redelivery. Whichever it was, it is a violation, whatever the times. If the newer
   delivery was already *read* when the ack was sent, the wrong part is the answer: it counts as a
   false yes (the message went on, its new holder works on it). Else it counts as a redelivery.
   An answer `already_acked` names no lease, so only times count for it.

The rule about attempts is not used across a loss of the store's data, where counts start again; an
ack answered before the loss was healed is then *excused* when it comes again, and counted apart.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ackd_torture.history import Event, EventKind
from ackd_torture.intervals import first_covered, union
from ackd_torture.leases import SLACK_US, JudgedDelivery, Leases, SettleTry, collect
from ackd_torture.order import inversions, ordering_keys, promised

BROKEN = (
    "lost",
    "stranded",
    "unexpected",
    "acked_then_redelivered",
    "double_leases",
    "ended_early",
    "false_yes",
    "out_of_order",
)
WORDS = (*BROKEN, "duplicated", "recovered", "excused")
ACKED = frozenset({"acked", "already_acked"})
# After a fault is healed, deadlines may be late for a while: the store's grace, a takeover.
CALM_US = 15_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One case of one word, with what a person needs to find it in the histories."""

    word: str
    sub: str
    msg: str
    id: str
    text: str


# tidy: long-class attributes=17 -- the figures of a run, and how they are counted
@dataclass(slots=True)
class Verdict:
    """What the histories prove. `findings` has an entry for every word, empty ones too.

    `acked` counts messages with an ack that was answered so, `acks_unclear` those that have none,
    but one that was sent and never answered: its client was killed, or gave up asking. In a drained
    run in which nothing is stranded, every message is one or the other (or a dead letter).
    """

    attempted: int = 0
    confirmed: int = 0
    unclear: int = 0
    deliveries: int = 0
    delivered: int = 0
    acked: int = 0
    acks_unclear: int = 0
    redelivered: int = 0
    replays: int = 0
    clocks_apart_us: int = 0
    drained: bool = False
    faults: int = 0
    ordering_keys: int = 0
    findings: dict[str, list[Finding]] = field(default_factory=lambda: {word: [] for word in WORDS})
    lateness_us: list[int] = field(default_factory=list)
    lateness_faults_us: list[int] = field(default_factory=list)
    resumed_us: list[tuple[str, int]] = field(default_factory=list)

    @property
    def judged(self) -> bool:
        """Whether there is anything to judge: what was never handed out tests no promise."""
        return self.delivered > 0

    @property
    def broken(self) -> bool:
        """Whether a promise was broken."""
        return any(self.findings[word] for word in BROKEN)

    @property
    def kept(self) -> bool:
        """Whether every promise was kept (and the run was drained, so that loss can be judged)."""
        return self.drained and self.judged and not self.broken

    def count(self, word: str) -> int:
        """How many cases of a word."""
        return len(self.findings[word])


@dataclass(slots=True)
class _PublishedMessages:
    """What publishers know of each message."""

    attempted: set[str] = field(default_factory=set)
    confirmed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unclear: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    # (begin, end) of each loss of the store's data, and of each fault of any kind.
    losses: list[tuple[int, int]] = field(default_factory=list)
    faults: list[tuple[int, int, str]] = field(default_factory=list)


def check(events: Sequence[Event]) -> Verdict:
    """Judge a run. `events` of all histories, by time (`history.load`)."""
    queue = _published(events)
    leases = collect(events)
    verdict = Verdict(
        attempted=len(queue.attempted),
        confirmed=len(queue.confirmed),
        unclear=len(queue.unclear - queue.confirmed.keys()),
        replays=leases.replays,
        clocks_apart_us=leases.apart_us,
        faults=len(queue.faults),
    )
    subs = {sub for sub, _ in leases.by_message} | queue.drained
    verdict.drained = bool(subs) and queue.drained >= subs
    for sub in sorted(subs):
        _total_queue(verdict, queue, leases, sub)
    for (sub, _), deliveries in leases.by_message.items():
        settles = leases.settles.get((sub, deliveries[0].id), [])
        _acked_again(verdict, queue, deliveries, settles)
        _one_holder(verdict, queue, deliveries)
        _early_and_false(verdict, queue, deliveries, settles)
    _in_order(verdict, leases, promised(events))
    _lateness(verdict, queue, leases)
    _resumed(verdict, queue, leases)
    return verdict


def percentile(values: Sequence[int], share: float) -> int:
    """The value below which this share (0..1) of all lies (nearest rank); 0 for none."""
    if not values:
        return 0
    ordered = sorted(values)
    rank = max(0, -(-round(share * 1_000_000) * len(ordered) // 1_000_000) - 1)
    return ordered[min(len(ordered) - 1, rank)]


def _published(events: Iterable[Event]) -> _PublishedMessages:
    queue = _PublishedMessages()
    open_faults: dict[str, tuple[int, EventKind]] = {}
    last_us = 0
    for event in events:
        last_us = event.mono_us
        match event.kind:
            case EventKind.PUBLISH:
                queue.attempted.add(event.msg)
            case EventKind.PUBLISHED:
                queue.confirmed[event.msg].add(event.id)
            case EventKind.PUBLISH_UNKNOWN:
                queue.unclear.add(event.msg)
            case EventKind.DRAINED:
                queue.drained.add(event.sub)
            case EventKind.FAULT | EventKind.DATA_LOST:
                open_faults[event.note] = (event.mono_us, event.kind)
            case EventKind.HEALED if event.note in open_faults:
                begun, kind = open_faults.pop(event.note)
                _fault(queue, kind, begun, event.mono_us, event.note)
            case _:
                pass
    for note, (begun, kind) in open_faults.items():
        _fault(queue, kind, begun, last_us, note)
    queue.faults.sort()
    return queue


def _fault(
    queue: _PublishedMessages, kind: EventKind, begin_us: int, end_us: int, note: str
) -> None:
    queue.faults.append((begin_us, end_us, note))
    if kind is EventKind.DATA_LOST:
        queue.losses.append((begin_us, end_us))


def _total_queue(verdict: Verdict, queue: _PublishedMessages, leases: Leases, sub: str) -> None:
    """Jepsen's words for one subscription."""
    places: dict[str, set[str]] = defaultdict(set)
    for (of_sub, place), deliveries in leases.by_message.items():
        if of_sub != sub:
            continue
        names = {each.msg for each in deliveries}
        for msg in names:
            places[msg].add(place)
        if len(names) > 1:
            text = f"one place, several contents: {sorted(names)[:3]}"
            _add(verdict, "unexpected", deliveries[-1], text)
        _finished(
            verdict, deliveries, leases.settles.get((sub, place), []), drained=sub in queue.drained
        )
    verdict.delivered += len(places)
    for msg, where in places.items():
        first = leases.by_message[sub, min(where)][0]
        if msg not in queue.attempted:
            _add(verdict, "unexpected", first, "never published")
        elif msg not in queue.confirmed:
            _add(verdict, "recovered", first, "its publisher had no clear answer")
        if len(where) > 1:
            _add(verdict, "duplicated", first, f"in several places: {sorted(where)[:3]}")
    if sub in queue.drained:
        for msg in sorted(queue.confirmed.keys() - places.keys()):
            finding = Finding("lost", sub, msg, min(queue.confirmed[msg]), "never delivered")
            verdict.findings["lost"].append(finding)


def _finished(
    verdict: Verdict,
    deliveries: Sequence[JudgedDelivery],
    settles: Sequence[SettleTry],
    *,
    drained: bool,
) -> None:
    """Count what was handed out; in a drained run each message must have come to an end."""
    verdict.deliveries += len(deliveries)
    verdict.redelivered += sum(each.first_of_lease for each in deliveries) - 1
    acked = any(each.status in ACKED for each in settles)
    verdict.acked += acked
    over = acked or any(each.status == "dead" for each in settles)
    if over:
        return
    unclear = {each.do for each in settles if each.answered_us is None}
    verdict.acks_unclear += "ack" in unclear
    if drained and not unclear & {"ack", "dead"}:
        _add(verdict, "stranded", deliveries[-1], f"delivered {len(deliveries)} times")


def _acked_again(
    verdict: Verdict,
    queue: _PublishedMessages,
    deliveries: Sequence[JudgedDelivery],
    settles: Sequence[SettleTry],
) -> None:
    """I2, by the argument at the head of this file."""
    attempts = {each.lease: each.attempt for each in deliveries}
    acks = [each for each in settles if each.answered_us is not None and each.status in ACKED]
    for delivery in deliveries:
        for ack in acks:
            answered_us = ack.answered_us or 0
            if _loss_between(queue, ack.sent_us, delivery.received_us):
                if delivery.granted_from_us > answered_us:
                    _add(verdict, "excused", delivery, f"acked by {ack.client} before the loss")
                    break
                continue
            newer = ack.status == "acked" and delivery.attempt > attempts[ack.lease]
            if delivery.granted_from_us > answered_us or (
                newer and delivery.received_us >= ack.sent_us
            ):
                gap_ms = (delivery.granted_from_us - answered_us) / 1000
                text = (
                    f"attempt {delivery.attempt} to {delivery.client}, {gap_ms:.1f} ms after "
                    f"{ack.client} was answered {ack.status}"
                )
                _add(verdict, "acked_then_redelivered", delivery, text)
                break


def _one_holder(
    verdict: Verdict, queue: _PublishedMessages, deliveries: Sequence[JudgedDelivery]
) -> None:
    """I3: a grant that lies wholly inside the certain life of another lease of the message."""
    firsts = [each for each in deliveries if each.first_of_lease]
    for first in firsts:
        for begin, end in first.lives() if len(firsts) > 1 else []:
            for second in firsts:
                inside = begin <= second.granted_from_us and second.granted_to_us < end
                if second is first or not inside:
                    continue
                if _loss_between(queue, first.received_us, second.received_us):
                    continue
                left_ms = (end - second.granted_to_us) / 1000
                text = (
                    f"to {second.client} (attempt {second.attempt}) while {first.client} (attempt "
                    f"{first.attempt}) held it for another {left_ms:.0f} ms"
                )
                _add(verdict, "double_leases", second, text)


def _early_and_false(
    verdict: Verdict,
    queue: _PublishedMessages,
    deliveries: Sequence[JudgedDelivery],
    settles: Sequence[SettleTry],
) -> None:
    """I4 by `lost` answers, I7 by yes answers that contradict what is known."""
    held = {each.lease: each for each in deliveries if each.first_of_lease}
    for settle in settles:
        if settle.answered_us is None:
            continue
        delivery = held[settle.lease]
        if _loss_between(queue, delivery.received_us, settle.answered_us):
            continue
        if settle.status == "lost":
            for begin, end in delivery.lives(but=settle):
                if begin <= settle.sent_us and settle.answered_us + SLACK_US < end:
                    left_ms = (end - settle.answered_us) / 1000
                    text = f"{settle.do} answered lost, {left_ms:.0f} ms before the deadline told"
                    _add(verdict, "ended_early", delivery, text)
            continue
        # A store that lost its data counts attempts anew: what was there before says nothing.
        known = [e for e in deliveries if not _loss_between(queue, e.received_us, settle.sent_us)]
        if reason := _contradicted(settle, delivery, known, settles):
            text = f"{settle.do} by {settle.client} answered {settle.status}, {reason}"
            _add(verdict, "false_yes", delivery, text)


def _contradicted(
    settle: SettleTry,
    delivery: JudgedDelivery,
    deliveries: Sequence[JudgedDelivery],
    settles: Sequence[SettleTry],
) -> str:
    """Why this yes can't be true, or ""."""
    if settle.status == "already_acked":
        return "" if _perhaps_acked(settle, deliveries, settles) else "but nobody had acked it"
    if settle.status not in {"acked", "extended"}:
        return ""
    for other in deliveries:
        if other.attempt > delivery.attempt and other.received_us < settle.sent_us:
            return f"but {other.client} had already got attempt {other.attempt}"
    for earlier in delivery.settles:
        if earlier.status in {"retrying", "released", "dead"} and (
            (earlier.answered_us or settle.sent_us) < settle.sent_us
        ):
            return f"but this lease was {earlier.status} before"
    return ""


def _perhaps_acked(
    settle: SettleTry, deliveries: Sequence[JudgedDelivery], settles: Sequence[SettleTry]
) -> bool:
    """Whether another ack may have finished the message before this settle was answered: it was
    not refused, and the message was not handed out after its lease.
    """
    attempts = {each.lease: each.attempt for each in deliveries}
    last = max(attempts.values(), default=0)
    return any(
        each.do == "ack"
        and each is not settle
        and each.status != "lost"
        and each.sent_us <= (settle.answered_us or 0)
        and attempts.get(each.lease, last) == last
        for each in settles
    )


def _in_order(verdict: Verdict, leases: Leases, orders: dict[str, str]) -> None:
    """I6, by the argument at the head of `order`."""
    for name, messages in ordering_keys(leases, orders):
        verdict.ordering_keys += 1
        for each in inversions(name, messages, leases):
            _add(verdict, "out_of_order", each.delivery, each.text())


def _lateness(verdict: Verdict, queue: _PublishedMessages, leases: Leases) -> None:
    """How long after a deadline the message was handed out again, while somebody was asking.

    Counted from the deadline, or from the first moment after it at which a receive was open. What
    overlaps a fault, or the calm after one, is kept apart.
    """
    asked = {sub: union(intervals) for sub, intervals in leases.asks.items()}
    calm = union([(begin, end + CALM_US) for begin, end, _ in queue.faults])
    for (sub, _), deliveries in leases.by_message.items():
        firsts = [each for each in deliveries if each.first_of_lease]
        for first, second in itertools.pairwise(firsts):
            deadline_us = first.deadline_at_end_us()
            if first.ended_by_client(second.granted_from_us) or second.attempt <= first.attempt:
                continue
            since = first_covered(asked.get(sub, []), deadline_us)
            if since is None or since > second.granted_to_us:
                continue
            late_us = max(0, second.granted_to_us - since)
            start = first_covered(calm, deadline_us)
            troubled = start is not None and start <= second.granted_to_us
            (verdict.lateness_faults_us if troubled else verdict.lateness_us).append(late_us)


def _resumed(verdict: Verdict, queue: _PublishedMessages, leases: Leases) -> None:
    """For each fault: from its begin to the first message that was handed out after it."""
    granted = sorted(
        each.granted_from_us for several in leases.by_message.values() for each in several
    )
    for begin, _, note in queue.faults:
        at = bisect.bisect_right(granted, begin)
        if at < len(granted):
            verdict.resumed_us.append((note, granted[at] - begin))


def _loss_between(queue: _PublishedMessages, from_us: int, to_us: int) -> bool:
    """Whether the store's data was lost after `from_us` (or the loss was under way) and before."""
    return any(from_us <= end and begin <= to_us for begin, end in queue.losses)


def _add(verdict: Verdict, word: str, delivery: JudgedDelivery, text: str) -> None:
    finding = Finding(word, delivery.sub, delivery.msg, delivery.id, text)
    verdict.findings[word].append(finding)
