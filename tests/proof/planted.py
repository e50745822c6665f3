"""Faults that are planted in a recorded history, as if ackd had made them.

Each function changes one message's story in a copy of the events; None where the story gives no
occasion. What it plants is certain: no choice of instants makes it right.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ackd_torture.history import Event, EventKind

Plant = Callable[["Story"], "list[Event] | None"]
GAP_US = 20_000
"""A lease must have lived at least so long for a second holder to be certain beside it."""
_PUBLISHING = frozenset(
    {
        EventKind.PUBLISH,
        EventKind.PUBLISHED,
        EventKind.PUBLISH_REFUSED,
        EventKind.PUBLISH_UNKNOWN,
    }
)
_SETTLING = frozenset({EventKind.SETTLE, EventKind.SETTLED, EventKind.SETTLE_UNKNOWN})


def slices(events: Sequence[Event], count: int) -> list[list[Event]]:
    """A history as several: each has its share of the messages, and all faults and ends."""
    names = {each.lease: each.msg for each in events if each.kind is EventKind.DELIVERED}
    order = {each.msg: None for each in events if each.kind is EventKind.PUBLISH}
    share = {name: number % count for number, name in enumerate(order)}
    asking: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for each in events:
        if each.kind is EventKind.DELIVERED:
            asking[each.client, each.call].add(share[each.msg])
    found: list[list[Event]] = [[] for _ in range(count)]
    for each in events:
        for number in _whose(each, share, names, asking, count):
            found[number].append(each)
    return found


def _whose(
    each: Event,
    share: Mapping[str, int],
    names: Mapping[str, str],
    asking: Mapping[tuple[str, int], set[int]],
    count: int,
) -> Iterable[int]:
    if each.kind in _PUBLISHING or each.kind is EventKind.DELIVERED:
        return [share[each.msg]]
    if each.kind in _SETTLING or each.kind is EventKind.FORGOT:
        return [share[names[each.lease]]]
    if each.kind in {EventKind.ASK, EventKind.ANSWERED}:
        return asking.get((each.client, each.call), ())
    return range(count)


class Story:
    """One history and a message of it, `delivery` being its last delivery."""

    def __init__(self, events: Sequence[Event], delivery: Event) -> None:
        self.events = list(events)
        self.delivery = delivery
        self.settled = [
            each
            for each in events
            if each.kind is EventKind.SETTLED and each.lease == delivery.lease
        ]

    @property
    def ack(self) -> Event | None:
        """The answer `acked` to this lease, if no other settle came before."""
        yes = len(self.settled) == 1 and self.settled[0].status == "acked"
        return self.settled[0] if yes else None

    def sent(self, answer: Event) -> Event:
        """The settle that was answered so."""
        return next(
            each
            for each in self.events
            if each.kind is EventKind.SETTLE
            and (each.client, each.call, each.lease) == (answer.client, answer.call, answer.lease)
        )

    def without(self, *kinds: EventKind) -> list[Event]:
        """All but these events of the message."""
        name = self.delivery.msg
        leases = {each.lease for each in self.events if each.msg == name} - {""}

        def its(each: Event) -> bool:
            return each.msg == name or each.lease in leases

        return [each for each in self.events if each.kind not in kinds or not its(each)]

    def delivered_again(self, at_us: int) -> list[Event]:
        """Another lease of the message, granted at this instant and heard within two ms."""
        first, lease = self.delivery, f"{self.delivery.lease}-planted"
        wall_us = at_us - first.mono_us + first.wall_us
        again = msgspec.structs.replace(
            first,
            client="planted",
            call=1,
            lease=lease,
            attempt=first.attempt + 1,
            deadline_ms=wall_us // 1000 + first.lease_ms,
        )
        times = (
            (EventKind.ASK, at_us - 1_000),
            (EventKind.DELIVERED, at_us + 1_000),
            (EventKind.ANSWERED, at_us + 1_001),
        )
        added = [
            msgspec.structs.replace(
                again, kind=kind, mono_us=us, wall_us=us - first.mono_us + first.wall_us, count=1
            )
            for kind, us in times
        ]
        return _sorted([*self.events, *added])


def _sorted(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda each: each.mono_us)


def lost(story: Story) -> list[Event] | None:
    """The message never came."""
    confirmed = any(
        each.kind is EventKind.PUBLISHED and each.msg == story.delivery.msg for each in story.events
    )
    gone = (EventKind.DELIVERED, EventKind.FORGOT, *_SETTLING)
    return story.without(*gone) if confirmed else None


def stranded(story: Story) -> list[Event] | None:
    """It came, and nobody ever finished it."""
    return story.without(*_SETTLING)


def unexpected(story: Story) -> list[Event] | None:
    """It came with a content that nobody published."""
    other = msgspec.structs.replace(story.delivery, msg="nobody's")
    return [other if each is story.delivery else each for each in story.events]


def redelivered(story: Story) -> list[Event] | None:
    """It came again after its ack was answered."""
    return None if story.ack is None else story.delivered_again(story.ack.mono_us + GAP_US)


def held_twice(story: Story) -> list[Event] | None:
    """Somebody else got it while its holder had it."""
    if story.ack is None:
        return None
    begin_us, end_us = story.delivery.mono_us, story.sent(story.ack).mono_us
    if end_us - begin_us < GAP_US:
        return None
    return story.delivered_again((begin_us + end_us) // 2)


def ended_early(story: Story) -> list[Event] | None:
    """Its ack was answered `lost` long before the deadline."""
    if story.ack is None or story.ack.mono_us - story.delivery.mono_us > GAP_US * 10:
        return None
    no = msgspec.structs.replace(story.ack, status="lost")
    return [no if each is story.ack else each for each in story.events]


def false_yes(story: Story) -> list[Event] | None:
    """Its only ack was answered `already_acked`."""
    if story.ack is None:
        return None
    yes = msgspec.structs.replace(story.ack, status="already_acked")
    return [yes if each is story.ack else each for each in story.events]


def acked_after_retry(story: Story) -> list[Event] | None:
    """A lease that was given back was acked all the same."""
    given = next((e for e in story.settled if e.status in {"retrying", "released"}), None)
    if given is None:
        return None
    sent = msgspec.structs.replace(
        given,
        kind=EventKind.SETTLE,
        client="planted",
        call=2,
        do="ack",
        status="",
        mono_us=given.mono_us + 100,
    )
    yes = msgspec.structs.replace(
        sent, kind=EventKind.SETTLED, status="acked", mono_us=given.mono_us + 200
    )
    return _sorted([*story.events, sent, yes])


def excused(story: Story) -> list[Event] | None:
    """No fault: it came again after its ack, but the store had lost its data meanwhile."""
    if story.ack is None:
        return None
    at_us = story.ack.mono_us + GAP_US // 2
    loss = msgspec.structs.replace(
        story.ack, kind=EventKind.DATA_LOST, client="planted", mono_us=at_us, note="planted"
    )
    healed = msgspec.structs.replace(loss, kind=EventKind.HEALED, mono_us=at_us + 10)
    events = story.delivered_again(story.ack.mono_us + GAP_US)
    last = max(each.mono_us for each in events if each.client == "planted")
    lease = f"{story.delivery.lease}-planted"
    sent = msgspec.structs.replace(
        story.ack, kind=EventKind.SETTLE, status="", lease=lease, client="planted", mono_us=last + 9
    )
    yes = msgspec.structs.replace(
        story.ack, lease=lease, client="planted", mono_us=last + 99, status="acked"
    )
    return _sorted([*events, loss, healed, sent, yes])


FAULTS: tuple[Plant, ...] = (
    lost,
    stranded,
    unexpected,
    redelivered,
    held_twice,
    ended_early,
    false_yes,
    acked_after_retry,
)


def plant(events: Sequence[Event], fault: Plant, rng: random.Random) -> list[Event] | None:
    """The same history with one fault in it; None if no message gives the occasion."""
    last = {each.msg: each for each in events if each.kind is EventKind.DELIVERED}
    if fault is acked_after_retry:  # the lease that was given back is not the last one
        last = {each.lease: each for each in events if each.kind is EventKind.DELIVERED}
    deliveries = list(last.values())
    rng.shuffle(deliveries)
    changed = (fault(Story(events, each)) for each in deliveries)
    return next((each for each in changed if each is not None), None)
