"""Reads dead letters and starts operations on them (`ackd.api.dead_letters.DeadLetterApi`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from ackd.core.record.transitions import State
from ackd.engine.operations.archive import Archive
from ackd.engine.operations.operated import Operated
from ackd.engine.operations.parts import OperationParts
from ackd.engine.retry.dead_letter_reader import DeadLetterLog, Letter, open_dead_log, read_id
from ackd.errors import BadParameterError, PressureError, UnknownDeadLetterError
from ackd.ports import Clock, Store

READ_MAX = 500
LOOK_MS = 10_000
SHOWN_MAX = 20
READERS_MAX = 4
"""Most concurrent readers of one sidecar: each request opens one at the broker."""


class DeadLetters:
    """Implements `DeadLetterApi`. `subscription` finds one or raises UnknownSubscriptionError."""

    def __init__(self, subscription: Callable[[str], Operated], store: Store, clock: Clock) -> None:
        self._of = subscription
        self._clock = clock
        self._archive = Archive(store, clock)
        self._readers = 0

    # --- looking

    async def page(self, name: str, cursor: str | None, limit: int) -> DeadPage:
        """A page may be short or empty and still have a cursor, when the time was up."""
        parts = self._of(name).operation_parts
        partition, offset = (0, 0) if cursor is None else read_id(cursor)
        async with self._reader(), open_dead_log(parts) as log:
            scan = _Scan(parts, log, self._until_ms())
            await scan.from_(partition, offset, limit, lambda letters: letters)
        return DeadPage(scan.found, scan.cursor)

    async def peek(self, name: str, dead_id: str) -> DeadLetter:
        parts = self._of(name).operation_parts
        read_id(dead_id)
        async with self._reader(), open_dead_log(parts) as log:
            ((letter, state),) = await _named(parts, log, [dead_id])
        return letter.whole(_STATES[state])

    # --- operations

    async def begin(self, name: str, request: DeadRequest) -> DryRun | OperationView:
        parts = self._of(name).operation_parts
        _check(parts, request)
        async with self._reader(), open_dead_log(parts) as log:
            if request.dry_run and not request.ids:
                return await self._dry_run(parts, log, request)
            named = await _named(parts, log, request.ids)
            if request.dry_run:
                views = [letter.view(_STATES[state]) for letter, state in named]
                return DryRun(len(named), len(named), complete=True, messages=views[:SHOWN_MAX])
            ranges = [await log.range(number) for number in log.partitions]
            topic_id = b"" if log.info is None else log.topic_id
        return await self._of(name).operations.begin(request, topic_id, ranges)

    async def _dry_run(
        self, parts: OperationParts, log: DeadLetterLog, request: DeadRequest
    ) -> DryRun:
        scan = _Scan(parts, log, self._until_ms(), keep=SHOWN_MAX)
        await scan.from_(
            0,
            0,
            request.max,
            lambda letters: [each for each in letters if each.fits(request.filter)],
        )
        complete = scan.cursor is None or scan.matched == request.max
        return DryRun(scan.matched, scan.scanned, complete, scan.found)

    async def operation(self, operation_id: str) -> OperationView:
        return await self._archive.view(operation_id)

    async def cancel(self, operation_id: str) -> OperationView:
        await self._archive.read(operation_id)
        await self._archive.cancel(operation_id)
        return await self._archive.view(operation_id)

    # ---

    def _until_ms(self) -> int:
        return self._clock.monotonic_ms() + LOOK_MS

    def _reader(self) -> _ScanPlace:
        return _ScanPlace(self)

    def enter(self) -> None:
        """Count one more reader. Raises PressureError when there are too many."""
        if self._readers >= READERS_MAX:
            raise PressureError("too many look at dead letters at once")
        self._readers += 1

    def leave(self) -> None:
        self._readers -= 1


class _ScanPlace:
    """Counts as one reader while it is entered."""

    def __init__(self, of: DeadLetters) -> None:
        self._of = of

    async def __aenter__(self) -> None:
        self._of.enter()

    async def __aexit__(self, *_: object) -> None:
        self._of.leave()


class _Scan:
    """Reads through the partitions until it has enough letters, or the time is up.

    `cursor`: where it stopped, None at the end. `keep`: how many letters it keeps at most.
    """

    def __init__(
        self, parts: OperationParts, log: DeadLetterLog, until_ms: int, keep: int | None = None
    ) -> None:
        self._parts = parts
        self._log = log
        self._until_ms = until_ms
        self._keep = keep
        self.found: list[DeadView] = []
        self.matched = 0
        self.scanned = 0
        self.cursor: str | None = None

    async def from_(
        self,
        partition: int,
        offset: int,
        limit: int | None,
        choose: Callable[[list[Letter]], list[Letter]],
    ) -> None:
        """Scan; at most `limit` letters match."""
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
                letters, behind = await log.read(number, at, end, READ_MAX)
                chosen = await still_there(self._parts, log, number, choose(letters))
                if limit is not None and len(chosen) > limit - self.matched:
                    chosen = chosen[: limit - self.matched]
                    behind = chosen[-1][0].record.offset + 1
                self.scanned += behind - at
                at = behind
                self.matched += len(chosen)
                room = len(chosen) if self._keep is None else self._keep - len(self.found)
                self.found += [letter.view(_STATES[state]) for letter, state in chosen[:room]]

    def _is_over(self) -> bool:
        clock = self._parts.context.clock
        return clock.monotonic_ms() >= self._until_ms


async def still_there(
    parts: OperationParts, log: DeadLetterLog, partition: int, letters: Sequence[Letter]
) -> list[tuple[Letter, State]]:
    """The letters that were neither redriven nor purged, with their states. Raises StoreError."""
    if not letters:
        return []
    offsets = [letter.record.offset for letter in letters]
    states = await parts.dead_letter_records.states(log.key(partition), offsets)
    pairs = zip(letters, states, strict=True)
    return [(letter, state) for letter, state in pairs if state is not State.FINISHED]


async def _named(
    parts: OperationParts, log: DeadLetterLog, ids: Sequence[str]
) -> list[tuple[Letter, State]]:
    """Read exactly these letters. Raises UnknownDeadLetterError when one is gone."""
    found: list[tuple[Letter, State]] = []
    for dead_id in ids:
        partition, offset = read_id(dead_id)
        letter = await log.one(partition, offset)
        there = [] if letter is None else [letter]
        kept = await still_there(parts, log, partition, there)
        if not kept:
            raise UnknownDeadLetterError(f"there is no dead letter {dead_id} (any more)")
        found += kept
    return found


def _check(parts: OperationParts, request: DeadRequest) -> None:
    """Raises BadParameterError."""
    name = parts.state.name
    if request.kind is Kind.PURGE and request.confirm != name and not request.dry_run:
        raise BadParameterError(f"a purge can't be undone: confirm must be {name!r}")
    edited = [*request.remove_headers, *(header for header, _ in request.set_headers)]
    if any(header.startswith("ackd-") for header in edited):
        raise BadParameterError("headers that begin with ackd- are ackd's own")
    to_group = request.kind is Kind.REDRIVE and request.to is To.GROUP
    if to_group and not parts.state.settings.retry_topic:
        raise BadParameterError(
            f"{name} has no retry topic, so nothing can be redriven to this group alone; "
            'set retry_topic = true, or redrive to "origin"'
        )


_STATES = dict.fromkeys(State, "redriving") | {State.READY: "dead"}
