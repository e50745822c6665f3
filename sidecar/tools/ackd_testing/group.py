"""What a group promises: each partition assigned to one member, handed over, taken from the dead.

Members in processes of their own are killed and frozen; what they hear is read from their output.
"""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass

import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Broker, Committed, Lost, Revoked
from ackd_testing.lab import Bench, Lab, fill, new_group
from ackd_testing.needs import needs
from ackd_testing.reader import Reader
from ackd_testing.wait import eventually

QUIET_S = 0.5
HAND_OVER_S = 2.0
"""Rule R34: so long a hand-over is waited for."""


@pytest.mark.asyncio
class GroupContract:
    """Subclass it with a fixture `lab`."""

    async def test_one_member_gets_everything(self, lab: Lab) -> None:
        """All partitions of all its topics, those of no other topic."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            one, two, _ = await bench.topic(3), await bench.topic(1), await bench.topic(2)
            reader = await bench.join(broker, [one[0].topic, two[0].topic])
            want = {*one, *two}
            await reader.until(lambda: reader.assigned == want, "all", lab.rebalance_s)

    @needs("positions")
    async def test_a_member_reads_one_more_topic(self, lab: Lab) -> None:
        """Asked for before the start or after it; what it has already stays with it."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            one, two, three = await bench.topic(2), await bench.topic(1), await bench.topic(1)
            reader = await bench.join(broker, [one[0].topic])
            await reader.until(lambda: reader.assigned == {*one}, "its own", lab.rebalance_s)
            reader.fetch_from(one[0], 0)
            for more, want in ((two, {*one, *two}), (three, {*one, *two, *three})):
                await reader.consumer.also(more[0].topic)
                await reader.consumer.also(more[0].topic)
                await reader.until(
                    lambda want=want: reader.assigned == want,  # type: ignore[misc]
                    "one more",
                    lab.rebalance_s,
                )
            names = {info.topic for info in await reader.consumer.topics()}
            assert names == {one[0].topic, two[0].topic, three[0].topic}
            await fill(broker, one[0], [b"x"])
            await reader.until(lambda: reader.records[one[0]], "fetching goes on")

    @needs("positions")
    async def test_topics_and_retry_topics_are_shared_apart(self, lab: Lab) -> None:
        """Nobody gets the retry topic instead of a part of the topics, though one that joined first
        had all of both.
        """
        async with lab.bench() as bench:
            one, whole = await _with_retry_topic(bench)
            first = await bench.join(one.broker, [one.topic], one.group)
            await first.consumer.also(one.retry)
            await first.until(lambda: first.assigned == whole, "all", lab.rebalance_s)
            second = await bench.join(await bench.broker(), [one.topic], one.group)
            await second.consumer.also(one.retry)
            await _halves([one.topic, one.retry], (first, second), lab.rebalance_s)
            assert first.assigned | second.assigned == whole

    @needs("positions")
    async def test_retry_topics_that_come_later_are_shared_apart(self, lab: Lab) -> None:
        """The members have shared the topic when they hear of the retry topic, one by one."""
        async with lab.bench() as bench:
            one, whole = await _with_retry_topic(bench)
            first = await bench.join(one.broker, [one.topic], one.group)
            second = await bench.join(await bench.broker(), [one.topic], one.group)
            await _halves([one.topic], (first, second), lab.rebalance_s)
            for each in (second, first):
                await each.consumer.also(one.retry)
            await _halves([one.topic, one.retry], (first, second), lab.rebalance_s)
            assert first.assigned | second.assigned == whole

    async def test_groups_are_independent(self, lab: Lab) -> None:
        """Two groups get everything each."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = set(await bench.topic(3))
            topic = next(iter(parts)).topic
            for _ in range(2):
                reader = await bench.join(broker, [topic])
                await reader.until(
                    lambda reader=reader: reader.assigned == parts,  # type: ignore[misc]
                    "all",
                    lab.rebalance_s,
                )

    @needs("positions")
    async def test_two_members_share(self, lab: Lab) -> None:
        """Each gets a part, no partition is with both; the first one's fetching goes on."""
        async with lab.bench() as bench:
            parts = await bench.topic(4)
            group = new_group()
            brokers = await bench.broker(), await bench.broker()
            first = await bench.join(brokers[0], [parts[0].topic], group)
            await first.until(lambda: first.assigned == set(parts), "all", lab.rebalance_s)
            for part in parts:
                first.fetch_from(part, 0)
            second = await bench.join(brokers[1], [parts[0].topic], group)
            count = await _balance(lab, (first, second), brokers[0], parts)
            assert first.of(Revoked)
            assert not first.of(Lost)
            await first.until(lambda: all(first.ended(part, count) for part in parts), "all ends")
            for part in parts:
                assert first.offsets(part) == list(range(count))

    @needs("positions")
    async def test_more_members_than_partitions(self, lab: Lab) -> None:
        """Somebody gets nothing, and takes over when another one leaves."""
        async with lab.bench() as bench:
            (part,) = await bench.topic()
            group = new_group()
            first = await bench.join(await bench.broker(), [part.topic], group)
            await first.until(lambda: first.assigned, "assigned", lab.rebalance_s)
            second = await bench.join(await bench.broker(), [part.topic], group)
            await second.during(QUIET_S)
            await first.during(QUIET_S)
            assert len(first.assigned) + len(second.assigned) == 1
            holder, other = (first, second) if first.assigned else (second, first)
            await holder.consumer.close()
            await other.until(lambda: other.assigned == {part}, "the rest", lab.rebalance_s)

    @needs("positions")
    async def test_orderly_leave(self, lab: Lab) -> None:
        """After `close` the others get what it had, and what it committed last is there."""
        async with lab.bench() as bench:
            parts = await bench.topic(2)
            group = new_group()
            first = await bench.join(await bench.broker(), [parts[0].topic], group)
            await first.until(lambda: first.assigned == set(parts), "all", lab.rebalance_s)
            await first.consumer.commit({parts[0]: Committed(12, "bye")})
            second = await bench.join(await bench.broker(), [parts[0].topic], group)
            async with asyncio.TaskGroup() as tasks:
                # The one that leaves still hears events until it is closed.
                listening = tasks.create_task(first.during(lab.rebalance_s))
                await second.until(lambda: second.assigned, "its part", lab.rebalance_s)
                listening.cancel()
            await first.consumer.close()
            await second.until(lambda: second.assigned == set(parts), "all", lab.rebalance_s)
            found = await second.consumer.committed(parts)
            assert found[parts[0]] == Committed(12, "bye")

    @needs("positions")
    async def test_r34_revoke_waits_for_the_hand_over(self, lab: Lab) -> None:
        """Until `done` it is assigned to nobody else, and its holder can still commit (R34)."""
        async with lab.bench() as bench:
            first, second = await _asked_to_give(bench)
            event = first.of(Revoked)[0]
            (given,) = event.partitions
            await second.during(QUIET_S)
            assert not second.assigned, "given away before the hand-over was done"
            await first.consumer.commit({given: Committed(42, "handed over")})
            event.done()
            event.done()
            await second.until(lambda: second.assigned == {given}, "its part", lab.rebalance_s)
            found = await second.consumer.committed([given])
            assert found == {given: Committed(42, "handed over")}

    @needs("positions")
    async def test_r34_revoke_waits_two_seconds_at_most(self, lab: Lab) -> None:
        """An engine that never answers holds nobody up for ever (rule R34)."""
        async with lab.bench() as bench:
            first, second = await _asked_to_give(bench)
            began = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(first.during(lab.rebalance_s))
                await second.until(lambda: second.assigned, "its part", lab.rebalance_s)
                listening.cancel()
            assert time.monotonic() - began < HAND_OVER_S + lab.rebalance_s / 2

    @needs("positions")
    async def test_pattern(self, lab: Lab) -> None:
        """A topic that starts with `^` is an expression: topics made later are seen, but not ackd's
        own ones (rule R25).
        """
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            own = broker.dead_letter_topic(part.topic)
            reader = await bench.join(broker, [f"^({part.topic}|{own}).*"])
            await reader.until(lambda: reader.assigned == {part}, "the first", lab.refresh_s)
            await broker.ensure_topic(own, {"partitions": "1"})
            await lab.create_topic(f"{part.topic}.more", 2)
            await lab.create_topic(f"other.{part.topic}", 2)
            await reader.until(lambda: len(reader.assigned) >= 3, "the later one", lab.refresh_s)
            names = {info.topic for info in await reader.consumer.topics()}
            assert names == {part.topic, f"{part.topic}.more"}

    async def test_events_end_with_close(self, lab: Lab) -> None:
        """One that waits for events when the consumer is closed hears of it as BrokerError."""
        async with lab.bench() as bench:
            (part,) = await bench.topic()
            reader = await bench.join(await bench.broker(), [part.topic])
            await reader.until(lambda: reader.assigned, "assigned", lab.rebalance_s)

            async def listen() -> None:
                while True:
                    await reader.consumer.events()

            async def wait() -> None:
                with pytest.raises(BrokerError):
                    await listen()

            async with asyncio.timeout(lab.rebalance_s), asyncio.TaskGroup() as tasks:
                tasks.create_task(wait())
                await asyncio.sleep(0)
                await reader.consumer.close()

    @needs("positions")
    async def test_r5_killed_member_is_replaced(self, lab: Lab) -> None:
        """What a process killed with -9 had is assigned to another, within `loss_s`."""
        async with lab.bench() as bench:
            parts = set(await bench.topic(4))
            topic = next(iter(parts)).topic
            group = new_group()
            process = await bench.process(group, [topic])
            await process.until_assigned(parts, lab.loss_s)
            reader = await bench.join(await bench.broker(), [topic], group)
            await reader.until(lambda: len(reader.assigned) == 2, "its part", lab.loss_s)
            await eventually(lambda: len(process.assigned) == 2, "the rest there", lab.loss_s)
            assert process.assigned == parts - reader.assigned
            await process.kill()
            await reader.until(lambda: reader.assigned == parts, "all", lab.loss_s)

    @needs("positions")
    async def test_r5_frozen_member_is_replaced_and_told(self, lab: Lab) -> None:
        """A process that stands still loses its partitions; awake again it hears `Lost`."""
        async with lab.bench() as bench:
            parts = set(await bench.topic(2))
            topic = next(iter(parts)).topic
            group = new_group()
            process = await bench.process(group, [topic])
            await process.until_assigned(parts, lab.loss_s)
            process.signal(signal.SIGSTOP)
            reader = await bench.join(await bench.broker(), [topic], group)
            await reader.until(lambda: reader.assigned == parts, "all", lab.loss_s)
            process.signal(signal.SIGCONT)
            await eventually(lambda: process.lost == parts, "the sleeper hears it", lab.loss_s)
            # It is a member again and gets its share back in good order.
            await reader.until(lambda: len(reader.assigned) == 1, "shared again", lab.loss_s)
            assert not reader.of(Lost)


