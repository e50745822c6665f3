"""Fixtures for all tests: real servers, and two watchmen (no blocked event loop, no orphan)."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psutil
import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

from tests.support import kafka as kafka_support
from tests.support import pulsar as pulsar_support
from tests.support import reaper
from tests.support import redis as redis_support
from tests.support import rocketmq as rocketmq_support
from tests.support.kafka import Kafka, KafkaOptions
from tests.support.pulsar import Pulsar, PulsarOptions
from tests.support.redis import (
    Flavour,
    RedisCluster,
    RedisOptions,
    RedisSentinel,
    RedisServer,
    binary,
)
from tests.support.require import require
from tests.support.rocketmq import RocketMQ
from tests.support.side_by_side import TURN, keeps
from tests.support.without import WITHOUT, left_out, needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile(
    "ackd",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,  # the same examples everywhere; a run by hand may ask for others
    database=None,
)
settings.load_profile("ackd")

KafkaFactory = Callable[[KafkaOptions], Kafka]
PulsarFactory = Callable[[PulsarOptions], Pulsar]
RedisFactory = Callable[[RedisOptions], RedisServer]


def pytest_configure() -> None:
    """A run that is ended from outside tells first what has failed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` has turns: tests that judge by the clock, and all others. Brokers may be left
    out.
    """
    turn = os.environ.get(TURN)
    try:
        without = left_out(os.environ.get(WITHOUT, ""))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    kept = [
        each
        for each in items
        if keeps(turn, alone="alone" in each.keywords) and not needs(each, without)
    ]
    config.hook.pytest_deselected(items=[each for each in items if each not in set(kept)])
    items[:] = kept


@pytest.fixture(scope="session", autouse=True)
def no_orphans() -> Iterator[None]:
    """Fail the run when a process that a test started is still there at its end."""
    yield
    mine = psutil.Process(os.getpid()).children(recursive=True)
    left = [child.cmdline() for child in mine if child.pid != reaper.helper_pid()]
    assert not left, f"processes left behind: {left}"


@pytest.fixture(autouse=True)
def no_blocking_calls(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail an async test in which our own code blocks the event loop (file, socket, sleep)."""
    if not asyncio.iscoroutinefunction(getattr(request, "function", None)):
        yield
        return
    with blockbuster_ctx(["ackd", "ackd_adapters"]) as watch:
        # Prometheus' process collector reads /proc, which is memory and no disk.
        for name in ("io.BufferedReader.read", "os.listdir"):
            if name in watch.functions:
                watch.functions[name].can_block_in("process_collector.py", "collect")
        yield


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One Kafka for the whole run, with fast groups. Do not hurt it; use topics of your own."""
    require(kafka_support.missing())
    with Kafka() as started:
        yield started


@pytest.fixture
def own_kafka() -> Iterator[KafkaFactory]:
    """Start a Kafka that the test may kill, cut and freeze; stopped at its end."""
    require(kafka_support.missing())
    kafka_support.install()  # here, because the first time may take longer than a test may
    with ExitStack() as stack:
        yield lambda options: stack.enter_context(Kafka(options))


@pytest.fixture(scope="session")
def rocketmq() -> Iterator[RocketMQ]:
    """One RocketMQ for the whole run; who kills it starts it again. Use topics of your own."""
    require(rocketmq_support.missing())
    with RocketMQ() as started:
        yield started


@pytest.fixture(scope="session")
def pulsar() -> Iterator[Pulsar]:
    """One Pulsar for the whole run. Do not hurt it; use topics of your own."""
    require(pulsar_support.missing())
    with Pulsar() as started:
        yield started


@pytest.fixture
def own_pulsar() -> Iterator[PulsarFactory]:
    """Start a Pulsar that the test may kill and freeze; stopped at its end."""
    require(pulsar_support.missing())
    pulsar_support.install()  # here, because the first time may take longer than a test may
    with ExitStack() as stack:
        yield lambda options: stack.enter_context(Pulsar(options))


def _session_redis(flavour: Flavour, *, tls: bool = False) -> Iterator[RedisServer]:
    require(redis_support.missing(flavour))
    with RedisServer(RedisOptions(binary(flavour), tls=tls, users=TLS_USERS if tls else ())) as it:
        yield it


TLS_USERS = ("user ackd on >ackd-secret ~* &* +@all -@admin -@dangerous +info +config|get",)


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    """The embedded kind of server, for the whole run. Use keys of your own; do not hurt it."""
    yield from _session_redis(Flavour.VALKEY)


@pytest.fixture(scope="session")
def redis7() -> Iterator[RedisServer]:
    """A Redis of the system (7.0 on Debian 12), for the whole run."""
    yield from _session_redis(Flavour.REDIS)


@pytest.fixture(scope="session")
def redis62() -> Iterator[RedisServer]:
    """Redis 6.2, the oldest supported, for the whole run. Its package ends with Python 3.11."""
    if sys.version_info >= (3, 12):
        pytest.skip(redis_support.missing(Flavour.OLDEST))
    yield from _session_redis(Flavour.OLDEST)


@pytest.fixture(scope="session")
def redis_tls() -> Iterator[RedisServer]:
    """A Redis behind TLS with the user `ackd`, password `ackd-secret`; no default user."""
    yield from _session_redis(Flavour.REDIS, tls=True)


@pytest.fixture(scope="session")
def redis_sentinel() -> Iterator[RedisSentinel]:
    """A primary, a replica and three Sentinels, for the whole run. Do not make it fail over."""
    require(redis_support.missing(Flavour.REDIS))
    with RedisSentinel(binary(Flavour.REDIS), steady=True) as started:
        yield started


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """A cluster of three primaries, for the whole run."""
    require(redis_support.missing(Flavour.REDIS))
    with RedisCluster(binary(Flavour.REDIS)) as started:
        yield started


@pytest.fixture
def own_redis() -> Iterator[RedisFactory]:
    """Start servers that the test may kill, freeze and empty; stopped at its end."""
    with ExitStack() as stack:
        yield lambda options: stack.enter_context(RedisServer(options))


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One session for all tests of a run that need one. It is not kept in here: see `started`."""
    require("" if shutil.which("java") else "reports need Java 17: java is not in PATH")
    from tests.support.spark import started  # noqa: PLC0415 -- few tests need it, and it is large

    yield from started()
