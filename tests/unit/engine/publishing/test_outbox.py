"""The outbox: order within a lane, doubt, refusals, and who may send (I1, I6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ackd.api.outbox import OutboxMessage
from ackd.config.schema import BrokerSettings, PublishSettings
from ackd.engine.base.tasks import Tasks
from ackd.engine.publishing.outbox import OutboxService
from ackd.engine.publishing.outbox_lease import LEASE_MS
from ackd.engine.publishing.outbox_name import OutboxName
from ackd.engine.publishing.outbox_publisher import AGAIN
from ackd.errors import (
    BodyTooLargeError,
    BrokerError,
    NotFailedError,
    PressureError,
    UnknownOutboxMessageError,
)
from ackd.ports import Failure, Outgoing, PublishResult, Store
from tests.support.wait import wait_until_async
from tests.unit.engine.clock import TestClock
from tests.unit.engine.scripted import ScriptedBroker, metric
from tests.unit.engine.world import TestStore, World

NOT_STORED, UNKNOWN, REFUSED = Failure.NOT_STORED, Failure.UNKNOWN, Failure.REFUSED


class Sender:
    """One sidecar with an outbox; sidecars share a clock and a store."""

    def __init__(
        self,
        clock: TestClock,
        broker: ScriptedBroker,
        store: Store | None = None,
        settings: PublishSettings | None = None,
        name: str = "one",
    ) -> None:
        self.clock, self.broker, self.away = clock, broker, False
        context = World(clock).context
        self.context = replace(context, store=store or context.store, identity=name)
        self.up = asyncio.Event()
        self.up.set()
        self.outbox_name = OutboxName(
            "main", BrokerSettings(adapter="scripted"), self.context.store, self.up
        )
        self.outbox = OutboxService(
            "main",
            broker,
            settings or PublishSettings(),
            self.context,
            self.outbox_name,
            lambda: self.away,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """As the runtime does it."""
        tasks = Tasks("test")
        tasks.start(self.outbox_name.find(self.broker), "outbox_name")
        tasks.start(self.outbox.run(), "sender")
        try:
            await asyncio.wait_for(self.outbox_name.known.wait(), 60)
            yield
        finally:
            await self.outbox.stop()
            await tasks.stop()

    async def accept(self, *messages: Outgoing, idempotency_key: bytes = b"") -> list[int]:
        accepted, _ = await self.outbox.accept(messages, idempotency_key)
        return [each.number for each in accepted]

    async def until(self, number: int, state: str) -> OutboxMessage:
        """Wait until the message is there; time stands still."""

        async def there() -> OutboxMessage | None:
            found = await self.outbox.status(number)
            return found if found.state == state else None

        found = await wait_until_async(there, f"{number} to be {state}", interval_s=0.005)
        assert found is not None
        return found

    async def until_sent(self, count: int) -> None:
        """Wait until the broker was called so often."""

        async def there() -> bool:
            return len(self.broker.sent) >= count

        await wait_until_async(there, f"{count} calls of the broker", interval_s=0.005)


def out(value: bytes, key: bytes | None = None, *, delay_ms: int = 0) -> Outgoing:
    return Outgoing("t", key, value, delay_ms=delay_ms)


async def test_messages_of_a_key_go_one_after_the_other() -> None:
    """I6: one that failed holds up those of its key, and no others."""
    clock = TestClock()
    one = Sender(clock, ScriptedBroker({b"a1": [NOT_STORED]}))
    async with one.running():
        keyed = [out(b"a1", b"a"), out(b"a2", b"a"), out(b"b1", b"b"), out(b"c")]
        numbers = await one.accept(*keyed)
        await one.until(numbers[3], "sent")
        assert one.broker.sent == [[b"a1", b"b1", b"c"]]
        clock.pass_ms(AGAIN.base_ms - 1)
        await one.accept(out(b"d"))
        await one.until_sent(2)
        assert one.broker.sent[1:] == [[b"d"]]
        clock.pass_ms(1)
        found = await one.until(numbers[1], "sent")
    assert one.broker.sent[2:] == [[b"a1"], [b"a2"]]
    assert (found.message, found.in_doubt) == ("t/0/4", False)


async def test_messages_for_one_partition_are_a_lane_too() -> None:
    one = Sender(TestClock(), ScriptedBroker())
    async with one.running():
        batch = [Outgoing("t", None, value, partition=3) for value in (b"1", b"2")]
        await one.until((await one.accept(*batch))[1], "sent")
    assert one.broker.sent == [[b"1"], [b"2"]]


async def test_what_had_no_answer_is_sent_again_and_in_doubt() -> None:
    """I1 before anything else; who asks learns that there may be two."""
    clock = TestClock()
    one = Sender(clock, ScriptedBroker({b"a": [UNKNOWN]}))
    async with one.running():
        [number] = await one.accept(out(b"a"))
        await one.until_sent(1)
        clock.pass_ms(AGAIN.base_ms)
        assert (await one.until(number, "sent")).in_doubt
    assert one.broker.sent == [[b"a"], [b"a"]]


async def test_a_broker_that_raises_leaves_it_in_doubt() -> None:
    clock = TestClock()
    one = Sender(clock, ScriptedBroker())
    one.broker.raises = BrokerError("cut off")
    async with one.running():
        [number] = await one.accept(out(b"a"))
        await one.until_sent(1)
        one.broker.raises = None
        clock.pass_ms(AGAIN.base_ms)
        assert (await one.until(number, "sent")).in_doubt


async def test_what_the_broker_refuses_waits_for_an_operator() -> None:
    """The next one of its key goes on. It is sent again when somebody asks for it."""
    one = Sender(TestClock(), ScriptedBroker({b"a1": [REFUSED]}))
    async with one.running():
        refused, after = await one.accept(out(b"a1", b"a"), out(b"a2", b"a"))
        found = await one.until(refused, "failed")
        assert found.error == "publish-refused: refused: scripted"
        await one.until(after, "sent")
        assert metric(one.context, "ackd_outbox_sent_total", broker="main", outcome="refused") == 1
        with pytest.raises(NotFailedError):
            await one.outbox.again(after)
        assert (await one.outbox.again(refused)).state == "waiting"
        await one.until(refused, "sent")
        with pytest.raises(UnknownOutboxMessageError):
            await one.outbox.status(after + 1)
    assert one.broker.sent == [[b"a1"], [b"a2"], [b"a1"]]


async def test_a_message_is_not_sent_before_it_is_due() -> None:
    clock = TestClock()
    one = Sender(clock, ScriptedBroker())
    async with one.running():
        late, now = await one.accept(out(b"late", delay_ms=5_000), out(b"now"))
        await one.until(now, "sent")
        assert (await one.outbox.status(late)).due_ms == clock.wall_ms() + 5_000
        clock.pass_ms(4_999)
        await one.until(await one_more(one), "sent")
        assert (await one.outbox.status(late)).state == "waiting"
        clock.pass_ms(1)
        await one.until(late, "sent")


async def one_more(one: Sender) -> int:
    """A message that shows that a turn has passed."""
    [number] = await one.accept(out(b"more"))
    return number


class HeldBroker(ScriptedBroker):
    """Answers its first call when it is let go."""

    def __init__(self, script: Mapping[bytes, Sequence[Failure]] | None = None) -> None:
        super().__init__(script or {})
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Wait first."""
        self.asked.set()
        await self.go.wait()
        return await super().publish(messages)


