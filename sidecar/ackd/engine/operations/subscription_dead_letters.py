"""Reads the dead letters of one subscription, and starts operations on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ackd.api.dead_letters import (
    DeadLetter,
    DeadPage,
    DeadRequest,
    DeadView,
    DryRun,
    Kind,
    OperationView,
    To,
)
from ackd.core.ids import LedgerKey
from ackd.core.record.transitions import State
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.operations.dead_letter_depth import DeadLetterDepth
from ackd.engine.operations.dead_letter_records import DeadLetterRecords
from ackd.engine.operations.operation_runner import Operations
from ackd.engine.retry.dead_letter_reader import DeadLetterLog, Letter, open_dead_log, read_id
from ackd.errors import BadParameterError, UnconfirmedError, UnknownDeadLetterError
from ackd.ports import GroupTopics

READ_MAX = 500
LOOK_MS = 10_000
FIND_MS = 3_000
SHOWN_MAX = 20
_STATES = dict.fromkeys(State, "redriving") | {State.READY: "dead"}


class LogBounds(NamedTuple):
    """The dead-letter topic as an operation finds it: (first, end) offset of each partition."""

    topic_id: bytes
    ranges: list[tuple[int, int]]


class LetterCount(NamedTuple):
    """How many dead letters there are, when the oldest was dead-lettered (Unix ms; None without
    one), and how many records in the topic are no dead letters. `more`: these are the first ones
    only, as so many are counted at most.
    """

    letters: int
    oldest_ms: int | None
    unreadable: int
    more: bool


class LetterSearch(NamedTuple):
    """The newest dead letter of a message: `key` and `offset` of its record, and its content.
    `complete` False: there was not time for all of the topic.
    """

    key: LedgerKey | None
    offset: int
    letter: DeadLetter | None
    complete: bool


class SubscriptionDeadLetters:
    """Opens the topic for each question. `records`: keeps which dead letters are gone."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        records: DeadLetterRecords,
        operations: Operations,
    ) -> None:
        self._state = state
        self._context = context
        self._records = records
        self._operations = operations
        self._depth = DeadLetterDepth(records, self.now_ms)

    # --- looking

    async def operations(self) -> list[OperationView]:
        """Return all operations on the subscription that are kept. Raises StoreError."""
        return await self._operations.listed()

    async def count(self) -> LetterCount | None:
        """Count the dead letters; None if there was not time for all. Raises BrokerError,
        StoreError, NotSupportedError.
        """
        async with open_dead_log(self._state, self._context) as log:
            complete = await self._depth.look(log)
        depth = self._depth
        if not complete:
            return None
        return LetterCount(depth.count(), depth.oldest_ms(), depth.unreadable(), depth.more)

    def stop_counting(self) -> None:
        """Another sidecar counts."""
        self._depth.forget()

    async def page(self, partition: int, offset: int, limit: int) -> DeadPage:
        """List dead letters. A page may be short or empty and still have a cursor, if the time was
        up.
        """
        async with open_dead_log(self._state, self._context) as log:
            scan = _Scan(self, log)
            await scan.from_(partition, offset, limit, lambda letters: letters)
        return DeadPage(scan.found, scan.cursor, scan.unreadable)

    async def peek(self, dead_id: str) -> DeadLetter:
        """Read one dead letter with its content. Raises UnknownDeadLetterError."""
        async with open_dead_log(self._state, self._context) as log:
            ((letter, state),) = await self._named(log, [dead_id])
        return letter.whole(_STATES[state])

    async def find(self, message: str) -> LetterSearch:
        """Look for the dead letter of a message, the newest if there are several, also if it was
        redriven or purged. Raises BrokerError.
        """
        until_ms = self.now_ms() + FIND_MS
        newest: tuple[LedgerKey, Letter] | None = None
        async with open_dead_log(self._state, self._context) as log:
            for number in log.partitions:
                at, end = await log.range(number)
                while at < end:
                    if self.now_ms() >= until_ms:
                        return _search(newest, complete=False)
                    letters, at = await log.read(number, at, end, READ_MAX)
                    for each in letters:
                        if each.retry_copy.origin.id == message and _later(each, newest):
                            newest = log.key(number), each
        return _search(newest, complete=True)

    # --- operations

    def check(self, request: DeadRequest) -> None:
        """Refuse a request that is not possible, and a purge that lacks `confirm`. Raises
        BadParameterError, UnconfirmedError.
        """
        name = self._state.name
        if request.kind is Kind.PURGE and request.confirm != name and not request.dry_run:
            raise UnconfirmedError(f"a purge can't be undone: confirm must be {name!r}")
        edited = [*request.remove_headers, *(header for header, _ in request.set_headers)]
        if any(header.startswith("ackd-") for header in edited):
            raise BadParameterError("headers that begin with ackd- are ackd's own")
        to_group = request.kind is Kind.REDRIVE and request.to is To.GROUP
        alone = isinstance(self._state.broker, GroupTopics)
        if to_group and not (alone or self._state.settings.retry_topic):
            raise BadParameterError(
                f"{name} has no retry topic, so nothing can be redriven to this group alone; "
                'set retry_topic = true, or redrive to "origin"'
            )
        if to_group and alone and self._state.settings.ordering != "none":
            raise BadParameterError(
                f"{name} is ordered, and what is sent to its group alone comes in no order; "
                'redrive to "origin"'
            )

    async def look(self, request: DeadRequest) -> DryRun | LogBounds:
        """What the request would do; else, unless it is a dry run, where the topic ends now.
        Raises UnconfirmedError, UnknownDeadLetterError.
        """
        async with open_dead_log(self._state, self._context) as log:
            if request.dry_run and not request.ids:
                return await self._dry_run(log, request)
            named = await self._named(log, request.ids)
            if request.dry_run:
                views = [letter.view(_STATES[state]) for letter, state in named]
                return DryRun(len(named), len(named), complete=True, messages=views[:SHOWN_MAX])
            if request.takes_any and request.confirm != self._state.name:
                await self._only_some(log, request)
            ranges = [await log.range(number) for number in log.partitions]
            return LogBounds(b"" if log.info is None else log.topic_id, ranges)

    async def begin(self, request: DeadRequest, bounds: LogBounds) -> OperationView:
        """Start the operation. Raises OperationRunningError, StoreError."""
        return await self._operations.begin(request, bounds.topic_id, bounds.ranges)

    async def _dry_run(self, log: DeadLetterLog, request: DeadRequest) -> DryRun:
        scan = _Scan(self, log, keep=SHOWN_MAX)
        await scan.from_(
            0,
            0,
            request.max,
            lambda letters: [each for each in letters if each.fits(request.filter)],
        )
        complete = scan.cursor is None or scan.matched == request.max
        return DryRun(scan.matched, scan.scanned, complete, scan.found)

    async def _only_some(self, log: DeadLetterLog, request: DeadRequest) -> None:
        """Refuse a request that takes everything: one by mistake would deliver all again. Raises
        UnconfirmedError.
        """
        sure = f"confirm must be {self._state.name!r} (with `ackd dead`: --all)"
        if request.max is None:
            raise UnconfirmedError(
                f"this takes every dead letter: {sure}, or give ids, filter, max"
            )
        scan = _Scan(self, log, keep=0)
        await scan.from_(0, 0, request.max + 1, lambda letters: letters)
        if scan.matched <= request.max:
            why = (
                f"there are {scan.matched}" if scan.cursor is None else "there was not time to see"
            )
            raise UnconfirmedError(f"max {request.max} may take every dead letter ({why}): {sure}")

    # --- for a scan

    def now_ms(self) -> int:
        """The time of this machine (monotonic)."""
        return self._context.clock.monotonic_ms()

    async def still_there(
        self, log: DeadLetterLog, partition: int, letters: Sequence[Letter]
    ) -> list[tuple[Letter, State]]:
        """The letters that were neither redriven nor purged, with their states. Raises
        StoreError.
        """
        if not letters:
            return []
        offsets = [letter.record.offset for letter in letters]
        states = await self._records.states(log.key(partition), offsets)
        pairs = zip(letters, states, strict=True)
        return [(letter, state) for letter, state in pairs if state is not State.FINISHED]

    async def _named(self, log: DeadLetterLog, ids: Sequence[str]) -> list[tuple[Letter, State]]:
        """Read exactly these letters. Raises UnknownDeadLetterError when one is gone."""
        found: list[tuple[Letter, State]] = []
        for dead_id in ids:
            partition, offset = read_id(dead_id)
            letter = await log.one(partition, offset)
            there = [] if letter is None else [letter]
            kept = await self.still_there(log, partition, there)
            if not kept:
                raise UnknownDeadLetterError(f"there is no dead letter {dead_id} (any more)")
            found += kept
        return found


