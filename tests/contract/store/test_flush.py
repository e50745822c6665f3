"""Several calls in one flush: one script call, and yet each is decided alone."""

import asyncio

import pytest

from ackd.core.record.operations import ClaimOrigin, CopyRef, Grant, LookUp
from ackd.core.record.protocol import CallStatus, Open, RecordCall, RecordReply
from ackd.core.record.transitions import Outcome
from ackd.errors import StoreCallError, StoreDataError, StoreError, StoreUnknownError
from ackd.ports import Store
from ackd.store.flusher import Flusher, LedgerHandle, PartlyError
from ackd.store.keys import Keys
from ackd.store.memory import MemoryStore
from ackd.store.redis import CALLS_MAX
from tests.conftest import RedisFactory
from tests.contract.store.owner import Owner
from tests.contract.store.servers import connect, redis7, started

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]


async def test_i7_a_full_server_refuses_calls_of_a_flush_one_by_one(
    own_redis: RedisFactory,
) -> None:
    """What frees memory goes through although another call of the same flush is refused."""
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        full, relief = Owner(store), Owner(store)
        await full.open()
        await relief.open()
        *acks, last = await relief.grant(*range(256))
        await relief.call(*acks)
        with server.client() as client:
            client.config_set("maxmemory", "1mb")
            grant = RecordCall(full.key, [Grant.of(1, 1000, 1)], full.term, full.seq + 1)
            frees = RecordCall(relief.key, [last], relief.term, relief.seq + 1)
            with pytest.raises(PartlyError) as caught:
                await store.apply([grant, frees])
            client.config_set("maxmemory", "0")
        refused, freed = caught.value.answers
        assert isinstance(refused, StoreError)
        assert not isinstance(refused, StoreUnknownError)
        assert isinstance(freed, RecordReply)
        assert freed.results[0].outcome is Outcome.ACKED
        assert (await full.open(again=True)).slots == []


async def test_a_call_that_fails_leaves_the_others_of_its_flush_alone(
    own_redis: RedisFactory,
) -> None:
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        owners = [Owner(store) for _ in range(3)]
        for owner in owners:
            await owner.open()
        with server.client() as client:
            client.set(Keys("ackd").ledger(owners[1].key), "theirs")
        grant = [Grant.of(1, 1000, 1)]
        with pytest.raises(PartlyError) as caught:
            await store.apply([RecordCall(o.key, grant, o.term, o.seq + 1) for o in owners])
        before, failed, after = caught.value.answers
        assert isinstance(failed, StoreDataError)
        assert isinstance(before, RecordReply)
        assert isinstance(after, RecordReply)
        assert before.results[0].outcome is after.results[0].outcome is Outcome.GRANTED


async def test_a_flush_of_more_calls_than_one_script_takes(own_redis: RedisFactory) -> None:
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        await owner.open()
        calls = [RecordCall(Owner(store).key, []) for _ in range(2 * CALLS_MAX)]
        calls.append(RecordCall(owner.key, [Grant.of(9, 1000, 1)], owner.term, 2))
        with server.client() as client:
            client.script_flush()
        replies = await store.apply(calls)
        assert {reply.verdict for reply in replies[:-1]} == {CallStatus.ABSENT}
        assert replies[-1].results[0].outcome is Outcome.GRANTED


async def test_a_call_that_cannot_be_packed_costs_nobody_else(store: Store) -> None:
    """Nothing of it is sent, so it says nothing about the server either."""
    if isinstance(store, MemoryStore):
        return  # packs nothing
    flusher = Flusher(store)
    impossible = [ClaimOrigin(1 << 70, 1, 0, CopyRef(0, 0))]
    async with asyncio.TaskGroup() as group:
        running = group.create_task(flusher.run())
        handles = [LedgerHandle(Owner(store).key) for _ in range(3)]
        for handle in handles:
            request = Open(
                handle.key, "me#1", rollback_epoch=7, incarnation=9, grace_ms=0, create_at=0
            )
            assert (await flusher.open(request, handle)).verdict is CallStatus.OK
        grant = [Grant.of(1, 1000, 1)]
        grants = [flusher.submit(each, grant) for each in handles]
        stranger = LedgerHandle(handles[1].key)
        wrong = [flusher.submit(each, impossible) for each in (*handles, stranger)]
        for reply in await asyncio.gather(*grants):
            assert reply.results[0].outcome is Outcome.GRANTED
        answers = await asyncio.gather(*wrong, return_exceptions=True)
        assert [type(each) for each in answers] == [StoreCallError] * 4
        assert not store.conditions()
        look = await flusher.submit(stranger, [LookUp(1)])
        assert look.verdict is CallStatus.OK
        running.cancel()
