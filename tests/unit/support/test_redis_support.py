"""The Redis servers of the tests do what the store's fault tests believe that they do."""

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from tests.conftest import RedisFactory
from tests.support.redis import (
    SERVICE,
    Flavour,
    RedisCluster,
    RedisOptions,
    RedisSentinel,
    RedisServer,
    binary,
    missing,
)
from tests.support.require import require
from tests.support.wait import wait_until

ONCE = Retry(NoBackoff(), 0)

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("flavour", Flavour)
def test_confirmed_writes_survive_kill(own_redis: RedisFactory, flavour: Flavour) -> None:
    require(missing(flavour))
    server = own_redis(RedisOptions(binary(flavour), fsync="always"))
    with server.client() as client:
        client.set("a", "1")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("a")
        server.start()
        assert client.get("a") == "1"


def test_data_can_be_lost_and_set_back(own_redis: RedisFactory) -> None:
    server = own_redis(RedisOptions(binary(Flavour.VALKEY), fsync="always"))
    with server.client() as client:
        client.set("old", "1")
        server.copy_data("backup")
        client.set("new", "1")
        server.kill()
        server.restore_data("backup")
        server.start()
        assert client.keys("*") == ["old"]
        server.kill()
        server.lose_data()
        server.start()
        assert client.keys("*") == []


def test_frozen_server_times_out_and_thaws(own_redis: RedisFactory) -> None:
    server = own_redis(RedisOptions(binary(Flavour.VALKEY)))
    client = redis.Redis(port=server.port, socket_timeout=2, protocol=2, retry=ONCE)
    with client:
        assert client.ping()
        server.freeze()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.thaw()
        wait_until(client.ping, "it answers again", ignoring=(redis.TimeoutError,))


def test_versions_are_what_they_claim(redis62: RedisServer, valkey: RedisServer) -> None:
    assert str(redis62.info("server")["redis_version"]).startswith("6.2.")
    assert str(valkey.info("server")["valkey_version"]).startswith("9.")


def test_tls_server_refuses_plain_and_unknown(redis_tls: RedisServer) -> None:
    with (
        redis.Redis(port=redis_tls.port, protocol=2, retry=ONCE) as plain,
        pytest.raises(redis.ConnectionError),
    ):
        plain.ping()
    assert redis_tls.certs is not None
    for ca, password in (
        (redis_tls.certs.foreign_ca, "ackd-secret"),
        (redis_tls.certs.ca, "wrong"),
    ):
        client = redis.Redis.from_url(
            redis_tls.url, username="ackd", password=password, ssl_ca_certs=str(ca), retry=ONCE
        )
        with client, pytest.raises(redis.ConnectionError):
            client.ping()
    client = redis.Redis.from_url(
        redis_tls.url,
        username="ackd",
        password="ackd-secret",
        ssl_ca_certs=str(redis_tls.certs.ca),
    )
    with client:
        client.set("ackd:tls", "1")
        assert client.get("ackd:tls") == b"1"
        with pytest.raises(NoPermissionError):
            client.flushall()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_sentinel_promotes_the_replica() -> None:
    require(missing(Flavour.REDIS))
    with RedisSentinel(binary(Flavour.REDIS)) as setup:
        old = setup.primary()
        with old.client() as client:
            client.set("a", "1")
            assert client.execute_command("WAIT", 1, 5000) == 1
        old.kill()
        new = setup.wait_failover(old)
        with new.client() as client:
            assert client.get("a") == "1"
            client.set("b", "1")
        sentinel = redis.Sentinel(setup.sentinel_addresses)  # type: ignore[no-untyped-call]
        found = sentinel.discover_master(SERVICE)  # type: ignore[no-untyped-call]
        assert found == ("127.0.0.1", new.port)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_cluster_serves_keys_on_all_nodes_and_fails_over() -> None:
    require(missing(Flavour.REDIS))
    with RedisCluster(binary(Flavour.REDIS), replicas=True) as cluster:
        client = redis.RedisCluster.from_url(cluster.url)
        for number in range(50):
            client.set(f"k{number}", number)
        client.close()
        assert len({cluster.owner(f"k{number}").port for number in range(50)}) == 3
        old = cluster.owner("k0")
        old.kill()
        wait_until(lambda: cluster.owner("k0") is not old, "another owner", timeout_s=60)
        cluster.wait_ok()