async def test_a_sidecar_that_was_frozen_sends_nothing_more() -> None:
    """Another one has its lease: that sends all of it, the first in doubt, and in order."""
    clock = TestClock()
    store = TestStore(clock)
    frozen = Sender(clock, HeldBroker(), store)
    other = Sender(clock, ScriptedBroker(), store, name="two")
    held = frozen.broker
    assert isinstance(held, HeldBroker)
    async with frozen.running():
        first, second = await frozen.accept(out(b"a1", b"a"), out(b"a2", b"a"))
        await asyncio.wait_for(held.asked.wait(), 60)
        clock.pass_ms(LEASE_MS + 1)
        async with other.running():
            assert (await other.until(first, "sent")).in_doubt
            await other.until(second, "sent")
            held.go.set()
            await frozen.until_sent(1)
            await other.until(await one_more(other), "sent")
        assert held.sent == [[b"a1"]]
    assert other.broker.sent[:2] == [[b"a1"], [b"a2"]]


async def test_who_stops_gives_back_what_it_has_not_sent() -> None:
    """Its successor sends that at once, and in no doubt."""
    clock = TestClock()
    store = TestStore(clock)
    one = Sender(clock, ScriptedBroker({b"a": [NOT_STORED]}), store)
    two = Sender(clock, ScriptedBroker(), store, name="two")
    async with one.running():
        [number] = await one.accept(out(b"a"))
        await one.until_sent(1)
    async with two.running():
        assert not (await two.until(number, "sent")).in_doubt
    assert one.broker.sent == [[b"a"]]


