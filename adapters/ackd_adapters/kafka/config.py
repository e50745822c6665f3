"""The options of a Kafka connection, and the librdkafka properties made from them.

Passwords and secrets are read from files when a client is made. They are only in that client's
property table: in no option, no `repr` and no log line.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ackd.errors import ConfigError
from ackd.hidden import HIDDEN
from ackd.options import about, setting
from ackd.ports import ConsumerSpec
from ackd_adapters.kafka.msk import signer_installed, token_callback
from ackd_adapters.kafka.names import is_pattern

KIB = 1024
MIB = 1024 * KIB
CLIENT_LOG = logging.getLogger("ackd.kafka.client")

SecurityProtocol = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"]
GroupProtocol = Literal["classic", "consumer"]
IsolationLevel = Literal["read_committed", "read_uncommitted"]
Properties = dict[str, object]

# Properties that ackd sets or relies on, and secrets, which come from files.
OWNED = frozenset(
    """acks allow.auto.create.topics auto.offset.reset background_event_cb bootstrap.servers
    client.id compacted.topic.retry consume_cb default_topic_conf delivery.report.only.error
    delivery.timeout.ms dr_cb dr_msg_cb enable.auto.commit enable.auto.offset.store
    enable.gapless.guarantee enable.idempotence enable.partition.eof error_cb
    fetch.queue.backoff.ms group.id group.instance.id group.protocol interceptors isolation.level
    log_cb max.in.flight max.in.flight.requests.per.connection message.max.bytes
    message.send.max.retries message.timeout.ms metadata.broker.list oauth_cb offset.store.method
    on_commit on_delivery opaque partition.assignment.strategy partitioner partitioner_cb
    plugin.library.paths queue.buffering.max.kbytes queue.buffering.max.messages
    queued.max.messages.kbytes queued.min.messages rebalance_cb request.required.acks retries
    sasl.mechanism sasl.mechanisms sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
    sasl.password sasl.username security.protocol
    ssl.ca.location ssl.certificate.location ssl.key.location ssl.key.password ssl.key.pem
    ssl.keystore.password stats_cb throttle_cb topic.blacklist
    topic.metadata.refresh.interval.ms transactional.id""".split()  # noqa: SIM905  one a line is 50
)
OAUTHBEARER: SaslMechanism = "OAUTHBEARER"
MSK_IAM: SaslMechanism = "AWS_MSK_IAM"
PASSWORD = ("sasl_username", "sasl_password_file")
# What each kind of login needs; the others need a password.
SASL_NEEDS: Mapping[SaslMechanism, tuple[str, ...]] = {
    OAUTHBEARER: (
        "sasl_oauth_token_url",
        "sasl_oauth_client_id",
        "sasl_oauth_client_secret_file",
    ),
    MSK_IAM: ("sasl_aws_region",),
}
SESSION_MS = 8_000
"""Brokers allow 6 s or more by default (`group.min.session.timeout.ms`); librdkafka's default is
45 s. A static member keeps that one: it has so long for its restart.
"""
BEAT_MS = 500
"""Members learn of a rebalance by their heartbeat, and the group assigns nothing until all know.
librdkafka's default is 3 s. With 1 s a partition waited for up to 2.6 s, with 500 ms for 1.2 s, of
which 1 s is that librdkafka joins once a second; 300 ms gain nothing more.
"""
# Under KIP-848 the broker decides these; librdkafka refuses them.
CLASSIC_ONLY = ("session.timeout.ms", "heartbeat.interval.ms")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """A connection to a Kafka cluster; all its subscriptions and publishing share it."""

    bootstrap_servers: str = dataclasses.field(
        metadata=about("Some of the brokers, `host:port`, separated by commas.", len_min=1)
    )
    client_id: str = setting(
        "ackd", "How this client names itself to the broker.", len_min=1, len_max=200
    )
    security_protocol: SecurityProtocol = setting(
        "plaintext", "Whether connections use TLS (`ssl`), a login (`sasl_`), or both."
    )
    sasl_mechanism: SaslMechanism = setting(
        "SCRAM-SHA-512",
        "With `sasl_plaintext` and `sasl_ssl`: how the client logs in. `OAUTHBEARER` gets its "
        "tokens from an OpenID provider (client credentials), `AWS_MSK_IAM` signs them with the "
        "pod's or machine's AWS credentials (extra `msk`); the others prove a password.",
    )
    sasl_username: str | None = setting(None, "With a password: user name.")
    sasl_password_file: Path | None = setting(None, "File with the password (its first line).")
    sasl_oauth_token_url: str | None = setting(
        None,
        "With `OAUTHBEARER`: where the provider gives tokens, `https://` or `http://`.",
        pattern=r"https?://[^\s@]+",
        pattern_doc="`https://` or `http://` with a host, without user and password",
    )
    sasl_oauth_client_id: str | None = setting(
        None, "With `OAUTHBEARER`: the client's name at the provider."
    )
    sasl_oauth_client_secret_file: Path | None = setting(
        None, "With `OAUTHBEARER`: file with the client's secret (its first line)."
    )
    sasl_oauth_scope: str | None = setting(
        None, "With `OAUTHBEARER`: the scopes to ask for, separated by spaces."
    )
    sasl_oauth_ca_file: Path | None = setting(
        None, "Certificate authorities to trust for the provider (PEM); default: the system's."
    )
    sasl_aws_region: str | None = setting(
        None,
        "With `AWS_MSK_IAM`: the cluster's region.",
        pattern=r"[a-z0-9-]+",
        pattern_doc="a region, as `eu-central-1`",
    )
    sasl_aws_role_arn: str | None = setting(
        None, "With `AWS_MSK_IAM`: a role to assume, if not that of the credentials."
    )
    tls_ca_file: Path | None = setting(
        None, "Certificate authorities to trust (PEM); default: the system's."
    )
    tls_cert_file: Path | None = setting(None, "Client certificate (PEM); needs `tls_key_file`.")
    tls_key_file: Path | None = setting(None, "Client key (PEM); needs `tls_cert_file`.")
    tls_key_password_file: Path | None = setting(
        None, "File with the client key's password (its first line)."
    )
    group_protocol: GroupProtocol = setting(
        "classic",
        "How groups are formed: `classic` (cooperative, any broker, allows a static id) or "
        "`consumer` (KIP-848, Kafka 4.0 and newer).",
    )
    isolation_level: IsolationLevel = setting(
        "read_committed",
        "Whether records of open and aborted transactions are hidden. A change for a group that "
        "has progress needs a reset.",
    )
    fetch_records_max: int = setting(
        5_000,
        "Most fetched records of a subscription in the adapter, before ackd takes them over.",
        min=1,
        max=1_000_000,
    )
    fetch_bytes_max: int = setting(
        16 * MIB,
        "Most bytes of fetched records in the adapter, before ackd takes them over; the client "
        "library holds as much again.",
        min=64 * KIB,
        max=1024 * MIB,
    )
    topics_refresh_ms: int = setting(
        5_000,
        "How often to look for new topics, new partitions, and topics made again.",
        min=200,
        max=3_600_000,
    )
    request_timeout_ms: int = setting(
        5_000, "How long a question to the broker may take.", min=100, max=120_000
    )
    publish_timeout_ms: int = setting(
        10_000,
        "How long one publish may take, with the client's own repeats; then its outcome is "
        "unknown.",
        min=100,
        max=600_000,
    )
    publish_linger_ms: int = setting(
        0, "How long to wait for more messages to send together.", min=0, max=1_000
    )
    publish_records_max: int = setting(
        20_000, "Most messages on their way to the broker.", min=1, max=10_000_000
    )
    publish_bytes_max: int = setting(
        64 * MIB, "Most bytes on their way to the broker.", min=MIB, max=2047 * MIB
    )
    message_bytes_max: int = setting(
        MIB,
        "Largest message to publish; the broker's or topic's own limit may be smaller.",
        min=KIB,
        max=256 * MIB,
    )
    # May hold secrets that ackd can't recognise, so ackd never shows it.
    properties: Mapping[str, str] = dataclasses.field(
        default_factory=dict,
        repr=False,
        metadata=about(
            "Further librdkafka properties for all clients of this connection. ackd refuses "
            "those that it sets itself.",
            secret=True,
        ),
    )


def check(options: KafkaOptions) -> None:
    """Check what needs neither broker nor files. Raises `ConfigError` with all mistakes in one
    text.
    """
    wrong = [f"properties: {key} is set by ackd itself" for key in _owned(options.properties)]
    wrong += _sasl_mistakes(options)
    if (options.tls_cert_file is None) != (options.tls_key_file is None):
        wrong.append("tls_cert_file and tls_key_file go together")
    if options.group_protocol == "consumer":
        wrong += [
            f"properties: {key} is the broker's business with group_protocol = consumer"
            for key in CLASSIC_ONLY
            if key in options.properties
        ]
    if wrong:
        raise ConfigError("; ".join(wrong))


def _sasl_mistakes(options: KafkaOptions) -> list[str]:
    """What the configured kind of login lacks."""
    mechanism = options.sasl_mechanism
    if not options.security_protocol.startswith("sasl_"):
        return []
    needed = SASL_NEEDS.get(mechanism, PASSWORD)
    lacking = [name for name in needed if getattr(options, name) is None]
    wrong = []
    if lacking:
        wrong.append(
            f"{options.security_protocol} with {mechanism} needs {' and '.join(lacking)}",
        )
    if mechanism == MSK_IAM:
        if options.security_protocol != "sasl_ssl":
            wrong.append(f"{mechanism} needs security_protocol = sasl_ssl")
        if not signer_installed():
            wrong.append(f"{mechanism} needs the package of the extra `msk`: ackd[msk]")
    return wrong


def check_files(options: KafkaOptions) -> None:
    """Check that all files can be read; blocks. Raises `ConfigError`."""
    wrong = []
    for path in secret_files(options):
        try:
            path.read_bytes()
        except OSError as error:
            wrong.append(f"{path} can't be read: {error.strerror}")
    if wrong:
        raise ConfigError("; ".join(wrong))


def check_spec(options: KafkaOptions, spec: ConsumerSpec) -> None:
    """Check a subscription's part. Raises `ConfigError`."""
    wrong = [f"options: {key} is set by ackd itself" for key in _owned(spec.options)]
    if spec.static_id is not None and options.group_protocol == "consumer":
        wrong.append(
            "a static id needs group_protocol = classic: with KIP-848 a killed member's id stays "
            "locked until its session ends"
        )
    for topic in filter(is_pattern, spec.topics):
        try:
            re.compile(topic)
        except re.error as error:
            wrong.append(f"{topic}: {error}")
    if wrong:
        raise ConfigError("; ".join(wrong))


