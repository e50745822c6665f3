"""Failover by Sentinel and in a cluster, and a hash slot that moves to another node."""

import asyncio
from typing import Any

import pytest

from ackd.config.schema import StoreSettings
from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Gap, Grant
from ackd.core.record.protocol import CallStatus, RecordCall, RecordReply
from ackd.core.record.transitions import Outcome
from ackd.errors import StoreError
from ackd.store.build import open_store
from ackd.store.flusher import PartlyError
from ackd.store.keys import Keys
from tests.contract.store.conftest import hosts
from tests.contract.store.owner import Owner, fresh_key
from tests.contract.store.servers import started
from tests.support import redis as redis_support
from tests.support.paths import REPO
from tests.support.redis import (
    SERVICE,
    Flavour,
    RedisCluster,
    RedisSentinel,
    RedisServer,
    binary,
)
from tests.support.require import require
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(240)]
PARTITIONS = 24


async def test_r9_a_sentinel_failover_is_found_and_is_another_run() -> None:
    require(redis_support.missing(Flavour.REDIS))
    with RedisSentinel(binary(Flavour.REDIS), replicas=2) as sentinel:
        settings = StoreSettings(
            url=f"sentinel://{hosts(sentinel.sentinel_addresses)}/{SERVICE}",
            timeout_ms=2_000,
            durability="replicated",
        )
        async with started(open_store(settings, REPO)) as store:
            owner = Owner(store)
            await owner.open()
            acks = await owner.grant(*range(50))
            assert {r.outcome for r in (await owner.call(*acks[:25])).results} == {Outcome.ACKED}
            run = store.run
            old = sentinel.primary()
            await asyncio.to_thread(old.freeze)  # a hung primary: it does not even reset
            await asyncio.to_thread(sentinel.wait_failover, old)

            async def answered() -> RecordReply:
                return await owner.call(acks[30])

            # Nothing of the new primary is believed before the record was opened again.
            reply = await wait_until_async(
                answered, "the new primary answers", ignoring=(StoreError,), timeout_s=60
            )
            assert reply.verdict is CallStatus.MOVED
            old.thaw()
            await asyncio.to_thread(sentinel.wait_settled)
            assert store.run not in (run, "")
            snapshot = await owner.open(again=True)
            assert snapshot.moved
            outcomes = [r.outcome for r in (await owner.call(*acks)).results]
            assert outcomes == [Outcome.ALREADY_ACKED] * 25 + [Outcome.ACKED] * 25


async def test_r11_an_old_primary_that_is_cut_off_confirms_no_term() -> None:
    """With a replica, taking a partition waits for it although acks do not (everysec)."""
    require(redis_support.missing(Flavour.REDIS))
    with RedisSentinel(binary(Flavour.REDIS), steady=True) as sentinel:
        settings = StoreSettings(
            url=f"sentinel://{hosts(sentinel.sentinel_addresses)}/{SERVICE}", timeout_ms=2_000
        )
        async with started(open_store(settings, REPO)) as store:
            assert [condition.code for condition in store.conditions()] == ["store-split-brain"]
            owner = Owner(store)
            await owner.open()
            primary = sentinel.primary()
            (replica,) = [server for server in sentinel.servers if server is not primary]
            replica.freeze()
            (ack,) = await owner.grant(1)
            assert (await owner.one(ack)).outcome is Outcome.ACKED
            with pytest.raises(StoreError, match="not confirmed by replicas"):
                await Owner(store, owner.key, name="thief#1").open()
            with pytest.raises(StoreError, match="not confirmed by replicas"):
                await store.heartbeat("sub", "me", 1, [], "")
            replica.thaw()


async def _spread(owners: list[Owner]) -> list[RecordReply | StoreError]:
    """One flush with one grant and look for each; replies and errors side by side."""
    calls = []
    for owner in owners:
        owner.seq += 1
        ops = [Grant.of(owner.seq, 60_000, 1)]
        calls.append(RecordCall(owner.key, ops, owner.term, owner.seq))
    try:
        return list(await owners[0].store.apply(calls))
    except PartlyError as partly:
        return list(partly.answers)


