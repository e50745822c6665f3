"""What calls say of failures, at random, and what a server keeps of it."""

import random
from typing import Any

from ackd.core.record.operations import Op
from ackd.core.record.protocol import FailureTexts, RecordCall
from ackd.core.record.transitions import Verb
from ackd.store import codec

FAILURES = {Verb.RETRY, Verb.DEAD, Verb.PLACE_COPY, Verb.MARK_DEAD}


def random_reasons(rng: random.Random, ops: list[Op]) -> list[FailureTexts]:
    """Of some of the items that can bring a failure, and of some that can't."""
    texts = [b"no disk", b"x" * 1024, b"\0", "w\u00e4re".encode()]
    return [
        FailureTexts(item, rng.choice([b"", *texts]), rng.choice(texts))
        for item, op in enumerate(ops)
        if rng.random() < (0.6 if op.verb in FAILURES else 0.02)
    ]


def encoded(*calls: tuple[RecordCall, bytes]) -> list[bytes]:
    """The arguments of one script call, as `RedisStore` makes them."""
    args = [codec.encode_call(call, run) for call, run in calls]
    reasons = [
        codec.encode_reasons(n, call.reasons)
        for n, (call, _) in enumerate(calls, 1)
        if call.reasons
    ]
    return args + reasons


def stored_errors(client: Any, meta: str) -> dict[int, tuple[bytes, bytes]]:
    """By offset; their number stands in the record's head."""
    stored: dict[bytes, bytes] = client.hgetall(f"{meta[:-1]}e")
    assert int(client.hget(meta, "e") or 0) == len(stored)
    return {int(offset): codec.decode_error(raw) for offset, raw in stored.items()}
