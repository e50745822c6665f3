"""Group commit: one flush is in flight per store, and the next one takes all that arrives
meanwhile.

500 settles in one script call cost the store and this process a twentieth of 500 calls. So requests
never call the store themselves: they `submit` and wait on a future, or pass a callback, and a
cancelled caller never touches a connection.

One flush at a time gives two more promises. Calls of an owner get their sequence numbers in the
order in which the flusher sends them (`CallStatus.STALE` refuses what arrives too late). An owner
gets replies in the order in which the store decided them.

This file reads no clock, so that it runs under a simulated event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Op
from ackd.core.record.protocol import (
    NO_TEXTS,
    CallStatus,
    CallTexts,
    Open,
    RecordCall,
    RecordReply,
    Snapshot,
)
from ackd.errors import StoreCallError, StoreError, StoreUnknownError
from ackd.ports import Store
from ackd.store.codec import encode_call, encode_texts

LOG = logging.getLogger("ackd.store")

BATCH_MAX = 1500
QUEUE_MAX = 100_000
TURNS_MAX = 6


class PartlyError(StoreUnknownError):
    """A flush over several servers succeeded for some of its calls only. `answers`: the reply or
    the error of each call, in their order.
    """

    def __init__(self, answers: Sequence[RecordReply | StoreError]) -> None:
        super().__init__("a part of the store failed")
        self.answers = answers


class ReplyListener(Protocol):
    """Gets the outcome of every call of a handle exactly once, whether or not a submitter still
    waits.

    The flusher calls it in the order of the calls, and before it resolves any submitter's future.
    It must not raise.
    """

    def on_reply(self, call: RecordCall, reply: RecordReply) -> None:
        """The store answered: `reply.results` belong to `call.ops`, `reply.journal` to the whole
        call.
        """

    def failed(self, call: RecordCall, error: StoreError) -> None:
        """There is no answer. With StoreUnknownError the store may have applied the call, or may do
        so later (R12).
        """


OnAnswer = Callable[[RecordReply | StoreError, int], None]
"""Hears what became of a submission: the call's reply and where in its results those of the
submission begin, or an error. Must not raise.
"""


@dataclass(slots=True, eq=False)
class _Submission:
    """Operations of one submitter. `future`: None if nobody can cancel them."""

    ops: Sequence[Op]
    on_answer: OnAnswer
    future: asyncio.Future[RecordReply] | None = None
    texts: CallTexts = NO_TEXTS


@dataclass(slots=True, eq=False)
class LedgerHandle:
    """The numbers that all calls of one sidecar to one record carry. The engine makes one handle
    per partition.

    `Flusher.open` fills it, the flusher counts `seq` and moves `journal_next`. `term` 0: calls not
    as the owner (settles of other owners' leases), without `seq` and `journal_next`. `journal_next`
    0: the caller does not want the journal. `waiting`: what the flusher has yet to send.
    """

    key: LedgerKey
    term: int = 0
    seq: int = 0
    incarnation: int = 0
    journal_next: int = 0
    listener: ReplyListener | None = None
    waiting: deque[_Submission] = field(default_factory=deque)

    def opened(self, snapshot: Snapshot) -> None:
        """Take over term, incarnation and sequence numbers from what `Store.open` returned."""
        self.term, self.seq = snapshot.term, snapshot.seq
        self.incarnation, self.journal_next = snapshot.incarnation, snapshot.journal_next


@dataclass(slots=True, eq=False)
class _Flight:
    handle: LedgerHandle
    call: RecordCall
    ops: list[Op]
    parts: list[_Submission]


class Flusher:
    """Merges submissions per partition into calls and sends them, one flush at a time.

    `batch_max`: most items of one flush (a single larger submission travels alone). `queue_max`:
    most items that wait; beyond it `submit` refuses with StoreError.
    """

    def __init__(
        self, store: Store, *, batch_max: int = BATCH_MAX, queue_max: int = QUEUE_MAX
    ) -> None:
        self._store = store
        self._batch_max = batch_max
        self._queue_max = queue_max
        self._turn: deque[LedgerHandle] = deque()
        """Handles with something waiting, each once."""
        self._items = 0
        self._flights: list[_Flight] = []
        self._held: dict[LedgerKey, int] = {}
        self._sleeper: asyncio.Future[None] | None = None
        self._replied = asyncio.Event()
        self._stopped = False

    def submit(
        self, handle: LedgerHandle, ops: Sequence[Op], texts: CallTexts = NO_TEXTS
    ) -> asyncio.Future[RecordReply]:
        """Queue operations; they stay together, in order, in one call.

        The future gives a reply with the header of the call and the results of these `ops` only
        (look at `verdict` first); the `journal` in it is the listener's business. It fails
        with StoreError when nothing was decided and StoreUnknownError when that is not known. Is
        the future cancelled before its turn has come, then the operations are not sent.
        """
        future: asyncio.Future[RecordReply] = asyncio.get_running_loop().create_future()
        self._submit(handle, _Submission(ops, partial(_resolve, future, len(ops)), future, texts))
        return future

    def tell(
        self,
        handle: LedgerHandle,
        ops: Sequence[Op],
        on_answer: OnAnswer,
        texts: CallTexts = NO_TEXTS,
    ) -> None:
        """`submit` for who has no need of a future, which costs a turn of the event loop.

        `on_answer` is called once, in the turn in which the answer came and never before `tell` is
        back.
        """
        self._submit(handle, _Submission(ops, on_answer, texts=texts))

    def amend(self, handle: LedgerHandle, change: Callable[[Op], Op]) -> None:
        """Replace each operation of `handle` that was not sent yet by what `change` makes of it."""
        for part in handle.waiting:
            part.ops = [change(op) for op in part.ops]

    def _submit(self, handle: LedgerHandle, part: _Submission) -> None:
        if self._stopped or self._items + len(part.ops) > self._queue_max:
            why = "the store's flusher has stopped" if self._stopped else "too much at once"
            asyncio.get_running_loop().call_soon(_tell, part, StoreError(why))
            return
        if not handle.waiting:
            self._turn.append(handle)
        handle.waiting.append(part)
        self._items += len(part.ops)
        if self._sleeper is not None:
            self._wake(self._sleeper)

    def _wake(self, sleeper: asyncio.Future[None]) -> None:
        self._sleeper = None
        if not sleeper.done():
            sleeper.set_result(None)

    async def open(self, request: Open, handle: LedgerHandle) -> Snapshot:
        """Take or re-read the partition of `handle`, in order with its calls; fills the handle.

        Re-reading brings what other sidecars settled since the owner's last call. Submissions for
        the same partition wait meanwhile, others go on.
        """
        with self._holding(request.key):
            while any(flight.call.key == request.key for flight in self._flights):
                self._replied.clear()
                await self._replied.wait()
            if request.term:
                request = replace(request, journal_from=handle.journal_next)
            snapshot = await self._store.open(request)
            if snapshot.verdict is CallStatus.OK:
                handle.opened(snapshot)
            return snapshot

    async def run(self) -> None:
        """Send until cancelled; the engine puts this into its task group, once.

        On the way out everything that waits fails with StoreError, and what is in flight with
        StoreUnknownError.
        """
        try:
            while True:
                if self._turn:
                    await self._gather()
                self._flights = self._take()
                if not self._flights:
                    self._replied.set()
                    self._sleeper = asyncio.get_running_loop().create_future()
                    await self._sleeper
                    continue
                await self._flush(self._flights)
                self._flights = []
                self._replied.set()
        finally:
            self._stop()

    async def _gather(self) -> None:
        """Wait for requests that have reached this process already: they go with this flush.

        A turn of the event loop as long as each brings some more, at most `TURNS_MAX`. A call costs
        both sides far more than one item more in it, and a turn without work takes microseconds.
        """
        waiting = -1
        for _ in range(TURNS_MAX):
            if self._items == waiting or self._items >= self._batch_max:
                return
            waiting = self._items
            await asyncio.sleep(0)

    async def idle(self) -> None:
        """Wait until nothing waits and nothing is in flight; a draining sidecar calls this."""
        while (self._turn or self._flights) and not self._stopped:
            self._replied.clear()
            await self._replied.wait()

    # --- one flush

    async def _flush(self, flights: list[_Flight]) -> None:
        answers: Sequence[RecordReply | StoreError]
        try:
            replies = await self._store.apply([flight.call for flight in flights])
        except PartlyError as partly:
            answers = partly.answers
        except StoreError as error:
            answers = [error] * len(flights)
        else:
            for flight, reply in zip(flights, replies, strict=True):
                _on_reply(flight, reply)
            return
        refused: list[_Flight] = []
        for flight, answer in zip(flights, answers, strict=True):
            if isinstance(answer, StoreCallError):
                refused.append(flight)
            elif isinstance(answer, StoreError):
                self._fail([flight], answer)
            else:
                _on_reply(flight, answer)
        if refused:
            self._flights = self._without_what_cannot_be_sent(refused)
            if self._flights:
                await self._flush(self._flights)

    def _without_what_cannot_be_sent(self, refused: list[_Flight]) -> list[_Flight]:
        """Return the flights that the store refused to pack, without the submissions that can't be
        packed. The store has seen none of them.

        One caller's mistake (a number that somebody else wrote, say) must not cost the others their
        answers, and never the task that sends for all.
        """
        left: list[_Flight] = []
        bad: list[_Flight] = []
        for flight in refused:
            good, wrong = _parted(flight)
            left += good
            bad += wrong
        if not bad:
            left, bad = [], refused
        items = sum(len(flight.call.ops) for flight in bad)
        LOG.error(
            "ackd can't send %d operations to the store: this is a bug, please report it", items
        )
        self._fail(bad, StoreCallError())
        return left

    def _fail(self, flights: list[_Flight], error: StoreError) -> None:
        for flight in flights:
            if flight.handle.listener is not None:
                flight.handle.listener.failed(flight.call, error)
            for part in flight.parts:
                _reject(part, error)

    def _take(self) -> list[_Flight]:
        """The next flush: handles take turns, one submission each, until the batch is full."""
        flights: dict[LedgerKey, _Flight] = {}
        skipped: list[LedgerHandle] = []
        turn, room = self._turn, self._batch_max
        while turn and room > 0:
            handle = turn.popleft()
            part = self._next(handle)
            if part is None:
                continue
            key = handle.key
            flight = flights.get(key)
            if key in self._held or (flight is not None and flight.handle is not handle):
                skipped.append(handle)
                continue
            count = len(part.ops)
            if count > room and flights:
                skipped.append(handle)
                break
            if flight is None:
                ops: list[Op] = []
                flight = flights[key] = _Flight(handle, RecordCall(key, ops), ops, [])
            handle.waiting.popleft()
            if part.texts.items:
                later = part.texts.shifted(len(flight.ops))
                flight.call.texts = flight.call.texts.joined(later)
            flight.ops.extend(part.ops)
            flight.parts.append(part)
            room -= count
            self._items -= count
            if handle.waiting:
                turn.append(handle)
        # Who was passed over comes first next time, in the old order.
        turn.extendleft(reversed(skipped))
        taken = list(flights.values())
        for flight in taken:
            _number(flight)
        return taken

    def _next(self, handle: LedgerHandle) -> _Submission | None:
        """Return a handle's first submission that was not cancelled; drop those before it."""
        while handle.waiting:
            part = handle.waiting[0]
            if part.future is None or not part.future.cancelled():
                return part
            handle.waiting.popleft()
            self._items -= len(part.ops)
        return None

    @contextmanager
    def _holding(self, key: LedgerKey) -> Iterator[None]:
        self._held[key] = self._held.get(key, 0) + 1
        try:
            yield
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
            if self._sleeper is not None:
                self._wake(self._sleeper)

    def _stop(self) -> None:
        self._stopped = True
        self._fail(self._flights, StoreUnknownError("the flusher was stopped in mid-call"))
        self._flights = []
        gone = StoreError("the store's flusher has stopped")
        for handle in self._turn:
            for part in handle.waiting:
                _reject(part, gone)
            handle.waiting.clear()
        self._turn.clear()
        self._items = 0
        self._replied.set()


def _parted(flight: _Flight) -> tuple[list[_Flight], list[_Flight]]:
    """Split a flight into what can be sent and what can't."""
    call = flight.call
    if _can_be_sent(call):
        return [flight], []
    parts: dict[bool, list[_Submission]] = {True: [], False: []}
    for part in flight.parts:
        alone = replace(call, ops=list(part.ops), texts=part.texts)
        parts[_can_be_sent(alone)].append(part)
    if not (parts[True] and parts[False]):
        return [], [flight]
    made = []
    for some in parts.values():
        ops: list[Op] = []
        one = replace(call, ops=ops, texts=NO_TEXTS)
        for part in some:
            one.texts = one.texts.joined(part.texts.shifted(len(ops)))
            ops.extend(part.ops)
        made.append(_Flight(flight.handle, one, ops, some))
    return made[:1], made[1:]


def _can_be_sent(call: RecordCall) -> bool:
    try:
        encode_call(call, b"")
        encode_texts(1, call.texts)
    except StoreCallError:
        return False
    return True


def _number(flight: _Flight) -> None:
    """Write the handle's current numbers into the call at the moment of sending."""
    handle, call = flight.handle, flight.call
    call.incarnation = handle.incarnation
    if handle.term:
        handle.seq += 1
        call.term, call.seq, call.journal_from = handle.term, handle.seq, handle.journal_next


def _on_reply(flight: _Flight, reply: RecordReply) -> None:
    """Pass the reply to the listener, then to each submitter its own part."""
    handle = flight.handle
    if reply.verdict is CallStatus.OK and flight.call.term and handle.term == flight.call.term:
        handle.journal_next = reply.journal_next if handle.journal_next else 0
    if handle.listener is not None:
        handle.listener.on_reply(flight.call, reply)
    start = 0
    for part in flight.parts:
        _tell(part, reply, start)
        start += len(part.ops)


def _tell(part: _Submission, answer: RecordReply | StoreError, start: int = 0) -> None:
    """Call one submitter back; an exception in its code must not reach the others."""
    try:
        part.on_answer(answer, start)
    except Exception:
        LOG.exception("a submitter failed on the store's answer: this is a bug, please report it")


def _slice(reply: RecordReply, start: int, count: int) -> RecordReply:
    if len(reply.results) == count:
        return reply
    return RecordReply(
        reply.verdict,
        reply.now_ms,
        reply.version,
        reply.rollback_epoch,
        reply.epoch,
        reply.term,
        reply.watermark,
        reply.journal_next,
        reply.results[start : start + count],
        has_texts=reply.has_texts,
        has_notes=reply.has_notes,
        dropped=0 if start else reply.dropped,
    )


def _reject(part: _Submission, error: StoreError) -> None:
    _tell(part, type(error)(error.detail, **error.facts))


def _resolve(
    future: asyncio.Future[RecordReply], count: int, answer: RecordReply | StoreError, start: int
) -> None:
    """Complete a future, unless its waiter has gone; the listener has the outcome in any case."""
    if future.done():
        return
    if isinstance(answer, StoreError):
        future.set_exception(answer)
        future.exception()  # seen: asyncio need not log it
    else:
        future.set_result(_slice(answer, start, count))
