"""Places in a log that loses its tail and grows again, against a model that knows which message is
which (I1, I2).
"""

import asyncio
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ackd.core.log_generations import CUTS_MAX, LogGenerations
from ackd.ports import AssignedPlace, StoredAt
from ackd.store.memory import MemoryStore

KEEP_MS = 1_000
DRAWS = 4
"""Batches that are under way at once, so that they arrive in any order."""


@dataclass
class Broker:
    """One queue. `log`: (id, store time) by offset; `next`: what the group gets next."""

    now_ms: int = 1_000
    count: int = 0
    log: list[tuple[bytes, int]] = field(default_factory=list)
    next: int = 0

    def append(self, count: int) -> None:
        for _ in range(count):
            self.log.append((b"%d" % self.count, self.now_ms))
            self.count += 1
            self.now_ms += self.count % 2  # two messages have the same time

    def cut(self, length: int, back: int) -> None:
        """The tail is gone, and the group's position is set back, too."""
        del self.log[length:]
        self.next = max(min(self.next, length) - back, 0)
        self.now_ms += 1

    def batch(self, size: int) -> list[StoredAt]:
        start, self.next = self.next, min(self.next + size, len(self.log))
        return [
            StoredAt(name, AssignedPlace(0, start + at), stored_ms)
            for at, (name, stored_ms) in enumerate(self.log[start : self.next])
        ]


def days(chance: random.Random) -> Iterator[tuple[Any, ...]]:
    """What a broker and those who draw from it do, long enough for samples to be thinned."""
    cuts = 0
    for _ in range(chance.randrange(1, 80)):
        match chance.randrange(10):
            case 0 | 1 | 2:
                yield ("append", chance.randrange(1, 200))
            case 3 | 4 | 5 | 6:
                sizes = [chance.randrange(1, 33) for _ in range(chance.randrange(1, DRAWS + 1))]
                yield ("draw", chance.sample(range(len(sizes)), len(sizes)), sizes)
            case 7 if cuts < CUTS_MAX:
                cuts += 1
                yield ("cut", chance.choice([1, 3, 10, 40, 120, 10_000]), chance.randrange(20))
                # New messages may be beyond what was drawn of the old log, and come first.
                yield ("append", chance.choice([5, 60, 200]))
            case 8:
                yield ("forget",)
            case _:
                yield ("again", chance.randrange(400), chance.randrange(1, 33))


@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=True))
def test_i1_no_message_gets_the_place_of_another_one(chance: random.Random) -> None:
    """Whatever is lost, drawn in any order, drawn again, or forgotten by the store.

    I2: one that comes again has its place, also if its id is forgotten. But for those that came
    before anybody could see that the log was cut.
    """
    asyncio.run(_check(days(chance)))


async def _check(doings: Iterable[tuple[Any, ...]]) -> None:
    now_us = [0]
    places = MemoryStore(now_us=lambda: now_us[0]).places
    broker, owners = Broker(), dict[AssignedPlace, bytes]()
    known, unsure = dict[bytes, AssignedPlace](), set[bytes]()
    cut_unseen = False

    async def arrive(batch: list[StoredAt]) -> None:
        nonlocal cut_unseen
        placed = await places.assign("s", bytes(16), KEEP_MS, batch)
        cut_unseen = cut_unseen and not placed.cuts
        for message, place in zip(batch, placed.places, strict=True):
            assert owners.setdefault(place, message.id) == message.id, "a place of another message"
            assert known.setdefault(message.id, place) == place or message.id in unsure
            if cut_unseen:
                unsure.add(message.id)

    for what, *how in doings:
        match what:
            case "append":
                broker.append(*how)
            case "cut":
                lost, back = how
                cut_unseen = True
                broker.cut(max(len(broker.log) - lost, 0), back)
            case "draw":
                order, sizes = how
                batches = [broker.batch(size) for size in sizes]
                for at in order:
                    await arrive(batches[at])
            case "forget":
                now_us[0] += 3 * KEEP_MS * 1_000
            case _:
                start, size = how
                there = list(enumerate(broker.log))[: broker.next][start : start + size]
                await arrive([StoredAt(m, AssignedPlace(0, at), ms) for at, (m, ms) in there])


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=True), st.integers(1, 120))
def test_i2_no_clock_makes_a_message_new(chance: random.Random, count: int) -> None:
    """Set forward and back while one log grows; then everything comes again, in any order."""
    log, now_ms, messages = LogGenerations(), 10_000, list[tuple[int, int]]()
    for _ in range(count):
        now_ms = max(now_ms + chance.randrange(-300, 400), 1)
        batch = [(len(messages) + at, now_ms) for at in range(chance.randrange(1, 9))]
        assert {log.of(*each) for each in batch} == {(0, False)}
        log.seen(batch)
        messages += batch
    for each in chance.sample(messages, len(messages)):
        assert log.of(*each) == (0, False)
    assert log.cuts == []


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=True), st.integers(1, 60))
def test_i1_no_clock_makes_a_message_old(chance: random.Random, count: int) -> None:
    """A cut is seen while the clock is right; then it goes back and forth for as long as it may."""
    log, now_ms, length = LogGenerations(), 10_000, 0
    for generation in range(chance.randrange(2, 6)):
        now_ms = max(now_ms, *(each.stored_ms for each in log.samples), 0) + 1
        length = chance.randrange(length) if length else 0
        batch = [(length, now_ms)]
        for _ in range(count):
            assert {log.of(*each)[0] for each in batch} == {generation}
            log.seen(batch)
            length += len(batch)
            now_ms = max(now_ms + chance.randrange(-3_000, 3_000), 1)
            batch = [(length + at, now_ms) for at in range(chance.randrange(1, 9))]
        assert log.current == generation