def _serving(cluster: RedisCluster, key: LedgerKey) -> RedisServer:
    return cluster.owner(Keys("ackd").ledger(key))


async def test_a_dead_node_of_a_cluster_fails_its_own_partitions_only() -> None:
    require(redis_support.missing(Flavour.REDIS))
    with RedisCluster(binary(Flavour.REDIS), replicas=True) as cluster:
        settings = StoreSettings(url=f"cluster://{hosts(cluster.addresses[:2])}", timeout_ms=2_000)
        async with started(open_store(settings, REPO)) as store:
            base = fresh_key()
            owners = [Owner(store, base._replace(partition=n)) for n in range(PARTITIONS)]
            for owner in owners:
                await owner.open()
            run = store.run
            victim = _serving(cluster, owners[0].key)
            hit = [_serving(cluster, owner.key) is victim for owner in owners]
            assert 0 < sum(hit) < PARTITIONS
            await asyncio.to_thread(victim.kill)
            answers = await _spread(owners)
            assert [isinstance(answer, StoreError) for answer in answers] == hit

            async def all_answer() -> list[RecordReply]:
                answers = await _spread(owners)
                replies = [answer for answer in answers if isinstance(answer, RecordReply)]
                return replies if len(replies) == PARTITIONS else []

            replies = await wait_until_async(
                all_answer, "the replica was promoted", ignoring=(StoreError,), timeout_s=60
            )
            moved = [reply.verdict is CallStatus.MOVED for reply in replies]
            assert moved == hit
            assert store.run not in (run, "")


def _move_slot(cluster: RedisCluster, key: str, *, finish: bool) -> None:
    """Start to move a slot with its keys but one half, or move the rest and hand it over."""
    source = cluster.owner(key)
    target = next(server for server in cluster.servers if server is not source)
    with source.client() as at_source, target.client() as at_target:
        for client in (at_source, at_target):
            client.response_callbacks.clear()
        slot = at_source.execute_command("CLUSTER", "KEYSLOT", key)
        ids = [client.execute_command("CLUSTER", "MYID") for client in (at_source, at_target)]
        at_target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        at_source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        names: Any = at_source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000)
        for name in names if finish else [name for name in names if name != key]:
            at_source.execute_command("MIGRATE", "127.0.0.1", target.port, name, 0, 5000)
        if finish:
            for client in (at_target, at_source):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])


async def test_a_slot_on_the_move_refuses_and_loses_nothing() -> None:
    """Half of the keys here and half there must never look like lost chunks (R14)."""
    require(redis_support.missing(Flavour.REDIS))
    with RedisCluster(binary(Flavour.REDIS)) as cluster:
        settings = StoreSettings(url=f"cluster://{hosts(cluster.addresses)}", timeout_ms=2_000)
        async with started(open_store(settings, REPO)) as store:
            owner = Owner(store)
            await owner.open()
            acks = await owner.grant(1, 2, 40_000)
            await owner.call(acks[0])
            name = Keys("ackd").ledger(owner.key)
            await asyncio.to_thread(_move_slot, cluster, name, finish=False)
            for ops in (
                [acks[1]],
                [Grant.of(90_000, 1000, 1)],
                [Gap(50_000, 50_010)],
            ):
                with pytest.raises(StoreError):
                    await owner.call(*ops)
            await asyncio.to_thread(_move_slot, cluster, name, finish=True)

            async def read() -> bool:
                snapshot = await owner.open(again=True)
                assert snapshot.lost_chunks == []
                return snapshot.verdict is CallStatus.OK

            await wait_until_async(read, "the new node serves it", ignoring=(StoreError,))
            reply = await owner.call(*acks)
            assert [result.outcome for result in reply.results] == [
                Outcome.ALREADY_ACKED,
                Outcome.ACKED,
                Outcome.ACKED,
            ]