class _Scan:
    """Reads through the partitions until it has enough letters, or the time is up.

    `cursor`: where it stopped, None at the end. `keep`: how many letters it keeps at most.
    """

    def __init__(
        self, of: SubscriptionDeadLetters, log: DeadLetterLog, keep: int | None = None
    ) -> None:
        self._of = of
        self._log = log
        self._until_ms = of.now_ms() + LOOK_MS
        self._keep = keep
        self.found: list[DeadView] = []
        self.matched = 0
        self.scanned = 0
        self.unreadable = 0
        self.cursor: str | None = None

    async def from_(
        self,
        partition: int,
        offset: int,
        limit: int | None,
        choose: Callable[[list[Letter]], list[Letter]],
    ) -> None:
        """Scan from an offset of a partition on, until `limit` letters match."""
        log = self._log
        for number in log.partitions:
            if number < partition:
                continue
            first, end = await log.range(number)
            at = max(first, offset if number == partition else 0)
            while at < end:
                if self._is_over() or self.matched == limit:
                    self.cursor = f"{number}-{at}"
                    return
                letters, unread = await log.read(number, at, end, READ_MAX)
                chosen = await self._of.still_there(log, number, choose(letters))
                if limit is not None and len(chosen) > limit - self.matched:
                    chosen = chosen[: limit - self.matched]
                    unread = chosen[-1][0].record.offset + 1
                self.scanned += unread - at
                self.unreadable += sum(offset < unread for offset in log.unreadable)
                at = unread
                self.matched += len(chosen)
                room = len(chosen) if self._keep is None else self._keep - len(self.found)
                self.found += [letter.view(_STATES[state]) for letter, state in chosen[:room]]

    def _is_over(self) -> bool:
        return self._of.now_ms() >= self._until_ms


def _later(letter: Letter, than: tuple[LedgerKey, Letter] | None) -> bool:
    return than is None or letter.record.timestamp_ms >= than[1].record.timestamp_ms


def _search(newest: tuple[LedgerKey, Letter] | None, *, complete: bool) -> LetterSearch:
    if newest is None:
        return LetterSearch(None, 0, None, complete)
    key, letter = newest
    return LetterSearch(key, letter.record.offset, letter.whole("dead"), complete)
