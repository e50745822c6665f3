"""The configuration file of a standalone broker, from a few options."""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.certs import Certs


@dataclass(frozen=True)
class PulsarOptions:
    """What kind of Pulsar.

    `persist_at_once` writes a cursor down with every ack; without it the broker keeps the values
    that it is shipped with (one write in 10 s), and a killed one forgets acks. `security` has TLS
    ports only and demands tokens. `properties` come last and win.
    """

    persist_at_once: bool = True
    security: bool = False
    heap_mb: int = 256
    direct_mb: int = 256
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ports:
    """Ports of one broker. The bookie's is open without TLS on 127.0.0.1 in any case."""

    web: int
    broker: int
    bookie: int


@dataclass(frozen=True)
class Secret:
    """The key that tokens are signed with."""

    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def token(self, role: str) -> str:
        """A JSON web token (HS256, RFC 7519) for a role."""
        head = _b64(json.dumps({"alg": "HS256"}).encode())
        body = _b64(json.dumps({"sub": role}).encode())
        signed = hmac.digest(self.key, f"{head}.{body}".encode(), hashlib.sha256)
        return f"{head}.{body}.{_b64(signed)}"


def standalone_conf(
    ports: Ports, options: PulsarOptions, certs: Certs | None, secret: Secret | None
) -> str:
    """Text of standalone.conf. What is not in it takes the defaults of the broker's classes."""
    lines = {
        "webServicePort": str(ports.web),
        "brokerServicePort": str(ports.broker),
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "listeningInterface": "lo",
        "allowLoopback": "true",
        # Without it the bookie takes a random port, whatever the command line says.
        "allowEphemeralPorts": "true",
        "clusterName": "standalone",
        "managedLedgerDefaultEnsembleSize": "1",
        "managedLedgerDefaultWriteQuorum": "1",
        "managedLedgerDefaultAckQuorum": "1",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "journalSyncData": "false",
        "diskUsageThreshold": "0.99",
        "diskUsageWarnThreshold": "0.99",
        "brokerShutdownTimeoutMs": "5000",
        # By default 30: a frozen client is noticed after one to two of these.
        "keepAliveIntervalSeconds": "5",
        "webSocketServiceEnabled": "false",
        "loadBalancerEnabled": "false",
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "allowAutoTopicCreationType": "non-partitioned",
        "forceDeleteNamespaceAllowed": "true",
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "activeConsumerFailoverDelayTimeMillis": "100",
        "delayedDeliveryTickTimeMillis": "100",
        "managedLedgerDefaultMarkDeleteRateLimit": "0" if options.persist_at_once else "0.1",
        "managedLedgerCursorPositionFlushSeconds": "1" if options.persist_at_once else "60",
    }
    lines |= _memory()
    if certs is not None and secret is not None:
        lines |= _security(ports, certs, secret)
    lines |= options.properties
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _memory() -> dict[str, str]:
    return {
        "journalMaxSizeMB": "64",
        "journalPreAllocSizeMB": "4",
        "managedLedgerCacheSizeMB": "32",
        "dbStorage_writeCacheMaxSizeMb": "32",
        "dbStorage_readAheadCacheMaxSizeMb": "16",
        "dbStorage_rocksDB_blockCacheSize": "16777216",
        "numIOThreads": "2",
        "numOrderedExecutorThreads": "2",
        "numHttpServerThreads": "8",
        "numExecutorThreadPoolSize": "2",
        "numCacheExecutorThreadPoolSize": "2",
        "topicOrderedExecutorThreadNum": "2",
        "bookkeeperClientNumWorkerThreads": "2",
        "bookkeeperClientNumIoThreads": "2",
        "managedLedgerNumSchedulerThreads": "2",
    }


def _security(ports: Ports, certs: Certs, secret: Secret) -> dict[str, str]:
    """Who has no token may show a client certificate; its common name is the role."""
    auth = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "superUserRoles": "admin",
        "tokenSecretKey": "data:;base64," + base64.b64encode(secret.key).decode(),
        "authenticationProviders": f"{auth}Token,{auth}Tls",
        "brokerClientAuthenticationPlugin": (
            "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        ),
        "brokerClientAuthenticationParameters": json.dumps({"token": secret.token("admin")}),
        "brokerServicePortTls": str(ports.broker),
        "webServicePortTls": str(ports.web),
        "brokerServicePort": "",
        "webServicePort": "",
        "tlsCertificateFilePath": str(certs.server_cert),
        "tlsKeyFilePath": str(certs.server_key),
        "tlsTrustCertsFilePath": str(certs.ca),
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": str(certs.ca),
    }


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
