"""Shows what is in flight of a subscription, what holds it up and why. Changes no message."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from heapq import nlargest, nsmallest
from operator import itemgetter
from typing import NamedTuple

from ackd.api.messages import Explanation, HeldKey, InFlight
from ackd.api.messages import HeldPartition as HeldUp
from ackd.core.ids import TopicPartition, message_id, message_place
from ackd.core.ledger.entry import Entry, EntryStatus
from ackd.engine.base.context import Context
from ackd.engine.base.spill_file import Held, Stub
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.control.delivery_limits import DeliveryLimits
from ackd.engine.control.reported import Reported, Shown
from ackd.engine.control.stable_offset_lag import StableOffsetLag
from ackd.engine.delivery.dedup import Dedup
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.copier import Copier
from ackd.engine.retry.own_topic import RetryTopic
from ackd.ports import Record

_STATUS_NAMES = {
    EntryStatus.READY: "ready",
    EntryStatus.GRANTING: "ready",
    EntryStatus.LEASED: "leased",
    EntryStatus.WAITING: "retrying",
    EntryStatus.DEAD: "dead",
    EntryStatus.MOVING: "moving",
    EntryStatus.CLAIMING: "waiting_for_lease",
    EntryStatus.EXHAUSTED: "dead",
    EntryStatus.PLACING: "retrying",
}
JOURNALS_MS = 1_000
"""A store that takes longer to tell the newest settles is not waited for."""
NEVER_S = 1 << 40
"""Stands for the first delivery of a message that was never delivered: after all others."""
KEYS_MAX = 20
"""Most keys to name."""
_LEASED = (EntryStatus.LEASED, EntryStatus.CLAIMING)
_IN_FLIGHT = frozenset(_STATUS_NAMES) - {EntryStatus.READY, EntryStatus.GRANTING}


class Place(NamedTuple):
    """Where a message stands in a list of all: by its first delivery (s), then by its id. So it
    keeps its place when it moves to the retry topic.
    """

    first_s: int
    topic: str
    partition: int
    offset: int


class Listed(NamedTuple):
    """An unfinished message in a list."""

    place: Place
    view: InFlight


class SeenMessage(NamedTuple):
    """A message at the sidecar that grants its leases, and what it waits for. `copy`: the id of the
    retry copy that it is in.
    """

    view: InFlight
    released_by: str
    copy: str = ""


class Inspector:
    """Shows what the owner of partitions knows of their messages."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        send_back: Copier,
        dead_letters: Copier,
        stable_offset_lag: StableOffsetLag,
        dedup: Dedup | None,
        limits: DeliveryLimits,
        retry_topic: RetryTopic,
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._send_back = send_back
        self._dead_letters = dead_letters
        self._stable_offset_lag = stable_offset_lag
        self._dedup = dedup
        self._limits = limits
        self._retry_topic = retry_topic
        self._reported = Reported(context)

    # --- messages

    async def in_flight(self, older_ms: int, limit: int) -> list[InFlight]:
        """Messages first delivered at least `older_ms` ago and not finished."""
        await self._read_journals()
        now_ms = self._context.clock.wall_ms()
        before_ms = now_ms - older_ms  # with client-set delays, `first_s` may be in the future
        found = [
            (entry.first_s, offset, partition, entry)
            for partition in self._partitions.owned.values()
            for offset, entry in partition.ledger.entries.items()
            if entry.status in _IN_FLIGHT and min(entry.first_s * 1000, now_ms) <= before_ms
        ]
        oldest = nsmallest(limit, found, key=lambda item: (item[0], item[2].tp, item[1]))
        shown = [self._show(partition, offset, entry) for _, offset, partition, entry in oldest]
        await self._reported.fill(shown)
        return [each.view for each in shown]

    async def listed(self, states: frozenset[str], after: Place | None, limit: int) -> list[Listed]:
        """Unfinished messages in these states that were fetched or delivered, in their order."""
        await self._read_journals()
        wanted = frozenset(status for status, name in _STATUS_NAMES.items() if name in states)
        found = [
            (_place(partition, offset, entry), partition, offset, entry)
            for partition in self._partitions.owned.values()
            for offset, entry in partition.ledger.entries.items()
            if entry.status in wanted
        ]
        if after is not None:
            found = [each for each in found if each[0] > after]
        first = nsmallest(limit, found, key=itemgetter(0))
        shown = [self._show(partition, offset, entry) for _, partition, offset, entry in first]
        await self._reported.fill(shown)
        return [Listed(each[0], one.view) for each, one in zip(first, shown, strict=True)]

    async def held(self, name: str) -> list[SeenMessage]:
        """The message with this id where it is unfinished here: in its own partition, and as a
        retry copy.
        """
        await self._read_journals()
        found = list(self._named(*message_place(name), name))
        shown = [self._show(*each) for each in found]
        await self._reported.fill(shown)
        views = [each.view for each in shown]
        return [
            SeenMessage(view, f"{_how(each[2])}{self._at_head(*each)}", _copy(each[0], each[1]))
            for view, each in zip(views, found, strict=True)
        ]

    async def _read_journals(self) -> None:
        """Learn of settles at other sidecars up to now, so that whoever got the answer of one sees
        it here. Else that takes as long as `DeadlineTimers` wait between two looks. Without the
        store, what is known is shown.
        """
        owned = [each for each in self._partitions.all() if each.ledger.entries]
        asked = [each.flush() for each in owned if not each.ledger.dirty]
        journals = asyncio.gather(*asked, return_exceptions=True)
        # What is not answered in time stays queued: upkeep goes with it.
        await asyncio.wait([journals], timeout=JOURNALS_MS / 1000)

    def _named(
        self, tp: TopicPartition, offset: int, name: str
    ) -> Iterator[tuple[Partition, int, Entry[Held]]]:
        partition = self._partitions.owned.get(tp)
        entry = None if partition is None else partition.ledger.entry(offset)
        if partition is not None and entry is not None:
            yield partition, offset, entry
        for copies in self._partitions.all():
            if copies.ledger.holds_copies and copies is not partition:
                for at, each in copies.ledger.entries.items():
                    if copies.copies.name_of(at) == name:
                        yield copies, at, each

    def _at_head(self, partition: Partition, offset: int, entry: Entry[Held]) -> str:
        """What else moves a message that holds its partition's progress."""
        return "" if offset != partition.ledger.watermark else self._sent_back(partition, entry)

    def _show(self, partition: Partition, offset: int, entry: Entry[Held]) -> Shown:
        """What this sidecar knows itself; `Reported` completes it."""
        failed = self._send_back.error_of(partition, offset)
        view = InFlight(
            id=partition.copies.name_of(offset),
            state=_STATUS_NAMES[entry.status],
            attempt=entry.attempt,
            holder="",
            since_ms=entry.first_s * 1000,
            deadline_ms=(entry.when_ms or None) if entry.status in _LEASED else None,
            due_ms=entry.when_ms if entry.status is EntryStatus.WAITING else None,
            error=failed or self._dead_letters.error_of(partition, offset) or None,
            published_ms=_published_ms(partition, entry),
        )
        return Shown(partition, offset, entry, view)

    # --- explaining

    async def explain(self) -> Explanation:
        """What holds each partition's progress, and what limits deliveries now."""
        await self._read_journals()
        shown: list[Shown] = []
        partitions = [self._held(p, shown) for _, p in sorted(self._partitions.owned.items())]
        ordered = self._ordered(shown)
        limits, repeats = self._limits.words(), 0 if self._dedup is None else self._dedup.repeats
        await self._reported.fill(shown)
        return Explanation(self._state.name, partitions, limits, repeats, ordered)

    def _ordered(self, shown: list[Shown]) -> list[HeldKey]:
        found = [
            (waiting, partition, first)
            for partition in self._partitions.owned.values()
            if partition.ledger.order is not None
            for first, waiting in partition.ledger.order.most_waiting(KEYS_MAX)
        ]
        most = nlargest(KEYS_MAX, found, key=lambda each: (each[0], each[1].tp, -each[2]))
        return [held for each in most if (held := self._held_key(*each, shown)) is not None]

    def _held_key(
        self, waiting: int, partition: Partition, first: int, shown: list[Shown]
    ) -> HeldKey | None:
        ledger = partition.ledger
        entry, gone = ledger.entry(first), ledger.send_back
        if entry is None:
            return None
        key = entry.body.key if isinstance(entry.body, Record) else None
        shown.append(self._show(partition, first, entry))
        return HeldKey(
            head=shown[-1].view,
            key=None if key is None else key.decode("utf-8", "replace"),
            waiting=waiting,
            blocked=ledger.holds_copies or gone.key(first) in gone.blocked,
        )

    def _held(self, partition: Partition, shown: list[Shown]) -> HeldUp:
        ledger, head = partition.ledger, None
        entry = ledger.entry(ledger.watermark)
        if entry is not None:
            shown.append(self._show(partition, ledger.watermark, entry))
            head = shown[-1].view
        tp = partition.tp
        how = self._release(partition, entry)
        return HeldUp(tp.topic, tp.partition, ledger.watermark, head, how)

    def _release(self, partition: Partition, entry: Entry[Held] | None) -> str:
        if partition.ledger.dirty:
            return "ackd is reading the record of the partition from the store again"
        if entry is None:
            held = self._stable_offset_lag.words(partition)
            return held or "nothing holds it: everything fetched so far is finished"
        return f"{_how(entry)}{self._sent_back(partition, entry)}"

    def _sent_back(self, partition: Partition, entry: Entry[Held]) -> str:
        """When the message that holds the watermark moves to the retry topic, whatever happens to
        its lease.
        """
        if entry.status is not EntryStatus.LEASED and entry.status is not EntryStatus.WAITING:
            return ""
        in_ms = partition.ledger.send_back.head_left_ms(self._context.clock.monotonic_ms())
        if in_ms is not None:
            return f"; otherwise it moves to the retry topic in {in_ms / 1000:.0f} s"
        if partition.ledger.holds_copies or partition.ledger.send_back.rules is not None:
            return ""
        return f"; it does not move to the retry topic: {self._retry_topic.unused}"