def _owned(properties: Mapping[str, str]) -> list[str]:
    return sorted(key for key in properties if key.removeprefix("topic.") in OWNED or key in OWNED)


def secret_files(options: KafkaOptions) -> list[Path]:
    """The files that must exist before a client is made."""
    files = (
        options.sasl_password_file,
        options.sasl_oauth_client_secret_file,
        options.sasl_oauth_ca_file,
        options.tls_ca_file,
        options.tls_cert_file,
        options.tls_key_file,
        options.tls_key_password_file,
    )
    return [path for path in files if path is not None]


def _first_line(path: Path) -> str:
    try:
        secret = path.read_text(encoding="utf-8").split("\n", 1)[0].rstrip("\r")
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from None
    HIDDEN.add(secret)
    return secret


def common(options: KafkaOptions) -> Properties:
    """Properties of every client. Reads the secret files, so it must not run on the event loop."""
    made: Properties = {
        "bootstrap.servers": options.bootstrap_servers,
        "client.id": options.client_id,
        "security.protocol": options.security_protocol,
        "logger": CLIENT_LOG,
        # How soon a frozen broker is noticed; librdkafka's own default is a minute.
        "socket.timeout.ms": 10_000,
        "socket.nagle.disable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "topic.metadata.refresh.interval.ms": options.topics_refresh_ms,
        "log.connection.close": False,
    }
    if options.security_protocol.startswith("sasl_"):
        made |= _sasl(options)
    if options.tls_ca_file is not None:
        made["ssl.ca.location"] = str(options.tls_ca_file)
    if options.tls_cert_file is not None and options.tls_key_file is not None:
        made["ssl.certificate.location"] = str(options.tls_cert_file)
        made["ssl.key.location"] = str(options.tls_key_file)
    if options.tls_key_password_file is not None:
        made["ssl.key.password"] = _first_line(options.tls_key_password_file)
    return made | dict(options.properties)


