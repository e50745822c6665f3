"""Carries out a seek, so that a kill at any moment leaves a state to go on from.

While it runs, the live value halts every sidecar: none owns a partition, so none delivers a message
or moves one to the retry topic. Then one atomic call resets each partition's record, under a term
that fences its former owner. A reset is done once: the record's reset epoch shows whether it is
(rules R2, R8, I3).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from ackd.api.dead_letters import Progress
from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Advance, Gap, Op, Reset
from ackd.core.record.protocol import Finish, Snapshot
from ackd.core.record.transitions import State
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.members import UNCONFIRMED_MS
from ackd.engine.cluster.membership import Membership
from ackd.engine.control.control import Control
from ackd.engine.operations.archive import Archive, KeepRight
from ackd.engine.operations.broker_half import move_broker
from ackd.engine.operations.seek_document import SeekDocument, SeekTarget, Stage
from ackd.engine.ownership import undo
from ackd.engine.ownership.external_reset import skip
from ackd.engine.ownership.records import OPS_MAX, Records
from ackd.engine.retry.dead_letter_reader import DeadLetterLog, Letter, open_log
from ackd.errors import StoreError
from ackd.store.flusher import LedgerHandle

READ_MAX = 500
SPREAD_MS = UNCONFIRMED_MS + 200
"""By now every sidecar has either seen the halt in a heartbeat reply or stopped granting because it
got no reply for `UNCONFIRMED_MS`; so go on even if none confirms the halt.
"""
NAP_MS = 100
_PENDING = frozenset({State.DEAD, State.MOVING})


class SeekJob:
    """One attempt to finish a seek. Raises StoreError, BrokerError, NoRightError.

    `on_reset` gets each partition that was reset: record, topic, new reset epoch, offset.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        membership: Membership,
        control: Control,
        records: Records,
        retry_topic: str,
        on_reset: Callable[[LedgerKey, str, int, int], None],
        keep_right: KeepRight,
        document: SeekDocument,
    ) -> None:
        self._state = state
        self._context = context
        self._membership = membership
        self._control = control
        self._records = records
        self._retry_topic = retry_topic
        self._on_reset = on_reset
        self._keep_right = keep_right
        self._archive = Archive(context.store, context.clock)
        self._document = document
        self._targets = {(each.topic_id, each.partition): each for each in document.targets}

    async def run(self) -> None:
        """Work until the seek is done or cancelled."""
        document = self._document
        while document.state is Progress.RUNNING:
            await self._keep_right()
            await self._halt()
            match document.stage:
                case Stage.HALT:
                    document.stage = Stage.COPIES
                case Stage.COPIES:
                    await self._find_held()
                    document.stage = Stage.RESET
                case Stage.RESET:
                    await self._reset_all()
                    document.stage = Stage.FINISH
                case Stage.FINISH:
                    await self._finish_copies()
                    document.stage = Stage.BROKER
                case Stage.BROKER:
                    await move_broker(self._state, self._context.store, document)
                    document.stage = Stage.CHECK
                case Stage.CHECK:
                    await self._check()
            document.error = None
            await self._save()
        await self._control.end_halt(document.id)

    async def _save(self) -> None:
        await self._archive.write(self._document)

    # --- nobody else works on the records

    async def _halt(self) -> None:
        """Halt every sidecar, also again when the store has forgotten the halt."""
        control, document = self._control, self._document
        if control.halted_for == document.id and document.stage is not Stage.HALT:
            return
        if control.halted_for != document.id:
            await control.halt(document.id)
        clock = self._context.clock
        since_ms = clock.monotonic_ms()
        while clock.monotonic_ms() - since_ms < SPREAD_MS:
            self._state.signals.beat()
            await asyncio.sleep(NAP_MS / 1000)
            await self._keep_right()
            if self._membership.all_halted(document.id, since_ms):
                return

    # --- copies

    def _retry_key(self, log: DeadLetterLog, number: int) -> LedgerKey:
        return LedgerKey(self._state.cluster, self._state.name, log.topic_id, number)

    async def _letters(
        self, log: DeadLetterLog, number: int, start: int, end: int | None = None
    ) -> AsyncIterator[list[Letter]]:
        """Read copies from `start` to the end of the log (or `end`), batch by batch."""
        first, log_end = await log.range(number)
        at, stop = max(first, start), log_end if end is None else min(end, log_end)
        while at < stop:
            letters, at = await log.read(number, at, stop, READ_MAX)
            yield letters
            await self._keep_right()

    def _target_of(self, letter: Letter) -> SeekTarget | None:
        """The target whose seek brings the message of this copy again; None if none does."""
        origin = letter.retry_copy.origin
        if origin.cluster != self._state.cluster:
            return None
        target = self._targets.get((origin.topic_id.hex(), origin.partition))
        return None if target is None or origin.offset < target.offset else target

    async def _find_held(self) -> None:
        """A message whose copy is under lease is delivered as that copy only: one holder (I3)."""
        document = self._document
        document.keep = []
        for target in document.targets:
            target.held = []
        if document.increase_only or self._state.broker_side_acks is not None:
            return
        async with open_log(self._state, self._context, self._retry_topic, "seek") as log:
            for number in log.partitions:
                taken = await self._records.take(self._retry_key(log, number), None)
                live = set() if taken is None else _live(taken[1])
                if not live:
                    continue
                async for letters in self._letters(log, number, min(live), max(live) + 1):
                    for letter in letters:
                        if letter.record.offset in live:
                            self._keep(number, letter)

    def _keep(self, number: int, letter: Letter) -> None:
        """Keep this copy in place of its message."""
        target = self._target_of(letter)
        if target is not None:
            target.held.append(letter.retry_copy.origin.offset)
            self._document.keep.append((number, letter.record.offset))

    async def _finish_copies(self) -> None:
        """Finish all other copies of messages that come again, without delivery (R8)."""
        document = self._document
        if document.increase_only or not any(target.done for target in document.targets):
            return
        if self._state.broker_side_acks is not None:
            return  # nothing moves to a retry topic there
        async with open_log(self._state, self._context, self._retry_topic, "seek") as log:
            for number in log.partitions:
                taken = await self._records.take(self._retry_key(log, number), None)
                if taken is None:
                    continue  # no sidecar read it yet: every copy still has to claim
                handle, snapshot = taken
                finished = ChunkedBitmap.of(snapshot.chunks)
                states = {slot.offset: slot.state for slot in snapshot.slots}
                keep = {offset for there, offset in document.keep if there == number}
                async for letters in self._letters(log, number, snapshot.watermark):
                    over = [
                        letter
                        for letter in letters
                        if letter.record.offset not in keep
                        and letter.record.offset not in finished
                        and self._comes_again(letter)
                    ]
                    if over:
                        await self._finish(handle, over, states)

    def _comes_again(self, letter: Letter) -> bool:
        target = self._target_of(letter)
        return target is not None and target.done

    async def _finish(
        self, handle: LedgerHandle, over: Sequence[Letter], states: Mapping[int, State]
    ) -> None:
        """Finish copies. `states`: of the slots when this sidecar took the record."""
        ops = [skip(letter.record.offset) for letter in over]
        reply = await self._records.decide(handle, ops)
        self._document.copies += len(ops)
        for letter, result in zip(over, reply.results, strict=True):
            if result.when_ms and states.get(letter.record.offset) not in _PENDING:
                await self._revived(letter)

    async def _revived(self, letter: Letter) -> None:
        """A late extend gave this copy a holder since `_find_held`: keep the copy, finish its
        origin.
        """
        target = self._target_of(letter)
        if target is not None:
            offset = letter.retry_copy.origin.offset
            target.held.append(offset)
            await self._decide_as_owner(target, [skip(offset)])

    async def _decide_as_owner(self, target: SeekTarget, ops: Sequence[Op]) -> None:
        taken = await self._records.take(self._key(target), target.offset)
        if taken is not None:
            await self._records.decide(taken[0], ops)

    # --- the partitions

    def _key(self, target: SeekTarget) -> LedgerKey:
        return target.key(self._state.cluster, self._state.name)

    async def _reset_all(self) -> None:
        document = self._document
        for target in document.targets:
            if target.done:
                continue
            await self._keep_right()
            document.cancelled |= await self._archive.cancelled(document.id)
            if document.cancelled:
                return
            if document.increase_only:
                moved = await self._increase(target)
            else:
                moved = await self._reset(target)
            await self._moved(target, moved=moved)

    async def _moved(self, target: SeekTarget, *, moved: bool) -> None:
        target.done = True
        self._document.moved += moved
        self._document.skipped += not moved
        await self._save()

    async def _reset(self, target: SeekTarget) -> bool:
        taken = await self._records.take(self._key(target), target.offset)
        if taken is None:
            raise StoreError("a record was made and is gone")
        handle, snapshot = taken
        if target.epoch is None:
            if not snapshot.created:
                await undo.keep(self._context.store, self._key(target), snapshot)
            target.epoch = snapshot.epoch
            await self._save()
        ops: list[Op] = [Reset(target.offset)] if snapshot.epoch <= target.epoch else []
        ops += [skip(offset) for offset in target.held]
        ops += _gaps(target)
        for start in range(0, len(ops), OPS_MAX):
            await self._records.decide(handle, ops[start : start + OPS_MAX])
        self._on_reset(handle.key, target.topic, target.epoch + 1, target.offset)
        return True

    async def _increase(self, target: SeekTarget) -> bool:
        """Move forward only: nothing that is finished becomes unfinished."""
        taken = await self._records.take(self._key(target), target.offset)
        if taken is None:
            raise StoreError("a record was made and is gone")
        handle, snapshot = taken
        if snapshot.watermark > target.offset and not target.finished:
            return False
        # Keep messages under lease or on their way, so the window begins at the first of them.
        pending = {slot.offset for slot in snapshot.slots if slot.state in _PENDING}
        floor = min([target.offset, *pending, *_live(snapshot)])
        ops: list[Op] = [Advance(floor)]
        if floor < target.offset:
            ops.append(Gap(floor, target.offset, Finish.SKIPPED))
        ops += _gaps(target)
        for start in range(0, len(ops), OPS_MAX):
            await self._records.decide(handle, ops[start : start + OPS_MAX])
        return True

    async def _check(self) -> None:
        """If the store rolled back meanwhile and forgot a reset, repeat that reset."""
        document = self._document
        if not document.increase_only:
            for target in document.targets:
                if target.done and target.epoch is not None:
                    snapshot = await self._records.peek(self._key(target))
                    if snapshot is None or snapshot.epoch <= target.epoch:
                        target.done = False
                        document.moved -= 1
                        document.stage = Stage.RESET
        if document.stage is Stage.CHECK:
            document.state = Progress.CANCELLED if document.cancelled else Progress.DONE


def _live(snapshot: Snapshot) -> set[int]:
    """Return the offsets of a record's messages that are under lease."""
    return {
        slot.offset
        for slot in snapshot.slots
        if slot.state is State.LEASED and slot.when_ms > snapshot.now_ms
    }


def _gaps(target: SeekTarget) -> list[Op]:
    return [Gap(start, end, Finish.SKIPPED) for start, end in target.finished]