@dataclass(frozen=True)
class _Named:
    """A group, what it reads, and a connection."""

    broker: Broker
    group: str
    topic: str
    retry: str


async def _with_retry_topic(bench: Bench) -> tuple[_Named, set[TopicPartition]]:
    """A topic and a retry topic of four partitions each; all of them."""
    broker, parts, group = await bench.broker(), await bench.topic(4), new_group()
    retry = broker.retry_topic(group)
    await broker.ensure_topic(retry, {"partitions": "4"})
    named = _Named(broker, group, parts[0].topic, retry)
    return named, {*parts, *(TopicPartition(retry, number) for number in range(4))}


async def _halves(topics: list[str], readers: tuple[Reader, Reader], within_s: float) -> None:
    """Wait until each has half of each topic, and both have none of it in common."""
    first, second = readers

    def shared() -> bool:
        counts = {
            sum(at.topic == topic for at in each.assigned) for topic in topics for each in readers
        }
        return counts == {2} and not first.assigned & second.assigned

    async with asyncio.timeout(within_s):
        while not shared():
            await first.during(0.02)
            await second.during(0.02)


async def _balance(
    lab: Lab, readers: tuple[Reader, Reader], broker: Broker, parts: list[TopicPartition]
) -> int:
    """Publish while two members come to share; returns how many went to each partition."""
    first, second = readers
    count = 0
    async with asyncio.timeout(lab.rebalance_s):
        while not (first.assigned and second.assigned and _all_given(readers, parts)):
            for part in parts:
                await fill(broker, part, [b"%d" % count])
            count += 1
            await first.during(0.02)
            await second.during(0.02)
            assert not first.assigned & second.assigned, "with both"
    assert abs(len(first.assigned) - len(second.assigned)) <= 1
    return count


def _all_given(readers: tuple[Reader, Reader], parts: list[TopicPartition]) -> bool:
    return readers[0].assigned | readers[1].assigned == set(parts)


async def _asked_to_give(bench: Bench) -> tuple[Reader, Reader]:
    """A member with two partitions that does not answer, and a new one for which one is revoked."""
    parts, group, within_s = await bench.topic(2), new_group(), bench.lab.rebalance_s
    first = await bench.join(await bench.broker(), [parts[0].topic], group, confirm=False)
    await first.until(lambda: first.assigned == set(parts), "all", within_s)
    second = await bench.join(await bench.broker(), [parts[0].topic], group)
    await first.until(lambda: first.of(Revoked), "revoked", within_s)
    return first, second
