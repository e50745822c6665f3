"""The flusher on the memory store: order, fairness, bounds, and who hears what (R11, R12, R16)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from ackd.core.ids import LedgerKey
from ackd.core.record.operations import ClaimOrigin, CopyRef, Grant, LookUp, Op, PlaceCopy, Settle
from ackd.core.record.protocol import (
    CallStatus,
    CallTexts,
    ItemTexts,
    Open,
    RecordCall,
    RecordReply,
)
from ackd.core.record.transitions import Outcome, Verb
from ackd.errors import StoreCallError, StoreError, StoreUnknownError
from ackd.store.codec import encode_call, encode_texts
from ackd.store.flusher import Flusher, LedgerHandle, PartlyError
from ackd.store.memory import MemoryStore

KEYS = [LedgerKey("c", "s", bytes(16), partition) for partition in range(4)]


class SlowStore(MemoryStore):
    """A memory store whose calls wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes: list[list[RecordCall]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: StoreError | None = None

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Note the flush, wait for the gate, fail if told so."""
        self.flushes.append(list(calls))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return await super().apply(calls)


class Notes:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.landings: list[tuple[RecordCall, RecordReply]] = []
        self.failures: list[tuple[RecordCall, StoreError]] = []

    def on_reply(self, call: RecordCall, reply: RecordReply) -> None:
        """Note an answer."""
        self.landings.append((call, reply))

    def failed(self, call: RecordCall, error: StoreError) -> None:
        """Note a failure."""
        self.failures.append((call, error))


@asynccontextmanager
async def running(flusher: Flusher) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(flusher.run())
        try:
            yield
        finally:
            task.cancel()


def request(key: LedgerKey, term: int = 0) -> Open:
    return Open(key, "me#1", rollback_epoch=7, incarnation=9, grace_ms=0, create_at=0, term=term)


async def opened(flusher: Flusher, key: LedgerKey, notes: Notes | None = None) -> LedgerHandle:
    handle = LedgerHandle(key, listener=notes)
    snapshot = await flusher.open(request(key), handle)
    assert snapshot.verdict is CallStatus.OK
    return handle


def grant(offset: int, group: int = 1) -> Op:
    return Grant.of(offset, 10_000, group)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_arrives_meanwhile_becomes_one_call_per_partition() -> None:
    store = SlowStore()
    flusher = Flusher(store)
    async with running(flusher):
        first, second = [await opened(flusher, key) for key in KEYS[:2]]
        store.gate.clear()
        futures = [flusher.submit(first, [grant(1)])]
        await turns()
        futures += [flusher.submit(first, [grant(n)]) for n in (2, 3)]
        futures += [flusher.submit(second, [grant(4), grant(5)])]
        store.gate.set()
        replies = await asyncio.gather(*futures)
    assert [len(reply.results) for reply in replies] == [1, 1, 1, 2]
    assert all(r.outcome is Outcome.GRANTED for reply in replies for r in reply.results)
    assert [[len(c.ops) for c in calls] for calls in store.flushes] == [[1], [2, 2]]


async def test_only_what_waits_is_amended() -> None:
    """What was sent stays as it is, and so does what other handles have waiting."""
    store = SlowStore()
    flusher = Flusher(store)
    async with running(flusher):
        first, second = [await opened(flusher, key) for key in KEYS[:2]]
        store.gate.clear()
        futures = [flusher.submit(first, [grant(1)])]
        await turns()
        futures += [flusher.submit(handle, [grant(2), grant(3)]) for handle in (first, second)]
        flusher.amend(first, lambda op: grant(op.offset + 10) if op.offset == 2 else op)
        store.gate.set()
        await asyncio.gather(*futures)
    sent = [
        (call.key.partition, [op.offset for op in call.ops]) for c in store.flushes for call in c
    ]
    assert sent == [(0, [1]), (0, [12, 3]), (1, [2, 3])]


async def test_requests_of_one_turn_are_one_store_call() -> None:
    store = SlowStore()
    flusher = Flusher(store)
    told: list[tuple[RecordReply | StoreError, int]] = []
    async with running(flusher):
        handles = [await opened(flusher, key) for key in KEYS]
        store.gate.clear()
        for offset in range(32):
            if offset == 16:
                await turns()  # the first 16 are on their way
            handle = handles[offset % len(KEYS)]
            flusher.tell(handle, [grant(offset)], lambda *answer: told.append(answer))
        store.gate.set()
        await flusher.idle()
    assert [len(calls) for calls in store.flushes] == [len(KEYS), len(KEYS)]
    # Each is told the whole call's reply, and where its own result stands in it.
    each = 32 // len(KEYS) // 2
    assert sorted(start for _, start in told) == sorted([*range(each)] * 2 * len(KEYS))
    assert {len(a.results) for a, _ in told if isinstance(a, RecordReply)} == {each}


async def test_who_is_told_hears_before_anybody_who_waits_goes_on() -> None:
    flusher = Flusher(SlowStore())
    heard: list[str] = []
    async with running(flusher):
        handle = await opened(flusher, KEYS[0])

        async def wait() -> None:
            await flusher.submit(handle, [grant(1)])
            heard.append("waited")

        async with asyncio.TaskGroup() as group:
            group.create_task(wait())
            await asyncio.sleep(0)
            flusher.tell(handle, [grant(2)], lambda *_: heard.append("told"))
    assert heard == ["told", "waited"]


async def test_one_submitters_mistake_is_not_the_others(caplog: pytest.LogCaptureFixture) -> None:
    flusher = Flusher(SlowStore())

    def fails(_: RecordReply | StoreError, __: int) -> None:
        raise RuntimeError("a bug")

    async with running(flusher):
        handle = await opened(flusher, KEYS[0])
        flusher.tell(handle, [grant(1)], fails)
        assert (await flusher.submit(handle, [grant(2)])).verdict is CallStatus.OK
    assert "a submitter failed" in caplog.text


async def test_told_is_never_called_before_tell_is_back() -> None:
    flusher = Flusher(SlowStore(), queue_max=1)
    told: list[RecordReply | StoreError] = []
    async with running(flusher):
        handle = await opened(flusher, KEYS[0])
        flusher.tell(handle, [grant(1), grant(2)], lambda answer, _: told.append(answer))
        assert told == []
        await turns()
    assert [type(answer) for answer in told] == [StoreError]


async def test_sequence_numbers_follow_the_order_of_sending() -> None:
    store = SlowStore()
    flusher = Flusher(store)
    async with running(flusher):
        handle = await opened(flusher, KEYS[0])
        for offset in range(3):
            assert (await flusher.submit(handle, [grant(offset)])).verdict is CallStatus.OK
    sent = [call.seq for calls in store.flushes for call in calls]
    assert sent == sorted(set(sent))
    assert sent[0] == 2  # the open itself had number 1


async def test_r16_foreign_settles_reach_the_owners_listener_once() -> None:
    store = SlowStore()
    flusher = Flusher(store)
    notes = Notes()
    async with running(flusher):
        handle = await opened(flusher, KEYS[0], notes)
        other = LedgerHandle(KEYS[0])
        granted = (await flusher.submit(handle, [grant(8)])).results[0]
        rollback_epoch = notes.landings[0][1].rollback_epoch
        ack = Settle(Verb.ACK, 8, fence=granted.fence, rollback_epoch=rollback_epoch, attempt=1)
        assert (await flusher.submit(other, [ack])).results[0].outcome is Outcome.ACKED
        for _ in range(2):
            await flusher.submit(handle, [])
    journals = [[e.offset for e in reply.journal or []] for _, reply in notes.landings]
    assert journals == [[], [8], []]


async def test_owner_and_foreign_calls_of_one_partition_never_share_a_flush() -> None:
    store = SlowStore()
    flusher = Flusher(store)
    async with running(flusher):
        handle = await opened(flusher, KEYS[0])
        other = LedgerHandle(KEYS[0])
        await asyncio.gather(
            flusher.submit(handle, [grant(1)]),
            flusher.submit(other, [LookUp(1)]),
            flusher.submit(handle, [grant(2)]),
        )
    for calls in store.flushes:
        assert len({call.key for call in calls}) == len(calls)
    assert sum(len(call.ops) for calls in store.flushes for call in calls) == 3


async def test_a_busy_partition_leaves_room_for_the_others() -> None:
    store = SlowStore()
    flusher = Flusher(store, batch_max=4)
    async with running(flusher):
        busy, quiet = [await opened(flusher, key) for key in KEYS[:2]]
        futures = [flusher.submit(busy, [grant(n)]) for n in range(40)]
        futures.append(flusher.submit(quiet, [grant(0)]))
        await asyncio.gather(*futures)
    assert KEYS[1] in [call.key for call in store.flushes[0]]
    assert all(sum(len(c.ops) for c in calls) <= 4 for calls in store.flushes)


async def test_a_submission_larger_than_a_batch_travels_alone() -> None:
    store = SlowStore()
    flusher = Flusher(store, batch_max=4)
    async with running(flusher):
        handle = await opened(flusher, KEYS[0])
        small = flusher.submit(handle, [grant(0)])
        large = flusher.submit(handle, [grant(n) for n in range(1, 10)])
        assert len((await small).results) == 1
        assert len((await large).results) == 9
    assert [sum(len(c.ops) for c in calls) for calls in store.flushes] == [1, 9]


async def test_r12_an_unknown_outcome_reaches_every_submitter_and_the_listener() -> None:
    store = SlowStore()
    flusher = Flusher(store)
    notes = Notes()
    async with running(flusher):
        handle = await opened(flusher, KEYS[0], notes)
        store.error = StoreUnknownError("cut")
        futures = [flusher.submit(handle, [grant(n)]) for n in range(3)]
        errors = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(error) for error in errors] == [StoreUnknownError] * 3
        assert len({id(error) for error in errors}) == 3
        assert [type(error) for _, error in notes.failures] == [StoreUnknownError]
        store.error = None
        assert (await flusher.submit(handle, [grant(1)])).verdict is CallStatus.OK


async def test_a_flush_that_failed_in_parts_tells_each_its_own() -> None:
    class HalfStore(SlowStore):
        async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
            """The last call's server does not answer."""
            replies = await super().apply(calls)
            raise PartlyError([*replies[:-1], StoreUnknownError("its node is frozen")])

    store = HalfStore()
    flusher = Flusher(store)
    notes = Notes()
    async with running(flusher):
        first, second = [await opened(flusher, key, notes) for key in KEYS[:2]]
        good, bad = flusher.submit(first, [grant(1)]), flusher.submit(second, [grant(1)])
        assert (await good).results[0].outcome is Outcome.GRANTED
        with pytest.raises(StoreUnknownError, match="frozen"):
            await bad
    assert [call.key for call, _ in notes.landings] == [KEYS[0]]
    assert [call.key for call, _ in notes.failures] == [KEYS[1]]


async def test_i8_the_queue_is_bounded() -> None:
    store = SlowStore()
    flusher = Flusher(store, queue_max=3)
    async with running(flusher):
        handle = await opened(flusher, KEYS[0])
        store.gate.clear()
        futures = [flusher.submit(handle, [grant(n)]) for n in range(3)]
        with pytest.raises(StoreError, match="too much"):
            await flusher.submit(handle, [grant(9)])
        store.gate.set()
        await asyncio.gather(*futures)
        await asyncio.gather(*(flusher.submit(handle, [grant(n)]) for n in range(3, 6)))


async def test_cancelled_before_its_turn_is_not_sent_and_in_flight_is_still_heard() -> None:
    store = SlowStore()
    flusher = Flusher(store)
    notes = Notes()
    async with running(flusher):
        handle = await opened(flusher, KEYS[0], notes)
        store.gate.clear()
        flying = flusher.submit(handle, [grant(1)])
        await turns()
        waiting, kept = flusher.submit(handle, [grant(2)]), flusher.submit(handle, [grant(3)])
        flying.cancel()
        waiting.cancel()
        store.gate.set()
        assert (await kept).results[0].outcome is Outcome.GRANTED
    offsets = [[op.offset for op in call.ops] for call, _ in notes.landings]
    assert offsets == [[1], [3]]


async def test_open_waits_for_the_partitions_call_and_holds_its_submissions_only() -> None:
    store = SlowStore()
    flusher = Flusher(store)
    async with running(flusher), asyncio.TaskGroup() as group:
        handle, other = [await opened(flusher, key) for key in KEYS[:2]]
        store.gate.clear()
        flying = flusher.submit(handle, [grant(1)])
        await turns()
        reading = group.create_task(flusher.open(request(KEYS[0], handle.term), handle))
        await turns()
        held = flusher.submit(handle, [grant(2)])
        free = flusher.submit(other, [grant(1)])
        assert not reading.done()
        store.gate.set()
        replies = await asyncio.gather(flying, held, free)
        assert [reply.verdict for reply in replies] == [CallStatus.OK] * 3
        snapshot = await reading
        assert [slot.offset for slot in snapshot.slots] == [1]


async def test_a_stopped_flusher_fails_what_waits_and_refuses_more() -> None:
    store = SlowStore()
    flusher = Flusher(store)
    async with running(flusher):
        handle = await opened(flusher, KEYS[0])
        store.gate.clear()
        flying = flusher.submit(handle, [grant(1)])
        await turns()
        waiting = flusher.submit(handle, [grant(2)])
    with pytest.raises(StoreUnknownError):
        await flying
    with pytest.raises(StoreError) as caught:
        await waiting
    assert not isinstance(caught.value, StoreUnknownError)
    with pytest.raises(StoreError, match="stopped"):
        await flusher.submit(handle, [grant(3)])


async def test_idle_returns_when_everything_was_answered() -> None:
    store = SlowStore()
    flusher = Flusher(store)
    async with running(flusher):
        handle = await opened(flusher, KEYS[0])
        futures = [flusher.submit(handle, [grant(n)]) for n in range(5)]
        futures[2].cancel()
        await flusher.idle()
        done = [future.done() for future in futures]
    with suppress(asyncio.CancelledError):
        await futures[2]
    assert done == [True] * 5


class PackingStore(SlowStore):
    """Packs calls as the real stores do, all before anything is sent."""

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Raise what packing raises."""
        for call in calls:
            encode_call(call, b"run")
            encode_texts(1, call.texts)
        return await super().apply(calls)


@pytest.mark.parametrize(
    "bad",
    [
        ClaimOrigin(1 << 70, 1, 0, CopyRef(0, 0)),
        ClaimOrigin(-1, 1, 0, CopyRef(0, 0)),
        ClaimOrigin(1, -1, 0, CopyRef(0, 0)),
        PlaceCopy(1, 1, attempt=1 << 16),
        PlaceCopy(1, 1, first_s=1 << 32),
    ],
)
async def test_what_cannot_be_packed_fails_alone(bad: Op) -> None:
    """One caller's number out of range costs neither the others their answers nor the task."""
    flusher = Flusher(PackingStore())
    notes = Notes()
    async with running(flusher):
        first, second = [await opened(flusher, key, notes) for key in KEYS[:2]]
        reason = CallTexts([ItemTexts(0, last=b"no shop")])
        good = [
            flusher.submit(first, [grant(1)]),
            flusher.submit(second, [grant(2)]),
        ]
        wrong = flusher.submit(first, [bad, grant(3)])
        good.append(flusher.submit(first, [grant(4)]))
        replies = await asyncio.gather(*good)
        with pytest.raises(StoreCallError):
            await wrong
        retry = Settle(Verb.RETRY, 1, replies[0].results[0].fence)
        later = await flusher.submit(first, [retry], reason)
    outcomes = [each.outcome for reply in replies for each in reply.results]
    assert outcomes == [Outcome.GRANTED] * 3
    assert later.verdict is CallStatus.OK
    # The partition hears of all items once.
    assert [(call.ops, type(error)) for call, error in notes.failures] == [
        ([bad, grant(3)], StoreCallError)
    ]
    landed = [op.offset for call, _ in notes.landings for op in call.ops]
    assert sorted(landed) == [1, 1, 2, 4]


async def test_a_handle_whose_calls_cannot_be_packed_fails_alone() -> None:
    flusher = Flusher(PackingStore())
    async with running(flusher):
        good = await opened(flusher, KEYS[0])
        bad = LedgerHandle(KEYS[1], incarnation=1 << 70)
        long = LedgerHandle(KEYS[2])
        told = flusher.submit(good, [grant(1)])
        wrong = [
            flusher.submit(bad, [grant(2)]),
            flusher.submit(long, [grant(2)], CallTexts([ItemTexts(0, last=b"x" * 70_000)])),
        ]
        assert (await told).results[0].outcome is Outcome.GRANTED
        answers = await asyncio.gather(*wrong, return_exceptions=True)
        assert [type(each) for each in answers] == [StoreCallError] * 2
        assert (await flusher.submit(good, [grant(3)])).results[0].outcome is Outcome.GRANTED


async def test_texts_of_joined_submissions_belong_to_their_items() -> None:
    """Each part hears that the record has texts; what a bound dropped is told once."""
    store = MemoryStore()
    flusher = Flusher(store)
    async with running(flusher):
        handle = await opened(flusher, KEYS[0])
        granted = await flusher.submit(handle, [grant(1), grant(2), grant(3)])
        extends = [
            Settle(Verb.EXTEND, offset, result.fence, granted.rollback_epoch, 1, 60_000)
            for offset, result in enumerate(granted.results, 1)
        ]
        parts = [
            flusher.submit(handle, extends[:2], CallTexts([ItemTexts(1, note=b"two")], 5)),
            flusher.submit(handle, extends[2:], CallTexts([ItemTexts(0, note=b"three")], 5)),
        ]
        replies = await asyncio.gather(*parts)
    assert [len(reply.results) for reply in replies] == [2, 1]
    assert [(reply.has_texts, reply.has_notes) for reply in replies] == [(True, True)] * 2
    assert [reply.dropped for reply in replies] == [1, 0]
    found = await store.texts(KEYS[0], [1, 2, 3])
    assert [texts and texts.note for texts in found] == [None, None, b"three"]
