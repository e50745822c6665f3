"""`ackd release-group`: hand a group back to plain consumers, and list what they will see twice.

A plain consumer keeps one offset per partition. The command therefore commits the first unfinished
offset and lists the finished ranges above it: plain consumers get those messages again. On Pulsar
it acks them instead, and plain consumers get none of them. A message
that ackd moved to the retry topic has its only live copy there, and plain consumers do not read
that topic. The command lists these copies; `--copies` decides whether they block the release, stay
unread, or are published to their origin topic again.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from typing import Self

from ackd.cli import argument_types, common
from ackd.cli.client.admin import RefusedError
from ackd.cli.offline.group_drain import drain
from ackd.cli.offline.parts import Parts, answer, opened
from ackd.config.schema import Settings
from ackd.core.bitmap import ChunkedBitmap
from ackd.core.commit_metadata import encode
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.engine.partition.copy_headers import own_headers
from ackd.engine.retry.dead_letter_reader import DeadLetterLog, Letter
from ackd.engine.retry.own_topic import retry_topic
from ackd.errors import BrokerError, StoreDataError
from ackd.ports import Committed, Outgoing, Stored

DRAIN_MS = 600_000
PAGE = 500
RANGES_MAX = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd release-group`."""
    parser.add_argument("subscription", help="name of a subscription in the configuration")
    parser.add_argument("--plan", action="store_true", help="only print what would happen, as JSON")
    parser.add_argument(
        "--copies",
        choices=("refuse", "leave", "origin"),
        default="refuse",
        help="what to do about retry copies, which plain consumers do not read: refuse while there "
        "are any (default), leave them unread, or publish them to the topic that they came from, "
        "where every group gets them",
    )
    parser.add_argument(
        "--drain",
        type=argument_types.duration_ms,
        default=DRAIN_MS,
        metavar="TIME",
        help="while sidecars run: the longest wait for open leases to end and for you to stop the "
        "sidecars (default 10m)",
    )
    parser.add_argument(
        "--no-drain",
        action="store_true",
        help="while sidecars run: refuse at once instead of waiting",
    )
    common.add_config(parser)


@dataclass(slots=True)
class ReleasedPartition:
    """`position` is the offset that the command commits for plain consumers. `finished_above` holds
    the finished ranges [first, end) above it. Plain consumers get those again, `twice` offsets in
    all; but not where the broker remembers acks of single messages (Pulsar): the command acks them.
    """

    topic: str
    partition: int
    position: int
    log_end: int
    finished_above: list[tuple[int, int]] = field(default_factory=list)
    twice: int = 0


@dataclass(slots=True)
class Copy:
    """A message whose only live copy is in the retry topic. `below`: its origin is below the
    committed position, so no plain consumer would see it.
    """

    message: str
    retry_topic: str
    partition: int
    offset: int
    attempt: int
    due_ms: int
    below: bool
    published: bool = False


@dataclass(slots=True)
class Leaving:
    """The command's answer. `blocked` says why the group can't be released now; empty if it can."""

    subscription: str
    group: str
    sidecars: list[str]
    members: list[str]
    partitions: list[ReleasedPartition] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    blocked: str = ""
    left: bool = False


def run(arguments: argparse.Namespace) -> int:
    """Print what plain consumers will find and, without `--plan`, release the group; 2 when
    something blocks that.
    """

    async def work(settings: Settings) -> Leaving:
        if not (arguments.plan or arguments.no_drain):
            async with opened(settings, arguments.subscription) as parts:
                blocked = await drain(parts, arguments.drain, _say)
            if blocked:
                raise RefusedError(blocked)
        # Open again, to read what the sidecars wrote while they drained.
        async with opened(settings, arguments.subscription) as parts:
            return await leave(parts, do=not arguments.plan, copies=arguments.copies)

    return answer(arguments, work, lambda leaving: leaving.left or arguments.plan)


def _say(line: str) -> None:
    """Print progress to standard error, so that standard output stays one JSON answer."""
    print(f"ackd: {line}", file=sys.stderr, flush=True)


async def leave(parts: Parts, *, do: bool, copies: str = "refuse") -> Leaving:
    """Make the plan; with `do`, carry it out if nothing blocks it. Raises StoreError,
    BrokerError.
    """
    leaving = Leaving(parts.name, parts.group, await parts.sidecars(), await parts.members())
    positions = {}
    for tp, key in parts.partitions():
        place, committed = await _place(parts, tp, key)
        if committed is not None:
            positions[tp] = committed
        leaving.partitions.append(place)
    async with _Retries(parts) as retries:
        found = await retries.unfinished()
        at = {tp: each.offset for tp, each in positions.items()}
        leaving.copies = [_copy(letter, retries.topic, at) for letter in found]
        leaving.blocked = _blocked(parts, leaving, copies)
        if not do or leaving.blocked:
            return leaving
        if copies == "origin":
            for copy, letter in zip(leaving.copies, found, strict=True):
                await retries.publish(copy, letter)
    if parts.single_acks is not None:
        await _give_back(parts, leaving, positions)
    elif parts.groups is not None:
        await parts.groups.move_group(parts.group, positions)
    leaving.left = True
    return leaving


