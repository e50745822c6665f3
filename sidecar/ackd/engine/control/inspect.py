"""Shows a subscription's progress, what is in flight, what holds it up and why. Changes nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, is_dataclass
from heapq import nlargest, nsmallest
from typing import Protocol

from ackd.api.messages import Explanation, HeldKey, InFlight, PartitionLag
from ackd.api.messages import HeldPartition as HeldUp
from ackd.core.ledger.entry import Entry, EntryStatus
from ackd.engine.base.context import Context
from ackd.engine.base.spill_file import Held
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.control.control import Control
from ackd.engine.control.stable_offset_lag import StableOffsetLag
from ackd.engine.delivery.dedup import Dedup
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.ownership.ownership import Ownership
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.copier import Copier
from ackd.errors import BrokerError
from ackd.ports import Record

_STATUS_NAMES = {
    EntryStatus.READY: "ready",
    EntryStatus.GRANTING: "ready",
    EntryStatus.LEASED: "leased",
    EntryStatus.WAITING: "retrying",
    EntryStatus.DEAD: "dead",
    EntryStatus.SENDING: "moving",
    EntryStatus.CLAIMING: "waiting_for_lease",
    EntryStatus.EXHAUSTED: "dead",
    EntryStatus.PLACING: "retrying",
}
KEYS_MAX = 20
"""Most keys to name."""
_LEASED = (EntryStatus.LEASED, EntryStatus.CLAIMING)
_IN_FLIGHT = frozenset(_STATUS_NAMES) - {EntryStatus.READY, EntryStatus.GRANTING}


class Inspected(Protocol):
    """The parts of a subscription that the inspector reads."""

    state: SubscriptionState
    context: Context
    partitions: OwnedPartitions
    topics: Topics
    membership: Membership
    control: Control
    ownership: Ownership
    dispatcher: Dispatcher
    stable_offset_lag: StableOffsetLag
    dedup: Dedup | None
    send_back: Copier
    dead_letters: Copier


class Inspector:
    """Shows what the owner knows; of partitions of other sidecars it only names the owner."""

    def __init__(self, subscription: Inspected) -> None:
        self._subscription = subscription
        self._state = subscription.state
        self._partitions = subscription.partitions
        self._topics = subscription.topics
        self._context = subscription.context

    # --- progress

    async def lag(self) -> list[PartitionLag]:
        """Progress of every partition that this sidecar owns, and the owners of the others."""
        rows = []
        for partition in list(self._partitions.owned.values()):
            with suppress(BrokerError):  # the last known end is better than no answer
                _, partition.end = await self._state.consumer.log_range(partition.tp)
            rows.append(self._row(partition))
        return sorted(rows + self._others(), key=lambda row: (row.topic, row.partition))

    def _row(self, partition: Partition) -> PartitionLag:
        ledger = partition.ledger
        statuses = [entry.status for entry in ledger.entries.values()]
        return PartitionLag(
            topic=partition.tp.topic,
            partition=partition.tp.partition,
            owner=self._context.identity,
            end=partition.end,
            committed=partition.committed,
            watermark=ledger.watermark,
            done_above=sum(end - start for start, end in ledger.finished.ranges(ledger.watermark)),
            ready=sum(status in (EntryStatus.READY, EntryStatus.GRANTING) for status in statuses),
            leased=ledger.leased,
            retrying=sum(status is EntryStatus.WAITING for status in statuses),
            oldest_age_ms=self._oldest_age_ms(partition),
        )

    def _oldest_age_ms(self, partition: Partition) -> int | None:
        """Age of the message at the watermark, by its publish time."""
        entry = partition.ledger.entry(partition.ledger.watermark)
        if entry is None or entry.body is None:
            return None
        return max(self._context.clock.wall_ms() - entry.body.timestamp_ms, 0)

    def _others(self) -> list[PartitionLag]:
        names = {i.topic_id.hex(): i.topic for i in self._topics.known.values()}
        rows = []
        for member in self._subscription.membership.view.alive:
            for text in member.owned:
                _, topic_hex, number = text.rsplit(":", 2)
                topic = names.get(topic_hex, topic_hex)
                rows.append(
                    PartitionLag(topic, int(number), member.name, -1, -1, -1, 0, 0, 0, 0, None)
                )
        return rows

    # --- messages

    def in_flight(self, older_ms: int, limit: int) -> list[InFlight]:
        """Messages first delivered at least `older_ms` ago and not finished."""
        now_ms = self._context.clock.wall_ms()
        before_ms = now_ms - older_ms  # with client-set delays, `first_s` may be in the future
        found = [
            (entry.first_s, offset, partition, entry)
            for partition in self._partitions.owned.values()
            for offset, entry in partition.ledger.entries.items()
            if entry.status in _IN_FLIGHT and min(entry.first_s * 1000, now_ms) <= before_ms
        ]
        oldest = nsmallest(limit, found, key=lambda item: (item[0], item[2].tp, item[1]))
        return [self._view(partition, offset, entry) for _, offset, partition, entry in oldest]

    def _view(self, partition: Partition, offset: int, entry: Entry[Held]) -> InFlight:
        subscription = self._subscription
        failed = subscription.send_back.error_of(partition, offset)
        return InFlight(
            id=partition.copies.name_of(offset),
            state=_STATUS_NAMES[entry.status],
            attempt=entry.attempt,
            holder=entry.holder,
            since_ms=entry.first_s * 1000,
            deadline_ms=(entry.when_ms or None) if entry.status in _LEASED else None,
            due_ms=entry.when_ms if entry.status is EntryStatus.WAITING else None,
            error=failed or subscription.dead_letters.error_of(partition, offset) or None,
        )

    # --- explaining

    def explain(self) -> Explanation:
        """What holds each partition's progress, and what limits deliveries now."""
        name = self._state.name
        partitions = [self._held(p) for _, p in sorted(self._partitions.owned.items())]
        dedup = self._subscription.dedup
        repeats = 0 if dedup is None else dedup.repeats
        return Explanation(name, partitions, self._limits(), repeats, self._ordered())

    def _ordered(self) -> list[HeldKey]:
        found = [
            (behind, partition, first)
            for partition in self._partitions.owned.values()
            if partition.ledger.order is not None
            for first, behind in partition.ledger.order.longest(KEYS_MAX)
        ]
        most = nlargest(KEYS_MAX, found, key=lambda each: (each[0], each[1].tp, -each[2]))
        return [held for each in most if (held := self._held_key(*each)) is not None]

    def _held_key(self, behind: int, partition: Partition, first: int) -> HeldKey | None:
        ledger = partition.ledger
        entry, gone = ledger.entry(first), ledger.send_back
        if entry is None:
            return None
        key = entry.body.key if isinstance(entry.body, Record) else None
        return HeldKey(
            head=self._view(partition, first, entry),
            key=None if key is None else key.decode("utf-8", "replace"),
            behind=behind,
            blocked=ledger.holds_copies or gone.key(first) in gone.blocked,
        )

    def _held(self, partition: Partition) -> HeldUp:
        ledger = partition.ledger
        entry = ledger.entry(ledger.watermark)
        head = None if entry is None else self._view(partition, ledger.watermark, entry)
        tp = partition.tp
        how = self._release(partition, entry)
        return HeldUp(tp.topic, tp.partition, ledger.watermark, head, how)

    def _release(self, partition: Partition, entry: Entry[Held] | None) -> str:
        if partition.ledger.dirty:
            return "ackd is reading the record of the partition from the store again"
        if entry is None:
            held = self._subscription.stable_offset_lag.words(partition)
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
        settings = self._state.settings
        if partition.ledger.holds_copies or partition.ledger.send_back.rules is not None:
            return ""
        return "; it does not move to the retry topic: " + (
            "there is no retry topic yet" if settings.retry_topic else "retry_topic is off"
        )

    def _limits(self) -> list[str]:
        subscription = self._subscription
        state = self._state
        health, limits = state.health, []
        if health.superseded:
            limits.append("another process runs under this sidecar's name")
        if not health.store_ok:
            limits.append(f"store away: {health.detail}")
        limits += [f"{t.code}: {t.detail}" for t in state.conditions.values()]
        for pause in subscription.control.pauses():
            until = f"until {pause.until_ms} (Unix ms)" if pause.until_ms else "until resumed"
            limits.append(f"paused ({pause.scope}) {until}: {pause.reason or 'no reason given'}")
        ownership = subscription.ownership
        if growing := ownership.growth.words(list(self._partitions.assigned)):
            limits.append(growing)
        word = subscription.dispatcher.limit()
        if word is not None:
            limits.append(word)
        return limits + self._context.lease_events.reasons(state.name)


def _how(entry: Entry[Held]) -> str:
    """What will move a message on, in words."""
    match entry.status:
        case EntryStatus.LEASED:
            return "an ack, or the end of its lease"
        case EntryStatus.WAITING | EntryStatus.PLACING:
            return "its delay ends, and it is delivered again"
        case EntryStatus.DEAD | EntryStatus.EXHAUSTED:
            return "it is finished when its copy is stored in the dead-letter topic"
        case EntryStatus.SENDING:
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
    """Settings by their key path: `lease_ms`, `push.url`."""
    found: dict[str, object] = {}
    for each in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, each.name)
        path = f"{above}{each.name}"
        found.update(flat(value, f"{path}.") if is_dataclass(value) else {path: value})
    return found