async def test_while_the_broker_is_away_another_sidecar_may_send() -> None:
    clock = TestClock()
    store = TestStore(clock)
    one = Sender(clock, ScriptedBroker(), store)
    two = Sender(clock, ScriptedBroker(), store, name="two")
    async with one.running():
        await one.until(await one_more(one), "sent")
        one.away = True
        [number] = await one.accept(out(b"a"))
        async with two.running():
            await two.until(number, "sent")
    assert [b"a"] not in one.broker.sent


@pytest.mark.parametrize("bound", [{"outbox_messages_max": 2}, {"outbox_bytes_max": 60}])
async def test_the_outbox_is_bounded(bound: dict[str, int]) -> None:
    """I8: what can never fit has another error than what has to wait; all of a request or none."""
    settings = PublishSettings(**bound)  # type: ignore[arg-type]
    one = Sender(TestClock(), ScriptedBroker(), settings=settings)
    one.away = True
    async with one.running():
        large = [out(b"x" * 20) for _ in range(3)]
        with pytest.raises(BodyTooLargeError):
            await one.accept(*large)
        await one.accept(large[0])
        with pytest.raises(PressureError):
            await one.accept(*large[1:])
        await one.accept(large[1])


async def test_a_repeat_with_its_ticket_is_accepted_once() -> None:
    one = Sender(TestClock(), ScriptedBroker())
    one.away = True
    async with one.running():
        first, replayed = await one.outbox.accept([out(b"a"), out(b"b")], b"key")
        assert not replayed
        assert await one.outbox.accept([out(b"a"), out(b"b")], b"key") == (first, True)
        assert metric(one.context, "ackd_outbox_accepted_total", broker="main") == 2


async def test_requests_that_come_together_get_numbers_in_their_order() -> None:
    one = Sender(TestClock(), ScriptedBroker())
    one.away = True
    async with one.running():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.accept(out(b"%d" % n))) for n in range(20)]
        numbers = [task.result()[0] for task in tasks]
        assert numbers == list(range(numbers[0], numbers[0] + 20))


async def test_where_the_cluster_is_not_known_nothing_is_accepted() -> None:
    """R1: two services may call their brokers alike. A restart knows it from the store."""
    clock = TestClock()
    store = TestStore(clock)
    one = Sender(clock, ScriptedBroker(), store)
    with pytest.raises(BrokerError):
        await one.accept(out(b"a"))
    async with one.running():
        [number] = await one.accept(out(b"a"))
        await one.until(number, "sent")
    again = Sender(clock, ScriptedBroker(), store)
    again.up.clear()
    async with again.running():
        assert (await again.outbox.status(number)).state == "sent"