async def _give_back(
    parts: Parts, leaving: Leaving, positions: dict[TopicPartition, Committed]
) -> None:
    """To a broker that remembers acks of single messages. It then knows all that the records know,
    so they go: who comes back adopts the group anew. Raises BrokerError, StoreError.
    """
    if parts.single_acks is None:
        return
    finished = {
        TopicPartition(each.topic, each.partition): each.finished_above
        for each in leaving.partitions
    }
    await parts.single_acks.give_back(parts.group, positions, finished)
    for _, key in parts.partitions():
        record = parts.records.get(key)
        if record is not None and not await parts.survey.forget(record):
            raise StoreDataError(f"the record {key.text()} was changed meanwhile: start again")


def _blocked(parts: Parts, leaving: Leaving, copies: str) -> str:
    if leaving.sidecars:
        return f"stop the sidecars first (SIGTERM drains them): {', '.join(leaving.sidecars)}"
    if parts.groups is None:
        return "this kind of broker can't move a group from outside"
    if leaving.members:
        return f"the group has members: {', '.join(leaving.members)}"
    below = sum(copy.below for copy in leaving.copies)
    if below and copies == "refuse":
        return f"{below} messages wait in the retry topic only; see --copies"
    return ""


async def _place(
    parts: Parts, tp: TopicPartition, key: LedgerKey
) -> tuple[ReleasedPartition, Committed | None]:
    """What a plain consumer finds in a partition, and the commit for it: None without a record, as
    the command changes nothing there.
    """
    _, end = await parts.consumer.log_range(tp)
    record = parts.records.get(key)
    if record is None:
        committed = (await parts.consumer.committed([tp]))[tp]
        return ReleasedPartition(tp.topic, tp.partition, committed.offset, end), None
    finished = await parts.survey.finished(record)
    position = finished.first_clear(record.watermark)
    ranges = [(first, min(after, end)) for first, after in finished.ranges(position)]
    ranges = [each for each in ranges if each[0] < each[1]]
    if len(ranges) > RANGES_MAX:
        raise StoreDataError(f"{tp}: more than {RANGES_MAX} finished ranges above its position")
    place = ReleasedPartition(tp.topic, tp.partition, position, end, ranges)
    if parts.single_acks is None:
        place.twice = sum(after - first for first, after in ranges)
    chars = parts.broker.capabilities.commit_metadata_chars
    mark = encode(key.cluster, key.topic_id, record.epoch, position, 0, ranges, chars)
    return place, Committed(position, mark)


def _copy(letter: Letter, topic: str, positions: dict[TopicPartition, int]) -> Copy:
    retry_copy, origin = letter.retry_copy, letter.retry_copy.origin
    position = positions.get(TopicPartition(origin.topic, origin.partition), origin.offset + 1)
    return Copy(
        message=origin.id,
        retry_topic=topic,
        partition=letter.partition,
        offset=letter.record.offset,
        attempt=retry_copy.attempt,
        due_ms=retry_copy.due_ms,
        below=origin.offset < position,
    )


class _Retries:
    """The group's retry topic, open for reading."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.topic = retry_topic(parts.broker, parts.name, parts.settings).name
        self._consumer = parts.reading(self.topic)
        self._log: DeadLetterLog | None = None

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        found = await self._consumer.topics()
        info = found[0] if found else None
        self._log = DeadLetterLog(self._consumer, self._parts.name, self._parts.cluster, info)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.close()

    async def unfinished(self) -> list[Letter]:
        """Retry copies that are not finished. Copies of a superseded generation are among them, as
        only their origin record knows the generation. Raises StoreError, BrokerError.
        """
        log, found = self._log, []
        for partition in () if log is None or log.info is None else log.partitions:
            assert log is not None and log.info is not None  # noqa: S101, PT018 -- looped over
            first, end = await log.range(partition)
            record = self._parts.records.get(self._parts.key(log.info, partition))
            finished = ChunkedBitmap()
            if record is not None:
                finished = await self._parts.survey.finished(record)
                first = max(first, finished.first_clear(record.watermark))
            while first < end:
                letters, first = await log.read(partition, first, end, PAGE)
                found += [each for each in letters if each.record.offset not in finished]
        return found

    async def publish(self, copy: Copy, letter: Letter) -> None:
        """Publish the message to its origin topic if plain consumers would not see it otherwise,
        then finish the copy. After a crash in between the next run publishes it again. Raises
        BrokerError, StoreError.
        """
        record, origin = letter.record, letter.retry_copy.origin
        if copy.below:
            message = Outgoing(
                origin.topic,
                record.key,
                record.value,
                own_headers(record.headers),
                origin.partition,
            )
            (result,) = await self._parts.broker.publish([message])
            if not isinstance(result, Stored):
                raise BrokerError(f"{copy.message} could not be published: {result.detail}")
            copy.published = True
        if self._log is None or self._log.info is None:
            return
        key = self._parts.key(self._log.info, letter.partition)
        await self._parts.finish(key, [(record.offset, record.offset + 1)])
