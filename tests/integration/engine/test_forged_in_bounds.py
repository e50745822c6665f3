"""Copies that ackd could have written, but did not: each field is in bounds, the signature is not.

Whoever forges them has read all that is in the retry topic. Nobody gets what he writes, no message
is taken by it, and nothing waits for it; over a restart, and after the store lost all data.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from ackd.api.dead_letters import DeadRequest, Kind, OperationView
from ackd.api.messages import Delivery, ReceiveRequest, SettleItem, SettleVerb
from ackd.config.peers import PeerSettings
from ackd.engine.base.copy_signature import SIGNATURE
from ackd.engine.runtime import Runtime
from ackd.ports import Headers, Outgoing, Record, Stored
from tests.integration.engine.linked import Ring
from tests.integration.engine.shop import NAME, Shop
from tests.support.wait import wait_until_async

STUCK: dict[str, Any] = {"retry_topic": True, "stuck_after_ms": 1_000, "stuck_min_age_ms": 1_000}
FAR_MS = (1 << 48) - 1


def forgeries(copy: Record) -> list[Headers]:
    """The headers of a genuine copy, changed in each way that keeps them in bounds."""
    fields = {name: value or b"" for name, value in copy.headers}
    place, _, offset = fields["ackd-origin"].decode().rpartition("/")
    later = b"%d" % (int(fields["ackd-generation"]) + 1_000_000)
    changes: list[dict[str, bytes]] = [
        {},
        {"ackd-generation": later},
        {"ackd-due-ms": b"%d" % FAR_MS},
        {"ackd-origin": f"{place}/{int(offset) + 1}".encode()},
        {"ackd-origin": f"{place}/{int(offset) + 1_000}".encode()},
        {"ackd-order-key": b"5"},
        {"ackd-subscription": b"another"},
    ]
    signed: list[Headers] = [tuple({**fields, **each}.items()) for each in changes]
    bare: list[Headers] = [
        tuple(each for each in headers if each[0] != SIGNATURE) for headers in signed
    ]
    return signed + bare


@dataclass
class Stage:
    """One sidecar at a time, and somebody who writes into its retry topic."""

    start: Callable[[], Awaitable[Runtime]]
    flush: Callable[[], Awaitable[object]]
    topic: str
    runtime: Runtime
    forged: int = 0
    got: list[bytes] = field(default_factory=list)

    @property
    def retry_topic(self) -> str:
        return self.runtime._subscriptions[NAME].retry_topic.topic.name

    async def begun(self) -> None:
        """Copies have to be signed."""
        keys = self.runtime._subscriptions[NAME].state.copy_keys

        async def in_force() -> bool:
            return keys.in_force(self.retry_topic)

        await wait_until_async(in_force, "signatures to be in force", timeout_s=60)

    async def publish(self, topic: str, value: bytes, headers: Headers = ()) -> None:
        broker = next(iter(self.runtime._brokers.values()))
        chosen = broker.capabilities.explicit_partition
        sent = Outgoing(topic, None, value, headers, partition=0 if chosen else None)
        (stored,) = await broker.publish([sent])
        assert isinstance(stored, Stored)

    async def next(self, wanted: set[bytes]) -> list[Delivery]:
        """All messages with these values; nothing else may come meanwhile but what comes again."""
        found: dict[bytes, Delivery] = {}

        async def came() -> bool:
            request = ReceiveRequest(max=100, wait_ms=500, lease_ms=90_000)
            for each in (await self.runtime.receive(NAME, request)).messages:
                self.got.append(each.record.value or b"")
                assert each.record.value != b"forged"
                found[each.record.value or b""] = each
            return wanted <= found.keys()

        await wait_until_async(came, f"{wanted}", timeout_s=90)
        return [found[each] for each in sorted(wanted)]

    async def ack(self, messages: list[Delivery]) -> None:
        results = await self.runtime.settle(
            [SettleItem(each.lease, SettleVerb.ACK) for each in messages]
        )
        assert {each.status.value for each in results} == {"acked"}

    async def holds(self, value: bytes) -> tuple[Delivery, Record]:
        """A message under lease that moves to the retry topic, and its copy there."""
        await self.publish(self.topic, value)
        [held] = await self.next({value})
        await self.publish(self.topic, b"behind " + value)
        await self.ack(await self.next({b"behind " + value}))
        copies: list[Record] = []

        async def moved() -> bool:
            owned = self.runtime._subscriptions[NAME].partitions.owned.values()
            bodies = [
                entry.body
                for partition in owned
                if partition.ledger.holds_copies
                for entry in partition.ledger.entries.values()
            ]
            copies[:] = [each for each in bodies if isinstance(each, Record)]
            copies[:] = [each for each in copies if each.value == value]
            return bool(copies)

        await wait_until_async(moved, "the copy in the retry topic", timeout_s=60)
        return held, copies[0]

    async def forge(self, copy: Record) -> None:
        """Each forgery of this copy becomes a dead letter of its own, with its reason."""
        for headers in forgeries(copy):
            await self.publish(self.retry_topic, b"forged", headers)
            self.forged += 1

        async def aside() -> bool:
            page = await self.runtime.dead.page(NAME, None, 1_000)
            return len({each.message for each in page.messages}) >= self.forged

        await wait_until_async(aside, "what is forged to be put aside", timeout_s=90)
        page = await self.runtime.dead.page(NAME, None, 1_000)
        places = {each.message for each in page.messages}
        assert all(place.startswith(f"{self.retry_topic}/") for place in places)
        reasons = {each.reason.partition(":")[0] for each in page.messages}
        assert reasons == {"not-signed", "bad-signature"}
        whole = await self.runtime.dead.peek(NAME, page.messages[0].id)
        assert whole.record.value == b"forged"
        assert "said-generation" in dict(whole.headers)

    async def redrives_nothing(self) -> None:
        """A redrive of everything takes none of what is forged."""
        desk = self.runtime.dead
        begun = await desk.begin(NAME, DeadRequest(Kind.REDRIVE, confirm=NAME))
        assert isinstance(begun, OperationView)

        async def over() -> bool:
            return (await desk.operation(begun.id)).state not in ("running", "cancelling")

        await wait_until_async(over, "the operation to end", timeout_s=90)
        view = await desk.operation(begun.id)
        assert (view.state, view.moved, view.failed) == ("done", 0, 0)
        assert view.skipped >= self.forged


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("kafka", marks=pytest.mark.kafka),
        pytest.param("pulsar", marks=[pytest.mark.pulsar, pytest.mark.slow]),
    ]
)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        valkey = request.getfixturevalue("valkey")
        client = redis.asyncio.from_url(valkey.url)
        stack.push_async_callback(client.aclose)
        if request.param == "embedded":
            shop = Shop(stack, tmp_path, valkey.url)

            async def start() -> Runtime:
                return (await shop.start("one", **STUCK)).runtime

            topic = shop.topic
        else:
            server = request.getfixturevalue(request.param)
            ring = Ring(stack, tmp_path, valkey.url, **{request.param: server})
            await ring.make_topic()

            async def start() -> Runtime:
                return (await ring.start(PeerSettings(on=False), **STUCK)).runtime

            topic = ring.topic
        yield Stage(start, client.flushall, topic, await start())


async def test_r2_what_is_forged_in_bounds_reaches_nobody_and_takes_nothing(stage: Stage) -> None:
    await stage.begun()
    first, copy = await stage.holds(b"first")
    await stage.forge(copy)
    await stage.ack([first])
    second, copy = await stage.holds(b"second")
    await stage.runtime.stop()
    stage.runtime = await stage.start()
    await stage.begun()
    await stage.forge(copy)
    released = [SettleItem(second.lease, SettleVerb.RETRY, delay_ms=0)]
    await stage.runtime.settle(released)
    await stage.ack(await stage.next({b"second"}))
    third, copy = await stage.holds(b"third")
    await stage.flush()
    await stage.forge(copy)
    # Whether the lease lives on depends on who remembers it; then it would be waited for.
    await stage.runtime.settle([SettleItem(third.lease, SettleVerb.RETRY, delay_ms=0)])
    await stage.ack(await stage.next({b"third"}))
    await stage.publish(stage.topic, b"last")
    await stage.redrives_nothing()
    await stage.ack(await stage.next({b"last"}))
    assert b"forged" not in stage.got
    assert stage.runtime.metrics.claims.at(NAME, "aside").value > 0
    assert not stage.runtime.vitals.failure