def _sasl(options: KafkaOptions) -> Properties:
    """Properties of a login. librdkafka gets the tokens of a provider by itself (KIP-768), and asks
    ackd for those that AWS's credentials sign.
    """
    if options.sasl_mechanism == MSK_IAM and options.sasl_aws_region is not None:
        callback = token_callback(options.sasl_aws_region, options.sasl_aws_role_arn)
        return {"sasl.mechanism": OAUTHBEARER, "oauth_cb": callback}
    made: Properties = {"sasl.mechanism": options.sasl_mechanism}
    if options.sasl_mechanism != OAUTHBEARER:
        made["sasl.username"] = options.sasl_username
        if options.sasl_password_file is not None:
            made["sasl.password"] = _first_line(options.sasl_password_file)
        return made
    made["sasl.oauthbearer.method"] = "oidc"
    made["sasl.oauthbearer.token.endpoint.url"] = options.sasl_oauth_token_url
    made["sasl.oauthbearer.client.id"] = options.sasl_oauth_client_id
    if options.sasl_oauth_client_secret_file is not None:
        made["sasl.oauthbearer.client.secret"] = _first_line(options.sasl_oauth_client_secret_file)
    if options.sasl_oauth_scope is not None:
        made["sasl.oauthbearer.scope"] = options.sasl_oauth_scope
    if options.sasl_oauth_ca_file is not None:
        made["https.ca.location"] = str(options.sasl_oauth_ca_file)
    return made


