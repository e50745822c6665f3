"""What broker message ids cost in the store (I8): at most 64 MB at 10,000 messages/s.

`ACKD_TEST_IDS_PER_S=10000` for the figure of docs/operate/capacity.md.
"""

import os
import random
import uuid
from typing import Any

import pytest

from ackd.core.known_ids import IN_BUCKET, SLICES, KnownIds, digest
from ackd.core.sources import COPIES
from ackd.engine.ownership.broker_acks import KEEP_MS
from ackd.ports import AssignedPlace, StoredAt
from ackd.store.keys import Keys
from ackd.store.places import RedisPlaces
from ackd.store.scripts import Script
from tests.contract.store.test_assigned_places import TOPIC, done
from tests.contract.store.test_differential import with_clock

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

PER_S = int(os.environ.get("ACKD_TEST_IDS_PER_S", "200"))
BYTES_MAX = 64_000_000 * PER_S // 10_000
BATCH = 32
QUEUES = 8
KEPT_MS = KEEP_MS + 2 * 15_000
"""With the default of `invisible_duration_ms`."""
LONG = 2.5
"""So many times as long, that slices come and go."""


def test_i8_ids_at_a_high_rate_take_little_memory_and_each_is_found(client: Any) -> None:
    client.flushall()
    script = client.register_script(with_clock("ids", "places"))

    async def run(key: str, _: Script, words: Any) -> Any:
        return script(keys=[key], args=words)

    places, now_us = RedisPlaces(Keys("test"), run), 1_800_000_000_000_000
    before, most = client.info("memory")["used_memory"], 0
    rng, known = random.Random(7), dict[bytes, AssignedPlace]()
    head, count = uuid.UUID(int=7).hex[:18].upper(), round(PER_S * KEPT_MS / 1000 * LONG)
    for first in range(0, count, BATCH):
        now_us += BATCH * 1_000_000 // PER_S
        client.set("test:clock", now_us)
        batch = [
            StoredAt(b"01%s%016X" % (head.encode(), n), AssignedPlace(n % QUEUES, n // QUEUES), 1)
            for n in range(first, first + BATCH)
        ]
        done(places.assign("s", TOPIC, KEPT_MS, batch))
        if first > count - PER_S * KEPT_MS // 1000 and rng.random() < 0.1:
            known[batch[0].id] = batch[0].place
        if first % (BATCH * 256) == 0:
            most = max(most, client.info("memory")["used_memory"] - before)
    for message, place in known.items():
        copy = StoredAt(message, AssignedPlace(COPIES, 5), 1)
        assert done(places.assign("s", TOPIC, KEPT_MS, [copy])).places == [place]
    print(f"{most} bytes at {PER_S}/s, {len(known)} found")  # noqa: T201  -- a figure of the docs
    assert known
    assert most <= BYTES_MAX, (most, BYTES_MAX)


def test_slices_grow_with_the_rate_and_shrink_again() -> None:
    ids, number, now_ms = KnownIds[int](), 0, 0
    for per_call in (1, 500, 1):
        for _ in range(600):
            now_ms += 100
            ids.turn(now_ms, 10_000, tick=True)
            for _ in range(per_call):
                ids.keep(digest(b"%d" % number), number)
                number += 1
        newest = ids.slices[-1]
        # As many as the one before had, in buckets of the right size.
        wanted = len(ids.slices[-2].places) / IN_BUCKET
        assert wanted / 2 <= 1 << newest.bits <= max(2 * wanted, 1)
        assert len(ids.slices) <= SLICES + 3
