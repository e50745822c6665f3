"""Operations on dead letters and progress: kept in the store, carried out by one sidecar at a time.

The document of an operation says how far it is. The sidecar that holds the *right to run* (a value
with a short time to live) carries the operation out. If that sidecar dies, another one goes on
where the document says. Correctness does not depend on a single runner: records
(`DeadLetterRecords`, reset epochs) and claims prevent what must not happen twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from ackd.api.dead_letters import DeadRequest, OperationView, Progress
from ackd.core.backoff import Backoff
from ackd.core.dead_letter_key import dead_key
from ackd.core.record.copies import ORIGIN_KEEP_MS
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.operations.archive import (
    ENDED,
    AnyDocument,
    Archive,
    NoRightError,
    RedriveDocument,
    Work,
)
from ackd.engine.operations.dead_letter_records import DeadLetterRecords
from ackd.engine.operations.operation_index import OperationIndex
from ackd.errors import (
    AckdError,
    OperationRunningError,
    StoreError,
    UnknownOperationError,
)

LOG = logging.getLogger("ackd.engine")

POLL_S = 2.0
RIGHT_MS = 10_000
AGAIN = Backoff(1_000, 8_000)
"""1 s after a failure if something was moved since the one before, else longer each time."""
GOODBYE_S = 1.0
"""Less than `RIGHT_MS`, so that a sidecar that waits for the broker keeps the right."""
PRUNE_AFTER_MS = 60_000
PRUNES_MAX = 100
ID_BITS = 64


class Operations:
    """The operations of one subscription, as far as this sidecar carries them out. `end_halt`:
    ends the halt of an operation.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        end_halt: Callable[[str], Awaitable[None]],
        marks: DeadLetterRecords,
        work: Work,
    ) -> None:
        self._state = state
        self._context = context
        self._stop_halt = end_halt
        self._marks = marks
        self._work = work
        self._store = context.store
        self.archive = Archive(context.store, context.clock)
        self._index = OperationIndex(context.store, state.cluster, state.name)
        self._me = f"{context.identity}#{context.random_bits(ID_BITS):016x}".encode()
        self._wake = asyncio.Event()
        self._to_prune: deque[tuple[int, RedriveDocument]] = deque(maxlen=PRUNES_MAX)

    def _running(self) -> str:
        return f"dead-operation:{self._state.cluster}:{self._state.name}"

    def _right(self) -> str:
        return f"{self._running()}:runner"

    async def begin(
        self, request: DeadRequest, topic_id: bytes, ranges: list[tuple[int, int]]
    ) -> OperationView:
        """Store a new redrive or purge; a sidecar begins with it at once.

        Raises OperationRunningError, StoreError.
        """
        document = RedriveDocument(
            id=self.new_id(),
            subscription=self._state.name,
            request=request,
            topic_id=topic_id.hex(),
            starts=[first for first, _ in ranges],
            ends=[end for _, end in ranges],
            created_ms=self._context.clock.wall_ms(),
        )
        return await self.start(document)

    def new_id(self) -> str:
        """A random id for a new operation."""
        return f"{self._context.random_bits(ID_BITS):016x}"

    async def start(self, document: AnyDocument) -> OperationView:
        """Store the document as the operation that runs now.

        Raises OperationRunningError, StoreError.
        """
        # Write the document first: a running id without a document counts as ended.
        await self.archive.write(document)
        await self._index.add(document.id)
        other = await self._store.put_new(self._running(), document.id.encode())
        if other is not None and await self._current() is None:
            other = await self._store.put_new(self._running(), document.id.encode())
        if other is not None:
            await self._index.remove(document.id)
            await self.archive.remove(document.id)
            name = other.decode()
            raise OperationRunningError(f"the operation {name} is running on it", operation=name)
        view = document.view()
        LOG.info(
            "%s: operation %s %s was accepted and begins", self._state.name, view.kind, document.id
        )
        self._wake.set()
        return view

    async def listed(self) -> list[OperationView]:
        """Return the operations whose results are kept, the newest first. Raises StoreError."""
        found = await asyncio.gather(*(self._known(each) for each in await self._index.ids()))
        return [view for view in found if view is not None]

    async def _known(self, operation_id: str) -> OperationView | None:
        try:
            return await self.archive.view(operation_id)
        except UnknownOperationError:  # its result was kept for long enough
            return None

    async def run(self) -> None:
        """Carry out new operations, and those that another sidecar left, until cancelled."""
        while True:
            try:
                document = await self._current()
                if document is not None and await self._take_right():
                    await self._carry_out(document)
                await self._end_halt()
                await self._prune()
            except AckdError as error:
                LOG.info(
                    "%s: looking for operations failed, ackd tries again: %s",
                    self._state.name,
                    error.detail,
                )
            self._wake.clear()
            try:
                async with asyncio.timeout(POLL_S):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _tell_end(self, view: OperationView) -> None:
        LOG.info(
            "%s: operation %s %s is %s: read %d of %d messages, %d moved, %d failed, %d skipped",
            *(self._state.name, view.kind, view.id, view.state),
            *(view.scanned, view.total, view.moved, view.failed, view.skipped),
        )

    async def _end_halt(self) -> None:
        """End a halt whose operation has ended: its runner may have died right after its end."""
        halt = self._state.live.halt
        if halt is None:
            return
        try:
            document: AnyDocument | None = await self.archive.read(halt.operation)
        except UnknownOperationError:
            document = None
        if document is None or document.state in ENDED:
            await self._stop_halt(halt.operation)

    async def _current(self) -> AnyDocument | None:
        """The operation that has not ended; a running id without a document is removed."""
        raw = await self._store.get(self._running())
        if raw is None:
            return None
        try:
            document: AnyDocument | None = await self.archive.read(raw.decode())
        except UnknownOperationError:
            document = None
        if document is None or document.state in ENDED:
            await self._store.delete(self._running())
            return None
        return document

    async def _take_right(self) -> bool:
        holder = await self._store.put_new(self._right(), self._me, RIGHT_MS)
        return holder is None or holder == self._me

    async def keep_right(self) -> None:
        """Renew the right to run. Raises NoRightError when another sidecar has it."""
        if not await self._take_right():
            raise NoRightError
        await self._store.put(self._right(), self._me, RIGHT_MS)

    async def _carry_out(self, document: AnyDocument) -> None:
        try:
            await self._until_ended(document)
        except NoRightError:
            return
        except asyncio.CancelledError:
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await self._store.delete(self._right())
            raise
        self._tell_end(document.view())
        if await self._store.get(self._running()) == document.id.encode():
            await self._store.delete(self._running())
        await self._store.delete(self._right())
        if isinstance(document, RedriveDocument) and document.topic_id:
            due_ms = self._context.clock.monotonic_ms() + ORIGIN_KEEP_MS + PRUNE_AFTER_MS
            self._to_prune.append((due_ms, document))

    async def _until_ended(self, document: AnyDocument) -> None:
        """Work until the operation ends; after a failure try again, unless it is cancelled."""
        failures, moved = 1, document.moved
        while document.state is Progress.RUNNING:
            try:
                await self.keep_right()
                await self._work(document, self.keep_right).run()
            except NoRightError:
                raise
            except AckdError as error:
                document.error = f"{error.type}: {error.detail}"
                LOG.warning(
                    "%s: the operation failed, ackd tries again: %s",
                    self._state.name,
                    document.error,
                )
                failures = 1 if document.moved > moved else failures + 1
                moved = document.moved
                await asyncio.sleep(AGAIN.delay_ms(failures) / 1000)
                await self._after_failure(document)

    async def _after_failure(self, document: AnyDocument) -> None:
        """Store the error, and stop if an operator cancelled it. Raises NoRightError."""
        try:
            await self.keep_right()
            if isinstance(document, RedriveDocument) and await self.archive.cancelled(document.id):
                document.state = Progress.CANCELLED
            await self.archive.write(document)
        except StoreError:
            document.state = Progress.RUNNING

    async def _prune(self) -> None:
        """Drop origin records of earlier operations, which no claim needs any more (I8)."""
        now_ms = self._context.clock.monotonic_ms()
        while self._to_prune and self._to_prune[0][0] <= now_ms:
            _, document = self._to_prune.popleft()
            for number in range(len(document.ends)):
                key = dead_key(
                    self._state.cluster,
                    self._state.name,
                    bytes.fromhex(document.topic_id),
                    number,
                )
                await self._marks.prune(key, document.moved)