def _published_ms(partition: Partition, entry: Entry[Held]) -> int | None:
    """When the message was published, as far as its body tells that the owner has."""
    body = entry.body
    if isinstance(body, Stub):
        return body.published_ms or None
    if not isinstance(body, Record):
        return None
    retry_copy = partition.copies.retry_copy(body)
    return (body.timestamp_ms if retry_copy is None else retry_copy.published_ms) or None


def _copy(partition: Partition, offset: int) -> str:
    return message_id(*partition.tp, offset) if partition.ledger.holds_copies else ""


def _place(partition: Partition, offset: int, entry: Entry[Held]) -> Place:
    first_s = entry.first_s or NEVER_S
    if not partition.ledger.holds_copies:
        return Place(first_s, *partition.tp, offset)
    origin, origin_offset = message_place(partition.copies.name_of(offset))
    return Place(first_s, *origin, origin_offset)


def _how(entry: Entry[Held]) -> str:
    """Say in words what will make a message go on."""
    match entry.status:
        case EntryStatus.LEASED:
            return "an ack, or the end of its lease"
        case EntryStatus.WAITING | EntryStatus.PLACING:
            return "its delay ends, and it is delivered again"
        case EntryStatus.DEAD | EntryStatus.EXHAUSTED:
            return "it is finished when its copy is stored in the dead-letter topic"
        case EntryStatus.MOVING:
            return "it is finished when its copy is stored in the retry topic"
        case EntryStatus.CLAIMING:
            return "its earlier lease ends: with an ack it is finished, without one it is delivered"
        case EntryStatus.READY | EntryStatus.GRANTING:
            return (
                "the next receive gets it"
                if entry.body is not None
                else "ackd fetches it from the broker again, then the next receive gets it"
            )


def flat(settings: object, above: str = "") -> dict[str, object]:
    """Return settings by their key path: `lease_ms`, `push.url`."""
    found: dict[str, object] = {}
    for each in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, each.name)
        path = f"{above}{each.name}"
        found.update(flat(value, f"{path}.") if is_dataclass(value) else {path: value})
    return found
