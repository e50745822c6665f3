"""Progress notes beside a record: every store keeps them as `ackd.core.record.notes` says (I8)."""

import random
from uuid import uuid4

import pytest

from ackd.core.ids import LedgerKey
from ackd.core.record.notes import NoteStore
from ackd.ports import Store, StoredNote

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
BOUND = 300
OFFSETS = range(12)


async def test_notes_are_kept_as_the_reference_keeps_them(store: Store) -> None:
    """Puts of several at a time, older fences, empty notes, drops, and a bound that is reached."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    draw = random.Random(seed)
    key = LedgerKey("c", f"notes {{{uuid4()}}}", bytes(16), 3)
    model = NoteStore()
    for _ in range(150):
        if draw.random() < 0.15:
            gone = draw.sample(OFFSETS, 2)
            await store.drop_notes(key, gone)
            model.drop(gone)
        notes = [
            StoredNote(
                draw.choice(OFFSETS),
                1_795_000_000_000_000 + draw.randrange(20),
                draw.randbytes(draw.choice((0, 1, 40, 90))),
            )
            for _ in range(draw.randint(1, 3))
        ]
        dropped = await store.put_notes(key, notes, BOUND)
        assert dropped == sum(model.put(n.offset, n.fence, n.text, BOUND) for n in notes)
        assert await store.notes(key, OFFSETS) == model.get(OFFSETS)
    other = LedgerKey("c", key.subscription, bytes(16), 4)
    assert await store.notes(other, OFFSETS) == [None] * len(OFFSETS)


async def test_one_note_may_be_larger_than_the_bound(store: Store) -> None:
    key = LedgerKey("c", f"notes-{uuid4()}", bytes(16), 0)
    assert await store.put_notes(key, [StoredNote(1, 1, b"x" * 500)], BOUND) == 0
    assert await store.put_notes(key, [StoredNote(2, 1, b"y" * 500)], BOUND) == 1
    assert await store.notes(key, [1, 2]) == [None, b"y" * 500]
