"""The Lua script against the reference record: random calls, a clock that the test sets.

The scripts run unchanged but for one line: instead of asking the server for the time they read it
from a key. Replies, errors and everything that a takeover reads must be the same, call by call.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from ackd.core.bitmap import CHUNK_BYTES
from ackd.core.ids import LedgerKey
from ackd.core.record import decide
from ackd.core.record.operations import (
    Advance,
    AskBlocker,
    ClaimOrigin,
    CloseOrigin,
    CopyRef,
    Drop,
    EndRepair,
    FinishOrigin,
    ForgetOriginRecords,
    Gap,
    Grant,
    LookUp,
    MarkDead,
    MoveToRetry,
    NameCopy,
    Op,
    PlaceCopy,
    RemakeChunk,
    ReplayAck,
    ReplayFinished,
    Reset,
    RestoreClaimed,
    RestoreMoved,
    Settle,
    Truncate,
    VouchCopy,
)
from ackd.core.record.protocol import CallStatus, Finish, Open, RecordCall, RecordReply, Snapshot
from ackd.core.record.settles import OF_VERB
from ackd.core.record.state import LAYOUT, PartitionRecord
from ackd.core.record.transitions import Outcome, Verb
from ackd.store import codec, scripts
from ackd.store.keys import Keys
from ackd.store.memory import MemoryStore
from tests.contract.store.owner import Owner
from tests.contract.store.saying import encoded, random_texts, stored_texts
from tests.contract.store.servers import connected
from tests.support.redis import Flavour, missing
from tests.support.require import require

TIME = 'redis.call("TIME")'
CLOCK_KEY = "test:clock"
START_US = 1_800_000_000_000_000
CHUNK = 1 << 15
RUNS = [b"run-a", b"run-b"]
SETTLES = list(OF_VERB)
PLAIN: dict[str, Callable[[int], Op]] = {
    "advance": Advance,
    "drop": Drop,
    "reset": Reset,
    "settled": lambda _: EndRepair(),
}
WEIGHTS = [30, 45, 5, 8, 3, 25, 6, 3, 1, 1]
LINES = [0, 0, 5, 5, (1 << 48) - 1]
BASES = [0, 40, 2_000, CHUNK - 20, CHUNK + 300, 3 * CHUNK + 5]


def with_clock(*parts: str) -> str:
    """A script that reads the time from a key."""
    text = scripts.source(*parts)
    assert text.count(TIME) == 1
    read = f'(function() local us = redis.call("GET", "{CLOCK_KEY}") '
    return text.replace(TIME, read + "return {math.floor(us / 1000000), us % 1000000} end)()")


def decode_snapshot(answer: list[bytes]) -> Snapshot:
    """Unpack the open script's answer."""
    snapshot, rest = codec.decode_head(answer)
    for slots in rest:
        snapshot.slots += slots
    return snapshot


@dataclass
class Pair:
    """The same record twice: in Python and on a server."""

    client: Any
    key: LedgerKey
    now_us: int = START_US
    run: bytes = RUNS[0]
    record: PartitionRecord | None = None
    term: int = 0
    seq: int = 0
    tokens: list[tuple[int, int, int, int]] = field(default_factory=list)
    sent: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.meta = Keys("test").ledger(self.key)
        self._apply = self.client.register_script(with_clock(*scripts.APPLY_PARTS))
        self._open = self.client.register_script(with_clock("prelude", "open"))

    def open(self, request: Open) -> Snapshot:
        """Open both, compare, return the answer."""
        self.client.set(CLOCK_KEY, self.now_us)
        answer = self._open(keys=[self.meta], args=[codec.encode_open(request, self.run)])
        got = decode_snapshot(answer)
        record, created = self.record, self.record is None
        if record is None:
            if request.create_at is None:
                assert got.verdict is CallStatus.ABSENT
                return got
            record = decide.create(request, request.create_at, self.run.decode())
        want = decide.open_record(record, request, self.now_us, self.run.decode(), created=created)
        assert got == want
        if got.verdict is CallStatus.OK:
            self.record, self.term, self.seq = record, got.term, got.seq
        return got

    def apply(self, call: RecordCall) -> RecordReply:
        """Apply to both, compare, return the answer."""
        self.client.set(CLOCK_KEY, self.now_us)
        (data,) = self._apply(keys=[self.meta], args=encoded((call, self.run)))
        return self.check(call, data)

    def check(self, call: RecordCall, data: bytes) -> RecordReply:
        """Let the record decide the call too; the script's answer must be the same."""
        got = codec.decode_reply(data)
        want = (
            RecordReply(CallStatus.ABSENT)
            if self.record is None
            else decide.apply(self.record, call, self.now_us, self.run.decode())
        )
        assert got == want
        if self.record is not None:
            assert stored_texts(self.client, self.meta) == list(self.record.texts._of.items())
        for op, result in zip(call.ops, got.results, strict=False):
            if result.outcome is Outcome.GRANTED:
                self.tokens.append((op.offset, result.fence, got.rollback_epoch, result.attempt))
            if result.outcome is Outcome.SENT:
                self.sent.append((op.offset, result.fence, got.rollback_epoch))
        return got

    def lose_chunk(self, kind: str, index: int) -> None:
        """Evict one chunk on both sides (slots have no counterpart in the reference)."""
        self.client.delete(f"{self.meta[:-1]}{kind}{index}")
        if kind == "b" and self.record is not None:
            self.record.finished.chunks.pop(index, None)

    def lose_origins(self) -> None:
        """Evict the origin records on both sides."""
        self.client.delete(f"{self.meta[:-1]}p")
        if self.record is not None:
            self.record.origins.clear()
            self.record.blocked.clear()


