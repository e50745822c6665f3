"""`ackd adopt`: take over a group of plain consumers; `--plan` only shows the plan.

For each partition the plan says where ackd would start and why, which messages it would deliver and
which it never would. The command then creates the records in the store and commits the same
positions with ackd's mark, so that the first sidecar recognizes its own progress instead of an
external commit.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ackd.cli import common
from ackd.cli.offline.parts import Parts, answer, opened
from ackd.config.schema import Settings
from ackd.core.commit_metadata import encode
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.engine.ownership.recover import judge
from ackd.ports import Committed
from ackd.store.survey import FoundKeys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd adopt`."""
    parser.add_argument("subscription", help="name of a subscription in the configuration")
    parser.add_argument("--plan", action="store_true", help="only print what would happen, as JSON")
    common.add_config(parser)


@dataclass(slots=True)
class AdoptedPartition:
    """What would happen to one partition.

    `committed`: the group's position, -1 if it has none. `external`: an external client committed
    it. `record`: the watermark of the store's record, -1 without a record. `start`: the first
    offset that ackd delivers. `to_come` counts the offsets from `start` to the end of the log,
    `passed_over` those in the log before `start`. `acked_above`: ranges [first, end) of `to_come`
    that plain consumers acked one by one, as Pulsar remembers it; ackd takes them over as finished.
    An existing record has `again` of the former as
    finished and `skipped` of the latter as unfinished. `expired` counts offsets that retention
    deleted before the group saw them.
    """

    topic: str
    partition: int
    committed: int
    external: bool
    record: int
    log_start: int
    log_end: int
    start: int
    why: str
    to_come: int = 0
    passed_over: int = 0
    again: int = 0
    skipped: int = 0
    expired: int = 0
    acked_above: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """The command's answer. `blocked` says why the group can't be adopted now; empty if it can."""

    subscription: str
    group: str
    members: list[str]
    sidecars: list[str]
    external_commit: str
    partitions: list[AdoptedPartition] = field(default_factory=list)
    blocked: str = ""
    adopted: bool = False


def run(arguments: argparse.Namespace) -> int:
    """Print the plan and, without `--plan`, adopt the group; 2 when something blocks that."""

    async def work(settings: Settings) -> Plan:
        async with opened(settings, arguments.subscription) as parts:
            return await adopt(parts, do=not arguments.plan)

    return answer(arguments, work, lambda plan: plan.adopted or arguments.plan)


async def adopt(parts: Parts, *, do: bool) -> Plan:
    """Make the plan; with `do`, carry it out if nothing blocks it. Raises StoreError,
    BrokerError.
    """
    plan = Plan(
        parts.name,
        parts.group,
        await parts.members(),
        await parts.sidecars(),
        parts.settings.external_commit,
    )
    wanted = parts.partitions()
    committed = await parts.consumer.committed([tp for tp, _ in wanted])
    new = all(each.offset < 0 for each in committed.values())
    acked: Mapping[TopicPartition, Sequence[tuple[int, int]]] = {}
    if parts.single_acks is not None:
        acked = await parts.single_acks.acks_above(parts.group, [tp for tp, _ in wanted])
    for tp, key in wanted:
        place = await _place(parts, tp, key, committed[tp], new=new)
        if not place.external and judge(key, committed[tp]).ours is None:
            place.acked_above = [each for each in acked.get(tp, ()) if each[0] >= place.start]
        plan.partitions.append(place)
    plan.blocked = _blocked(parts, plan)
    if do and not plan.blocked:
        await _do(parts, plan, wanted, committed)
        plan.adopted = True
    return plan


def _blocked(parts: Parts, plan: Plan) -> str:
    if plan.sidecars:
        return f"sidecars have this subscription already: {', '.join(plan.sidecars)}"
    if parts.groups is None:
        return "this kind of broker can't move a group from outside; start the sidecar instead"
    if plan.members:
        return f"the group has members, stop them first: {', '.join(plan.members)}"
    if not plan.partitions:
        return "the broker has none of its topics"
    return ""


async def _place(
    parts: Parts, tp: TopicPartition, key: LedgerKey, committed: Committed, *, new: bool
) -> AdoptedPartition:
    first, end = await parts.consumer.log_range(tp)
    found = judge(key, committed)
    record = parts.records.get(key)
    watermark = -1 if record is None else record.watermark
    start, why = await _start(parts, tp, found.committed.offset, first, end, new=new)
    external = found.external and watermark not in (-1, committed.offset)
    if external:
        if parts.settings.external_commit == "refuse":
            start, why = watermark, "the store's record; the strange commit is undone"
        else:
            start, why = committed.offset, "a strange commit moves the group, as a reset does"
    elif record is not None:
        start, why = watermark, "the store's record"
    place = AdoptedPartition(
        topic=tp.topic,
        partition=tp.partition,
        committed=found.committed.offset,
        external=external,
        record=watermark,
        log_start=first,
        log_end=end,
        start=start,
        why=why,
    )
    place.to_come = end - max(start, first)
    place.passed_over = max(min(start, end) - first, 0)
    place.expired = max(first - start, 0)
    if external:
        place.again = max(watermark - start, 0)
        place.skipped = max(start - watermark, 0)
    return place


async def _start(
    parts: Parts,
    tp: TopicPartition,
    committed: int,
    first: int,
    end: int,
    *,
    new: bool,
) -> tuple[int, str]:
    """The first offset to deliver in a partition without a record, and the reason for it."""
    settings = parts.settings
    if committed >= 0:
        return committed, "what the group committed"
    if not new:
        return first, "the group has no position here: new to it, so from the beginning"
    if settings.start == "timestamp" and settings.start_timestamp_ms is not None:
        at = await parts.consumer.offset_at(tp, settings.start_timestamp_ms)
        return at, "start = timestamp"
    return (end, "start = latest") if settings.start == "latest" else (first, "start = earliest")


async def _do(
    parts: Parts,
    plan: Plan,
    wanted: list[tuple[TopicPartition, LedgerKey]],
    committed: dict[TopicPartition, Committed],
) -> None:
    """Create the records, then commit: sidecars read a marked commit without a record as lost
    store data.
    """
    positions = {}
    for place, (tp, key) in zip(plan.partitions, wanted, strict=True):
        if judge(key, committed[tp]).ours is not None:
            continue  # ackd's own commit: the sidecar skips the finished ranges in its metadata
        record: FoundKeys | None = parts.records.get(key)
        snapshot = await parts.open(key, place.start if record is None else None)
        if place.acked_above:
            await parts.finish(key, place.acked_above)
        if record is not None:
            continue  # the sidecar compares record and commit when it starts, as the plan says
        chars = parts.broker.capabilities.commit_metadata_chars
        mark = encode(
            key.cluster,
            key.topic_id,
            snapshot.epoch,
            place.start,
            snapshot.version,
            place.acked_above,
            chars,
        )
        positions[tp] = Committed(place.start, mark)
    if parts.groups is not None:
        await parts.groups.move_group(parts.group, positions)
