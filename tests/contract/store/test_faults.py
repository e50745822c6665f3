"""What a store does when its server is killed, frozen, cut off, emptied or full."""

import asyncio
import gc
import warnings
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ackd.config.schema import StoreSettings
from ackd.core.record.operations import EndRepair, Grant, LookUp, RemakeChunk, ReplayAck, Settle
from ackd.core.record.protocol import CallStatus, Open
from ackd.core.record.transitions import Outcome, Verb
from ackd.errors import StoreDataError, StoreError, StoreSetupError, StoreUnknownError
from ackd.store.build import open_store
from ackd.store.flusher import Flusher, LedgerHandle
from ackd.store.keys import Keys
from tests.conftest import RedisFactory
from tests.contract.store.owner import Owner
from tests.contract.store.servers import TIMEOUT_MS, connect, redis7, started
from tests.support.paths import REPO
from tests.support.proxy import Proxy
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]


@pytest.fixture(scope="module", autouse=True)
def unwritten() -> Iterator[None]:
    """Connections with bytes that a frozen server never took stay open for asyncio."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def test_an_unknown_script_is_loaded_and_only_its_calls_are_sent_again(
    own_redis: RedisFactory,
) -> None:
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        await owner.open()
        (ack,) = await owner.grant(1)
        with server.client() as client:
            client.script_flush()
        assert (await owner.one(ack)).outcome is Outcome.ACKED
        snapshot = await owner.open(again=True)
        assert snapshot.version == 4  # open, grant, ack, open: none was done twice


async def test_r12_a_frozen_server_is_unknown_within_the_time_out(own_redis: RedisFactory) -> None:
    server = own_redis(redis7())
    loop = asyncio.get_running_loop()
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        await owner.open()
        acks = await owner.grant(1, 2)
        run = store.run
        server.freeze()
        began = loop.time()
        with pytest.raises(StoreUnknownError):
            await owner.call(acks[0])
        assert loop.time() - began < 10 * TIMEOUT_MS / 1000
        assert "store-outcome-unknown" in {condition.code for condition in store.conditions()}
        with pytest.raises(StoreError) as caught:  # no connection: surely not decided
            await owner.call(acks[1])
        assert not isinstance(caught.value, StoreUnknownError)
        server.thaw()

        async def applied() -> bool:
            snapshot = await Owner(store, owner.key).open()
            return snapshot.verdict is CallStatus.OK

        await wait_until_async(applied, "the store answers again", ignoring=(StoreError,))
        assert store.run == run
        assert store.conditions() == []


async def test_r12_an_answer_that_is_cut_off_was_applied_once(own_redis: RedisFactory) -> None:
    server = own_redis(redis7())
    proxy = Proxy(server.port)
    proxy.start()
    try:
        async with started(connect(proxy.port)) as store:
            owner = Owner(store)
            await owner.open()
            await owner.call()  # the script is known from here on
            proxy.freeze("down")
            grant = Grant.of(7, 60_000, 1)
            with pytest.raises(StoreUnknownError):
                await owner.call(grant)
            proxy.cut()
            proxy.heal()

            async def read() -> list[tuple[int, int]]:
                snapshot = await owner.open(again=True)
                return [(slot.offset, slot.attempt) for slot in snapshot.slots]

            slots = await wait_until_async(read, "the record is read", ignoring=(StoreError,))
            assert slots == [(7, 1)]
            proxy.refuse()
            with pytest.raises(StoreError) as caught:
                await owner.call(grant)
            assert not isinstance(caught.value, StoreUnknownError)
    finally:
        proxy.stop()


async def test_i2_no_confirmed_ack_is_lost_when_the_server_is_killed(
    own_redis: RedisFactory,
) -> None:
    """The process dies under load: what was confirmed is in the file.

    With AOF everysec a server holds its writes back for up to two seconds while its disk is busy;
    then sidecars that live repeat them (tests/chaos).
    """
    server = own_redis(redis7(appendfsync="always"))
    async with started(connect(server.port)) as store, asyncio.TaskGroup() as tasks:
        flusher = Flusher(store)
        runner = tasks.create_task(flusher.run())
        handle = LedgerHandle(Owner(store).key)
        request = Open(handle.key, "me#1", 1, 9, 0, create_at=0)
        await flusher.open(request, handle)
        confirmed: set[int] = set()
        stop = asyncio.Event()

        async def work(first: int) -> None:
            for start in range(first, 1 << 20, 4 * 8):
                offsets = range(start, start + 8)
                with suppress(StoreError):
                    granted = await flusher.submit(
                        handle, [Grant.of(o, 60_000, 1) for o in offsets]
                    )
                    acks = [
                        Settle(Verb.ACK, o, r.fence, granted.rollback_epoch, r.attempt)
                        for o, r in zip(offsets, granted.results, strict=False)
                    ]
                    settled = await flusher.submit(handle, acks)
                    confirmed.update(
                        ack.offset
                        for ack, result in zip(acks, settled.results, strict=False)
                        if result.outcome is Outcome.ACKED
                    )
                if stop.is_set():
                    return
                await asyncio.sleep(0)

        for _ in range(4):
            workers = [tasks.create_task(work(8 * number)) for number in range(4)]
            before = len(confirmed)

            async def enough(before: int = before) -> bool:
                return len(confirmed) > before + 500

            await wait_until_async(enough, "acks are confirmed")
            await asyncio.to_thread(server.kill)
            stop.set()
            await asyncio.gather(*workers)
            stop.clear()
            await asyncio.to_thread(server.start)
            snapshot = await flusher.open(request, handle)
            assert snapshot.moved
            finished = {
                (index << 15) + bit
                for index, bits in snapshot.chunks.items()
                for bit in range(1 << 15)
                if bits[bit >> 3] & (0x80 >> (bit & 7))
            }
            assert confirmed <= finished
            await flusher.submit(handle, [EndRepair()])
        runner.cancel()


async def test_cancelled_callers_never_mix_up_answers(own_redis: RedisFactory) -> None:
    server = own_redis(redis7())
    async with started(connect(server.port)) as store, asyncio.TaskGroup() as tasks:
        flusher = Flusher(store)
        runner = tasks.create_task(flusher.run())
        handle = LedgerHandle(Owner(store).key)
        await flusher.open(Open(handle.key, "me#1", 1, 9, 0, create_at=0), handle)
        answered = 0

        async def ask(number: int) -> None:
            nonlocal answered
            offsets = range(number * 4, number * 4 + 1 + number % 4)
            ops = [Grant.of(o, 10_000 + o, number) for o in offsets]
            reply = await flusher.submit(handle, ops)
            assert [r.when_ms - reply.now_ms - 10_000 for r in reply.results] == list(offsets)
            answered += 1

        for burst in range(60):
            asked = [tasks.create_task(ask(burst * 16 + n)) for n in range(16)]
            for turn in range(burst % 5):
                await asyncio.sleep(0)
                asked[turn * 3].cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        assert answered >= 60 * 12
        runner.cancel()


async def test_r14_an_evicted_chunk_is_noticed_and_made_good(own_redis: RedisFactory) -> None:
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        await owner.open()
        acks = await owner.grant(1, 40_000)
        await owner.call(*acks)
        chunk = Keys("ackd").ledger(owner.key)[:-1] + "b0"
        with server.client() as client:
            assert client.delete(chunk) == 1
        assert (await owner.call(acks[0])).verdict is CallStatus.CHUNK_LOST
        assert (await owner.one(acks[1])).outcome is Outcome.ALREADY_ACKED
        snapshot = await owner.open(again=True)
        assert (snapshot.lost_chunks, sorted(snapshot.chunks)) == ([0], [1])
        await owner.call(RemakeChunk(0), ReplayAck(1))
        assert (await owner.one(acks[0])).outcome is Outcome.ALREADY_ACKED


async def test_r9_a_restart_is_noticed_before_the_next_call_is_decided(
    own_redis: RedisFactory,
) -> None:
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        await owner.open()
        (ack,) = await owner.grant(1)
        run = store.run
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        assert (await owner.call(ack)).verdict is CallStatus.MOVED
        assert store.run not in (run, "")
        snapshot = await owner.open(again=True)
        assert snapshot.moved
        assert snapshot.rollback_epoch == owner.rollback_epoch != ack.rollback_epoch
        assert (await owner.one(ack)).outcome is Outcome.ACKED


async def test_data_that_is_gone_is_absent(own_redis: RedisFactory) -> None:
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        await owner.open()
        await owner.grant(1)
        server.flush()
        assert (await owner.call(LookUp(1))).verdict is CallStatus.ABSENT


async def test_i7_a_full_server_refuses_and_changes_nothing(own_redis: RedisFactory) -> None:
    """R13: a call is refused before its first write, never in the middle of them."""
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        await owner.open()
        acks = await owner.grant(1, 2)
        with server.client() as client:
            client.config_set("maxmemory", "1mb")
            with pytest.raises(StoreError) as caught:
                await owner.call(acks[0], Grant.of(99_999, 1000, 1))
            assert not isinstance(caught.value, StoreUnknownError)
            client.config_set("maxmemory", "0")
        snapshot = await owner.open(again=True)
        assert ([slot.offset for slot in snapshot.slots], snapshot.chunks) == ([1, 2], {})


async def test_a_key_of_somebody_else_is_a_data_error(own_redis: RedisFactory) -> None:
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        with server.client() as client:
            client.set(Keys("ackd").ledger(owner.key), "theirs")
        with pytest.raises(StoreDataError):
            await owner.open()


@pytest.mark.parametrize("kind", ["policy", "no aof", "memory"])
async def test_what_the_server_cannot_promise_is_a_trouble(
    own_redis: RedisFactory, kind: str
) -> None:
    options = {
        "policy": redis7(maxmemory_policy="allkeys-lru"),
        "no aof": redis7(appendonly="no"),
        "memory": redis7(maxmemory="700kb"),
    }[kind]
    server = own_redis(options)
    codes = {"policy": "store-eviction", "no aof": "store-no-aof", "memory": "store-memory"}
    async with started(connect(server.port)) as store:
        assert [condition.code for condition in store.conditions()] == [codes[kind]]


async def _replica(own_redis: RedisFactory, primary: RedisServer) -> RedisServer:
    replica = own_redis(redis7(replicaof=f"127.0.0.1 {primary.port}"))

    # The replica says `up` first; the primary counts it for WAIT from its first answer on.
    async def counted() -> bool:
        return "'state': 'online'" in str(primary.info("replication").get("slave0"))

    await wait_until_async(counted, "the primary counts the replica")
    return replica


async def test_r11_replicated_waits_for_its_replicas_every_time(own_redis: RedisFactory) -> None:
    primary = own_redis(redis7(repl_diskless_sync_delay="0"))
    replica = await _replica(own_redis, primary)
    async with started(connect(primary.port, "replicated")) as store:
        owner = Owner(store)
        await owner.open()
        (ack,) = await owner.grant(1)
        replica.freeze()
        for _ in range(2):  # the second would be `already_acked`, which is a claim as well
            with pytest.raises(StoreUnknownError, match="not confirmed by replicas"):
                await owner.one(ack)
        replica.thaw()

        async def confirmed() -> bool:
            return (await owner.one(ack)).outcome is Outcome.ALREADY_ACKED

        await wait_until_async(confirmed, "the replica confirms", ignoring=(StoreError,))


async def test_r11_replicated_without_a_replica_confirms_nothing(own_redis: RedisFactory) -> None:
    server = own_redis(redis7())
    async with started(connect(server.port, "replicated")) as store:
        assert [condition.code for condition in store.conditions()] == ["store-replicas"]
        with pytest.raises(StoreUnknownError):
            await Owner(store).open()


@pytest.mark.parametrize("flavour", [Flavour.VALKEY, Flavour.REDIS])
@pytest.mark.parametrize("fsync", ["always", "everysec", None])
async def test_r11_always_is_confirmed_by_the_disk_or_refused_at_the_start(
    own_redis: RedisFactory, flavour: Flavour, fsync: str | None
) -> None:
    server = own_redis(RedisOptions(binary(flavour), fsync=fsync))
    store = connect(server.port, "always")
    old = flavour is Flavour.REDIS  # 7.0: no WAITAOF
    if fsync is None or (old and fsync != "always"):
        with pytest.raises(StoreSetupError, match="append"):
            await store.start()
        await store.close()
        return
    async with started(store):
        owner = Owner(store)
        with suppress(StoreUnknownError):  # a second's wait is more than the time-out here
            await owner.open()
            (ack,) = await owner.grant(1)
            assert (await owner.one(ack)).outcome is Outcome.ACKED
            return
        assert fsync == "everysec"


async def test_a_wrong_password_is_a_setup_error(redis_tls: RedisServer) -> None:
    assert redis_tls.certs is not None
    settings = StoreSettings(url=redis_tls.url, tls_ca_file=redis_tls.certs.ca)
    for store in (
        open_store(settings, REPO),
        open_store(
            StoreSettings(
                url=redis_tls.url,
                tls_ca_file=redis_tls.certs.ca,
                username="ackd",
                password_file=redis_tls.certs.ca,
            ),
            REPO,
        ),
    ):
        with pytest.raises(StoreSetupError):
            await store.start()
        await store.close()


async def test_an_untrusted_certificate_is_refused(redis_tls: RedisServer) -> None:
    store = open_store(StoreSettings(url=redis_tls.url), REPO)
    with pytest.raises(StoreError, match=r"(?i)certificate"):
        await store.start()
    await store.close()
