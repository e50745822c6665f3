"""The options of a Pulsar connection. Secrets are read from files when they are used."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from ackd.errors import ConfigError
from ackd.options import about, setting
from ackd.ports import ConsumerSpec
from ackd_adapters.pulsar.names import is_pattern

KIB = 1024
MIB = 1024 * KIB
_NAMESPACE = r"[^\s/]+/[^\s/]+"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PulsarOptions:
    """A connection to a Pulsar cluster; all its subscriptions and publishing share it."""

    service_url: str = dataclasses.field(
        metadata=about(
            "Where brokers or proxies listen: `pulsar://host:6650`, with TLS `pulsar+ssl://`.",
            pattern=r"pulsar(\+ssl)?://.+",
            pattern_doc="an address that begins with pulsar:// or pulsar+ssl://",
        )
    )
    admin_url: str = dataclasses.field(
        metadata=about(
            "The admin interface: `http://host:8080`, with TLS `https://`. ackd asks it for "
            "ledgers, groups and positions.",
            pattern=r"https?://.+",
            pattern_doc="an address that begins with http:// or https://",
        )
    )
    namespace: str = setting(
        "public/default",
        "Namespace (`tenant/namespace`) of topics whose name has none.",
        pattern=_NAMESPACE,
        pattern_doc="tenant/namespace",
    )
    token_file: Path | None = setting(
        None, "File with a token (its first line); read again for each connection."
    )
    oauth2_issuer_url: str | None = setting(None, "OAuth 2.0: the issuer that gives out tokens.")
    oauth2_key_file: Path | None = setting(
        None, "OAuth 2.0: file with the client's credentials, as the issuer gave it (JSON)."
    )
    oauth2_audience: str | None = setting(None, "OAuth 2.0: the audience to ask tokens for.")
    tls_ca_file: Path | None = setting(
        None, "Certificate authorities to trust (PEM); default: the system's."
    )
    tls_cert_file: Path | None = setting(None, "Client certificate (PEM); needs `tls_key_file`.")
    tls_key_file: Path | None = setting(None, "Client key (PEM); needs `tls_cert_file`.")
    batch_messages_max: int = setting(
        1024,
        "For how many messages of one producer batch ackd's offsets have room. Another value "
        "counts from the next ledger of a topic on. 1 makes the smallest records, for topics whose "
        "producers do not batch. A larger batch stops its partition, and readiness says so.",
        min=1,
        max=65536,
    )
    fetch_records_max: int = setting(
        5_000,
        "Most fetched messages of a subscription in the adapter, before ackd takes them over.",
        min=1,
        max=1_000_000,
    )
    fetch_bytes_max: int = setting(
        16 * MIB,
        "Most bytes of fetched messages in the adapter, before ackd takes them over; the client "
        "library also holds `receiver_queue` messages of each partition.",
        min=64 * KIB,
        max=1024 * MIB,
    )
    receiver_queue: int = setting(
        500, "Most messages of a partition that the client library holds ready.", min=1, max=100_000
    )
    group_poll_ms: int = setting(
        500,
        "Time between two questions for this member's partitions and for new topics.",
        min=50,
        max=60_000,
    )
    read_retry_topic: bool = setting(
        False,
        "Also read the topics where other consumers of the group put what they wanted again later "
        "(`reconsumeLater`), `<topic>-<group>-RETRY`, for each topic of a subscription that has "
        "one.",
    )
    honor_client_delays: bool = setting(
        True,
        "Whether ackd keeps delays that other producers gave their messages (`deliverAfter`, "
        "`deliverAt`). Where messages come outside of batches, the broker then sends them to the "
        "sidecar twice.",
    )
    client_delays_wait_ms: int = setting(
        10_000,
        "How long messages wait if the broker does not tell when they are due; then ackd delivers "
        "them without their delay.",
        min=0,
        max=3_600_000,
    )
    request_timeout_ms: int = setting(
        10_000, "How long a question to the broker may take.", min=500, max=120_000
    )
    publish_timeout_ms: int = setting(
        10_000,
        "How long one publish may take, with the client's own repeats; then its outcome is "
        "unknown.",
        min=100,
        max=600_000,
    )
    publish_records_max: int = setting(
        20_000, "Most messages of a partition on their way to the broker.", min=1, max=1_000_000
    )
    publish_bytes_max: int = setting(
        64 * MIB, "Most bytes on their way to the broker.", min=MIB, max=2047 * MIB
    )
    message_bytes_max: int = setting(
        5 * MIB - 16 * KIB,
        "Largest message to publish; the broker's own limit (`maxMessageSize`) may be smaller.",
        min=KIB,
        max=256 * MIB,
    )


def check(options: PulsarOptions) -> None:
    """What needs no broker and no file. Raises `ConfigError` with all mistakes in one text."""
    wrong = []
    tls = options.service_url.startswith("pulsar+ssl://")
    if tls != options.admin_url.startswith("https://"):
        wrong.append("service_url and admin_url: both with TLS, or neither")
    oauth2 = (options.oauth2_issuer_url, options.oauth2_key_file)
    if (oauth2[0] is None) != (oauth2[1] is None):
        wrong.append("oauth2_issuer_url and oauth2_key_file go together")
    if options.oauth2_audience is not None and oauth2[0] is None:
        wrong.append("oauth2_audience needs oauth2_issuer_url")
    if (options.tls_cert_file is None) != (options.tls_key_file is None):
        wrong.append("tls_cert_file and tls_key_file go together")
    ways = [options.token_file, options.oauth2_issuer_url, options.tls_cert_file]
    if options.tls_cert_file is not None and not tls:
        wrong.append("tls_cert_file needs pulsar+ssl and https")
    if sum(way is not None for way in ways) > 1:
        wrong.append("only one of token_file, oauth2_issuer_url and tls_cert_file")
    if wrong:
        raise ConfigError("; ".join(wrong))


def check_spec(spec: ConsumerSpec) -> None:
    """The subscription's part. Raises `ConfigError`."""
    wrong = [f"options: {key} is not known to Pulsar's adapter" for key in sorted(spec.options)]
    for topic in filter(is_pattern, spec.topics):
        try:
            re.compile(topic)
        except re.error as error:
            wrong.append(f"{topic}: {error}")
    if wrong:
        raise ConfigError("; ".join(wrong))
