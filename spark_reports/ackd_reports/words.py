"""The words of the trace files: attribute names, kinds of span, measured durations.

The files are OTLP JSON, one `TracesData` a line, with the names of OpenTelemetry's semantic
conventions for messaging (1.44) and `ackd.*` where those have none. Section "Files" of
docs/operate/reports.md tells the same for people.
"""

from __future__ import annotations

from typing import Final

EVENT: Final = "ackd.event"
"""What a span is; its name decides nothing."""
CLUSTER: Final = "ackd.cluster"
SYSTEM: Final = "messaging.system"
TOPIC: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
OFFSETS: Final = ("messaging.kafka.offset", "ackd.offset", "messaging.message.id")
"""Where a message's place in its partition stands; the first that is there counts."""
GROUP: Final = "messaging.consumer.group.name"
EPOCH: Final = "ackd.reset.epoch"
TOPIC_ID: Final = "ackd.topic.id"
"""Tells a topic from an older one of the same name, whose offsets began at 0 as well."""
APPLICATION: Final = "ackd.application"
ATTEMPT: Final = "ackd.delivery.attempt"
EXTENSIONS: Final = "ackd.lease.extensions"
PUBLISHED: Final = "ackd.publish.unix_ms"
WEIGHT: Final = "ackd.sample.weight"
REASON: Final = "ackd.reason"
BATCH_OFFSETS: Final = "ackd.offsets"
"""Of a batch: `100-131,140`."""
BATCH_COUNT: Final = "messaging.batch.message_count"
BATCH_AGAIN: Final = "ackd.again"
"""How many of a batch are not the first delivery of their message."""
COMMIT_LAG: Final = "ackd.commit.lag"
COMMIT_OFFSET: Final = "ackd.commit.offset"
OUTAGE_OF: Final = "ackd.outage.of"
SPANS_WRITTEN: Final = "ackd.spans.written"
SPANS_DROPPED: Final = "ackd.spans.dropped"
TALLY: Final = "tally"
"""How many spans lie beside this one; made when they are read, and in no file."""
INSTANCE: Final = "service.instance.id"
BOOT: Final = "ackd.boot.id"

LEASE_EVENTS: Final = ("ack", "retry", "release", "expire", "lost", "dead")
"""Their span runs from the grant of a lease to its end. `dead` may be decided without a lease: then
it has no length."""
MESSAGE_EVENTS: Final = (*LEASE_EVENTS, "send_back", "extend", "late", "dead_letter", "redrive")
PROCESS_EVENTS: Final = ("start", "stop", "outage", "status")
BATCH_EVENTS: Final = ("receive", "settle")
"""Told of many messages of a partition at once, and never sampled."""
OTHER_EVENTS: Final = ("publish", "takeover", "seek", "config")
"""Written for people who look at traces; nothing in a report comes from them."""

STREAM: Final = ("system", "cluster", "topic", "grp", "application")
"""What figures are grouped by. `group` is a word of SQL."""

DURATIONS: Final = ("wait", "work", "lease_to_ack", "time_to_ack")
"""publish to first lease; lease that was acked to its ack; first lease to ack; publish to ack."""

DURATION_TEXT: Final = {
    "wait": "published to first lease",
    "work": "lease to its ack",
    "lease_to_ack": "first lease to ack",
    "time_to_ack": "published to ack",
}

MICRO: Final = 1_000_000
"""Weights are kept as whole millionths, so that sums do not depend on their order."""
BUCKET_US: Final = 300 * MICRO
HOUR_US: Final = 3600 * MICRO
DAY_US: Final = 24 * HOUR_US
