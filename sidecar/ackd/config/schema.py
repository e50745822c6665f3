"""Every setting of ackd with its type, default, bounds and documentation, defined once.

The dataclasses have the shape of the configuration file: `[subscriptions.orders] lease_ms = 30000`
is `settings.subscriptions["orders"].lease_ms`, and `ACKD_SUBSCRIPTIONS__ORDERS__LEASE_MS` in the
environment. Durations are integer milliseconds, sizes integer bytes. See `ackd.options` for the
metadata convention. Every setting has an effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ackd.config.app_health import AppSettings
from ackd.config.machine import default_identity, default_state_dir
from ackd.config.mistakes import dotted
from ackd.config.peers import PeerSettings
from ackd.config.sqs import SqsSettings
from ackd.config.subscription import ORDERED_RETRY_DELAYS_MS, SubscriptionSettings
from ackd.config.traces import TraceSettings
from ackd.config.units import DAY_MS, GIB, HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS
from ackd.options import about, computed, setting

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
NAME_DOC = "1 to 100 letters, digits, `.`, `_` or `-`, the first one a letter or digit"

Durability = Literal["everysec", "always", "replicated"]
OutboxMode = Literal["off", "on_request", "when_away"]
Stop = Literal["wait", "release"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The HTTP side: where it listens, who may call, and the bounds of a request."""

    listen: str = setting(
        "127.0.0.1:7080",
        "Where applications connect: `host:port`, `[v6]:port` or `unix:/path`. Port 0 takes a free "
        "one. An address that others can reach needs `token_file`.",
    )
    admin_listen: str = setting(
        "127.0.0.1:7081",
        "Where operators and probes connect (health, metrics, admin calls); forms as in `listen`. "
        "An address that others can reach needs `admin_token_file`.",
    )
    health_listen: str = setting(
        "",
        "Where probes and scrapers of other machines connect, forms as in `listen`: `/livez`, "
        "`/readyz` and `/metrics`, nothing else, and without a token. Empty: only on "
        "`admin_listen`.",
    )
    token_file: Path | None = setting(
        None,
        "File with the bearer token of the data port (its first line). Read again when it changes.",
    )
    admin_token_file: Path | None = setting(
        None,
        "File with the bearer token of the admin port. `/livez` and `/readyz` answer without it.",
    )
    hosts: tuple[str, ...] = setting(
        (),
        "Further host names by which clients may call a port without a token. Addresses and "
        "`localhost` are always accepted. Other names are not, because a web page could point "
        "one at this machine.",
        len_max=100,
    )
    head_bytes_max: int = setting(
        16 * KIB,
        "Largest request line and headers together; larger ones are answered 431.",
        min=KIB,
        max=MIB,
    )
    body_bytes_max: int = setting(
        16 * MIB, "Largest request body; a larger one is answered 413.", min=KIB, max=GIB
    )
    wait_ms_max: int = setting(
        20 * SECOND_MS,
        "Longest wait of a receive; longer ones are cut to it, and the answer says so.",
        min=0,
        max=MINUTE_MS,
    )
    receive_max: int = setting(1000, "Most messages in one receive.", min=1, max=10_000)
    settle_max: int = setting(1000, "Most items in one settle.", min=1, max=10_000)
    drain_ms: int = setting(
        10 * SECOND_MS,
        "How long a stopping sidecar goes on serving settles before it exits; and receives, over "
        "links, for three quarters of that at most.",
        min=0,
        max=10 * MINUTE_MS,
    )
    stop: Stop = setting(
        "wait",
        "What a stopping sidecar does about open leases of its applications: `wait` serves "
        "settles for `drain_ms`; `release` gives them back at once, and the attempts do not "
        "count. `release` is right where the application ends before its sidecar, as in a pod.",
    )
    head_timeout_ms: int = setting(
        10 * SECOND_MS,
        "How long a client may take to send a request's line and headers.",
        min=100,
        max=10 * MINUTE_MS,
    )
    body_timeout_ms: int = setting(
        30 * SECOND_MS,
        "How long a client may take to send a body, or may stop reading an answer.",
        min=100,
        max=HOUR_MS,
    )
    keepalive_timeout_ms: int = setting(
        75 * SECOND_MS,
        "How long an idle connection is kept for the next request.",
        min=0,
        max=HOUR_MS,
    )
    connections_max: int = setting(
        1000, "Most connections at once on the data port; more are closed.", min=1, max=100_000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The store that keeps leases, attempts and finished offsets: Redis or Valkey."""

    url: str = setting(
        "embedded",
        "`embedded` (a Valkey of ackd's own, data in `state_dir`), `redis://host:port/db`, "
        "`rediss://` (TLS), `unix:///path`, `sentinel://h1:26379,h2:26379/name`, "
        "`cluster://h1:6379,h2:6379` (with TLS `sentinels://`, `clusters://`), or `memory` (keeps "
        "nothing over a restart: for trying only). No user or password in here.",
    )
    prefix: str = setting(
        "ackd",
        "First part of the name of every key in the store.",
        pattern=r"[A-Za-z0-9._:-]{1,64}",
        pattern_doc="1 to 64 letters, digits, `.`, `_`, `-` or `:`",
    )
    username: str | None = setting(None, "User name (ACL) at the store.", len_min=1, len_max=200)
    password_file: Path | None = setting(None, "File with the password (its first line).")
    tls_ca_file: Path | None = setting(
        None, "Certificate authorities to trust (PEM); default: the system's."
    )
    tls_cert_file: Path | None = setting(None, "Client certificate (PEM); needs `tls_key_file`.")
    tls_key_file: Path | None = setting(None, "Client key (PEM); needs `tls_cert_file`.")
    durability: Durability = setting(
        "everysec",
        "What a settle waits for: the server's memory with AOF `everysec`, its disk (`always`), or "
        "`replicas_min` replicas (`replicated`).",
    )
    replicas_min: int = setting(
        1,
        'With `durability = "replicated"`: how many replicas must have a write before it counts.',
        min=1,
        max=10,
    )
    timeout_ms: int = setting(
        2 * SECOND_MS,
        "How long a call to the store may take. Then its outcome is unknown, and settles answer "
        "503.",
        min=50,
        max=MINUTE_MS,
    )
    grace_ms: int = setting(
        5 * SECOND_MS,
        "How long no lease expires after the store was away, so that applications can settle "
        "first.",
        min=0,
        max=5 * MINUTE_MS,
    )
    batch_max: int = setting(
        1500,
        "Most operations in one script call. A call collects those that arrive during the one "
        "before it.",
        min=1,
        max=1900,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """A connection to a broker: which adapter, and that adapter's own options."""

    adapter: str = field(
        metadata=about(
            "Name of the adapter, say `kafka` (an entry point of the group `ackd.adapters`).",
            len_min=1,
            len_max=100,
        )
    )
    options: object = setting(None, "The adapter's own settings; see its section.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """Publishing through ackd: retries, pressure, and how long an idempotency key is remembered."""

    topics: tuple[str, ...] = setting(
        (),
        "Topics to which applications may publish; one that starts with `^` is a regular "
        "expression, matched from the start of the name that the request gives. Empty: any "
        "topic. Topics of ackd and of the broker itself never.",
        len_max=1000,
    )
    idempotency_ms: int = setting(
        HOUR_MS,
        "How long ackd keeps the answer to an `Idempotency-Key`: longer than a client repeats.",
        min=SECOND_MS,
        max=7 * DAY_MS,
    )
    idempotency_max: int = setting(
        1_000_000,
        "Most idempotency keys that a sidecar keeps at once; more are answered 429. Divided by "
        "`idempotency_ms` it is the rate of new keys that never meets it: 277 a second by default.",
        min=1,
        max=10_000_000,
    )
    retries_max: int = setting(
        2,
        "How often ackd tries again at once when the broker certainly did not store a message.",
        min=0,
        max=10,
    )
    backoff_ms: int = setting(
        SECOND_MS,
        "First pause when the broker is overloaded; each further pause is 1.6 times as long.",
        min=1,
        max=2 * MINUTE_MS,
    )
    backoff_ms_max: int = setting(
        2 * MINUTE_MS, "Longest pause when the broker is overloaded.", min=1, max=10 * MINUTE_MS
    )
    timeout_ms: int = setting(
        30 * SECOND_MS,
        "How long a publish may take in all, retries included.",
        min=100,
        max=10 * MINUTE_MS,
    )
    in_flight_max: int = setting(
        10_000,
        "Most messages being published at once; more are answered 429.",
        min=1,
        max=1_000_000,
    )
    in_flight_bytes_max: int = setting(
        64 * MIB,
        "Most bytes being published at once; more are answered 429.",
        min=KIB,
        max=16 * GIB,
    )
    outbox: OutboxMode = setting(
        "on_request",
        "When ackd first puts a message into the store and publishes it in the background: never "
        "(`off`); if the request says `Prefer: respond-async` or has a delay that the broker "
        "can't keep (`on_request`); also if the broker is away (`when_away`).",
    )
    outbox_messages_max: int = setting(
        100_000,
        "Most messages in a broker's outbox, of all sidecars together; more are answered 429.",
        min=1,
        max=10_000_000,
    )
    outbox_bytes_max: int = setting(
        256 * MIB,
        "Most bytes of messages in a broker's outbox; the store holds them in memory. More are "
        "answered 429; a single request that is larger is answered 413.",
        min=KIB,
        max=64 * GIB,
    )
    outbox_result_ms: int = setting(
        HOUR_MS,
        "How long the outbox keeps the result of a message that was sent.",
        min=SECOND_MS,
        max=7 * DAY_MS,
    )
    outbox_results_max: int = setting(
        10_000,
        "Most results of sent messages that the outbox keeps; it drops the oldest first.",
        min=0,
        max=1_000_000,
    )
    outbox_failed_ms: int = setting(
        7 * DAY_MS,
        "How long the outbox keeps a message that the broker refused for good, so that you can "
        "send it again.",
        min=SECOND_MS,
        max=90 * DAY_MS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """What ackd logs, and whether it serves metrics."""

    log_level: LogLevel = setting("info", "Lowest level of log lines that ackd writes.")
    log_format: LogFormat = setting("json", "`json`: one JSON object per line; `text`: for people.")
    metrics: bool = setting(True, "Serve Prometheus metrics at `/metrics` on the admin port.")


# tidy: long-class attributes=14 -- one for each section
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole configuration. Without any file: embedded store, local broker, one subscription."""

    state_dir: Path = computed(
        default_state_dir,
        about(
            "Folder for the embedded store and the local broker; one running sidecar per folder.",
            default_doc="`$XDG_STATE_HOME/ackd`, else `~/.local/state/ackd`",
        ),
    )
    identity: str = computed(
        default_identity,
        about(
            "Name of this sidecar. It must differ from the names of all other sidecars on the "
            "store, and stay the same after a restart.",
            pattern=NAME,
            pattern_doc=NAME_DOC,
            default_doc="the host name",
        ),
    )
    lease_key_file: Path | None = setting(
        None,
        "File with the secret that signs lease tokens (first line, at least 16 bytes); all "
        "sidecars of a store need the same. A second line has the previous secret, which ackd "
        "still accepts. Default: a random secret in the store.",
    )
    server: ServerSettings = computed(ServerSettings, about("The HTTP side."))
    app: AppSettings = computed(AppSettings, about("The application beside the sidecar."))
    store: StoreSettings = computed(StoreSettings, about("The store."))
    brokers: Mapping[str, BrokerSettings] = computed(
        dict,
        about(
            "Connections to brokers, by name.",
            len_max=100,
            default_doc="one named `local` with the adapter `local`",
        ),
    )
    subscriptions: Mapping[str, SubscriptionSettings] = computed(
        dict,
        about(
            "Subscriptions, by name.",
            len_max=1000,
            default_doc="when no broker is configured either: `default` on the topic `default`",
        ),
    )
    publish: PublishSettings = computed(PublishSettings, about("Publishing."))
    sqs: SqsSettings = computed(SqsSettings, about("The port for SQS clients."))
    peers: PeerSettings = computed(PeerSettings, about("The other sidecars of the store."))
    telemetry: TelemetrySettings = computed(TelemetrySettings, about("Telemetry."))
    traces: TraceSettings = computed(TraceSettings, about("Traces of messages."))
    # Where each value comes from, by key path: "file", "env" or "default". Filled by the loader.
    sources: Mapping[str, str] = field(
        default_factory=dict, compare=False, repr=False, metadata={"internal": True}
    )

    def sources_below(self, path: str) -> dict[str, str]:
        """Sources of one section's settings (`subscriptions.orders`), by the rest of the path."""
        start = f"{path}."
        return {
            key.removeprefix(start): value
            for key, value in self.sources.items()
            if key.startswith(start)
        }


def resolved(settings: Settings) -> Settings:
    """Fill in what depends on other settings: a subscription's broker (if there is one only), its
    group, and the delays of an ordered subscription.
    """
    only = next(iter(settings.brokers)) if len(settings.brokers) == 1 else ""
    filled = {}
    for name, each in settings.subscriptions.items():
        delays_ms = each.retry_delays_ms
        path = dotted(("subscriptions", name, "retry_delays_ms"))
        given = settings.sources.get(path, "default")
        if each.ordering != "none" and given == "default":
            delays_ms = ORDERED_RETRY_DELAYS_MS
        filled[name] = replace(
            each,
            broker=each.broker or only,
            group=each.group or name,
            retry_delays_ms=delays_ms,
        )
    return replace(settings, subscriptions=filled)
