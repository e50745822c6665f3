"""The configuration file of one broker, from a few options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.certs import Certs
from tests.support.oidc import AUDIENCE

USER = "ackd"
TLS_USER = "ackd-client"
SCRAM_PASSWORD = "ackd-secret"
PLAIN_PASSWORD = "plain-secret"
_JAAS = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class KafkaOptions:
    """What kind of Kafka.

    `fast_groups` shortens the group protocol's intervals (sessions of 3 s), which makes most tests
    quick; without it no group setting is written at all, as on a broker with default time-outs.
    `proxied` puts a proxy before every broker. `security` adds TLS and SASL listeners and an
    authorizer that lets anonymous clients do everything and others what `Kafka.allow` says; with
    `issuer`, the address of an OpenID provider, the listeners take its tokens, too. `host`: an
    address of this machine where clients reach all brokers, if they are not on it. `properties`
    come last and win.
    """

    nodes: int = 1
    fast_groups: bool = True
    proxied: bool = False
    security: bool = False
    issuer: str = ""
    heap_mb: int = 384
    host: str = "127.0.0.1"
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SecurePorts:
    """Ports of the secured listeners of one broker."""

    tls: int
    sasl_tls: int
    sasl_plain: int


def server_properties(
    node: int,
    ports: Mapping[int, int],
    controller_ports: Mapping[int, int],
    data: Path,
    options: KafkaOptions | None = None,
    *,
    proxied: tuple[int, int] | None = None,
    secure: tuple[SecurePorts, Certs] | None = None,
) -> str:
    """Text of server.properties for broker `node`; `proxied` is (own port, port of the proxy)."""
    options = options or KafkaOptions()
    listeners = {"PLAINTEXT": (ports[node], ports[node], "PLAINTEXT")}
    if proxied is not None:
        listeners["PROXIED"] = (*proxied, "PLAINTEXT")
    if secure is not None:
        own = secure[0]
        listeners["TLS"] = (own.tls, own.tls, "SSL")
        listeners["SASLTLS"] = (own.sasl_tls, own.sasl_tls, "SASL_SSL")
        listeners["SASLPLAIN"] = (own.sasl_plain, own.sasl_plain, "SASL_PLAINTEXT")
    lines = _base(node, options.nodes, controller_ports, data)
    bound = [f"{name}://{options.host}:{port}" for name, (port, _, _) in listeners.items()]
    bound.append(f"CONTROLLER://127.0.0.1:{controller_ports[node]}")
    kinds = [f"{name}:{kind}" for name, (_, _, kind) in listeners.items()]
    lines["listeners"] = ",".join(bound)
    lines["advertised.listeners"] = ",".join(
        f"{name}://{options.host}:{port}" for name, (_, port, _) in listeners.items()
    )
    lines["listener.security.protocol.map"] = ",".join(["CONTROLLER:PLAINTEXT", *kinds])
    if options.fast_groups:
        lines |= _fast_groups()
    if secure is not None:
        lines |= _security(secure[1])
    if options.issuer:
        lines |= _tokens(options.issuer)
    lines |= options.properties
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _base(node: int, nodes: int, controller_ports: Mapping[int, int], data: Path) -> dict[str, str]:
    copies = str(min(nodes, 3))
    in_sync = "2" if nodes > 1 else "1"
    lines = {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{each}@127.0.0.1:{port}" for each, port in controller_ports.items()
        ),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        "num.partitions": "8",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "4",
        "log.cleaner.dedupe.buffer.size": "4194304",
        "log.cleaner.backoff.ms": "500",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        lines[f"{topic}.replication.factor"] = copies
        lines[f"{topic}.min.isr"] = in_sync
        lines[f"{topic}.num.partitions"] = "2"
    # A broker that was killed cannot register again before its last session ends: by default 9 s.
    lines["broker.session.timeout.ms"] = "6000" if nodes > 1 else "2000"
    lines["broker.heartbeat.interval.ms"] = "1000" if nodes > 1 else "500"
    if nodes > 1:
        lines |= {
            "controller.quorum.fetch.timeout.ms": "2000",
            "controller.quorum.election.timeout.ms": "1000",
        }
    return lines


def _fast_groups() -> dict[str, str]:
    lines = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.regex.refresh.interval.ms": "10000",
        "group.share.min.record.lock.duration.ms": "1000",
    }
    for kind in ("consumer", "share"):
        lines[f"group.{kind}.min.heartbeat.interval.ms"] = "300"
        lines[f"group.{kind}.heartbeat.interval.ms"] = "300"
        lines[f"group.{kind}.min.session.timeout.ms"] = "3000"
        lines[f"group.{kind}.session.timeout.ms"] = "6000"
        lines[f"group.{kind}.assignment.interval.ms"] = "0"
    return lines


def _security(certs: Certs) -> dict[str, str]:
    lines = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certs.server_both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certs.ca),
        "listener.name.tls.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    plain = f'{_JAAS}.plain.PlainLoginModule required user_{USER}="{PLAIN_PASSWORD}";'
    for listener in ("sasltls", "saslplain"):
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            lines[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = (
                f"{_JAAS}.scram.ScramLoginModule required;"
            )
        lines[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
    return lines


def _tokens(issuer: str) -> dict[str, str]:
    """Logins by tokens of this provider, proven anew every three seconds (KIP-368)."""
    handler = f"{_JAAS}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    lines = {"sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER"}
    for listener in ("sasltls", "saslplain"):
        prefix = f"listener.name.{listener}.oauthbearer"
        lines |= {
            f"{prefix}.sasl.jaas.config": f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required;",
            f"{prefix}.sasl.server.callback.handler.class": handler,
            f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": f"{issuer}/jwks",
            f"{prefix}.sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{prefix}.sasl.oauthbearer.expected.issuer": issuer,
            f"{prefix}.connections.max.reauth.ms": "3000",
        }
    return lines


def scram_users() -> list[str]:
    """Arguments of the storage tool that create the SCRAM user under both mechanisms."""
    argv = []
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        argv += ["--add-scram", f"{mechanism}=[name={USER},password={SCRAM_PASSWORD}]"]
    return argv
