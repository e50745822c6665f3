"""PURE: messages that were handed out before an earlier one of their key or partition was over.

That is I6. Earlier means a smaller offset of the same partition. A message is over when it is acked
or given up; a client knows when it *sent* the settle that did it, so before that it was certainly
not over. The grant of another one happened at the latest when its answer was read. Hence an
inversion:

    a delivery was granted, at the latest, before anybody had sent the ack (or the `dead`) of an
    earlier message of its ordering key that was answered so, or was never answered.

A settle that was answered `lost` has ended nothing. A message whose attempts are used up is given
up by ackd itself: that may have happened from the end of its last lease on, which its client brings
about or its deadline. So no choice of instants makes a finding right, and every delivery that the
histories can convict is found: whatever was granted while the earlier one was leased, waited for
its retry, or had never been handed out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ackd_torture.history import Event, EventKind
from ackd_torture.leases import JudgedDelivery, Leases, SettleTry

ENDS = frozenset({"ack", "dead"})
YES = frozenset({"acked", "already_acked", "dead", ""})
"""An empty status: it was not answered, so it may have counted."""


@dataclass(frozen=True, slots=True)
class Inversion:
    """`delivery` came although `earlier` was not over."""

    delivery: JudgedDelivery
    earlier: JudgedDelivery
    ordering_key: str

    def text(self) -> str:
        """One line for people: which delivery came before an earlier message was over."""
        one, other = self.delivery, self.earlier
        return (
            f"attempt {one.attempt} to {one.client}, while {other.id} of the same "
            f"{self.ordering_key} (attempt {other.attempt}, {other.client}) was not over"
        )


def promised(events: Iterable[Event]) -> dict[str, str]:
    """What each subscription keeps in order: "key" or "partition"."""
    return {event.sub: event.note for event in events if event.kind is EventKind.ORDERED}


def ordering_keys(
    leases: Leases, orders: Mapping[str, str]
) -> Iterator[tuple[str, list[list[JudgedDelivery]]]]:
    """Each ordering key: what it is, and its messages by offset, with deliveries."""
    found: dict[tuple[str, str, str], list[tuple[int, list[JudgedDelivery]]]] = defaultdict(list)
    for (sub, place), deliveries in leases.by_message.items():
        order = orders.get(sub, "")
        key = deliveries[0].key if order == "key" else ""
        if not order or (order == "key" and not key):
            continue
        partition, _, offset = place.rpartition("/")
        found[sub, partition, key].append((int(offset), deliveries))
    for (sub, partition, key), messages in sorted(found.items()):
        name = f"key {key!r}" if orders[sub] == "key" else f"partition {partition}"
        yield name, [deliveries for _, deliveries in sorted(messages, key=lambda each: each[0])]


def inversions(
    ordering_key: str, messages: Sequence[Sequence[JudgedDelivery]], leases: Leases
) -> Iterator[Inversion]:
    """All of one ordering key; `messages` in the order of offsets."""
    open_until_us, holder = -inf, None
    for deliveries in messages:
        ended = leases.settles.get((deliveries[0].sub, deliveries[0].id), [])
        for delivery in deliveries:
            if holder is None or not delivery.first_of_lease:
                continue
            if delivery.granted_to_us < open_until_us:
                yield Inversion(delivery, _latest(holder, delivery), ordering_key)
        until_us = _over_from_us(deliveries, ended)
        if until_us > open_until_us:
            open_until_us, holder = until_us, deliveries


def _over_from_us(deliveries: Sequence[JudgedDelivery], settles: Sequence[SettleTry]) -> float:
    """Before this instant the message was certainly not over."""
    times: list[float] = [
        each.sent_us for each in settles if each.do in ENDS and each.status in YES
    ]
    for each in deliveries:
        if each.attempts_max and each.attempt >= each.attempts_max:
            times += [settle.sent_us for settle in each.settles]
            times.append(each.deadline_us)
    return min(times, default=inf)


def _latest(deliveries: Sequence[JudgedDelivery], before: JudgedDelivery) -> JudgedDelivery:
    """The delivery that was last when the other one was granted."""
    known = [each for each in deliveries if each.granted_from_us <= before.granted_to_us]
    return (known or list(deliveries))[-1]
