"""Real Redis and Valkey servers: single, with TLS and users, under Sentinel, and as a cluster."""

from tests.support.redis.binaries import Flavour, binary, missing
from tests.support.redis.cluster import RedisCluster
from tests.support.redis.sentinel import SERVICE, RedisSentinel
from tests.support.redis.server import ADMIN, ADMIN_PASSWORD, RedisOptions, RedisServer

__all__ = [
    "ADMIN",
    "ADMIN_PASSWORD",
    "SERVICE",
    "Flavour",
    "RedisCluster",
    "RedisOptions",
    "RedisSentinel",
    "RedisServer",
    "binary",
    "missing",
]
