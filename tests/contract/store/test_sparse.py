"""A log that numbers sparsely (room for a producer's batch in each entry): the script holds to the
reference record, and what a lease costs does not grow with the messages under lease.
"""

import random
from typing import Any

import pytest

from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Advance, Gap, Grant, Op, Settle
from ackd.core.record.protocol import Open, RecordCall
from ackd.core.record.transitions import Outcome, Verb
from tests.contract.store.test_differential import Pair

ENTRIES = 120


def story(client: Any, seed: int, stride: int) -> int:
    """Lease entries with holes between, in calls of any size, ack some, open again and again."""
    client.flushall()
    rng = random.Random(seed)
    pair = Pair(client, LedgerKey("c", "s", bytes(16), 0))
    pair.open(Open(pair.key, "a#1", 3, 9, 0, create_at=0))
    at, acked, waiting = 0, 0, []
    while at < ENTRIES:
        ops: list[Op] = []
        for _ in range(rng.choice([1, 3, 16, 17, 32])):
            offset = at * stride
            members = rng.choice([1, 1, 1, 2, min(stride, 40)])
            ops += [Grant.of(offset + each, 60_000, 1) for each in range(members)]
            if members < stride:
                ops.append(Gap(offset + members, offset + stride))
            at += 1
        if rng.random() < 0.3:
            start = rng.randrange(at * stride)
            ops.append(Gap(start, start + rng.randrange(1, 4 * stride)))
        if rng.random() < 0.1:
            ops.append(Advance(0))
        reply = pair.apply(RecordCall(pair.key, ops, pair.term, pair.seq + 1))
        pair.seq += 1
        waiting += [
            Settle(Verb.ACK, op.offset, result.fence, reply.rollback_epoch, 1)
            for op, result in zip(ops, reply.results, strict=True)
            if result.outcome is Outcome.GRANTED
        ]
        rng.shuffle(waiting)
        count = rng.randrange(len(waiting) + 1)
        reply = pair.apply(RecordCall(pair.key, waiting[:count], pair.term, pair.seq + 1))
        pair.seq += 1
        acked += sum(each.outcome is Outcome.ACKED for each in reply.results)
        del waiting[:count]
        if rng.random() < 0.2:
            pair.open(Open(pair.key, "a#1", 3, 9, 0, create_at=0))
    pair.open(Open(pair.key, "a#1", 3, 9, 0, create_at=0))
    return acked


@pytest.mark.parametrize("stride", [16, 300, 1024])
@pytest.mark.timeout(120)
def test_sparse_offsets_are_decided_like_in_the_record(client: Any, stride: int) -> None:
    for seed in range(3):
        assert story(client, seed, stride) > ENTRIES // 4, f"seed {seed}"


def test_a_lease_is_no_dearer_with_many_chunks_open(client: Any) -> None:
    """No call looks through the names of all chunks."""
    client.flushall()
    pair = Pair(client, LedgerKey("c", "s", bytes(16), 0))
    pair.open(Open(pair.key, "a#1", 3, 9, 0, create_at=0))
    client.config_resetstat()
    for at in range(40):
        ops: list[Op] = [Grant.of(at * 1024, 60_000, 1)]
        ops.append(Gap(at * 1024 + 1, (at + 1) * 1024))
        pair.seq += 1
        pair.apply(RecordCall(pair.key, ops, pair.term, pair.seq))
    assert "cmdstat_hkeys" not in client.info("commandstats")
