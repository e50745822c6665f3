"""The settings of a subscription: what it reads, its leases, and how it handles failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ackd.config.dedup import DedupSettings
from ackd.config.push import PushSettings
from ackd.config.units import DAY_MS, GIB, HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS
from ackd.options import about, computed, setting

# Delays of retries by attempt (10 s, 30 s, then RocketMQ's ladder up to 2 h); the last repeats.
RETRY_DELAYS_MS = (
    10 * SECOND_MS,
    30 * SECOND_MS,
    *(minutes * MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    1 * HOUR_MS,
    2 * HOUR_MS,
)

ORDERED_RETRY_DELAYS_MS = (3 * SECOND_MS,)
"""With an order, others wait behind a failed message, so ackd retries it soon."""

Ordering = Literal["none", "key", "partition"]
OnPartitionIncrease = Literal["ignore", "drain"]
Mode = Literal["clustering", "broadcast"]
Start = Literal["latest", "earliest", "timestamp"]
Payload = Literal["json", "text", "binary"]
ExternalCommit = Literal["accept", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """A named consumer of topics by one group; all sidecars of a group use the same settings."""

    broker: str = setting(
        "", "Name of a section of `brokers`; may be left out when there is only one.", len_max=100
    )
    topics: tuple[str, ...] = field(
        metadata=about(
            "Topics to consume; one that starts with `^` is a regular expression.",
            len_min=1,
            len_max=1000,
            shared=True,
        )
    )
    group: str = setting(
        "",
        "The broker's consumer group; default: the subscription's name.",
        len_max=255,
        shared=True,
    )
    filter: str = setting(
        "",
        "Which messages the broker sends, if it can choose. RocketMQ: tags (`paid || due`), or "
        "`sql92:` and an expression on properties. Empty: all.",
        len_max=1_000,
        shared=True,
    )
    mode: Mode = setting(
        "clustering",
        "`clustering`: the sidecars share the messages. `broadcast`: each sidecar gets every "
        "message and keeps its own progress in its store; it does not join the broker's group.",
        shared=True,
    )
    broadcast_id: str = setting(
        "",
        'With `mode = "broadcast"`: name under which the sidecar keeps its progress; default: '
        "its `identity`. Under a new name it starts as a new group does.",
        pattern=r"[A-Za-z0-9._-]{0,100}",
        pattern_doc="at most 100 letters, digits, `.`, `_` or `-`",
    )
    lease_ms: int = setting(
        30 * SECOND_MS,
        "How long a lease lasts when the receive names no other time.",
        min=100,
        max=12 * HOUR_MS,
        live=True,
    )
    lease_ms_max: int = setting(
        12 * HOUR_MS,
        "Longest lease that a receive or an extend may ask for, counted from the call.",
        min=100,
        max=12 * HOUR_MS,
    )
    attempts_max: int = setting(
        len(RETRY_DELAYS_MS) + 1,
        "How often ackd delivers a message, the first time included, before it dead-letters it. "
        "1: no retry.",
        min=1,
        max=10_000,
        live=True,
        shared=True,
    )
    ordering: Ordering = setting(
        "none",
        "What ackd delivers in order: messages with the same key, or all messages of a "
        "partition. Each message waits until the one before it is acked or a dead letter.",
        shared=True,
    )
    on_partition_increase: OnPartitionIncrease = setting(
        "ignore",
        "When ackd delivers from partitions that are added to a topic: at once (`ignore`), or, "
        'with `ordering = "key"`, after all earlier messages of the older partitions are '
        "finished (`drain`).",
        shared=True,
    )
    retry_delays_ms: tuple[int, ...] = setting(
        RETRY_DELAYS_MS,
        "Delay before each retry: the first item before the first retry, and so on; the last one "
        "repeats. Default with an `ordering`: always 3s.",
        min=0,
        max=7 * DAY_MS,
        len_min=1,
        len_max=100,
        live=True,
        shared=True,
    )
    retry_backoff_ms: int = setting(
        0,
        "First delay of a formula that replaces `retry_delays_ms`; 0: no formula.",
        min=0,
        max=DAY_MS,
        live=True,
        shared=True,
    )
    retry_backoff_factor: float = setting(
        2.0,
        "Each delay is this many times as long as the one before.",
        min=1.0,
        max=100.0,
        live=True,
        shared=True,
    )
    retry_backoff_ms_max: int = setting(
        2 * HOUR_MS,
        "The longest delay of the formula.",
        min=1,
        max=7 * DAY_MS,
        live=True,
        shared=True,
    )
    message_ttl_ms: int = setting(
        0,
        "How long ackd delivers a message, counted from its first delivery (not from when it was "
        "published). Then it goes to the dead-letter topic, however few attempts it had; a live "
        "lease may end first. 0: no limit.",
        min=0,
        max=365 * DAY_MS,
        live=True,
        shared=True,
    )
    stuck_after_ms: int = setting(
        MINUTE_MS,
        "How long a message that was delivered may hold the progress of its partition before ackd "
        "moves it to the retry topic. A live lease goes on there.",
        min=100,
        max=DAY_MS,
        live=True,
        shared=True,
    )
    stuck_min_age_ms: int = setting(
        10 * SECOND_MS,
        "A message that holds up more than `span_max` others may move to the retry topic after "
        "this time, or after `lease_ms` if that is longer.",
        min=100,
        max=DAY_MS,
        live=True,
    )
    span_max: int = setting(
        2000,
        "How far ahead of an unfinished message others may be delivered before that message may "
        "move to the retry topic earlier than `stuck_after_ms`.",
        min=1,
        max=10_000_000,
        live=True,
    )
    retry_topic: bool = setting(
        True,
        "Whether stuck messages move to the group's retry topic, where a copy waits. If not, a "
        "message that never finishes holds up the progress of its partition.",
        shared=True,
    )
    retry_topic_partitions: int = setting(
        4, "Partitions of the retry topic when ackd creates it.", min=1, max=1024
    )
    retry_topic_replication: int = setting(
        0,
        "Replicas of the retry topic when ackd creates it; 0: the broker's default.",
        min=0,
        max=100,
    )
    retry_topic_retention_ms: int = setting(
        14 * DAY_MS,
        "How long the broker keeps copies in the retry topic; at least a week more than the "
        "longest retry delay.",
        min=HOUR_MS,
        max=365 * DAY_MS,
    )
    dead_letter_topic: str = setting(
        "",
        "Topic of this subscription's dead letters, instead of the group's own: on Pulsar the "
        "`-DLQ` topic that other consumers fill, on RocketMQ `%DLQ%<group>`, which the broker "
        "fills. Their messages are listed and redriven, too. No other subscription may have the "
        "same.",
        len_max=249,
        pattern=r"[^\s^][^\s]*|",
        pattern_doc="a topic's name; no expression",
        shared=True,
    )
    spill_bytes_max: int = setting(
        GIB,
        "Most bytes on the local disk for bodies of messages that wait long; further bodies stay "
        "in memory (`window_bytes_max`).",
        min=0,
        max=1024 * GIB,
    )
    start: Start = setting(
        "latest",
        "Where a new group starts; a group with progress always resumes there.",
        shared=True,
    )
    start_timestamp_ms: int | None = setting(
        None,
        'With `start = "timestamp"`: Unix time in ms, or in the file a date-time with an offset.',
        min=0,
        max=253_402_300_799_999,
        shared=True,
    )
    payload: Payload = setting(
        "json",
        "Field of a JSON answer that has the message's value: `json`, `text` or, for `binary`, "
        "`base64`. A value that does not fit goes into `base64`.",
    )
    external_commit: ExternalCommit = setting(
        "accept",
        "What ackd does when somebody else commits in its group, say an operator's reset: goes "
        "on from there (`accept`), or undoes it (`refuse`).",
        shared=True,
    )
    leave_without_store_ms: int | None = setting(
        None,
        "How long a sidecar that can't reach the store stays in the broker's group; not set: as "
        "long as it runs.",
        min=5 * SECOND_MS,
        max=HOUR_MS,
    )
    in_flight_max: int = setting(
        100_000,
        "Most messages under lease at once, of all sidecars together. The share of each sidecar "
        "depends on how many partitions it owns, and is at least 1.",
        min=1,
        max=10_000_000,
        live=True,
        shared=True,
    )
    rate_per_s: float = setting(
        0.0,
        "Most messages that all sidecars together deliver per second on average; retries count, "
        "too. 0: no bound.",
        min=0.0,
        max=1_000_000.0,
        live=True,
        shared=True,
    )
    rate_burst: int = setting(
        0,
        "With `rate_per_s`: most messages delivered at once after a pause; 0: as many as in a "
        "second. It is at least what `rate_per_s` allows in 50 ms.",
        min=0,
        max=1_000_000,
        live=True,
        shared=True,
    )
    circuit_breaker_failures: int = setting(
        0,
        "How many failures in a row (retry, dead, a lease that expires) open the circuit breaker: "
        "ackd then delivers single messages only, until one is acked. 0: they never open it.",
        min=0,
        max=1_000_000,
        live=True,
    )
    circuit_breaker_share: float = setting(
        0.0,
        "Which share of failures within `circuit_breaker_window_ms` opens the circuit breaker, "
        "once there are ten outcomes; 0.8 is 80 %. 0: no share opens it.",
        min=0.0,
        max=1.0,
        live=True,
    )
    circuit_breaker_window_ms: int = setting(
        MINUTE_MS,
        "The time over which `circuit_breaker_share` is computed.",
        min=SECOND_MS,
        max=HOUR_MS,
        live=True,
    )
    circuit_breaker_trial_ms: int = setting(
        10 * SECOND_MS,
        "How long the open circuit breaker waits before it tries the first single message; later "
        "waits grow to ten times as long.",
        min=100,
        max=HOUR_MS,
        live=True,
    )
    window_bytes_max: int = setting(
        64 * MIB,
        "Most bytes of message bodies in this sidecar's memory; beyond it ackd pauses fetching.",
        min=MIB,
        max=64 * GIB,
        live=True,
    )
    buffer_max: int = setting(
        10_000,
        "Most messages that ackd fetches ahead of delivery.",
        min=1,
        max=1_000_000,
        live=True,
    )
    notes_bytes_max: int = setting(
        MIB,
        "Most bytes of progress notes (of `extend`), failure reasons and histories kept in the "
        "store for each partition; beyond it, or beyond 4,096 messages, the oldest are dropped.",
        min=64 * KIB,
        max=GIB,
        live=True,
    )
    commit_interval_ms: int = setting(
        SECOND_MS,
        "Time between two commits of progress to the broker; a tenth of it while many messages "
        "finish.",
        min=10,
        max=MINUTE_MS,
    )
    static_id: str | None = setting(
        None,
        "Name of this member for Kafka's static membership (classic protocol). Each sidecar "
        "needs its own, which must survive a restart.",
        pattern=r"[A-Za-z0-9._-]{1,249}",
        pattern_doc="1 to 249 letters, digits, `.`, `_` or `-`",
    )
    dedup: DedupSettings = computed(
        DedupSettings, about("Repeats by deduplication key.", shared=True)
    )
    push: PushSettings = computed(PushSettings, about("Calling the application."))


def longest_delay_ms(settings: SubscriptionSettings) -> int:
    """Return the longest delay of the retry schedule, in ms."""
    if settings.retry_backoff_ms:
        return settings.retry_backoff_ms_max
    return max(settings.retry_delays_ms)
