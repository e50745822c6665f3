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

from ackd.config.app import AppSettings
from ackd.config.machine import default_identity, default_state_dir
from ackd.config.mistakes import dotted
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
        "Further names (`Host`) by which a port without a token may be called. Addresses and "
        "`localhost` always may; a web page could point any other name at this machine.",
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
        "Longest wait of a receive; longer ones are cut to it.",
        min=0,
        max=MINUTE_MS,
    )
    receive_max: int = setting(1000, "Most messages in one receive.", min=1, max=10_000)
    settle_max: int = setting(1000, "Most items in one settle.", min=1, max=10_000)
    drain_ms: int = setting(
        10 * SECOND_MS,
        "How long a stopping sidecar goes on serving settles before it exits.",
        min=0,
        max=10 * MINUTE_MS,
    )
    stop: Stop = setting(
        "wait",
        "What a stopping sidecar does about leases that its applications hold: `wait` for settles, "
        "as long as `drain_ms`; or `release`: give them back at once, uncounted. That is right "
        "where the application ends first, as in a pod.",
    )
    head_timeout_ms: int = setting(
        10 * SECOND_MS,
        "How long a client may take to send a request's line and headers.",
        min=100,
        max=10 * MINUTE_MS,
    )
    body_timeout_ms: int = setting(
        30 * SECOND_MS,
        "How long a client may take to send a body, or to go on reading an answer.",
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
        "First part of every key.",
        pattern=r"[A-Za-z0-9._:-]{1,64}",
        pattern_doc="1 to 64 letters, digits, `.`, `_`, `-` or `:`",
    )
    username: str | None = setting(None, "ACL user.", len_min=1, len_max=200)
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
        1, "How many replicas must have a write with `replicated`.", min=1, max=10
    )
    timeout_ms: int = setting(
        2 * SECOND_MS,
        "How long a call may take before its outcome counts as unknown (503).",
        min=50,
        max=MINUTE_MS,
    )
    grace_ms: int = setting(
        5 * SECOND_MS,
        "How long expiry waits after the store was away, so that applications can settle first.",
        min=0,
        max=5 * MINUTE_MS,
    )
    batch_max: int = setting(
        1500, "Most items in one script call (a call collects what arrives).", min=1, max=1900
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """A connection to a broker: which adapter, and that adapter's own options."""

    adapter: str = field(
        metadata=about(
            "Name of the adapter, an entry point of the group `ackd.adapters`.",
            len_min=1,
            len_max=100,
        )
    )
    options: object = setting(None, "The adapter's own settings; see its section.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """Publishing through ackd: retries, pressure, and how long an idempotency key is remembered."""

    idempotency_ms: int = setting(
        DAY_MS,
        "How long the answer to an `Idempotency-Key` is kept.",
        min=SECOND_MS,
        max=7 * DAY_MS,
    )
    idempotency_max: int = setting(
        100_000, "Most idempotency keys kept at once; more are answered 429.", min=1, max=10_000_000
    )
    retries_max: int = setting(
        2, "Tries at once after a first one that was certainly not stored.", min=0, max=10
    )
    backoff_ms: int = setting(
        SECOND_MS,
        "First pause when the broker is under pressure; each further one is 1.6 times longer.",
        min=1,
        max=2 * MINUTE_MS,
    )
    backoff_ms_max: int = setting(
        2 * MINUTE_MS, "Longest pause under pressure.", min=1, max=10 * MINUTE_MS
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
        "When a message goes into the store first and to the broker in the background: never "
        "(`off`); with `Prefer: respond-async`, or with a delay that the broker can't keep "
        "(`on_request`); also when the broker is away (`when_away`).",
    )
    outbox_messages_max: int = setting(
        100_000,
        "Most messages in a broker's outbox, of all sidecars; more are answered 429.",
        min=1,
        max=10_000_000,
    )
    outbox_bytes_max: int = setting(
        256 * MIB,
        "Most bytes of messages in a broker's outbox (the store holds them in memory); more are "
        "answered 429, a request that is larger than this alone 413.",
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
        "Most results of sent messages that it keeps; the oldest are dropped first.",
        min=0,
        max=1_000_000,
    )
    outbox_failed_ms: int = setting(
        7 * DAY_MS,
        "How long a message that the broker refused for good stays, to be sent again by request.",
        min=SECOND_MS,
        max=90 * DAY_MS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Logs and metrics."""

    log_level: LogLevel = setting("info", "Lowest level of the log lines that are written.")
    log_format: LogFormat = setting("json", "One JSON object a line, or text for people.")
    metrics: bool = setting(True, "Serve Prometheus metrics at `/metrics` on the admin port.")


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
            "Name of this sidecar: different for each one on a store, the same after a restart.",
            pattern=NAME,
            pattern_doc=NAME_DOC,
            default_doc="the host name",
        ),
    )
    lease_key_file: Path | None = setting(
        None,
        "File with the secret that signs lease tokens (first line, at least 16 bytes), the same "
        "for all sidecars of a store; a second line is the one before, still accepted. Default: a "
        "random one kept in the store.",
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