def _settle(rng: random.Random, pair: Pair, offset: int) -> Settle:
    """With a token that was given out, at times a wrong one."""
    if not pair.tokens:
        return Settle(Verb.ACK, offset, 5, 5, 1)
    offset, fence, rollback_epoch, attempt = rng.choice(pair.tokens[-40:])
    if rng.random() < 0.1:
        fence += rng.choice([-1, 1, 10**9])
    if rng.random() < 0.1:
        rollback_epoch ^= 1
    verb = rng.choice([Verb.ACK, *SETTLES])
    for_ms, counted = rng.choice([0, 1, 60, 500]), rng.random() < 0.7
    return Settle(verb, offset, fence, rollback_epoch, attempt, for_ms, counted=counted)


def _sending(rng: random.Random, pair: Pair, offset: int) -> Op:  # noqa: PLR0911 - a kind each
    """What sends a message back, and what its copies ask."""
    kind = rng.choice(["send", "send", "send", "mark", "place", "finish", "claim", "claim", "claim",
                       "close", "over", "over", "head", "restore", "restore", "name", "name",
                       "vouch", "vouch"])  # fmt: skip
    key = rng.choice(LINES)
    if kind == "send":
        if pair.tokens and rng.random() < 0.6:
            offset = rng.choice(pair.tokens[-40:])[0]
        return MoveToRetry(offset, rng.randrange(3), key)
    if kind == "head":
        return AskBlocker(key or 1)
    if kind == "mark":
        offset, fence, _, attempt = rng.choice(pair.tokens[-40:] or [(offset, 0, 0, 1)])
        most = max(attempt + rng.choice([-1, 0, 0, 1]), 0)
        return MarkDead(offset, fence, deliveries_max=most, claimed=rng.random() < 0.3)
    if kind == "place":
        due_ms = rng.choice([0, pair.now_us // 1000 + 60])
        return PlaceCopy(offset, rng.choice([0, pair.now_us]), 3, due_ms, rng.choice([0, 17]))
    offset, generation, rollback_epoch = rng.choice(pair.sent[-20:] or [(offset, 5, 5)])
    generation += rng.choice([-1, 1, *[0] * 18])
    if kind == "finish":
        return FinishOrigin(offset, generation, rollback_epoch, Finish.SENT)
    if kind in ("close", "restore"):
        close = CloseOrigin(offset, generation)
        return close if kind == "close" else _restore(rng, offset, generation, rollback_epoch)
    retry_copy = rng.choice([0, 0, 0, 1])
    if kind == "over":
        told = generation * (rng.random() < 0.7)
        return CloseOrigin(offset, told, finished=CopyRef(retry_copy, retry_copy + 7))
    if kind in ("name", "vouch"):
        copy = CopyRef(retry_copy, rng.choice([0, 7, 7, 8]))
        names = kind == "name"
        return NameCopy(offset, generation, copy) if names else VouchCopy(offset, generation, copy)
    rollback_epoch, must_deliver = rollback_epoch ^ (rng.random() < 0.1), rng.random() >= 0.8
    return ClaimOrigin(
        offset, generation, rollback_epoch, CopyRef(retry_copy, retry_copy + 7), must_deliver
    )


def _restore(rng: random.Random, offset: int, generation: int, rollback_epoch: int) -> Op:
    told = offset, generation + rng.choice([0, 0, 1_000]), rollback_epoch, rng.randrange(5)
    stored, released = rng.choice([True, False]), rng.choice([True, False])
    owner = RestoreMoved(*told, rng.choice(LINES), stored, released)
    claimed = RestoreClaimed(*told, CopyRef(rng.choice([0, 1]), 7))
    return owner if rng.random() < 0.5 else claimed


def _gap(rng: random.Random, offset: int) -> Op:
    length = rng.choice([0, 1, 5, 5, 5, 7, 9, 300, 300])
    if rng.random() < 0.15:
        length = rng.choice([CHUNK, 4 * CHUNK, 80 * CHUNK])
    reason, repair = rng.choice([0, int(Finish.EXPIRED)]), rng.random() < 0.3
    return Gap(offset, offset + length, reason, repair)


def _replay(rng: random.Random, pair: Pair, offset: int) -> Op:
    what, generation = rng.choices(["finish", "chunk", "origins"], [12, 5, 1])[0], 0
    if what == "chunk":
        return RemakeChunk(offset // CHUNK)
    if what == "origins":
        return ForgetOriginRecords(rng.randrange(1 << 16))
    if pair.sent and rng.random() < 0.5:
        offset, sent_as, _ = rng.choice(pair.sent[-20:])
        generation = sent_as + rng.choice([-1, 0, 1]) if rng.random() < 0.3 else 0
    counted, mark = rng.random() < 0.5, rng.choice([0, 0, 1, 2])
    if counted or generation:
        return ReplayAck(offset, generation, mark)
    return ReplayFinished(offset, mark)


def _moves(rng: random.Random, offset: int, *, resets: bool) -> Op:
    if not resets:
        return Advance(offset, repair=rng.random() < 0.4)
    if rng.random() < 0.33:
        return Truncate(offset, max(offset - rng.randrange(40), 0))
    return Reset(offset)


def random_op(rng: random.Random, pair: Pair) -> Op:
    """An operation that is likely to meet something."""
    offset = rng.choice(BASES) + int(rng.expovariate(1 / 12))
    kinds = ["grant", "settle", "finish", "hole", "replay", "sending", *PLAIN]
    kind = rng.choices(kinds, WEIGHTS)[0]
    match kind:
        case "grant":
            return Grant.of(offset, rng.choice([1, 50, 400]), rng.randrange(3))
        case "settle":
            token = _settle(rng, pair, offset)
            looks = rng.randrange(7) == 0
            look = LookUp(token.offset, token.fence, token.rollback_epoch, rng.random() < 0.5)
            return look if looks else token
        case "finish":
            token = _settle(rng, pair, offset)
            return FinishOrigin(
                token.offset, token.fence, token.rollback_epoch, rng.choice(list(Finish))
            )
        case "hole":
            return _gap(rng, offset)
        case "replay":
            return _replay(rng, pair, offset)
        case "sending":
            return _sending(rng, pair, offset)
        case "advance" | "reset":
            return _moves(rng, offset, resets=kind == "reset")
        case _:
            return PLAIN[kind](offset)


def _journal_from(rng: random.Random, record: PartitionRecord) -> int:
    """Nothing, some of the journal, all, or what is yet to come."""
    return max(rng.choice([0, 1, record.journal_next - rng.randrange(-2, 9)]), 0)


def random_open(rng: random.Random, pair: Pair) -> Open:
    """Take over, or read again."""
    return Open(
        pair.key,
        owner=rng.choice(["a#1", "b#2"]),
        rollback_epoch=rng.randrange(1 << 16),
        incarnation=rng.randrange(1, 1 << 48),
        grace_ms=rng.choice([0, 100]),
        create_at=rng.choice([0, 30, None]),
        term=rng.choice([0, 0, pair.term, pair.term, 5]),
        jump_ms=rng.choice([0, 0, 200, -150]),
        journal_from=0 if pair.record is None else _journal_from(rng, pair.record),
    )


def random_call(rng: random.Random, pair: Pair) -> RecordCall:
    """As the owner or as somebody else, with any number of operations."""
    owner = rng.random() < 0.7
    pair.seq += owner
    count = rng.choice([0, 1, 2, 5, 16, 17, 60])
    ops = [random_op(rng, pair) for _ in range(count)]
    return RecordCall(
        pair.key,
        ops,
        texts=random_texts(rng, ops),
        term=pair.term if owner else 0,
        seq=pair.seq - (rng.random() < 0.03) if owner else 0,
        incarnation=rng.choice([0, 0, 0, 77]) if rng.random() < 0.05 else 0,
        journal_from=rng.choice([0, 1, 5, pair.record.journal_next])
        if owner and pair.record
        else 0,
    )


def random_step(rng: random.Random, pair: Pair) -> None:
    """One call, opening, failover, loss or jump of the clock."""
    pair.now_us += rng.choice([0, 1, 900, 20_000, 120_000, -40_000])
    kind = rng.random()
    if kind < 0.04:
        pair.open(random_open(rng, pair))
    elif kind < 0.05:
        pair.run = rng.choice(RUNS)
    elif kind < 0.06:
        pair.lose_chunk("b", rng.choice([0, 1, 3]))
    elif kind < 0.065:
        pair.now_us += 3_700_000_000
    elif kind < 0.075:
        pair.now_us += 610_000_000
    elif kind < 0.08:
        pair.now_us += 14 * 3_600_000_000
    elif kind < 0.085:
        pair.lose_origins()
    else:
        pair.apply(random_call(rng, pair))


@pytest.fixture(scope="module", params=list(Flavour), ids=lambda flavour: flavour.value)
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    require(missing(request.param))
    with connected(request.param) as found:
        yield found


def _story(client: Any, seed: int, steps: int) -> Pair:
    client.flushall()
    rng = random.Random(seed)
    pair = Pair(client, LedgerKey("cl{u}ster", "sub:s", bytes(range(16)), seed % 7))
    if rng.random() < 0.9:
        pair.open(Open(pair.key, "a#1", 3, 9, 50, create_at=rng.choice([0, 30])))
    for _ in range(steps):
        random_step(rng, pair)
    pair.open(Open(pair.key, "last#1", 3, 9, 50, create_at=0))
    return pair


@contextmanager
def told(seed: int) -> Iterator[None]:
    """Tell which seed fails."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"seed {seed}")
        raise


@pytest.mark.timeout(600)
def test_the_script_decides_like_the_record(client: Any) -> None:
    for seed in range(60):
        with told(seed):
            _story(client, seed, 1 + seed)


def test_r19_blocked_keys_are_decided_like_in_the_record(client: Any) -> None:
    """Few offsets, two keys, all that blocks and frees; each kind of answer was seen."""
    seen: Counter[str] = Counter()
    for seed in range(25):
        client.flushall()
        rng = random.Random(seed)
        pair = Pair(client, LedgerKey("c", "s", bytes(16), 0))
        pair.open(Open(pair.key, "a#1", 3, 9, 50, create_at=0))
        for _ in range(60):
            pair.now_us += rng.choice([0, 900, 20_000])
            chance = rng.random()
            if chance < 0.05:
                snapshot = pair.open(random_open(rng, pair))
                seen["blocked"] += bool(snapshot.blocked)
                continue
            pair.seq += 1
            ops = [_about_keys(rng, pair) for _ in range(rng.choice([1, 1, 3, 8]))]
            if chance < 0.08:
                at = rng.randrange(12)
                cut = Truncate(at, rng.randrange(at + 1))
                ops.append(cut if rng.random() < 0.5 else Reset(at))
            texts = random_texts(rng, ops)
            reply = pair.apply(RecordCall(pair.key, ops, pair.term, pair.seq, texts=texts))
            seen["texts"] += reply.has_texts
            seen["notes"] += reply.has_notes
            seen["dropped"] += reply.dropped > 0
            seen.update(result.outcome.name for result in reply.results)
    wanted = "BLOCKED CLAIMED SENT FINISHED REFUSED HELD LOST blocked texts notes dropped"
    assert all(seen[name] > 5 for name in wanted.split()), seen


def _about_keys(rng: random.Random, pair: Pair) -> Op:
    offset = rng.randrange(12)
    if rng.random() < 0.25:
        return Grant.of(offset, rng.choice([1, 400]), rng.randrange(3))
    return _settle(rng, pair, offset) if rng.random() < 0.3 else _sending(rng, pair, offset)


@pytest.mark.timeout(600)
def test_the_calls_of_a_flush_are_decided_as_if_alone(client: Any) -> None:
    """One script call for several partitions: refused ones, lost chunks and upkeep among them."""
    for seed in range(40):
        with told(seed):
            _flushes(client, seed, 1 + seed % 30)


def test_r14_what_follows_forgotten_origin_records_is_decided_without_them(client: Any) -> None:
    """An ack in doubt counts as new once its lost origin record was forgotten in the same call."""
    with told(500):
        _flushes(client, 500, 18)


def _flushes(client: Any, seed: int, steps: int) -> None:
    client.flushall()
    rng = random.Random(seed)
    pairs = [Pair(client, LedgerKey("c", "s", bytes(16), number)) for number in range(4)]
    for pair in pairs[:3]:
        pair.open(Open(pair.key, "a#1", 3, 9, 50, create_at=rng.choice([0, 30])))
    for _ in range(steps):
        random_step(rng, rng.choice(pairs))
        now_us = max(pair.now_us for pair in pairs)
        client.set(CLOCK_KEY, now_us)
        together = rng.sample(pairs, rng.randrange(1, 5))
        calls = [random_call(rng, pair) for pair in together]
        answers = pairs[0]._apply(
            keys=[pair.meta for pair in together],
            args=encoded(*((c, pair.run) for c, pair in zip(calls, together, strict=True))),
        )
        for pair, call, data in zip(together, calls, answers, strict=True):
            pair.now_us = now_us
            pair.check(call, data)
    for pair in pairs:
        pair.open(Open(pair.key, "last#1", 3, 9, 50, create_at=0))


def test_no_key_of_a_record_has_a_ttl_and_chunks_are_whole(client: Any) -> None:
    """R14: a missing key must show, so none ends by itself and each chunk has its full length."""
    seen: set[str] = set()
    for seed in range(40):
        if seed >= 12 and len(seen) == 9:
            break
        pair = _story(client, seed, 40)
        for name in client.keys("test:v1:*"):
            assert client.ttl(name) == -1
            assert name.startswith(pair.meta[:-1].encode())
            suffix = name[len(pair.meta) - 1 :].decode()
            seen.add(suffix[0])
            if suffix[0] == "b":
                assert client.strlen(name) == CHUNK_BYTES
            if suffix[0] == "s":
                assert client.strlen(name) == 256 * 23
            if suffix[0] in "bs":
                assert client.hexists(pair.meta, suffix)
    assert seen == set("mbsxjpqto")


def test_a_record_of_another_layout_is_refused_and_stays_as_it_is(client: Any) -> None:
    """Its sizes and places may mean something else: no script reads on, none writes."""
    client.flushall()
    pair = Pair(client, LedgerKey("c", "s", bytes(16), 0))
    pair.open(Open(pair.key, "a#1", 3, 9, 0, create_at=0))
    for layout in (LAYOUT + 1, 0):
        head = client.hget(pair.meta, "c")
        client.hset(pair.meta, "c", bytes([layout]) + head[1:])
        there = client.hgetall(pair.meta)
        call = RecordCall(pair.key, [Grant.of(0, 1000, 1)], pair.term, pair.seq + 1)
        (data,) = pair._apply(keys=[pair.meta], args=encoded((call, pair.run)))
        assert codec.decode_reply(data).verdict is CallStatus.LAYOUT
        for request in (
            Open(pair.key, "b#1", 4, 9, 0, create_at=0),
            Open(pair.key, "a#1", 3, 9, 0, term=pair.term),
            Open(pair.key, "b#1", 4, 9, 0, peek=True),
        ):
            answer = pair._open(keys=[pair.meta], args=[codec.encode_open(request, pair.run)])
            assert decode_snapshot(answer).verdict is CallStatus.LAYOUT
        assert client.hgetall(pair.meta) == there


async def test_the_memory_store_refuses_another_layout_too() -> None:
    store = MemoryStore()
    owner = Owner(store)
    await owner.open()
    store.data.records[owner.key].layout = LAYOUT + 1
    assert (await owner.open()).verdict is CallStatus.LAYOUT
    assert (await owner.call(Advance(0))).verdict is CallStatus.LAYOUT


def test_r14_a_lost_slot_chunk_is_reported_and_made_good(client: Any) -> None:
    client.flushall()
    pair = Pair(client, LedgerKey("c", "s", bytes(16), 0))
    pair.open(Open(pair.key, "a#1", 3, 9, 0, create_at=0))

    def call(*ops: Op) -> RecordReply:
        pair.seq += 1
        call = RecordCall(pair.key, list(ops), pair.term, pair.seq)
        (data,) = pair._apply(keys=[pair.meta], args=encoded((call, pair.run)))
        return codec.decode_reply(data)

    assert call(Grant.of(300, 1000, 1)).results[0].outcome is Outcome.GRANTED
    pair.lose_chunk("s", 1)
    assert call(Grant.of(301, 1000, 1)).verdict is CallStatus.CHUNK_LOST
    assert call(Gap(0, 1000)).verdict is CallStatus.CHUNK_LOST
    assert call(Grant.of(5, 1000, 1)).verdict is CallStatus.OK
    request = Open(pair.key, "a#1", 3, 9, 0, term=pair.term)
    answer = pair._open(keys=[pair.meta], args=[codec.encode_open(request, pair.run)])
    snapshot = decode_snapshot(answer)
    assert snapshot.lost_chunks == [0]
    pair.seq = snapshot.seq
    assert call(RemakeChunk(0)).verdict is CallStatus.OK
    assert call(Grant.of(301, 1000, 1)).results[0].outcome is Outcome.GRANTED
