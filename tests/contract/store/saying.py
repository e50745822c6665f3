"""Texts that calls bring, at random, and what a server keeps of them."""

import random
from typing import Any

from ackd.core.record.delivery_events import DeliveryEvent, with_event
from ackd.core.record.operations import Op
from ackd.core.record.protocol import CallTexts, ItemTexts, MessageTexts, RecordCall
from ackd.core.record.settles import OF_VERB
from ackd.core.record.transitions import Outcome, Verb
from ackd.store import codec

REPORTING = {verb for verb, rule in OF_VERB.items() if rule.reason or rule.note} | {
    Verb.PLACE_COPY,
    Verb.MARK_DEAD,
    Verb.GRANT,
    Verb.LOOK_UP,
}


def random_texts(rng: random.Random, ops: list[Op]) -> CallTexts:
    """Of some of the items that can bring one, and of some that can't; under a bound at times."""
    texts = [b"no disk", b"x" * 1024, b"\0", "w\u00e4re".encode()]
    items = []
    for item, op in enumerate(ops):
        if rng.random() < (0.6 if op.verb in REPORTING else 0.02):
            first, last, note = (rng.choice([b"", *texts]) for _ in range(3))
            history = random_history(rng) if op.verb is Verb.PLACE_COPY else b""
            holder = rng.choice([b"", b"worker-1", b"y" * 150])
            items.append(ItemTexts(item, first, last, note, history, holder))
    return CallTexts(items, rng.choice([1 << 20, 1 << 20, 2_500, 20]))


def random_history(rng: random.Random) -> bytes:
    """As an origin record may have it: empty, short, or full."""
    history = b""
    for fence in range(rng.choice([0, 0, 2, 40])):
        event = DeliveryEvent(Outcome.RETRYING, 1, fence, fence + 1, b"w" * rng.randrange(90))
        history = with_event(history, event)
    return history


def encoded(*calls: tuple[RecordCall, bytes]) -> list[bytes]:
    """The arguments of one script call, as `RedisStore` makes them."""
    args = [codec.encode_call(call, run) for call, run in calls]
    return args + [
        codec.encode_texts(n, call.texts)
        for n, (call, _) in enumerate(calls, 1)
        if call.texts.items
    ]


def stored_texts(client: Any, meta: str) -> list[tuple[int, MessageTexts]]:
    """By offset, in the order of writing; the head's totals are right."""
    stored: dict[bytes, bytes] = client.hgetall(f"{meta[:-1]}t")
    order: list[bytes] = client.zrange(f"{meta[:-1]}o", 0, -1)
    assert sorted(stored) == sorted(order)
    found = [(int(offset), codec.decode_texts(stored[offset])) for offset in order]
    total = client.hget(meta, "t")
    if not found:
        assert total is None
        return []
    size = sum(len(text) for _, texts in found for text in texts)
    notes = sum(bool(texts.note) for _, texts in found)
    assert [int.from_bytes(part, "big") for part in (total[:4], total[4:10], total[10:14])] == [
        len(found),
        size,
        notes,
    ]
    return found