def _consumer(options: KafkaOptions, spec: ConsumerSpec) -> Properties:
    return common(options) | {
        "client.id": f"{options.client_id}-{spec.client_id}" if spec.client_id else "ackd",
        "group.id": spec.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
    }


def member_properties(options: KafkaOptions, spec: ConsumerSpec) -> Properties:
    """Properties of the consumer that is a member of the group and never fetches."""
    made = _consumer(options, spec) | {"group.protocol": options.group_protocol}
    if options.group_protocol == "classic":
        made["partition.assignment.strategy"] = "cooperative-sticky"
        made.setdefault("heartbeat.interval.ms", BEAT_MS)
        if spec.static_id is None:
            # So long the group waits for a dead member before it assigns anything, lets others
            # leave, or takes their commits. A slow one loses nothing: it owns what it owned.
            made.setdefault("session.timeout.ms", SESSION_MS)
    if spec.static_id is not None:
        made["group.instance.id"] = spec.static_id
    return made | dict(spec.options)


def position_properties(options: KafkaOptions, spec: ConsumerSpec) -> Properties:
    """Properties of the consumer that only asks for committed positions."""
    extra = {key: value for key, value in spec.options.items() if key not in CLASSIC_ONLY}
    return _consumer(options, spec) | extra


def fetch_properties(options: KafkaOptions, spec: ConsumerSpec) -> Properties:
    """Properties of the consumer that fetches and is not a member. ADR 3 has figures."""
    extra = {key: value for key, value in spec.options.items() if key not in CLASSIC_ONLY}
    return (
        _consumer(options, spec)
        | {
            "enable.partition.eof": True,
            "isolation.level": options.isolation_level,
            # A newly added partition waits for the pending fetch, so this bounds a restart.
            "fetch.wait.max.ms": 100,
            # The default is 1 s: a partition that filled the queue would pause that long.
            "fetch.queue.backoff.ms": 5,
            "fetch.error.backoff.ms": 200,
            "queued.min.messages": min(options.fetch_records_max, 100_000),
            "queued.max.messages.kbytes": max(options.fetch_bytes_max // KIB, 1),
            "fetch.max.bytes": max(min(options.fetch_bytes_max, 8 * MIB), MIB),
            "message.max.bytes": MIB,
        }
        | extra
    )


def producer_properties(options: KafkaOptions) -> Properties:
    """Properties of the idempotent producer."""
    return common(options) | {
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": options.publish_linger_ms,
        # Java's clients choose the same partition for a key (rule R20).
        "partitioner": "murmur2_random",
        "message.timeout.ms": options.publish_timeout_ms,
        "message.max.bytes": options.message_bytes_max,
        "queue.buffering.max.messages": options.publish_records_max,
        "queue.buffering.max.kbytes": options.publish_bytes_max // KIB,
        # How long a topic may be unknown before its messages fail: a new topic takes a moment to
        # appear.
        "topic.metadata.propagation.max.ms": 2_000,
        "allow.auto.create.topics": False,
    }
