"""Prometheus metrics: each name with labels and help, once; the reference page is made from here.

Two rules keep them cheap. Labels are bounded: a family has at most `SERIES_MAX` label sets, and
counts further ones under `_other` (invariant I8). And a family caches its series, so that the hot
path does one dictionary look-up and one addition.

Units are Prometheus' own (seconds, bytes), although ackd counts in integer milliseconds elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from prometheus_client.exposition import choose_encoder

from ackd.telemetry import log
from ackd.telemetry.family_registry import AnyFamily, FamilyRegistry

OWN, FOR_PEERS, THROUGH_PEERS = "own", "for_peers", "through_peers"
"""The ways in which a sidecar hands messages out."""
ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


# tidy: long-class lines=433 attributes=88 -- the catalogue: an attribute for each metric
class Metrics:
    """All metrics of one ackd process, in a registry of their own."""

    def __init__(self) -> None:
        self._made = FamilyRegistry()
        self.registry = self._made.collectors
        self._log_dropped: dict[str, int] = defaultdict(int)
        self._before: list[Callable[[], None]] = []
        self._define_work()
        self.publishing = PublishingMetrics(self._made)
        self._define_dedup()
        self._define_flow()
        self._define_long_work()
        self._define_progress()
        self._define_window()
        self._define_copies()
        self._define_dead_letters()
        self._define_parts()
        self._define_peers()
        self._define_traces()

    def _define_work(self) -> None:
        """What applications asked for and got."""
        of = "subscription"
        self.receives = self._made.counter(
            "ackd_receives",
            "Receive calls, by outcome: messages, empty, replayed, cancelled, error.",
            (of, "outcome"),
        )
        self.receive_wait = self._made.histogram(
            "ackd_receive_wait_seconds", "How long a receive waited for its first message.", (of,)
        )
        self.waiters = self._made.gauge(
            "ackd_waiters", "Receive calls that are waiting now.", (of,)
        )
        self.streams = self._made.gauge("ackd_streams", "Streams that are open now.", (of,))
        self.deliveries = self._made.counter(
            "ackd_deliveries", "Messages delivered under a lease: first, or again.", (of, "kind")
        )
        self.delivered_bytes = self._made.counter(
            "ackd_delivered_bytes", "Bytes of key, value and headers delivered.", (of,)
        )
        self.settles = self._made.counter(
            "ackd_settles",
            "Settled items, by verb and result.",
            (of, "do", "status"),
        )
        self.late_acks = self._made.counter(
            "ackd_late_acks",
            "Acks that came after the deadline and still counted: leases are too short.",
            (of,),
        )
        self.lost_settles = self._made.counter(
            "ackd_lost_settles",
            "Settles that came too late: the message went on without them. That work was wasted.",
            (of, "do"),
        )
        self.lease_expiries = self._made.counter(
            "ackd_lease_expiries", "Leases that expired without a settle.", (of,)
        )
        self.deadline_lateness = self._made.histogram(
            "ackd_deadline_lateness_seconds",
            "How long after its deadline an expired message could be delivered again (I4).",
            (of,),
        )
        self.push_calls = self._made.counter(
            "ackd_push_calls",
            "Calls of the application, by result: ack, items, kept, retry, dead, "
            "pressure, timeout, broken, lost, unreachable.",
            (of, "outcome"),
        )
        self.push_seconds = self._made.histogram(
            "ackd_push_seconds", "How long a call of the application took.", (of,)
        )
        self.push_running = self._made.gauge(
            "ackd_push_running", "Calls of the application that are under way.", (of,)
        )
        self.push_breaker_open = self._made.gauge(
            "ackd_push_breaker_open",
            "1 while the application can't be reached and nothing is sent. Alert on it.",
            (of,),
        )
        self.push_throttled = self._made.gauge(
            "ackd_push_throttled",
            "1 while the application has answered each call for a minute by asking for a pause.",
            (of,),
        )

    def _define_dedup(self) -> None:
        """Repeats that deduplication settled without delivery."""
        of = "subscription"
        self.dedup_repeats = self._made.counter(
            "ackd_dedup_repeats",
            "Messages settled without delivery: their deduplication key was acked before.",
            (of,),
        )
        self.dedup_skipped = self._made.counter(
            "ackd_dedup_skipped",
            "Messages for which a repeat may slip through, by why: store (it did not answer), full "
            "(no room), forgotten (the body was gone at the ack).",
            (of, "reason"),
        )

    def _define_flow(self) -> None:
        """What holds work back on purpose."""
        of = "subscription"
        self.paused = self._made.gauge(
            "ackd_paused", "1 while an operator has paused the subscription.", (of,)
        )
        self.rate_waits = self._made.counter(
            "ackd_rate_waits", "Times that the shared rate had less than was asked for.", (of,)
        )

    def _define_long_work(self) -> None:
        """Work that takes long, and applications that fail."""
        of = "subscription"
        self.notes = self._made.counter(
            "ackd_notes", "Progress notes written with an extend.", (of,)
        )
        self.notes_dropped = self._made.counter(
            "ackd_notes_dropped",
            "Messages whose notes and failure reasons were dropped because of notes_bytes_max, the "
            "oldest first.",
            (of,),
        )
        self.cancels = self._made.counter(
            "ackd_cancels", "Messages that an operator cancelled: acked or dead.", (of, "outcome")
        )
        self.circuit_breaker_open = self._made.gauge(
            "ackd_circuit_breaker_open",
            "1 while the application fails and only single messages are tried. Alert on it.",
            (of,),
        )
        self.circuit_breaker_trips = self._made.counter(
            "ackd_circuit_breaker_trips",
            "Times that the circuit breaker opened.",
            (of,),
        )

    def _define_progress(self) -> None:
        """How far each partition's work is, and who does it."""
        of = "subscription"
        each = (of, "topic", "partition", "retry_topic")  # true, false: is it ackd's own topic
        self.lag = self._made.gauge(
            "ackd_lag_messages",
            "Offsets between the smallest unfinished one and the log's end (asked every 10 s).",
            each,
        )
        self.oldest_unfinished = self._made.gauge(
            "ackd_oldest_unfinished_age_seconds",
            "Time since the first delivery of the oldest unfinished message; 0 without one.",
            each,
        )
        self.transaction_held = self._made.gauge(
            "ackd_transaction_held_seconds",
            "How long an open transaction has held the readable end of the log (asked every 10 s).",
            each,
        )
        self.watermark = self._made.gauge(
            "ackd_watermark_offset", "The smallest unfinished offset; standing still is bad.", each
        )
        self.partitions_owned = self._made.gauge(
            "ackd_partitions_owned", "Partitions whose messages this sidecar may deliver.", (of,)
        )
        self.settings_differ = self._made.gauge(
            "ackd_settings_differ",
            "Live sidecars of the subscription with other values of shared settings. Alert on it.",
            (of,),
        )
        self.takeovers = self._made.counter(
            "ackd_takeovers", "Times that ownership of a partition was taken.", (of,)
        )
        self.commits = self._made.counter(
            "ackd_commits", "Commits of progress to the broker: done or failed.", (of, "outcome")
        )
        self.external_commits = self._made.counter(
            "ackd_external_commits",
            "Commits in the group that ackd did not make (resets, other consumers).",
            (of, "decision"),
        )
        self.expired_by_retention = self._made.counter(
            "ackd_messages_expired_by_retention",
            "Unfinished messages that the broker deleted before they were acked. Alert on it.",
            (of,),
        )
        self.acked_again = self._made.counter(
            "ackd_acked_again",
            "Finished messages that the broker brought again; they were settled silently.",
            (of,),
        )
        self.recovered = self._made.counter(
            "ackd_recovered_from_log",
            "Messages that a broker with individual acks had given, and lost; they were read from "
            "its log, and delivered.",
            (of,),
        )
        self.log_cuts = self._made.counter(
            "ackd_log_cuts",
            "Times that a broker with individual acks used offsets of a log again: it lost what was"
            " there, or the topic was made again.",
            (of,),
        )
        self.vanished = self._made.counter(
            "ackd_vanished", "Delivered messages that the broker no longer has.", (of,)
        )

    def _define_window(self) -> None:
        """Messages that are held or under lease now."""
        of = "subscription"
        self.in_flight = self._made.gauge("ackd_in_flight", "Messages under lease now.", (of,))
        ready = "Messages that can be delivered now, at most: cancelled ones count for a while."
        self.ready = self._made.gauge("ackd_ready", ready, (of,))
        self.waiting = self._made.gauge(
            "ackd_waiting", "Messages that wait for their retry.", (of,)
        )
        self.window_bytes = self._made.gauge(
            "ackd_window_bytes", "Bytes of message bodies held (bound: window_bytes_max).", (of,)
        )
        self.window_used_ratio = self._made.gauge(
            "ackd_window_used_ratio",
            "Used part of window_bytes_max, 0 to 1. Alert above 0.8.",
            (of,),
        )
        self.window_warnings = self._made.counter(
            "ackd_window_warnings", "Times that this part rose above 0.8.", (of,)
        )
        self.fetched = self._made.counter(
            "ackd_fetched", "Messages fetched from the broker.", (of,)
        )

    def _define_copies(self) -> None:
        """What leaves the window."""
        of = "subscription"
        self.retry_topic_moves = self._made.counter(
            "ackd_retry_topic_moves",
            "Stuck messages that moved to the retry topic, by reason: age, span, delay, bytes, key "
            "(they followed an earlier one of their key).",
            (of, "reason"),
        )
        self.copies = self._made.counter(
            "ackd_copies",
            "Tries to store copies, by topic: retry-topic, dead-letter-topic; stored or failed.",
            (of, "topic", "outcome"),
        )
        self.copies_ignored = self._made.counter(
            "ackd_copies_ignored",
            "Copies of ackd's, skipped in topics that a pattern matched (a mirror's, say).",
            (of,),
        )
        self.copies_in_progress = self._made.gauge(
            "ackd_copies_in_progress",
            "Messages whose copy is not stored yet; it should go down to 0.",
            (of,),
        )
        self.claims = self._made.counter(
            "ackd_claims",
            "Claims of retry copies, by answer: claimed, held (the message is still leased), "
            "finished (acked meanwhile), duplicate, unknown (the store forgot it: delivered), "
            "blocked (an earlier one of its key is unfinished), foreign (of a message that is not "
            "here: delivered as itself), aside (ackd did not write it: a dead letter), unsigned "
            "(from before copies were signed: believed), vouched (its signature is not good, and "
            "its message knows it).",
            (of, "outcome"),
        )
        self.retry_topic_messages = self._made.gauge(
            "ackd_retry_topic_messages",
            "Unfinished messages in the retry topic, in owned partitions.",
            (of,),
        )
        self.spilled_bytes = self._made.gauge(
            "ackd_spilled_bytes",
            "Bytes of bodies that wait on the local disk (bound: spill_bytes_max).",
            (of,),
        )

    def _define_dead_letters(self) -> None:
        """What the dead-letter topic has."""
        of = "subscription"
        self.dead_letters = self._made.counter(
            "ackd_dead_letters",
            "Dead letters that an operation handled, by outcome: redriven, purged, failed.",
            (of, "outcome"),
        )
        self.dead_letter_depth = self._made.gauge(
            "ackd_dead_letter_depth",
            "Dead letters that were neither redriven nor purged, 100,000 at most (asked every 30 s "
            "by a sidecar that owns a partition 0; of several take the highest).",
            (of,),
        )
        self.uncounted_dead_letters = self._made.gauge(
            "ackd_dead_letters_uncounted",
            "1 while the dead-letter topic goes on after the 100,000 that are counted: the depth "
            "is a lower bound, and an older one may follow. Else 0.",
            (of,),
        )
        self.unreadable_dead_letters = self._made.gauge(
            "ackd_dead_letters_unreadable",
            "Records in the dead-letter topic that no dead letter can be read from, 100,000 at "
            "most: nobody lists or redrives them.",
            (of,),
        )
        self.oldest_dead_letter = self._made.gauge(
            "ackd_oldest_dead_letter_age_seconds",
            "Time since the oldest of these was dead-lettered; 0 without one.",
            (of,),
        )

    def _define_parts(self) -> None:
        """Store, brokers, HTTP, and ackd itself."""
        self.info = self._made.gauge(
            "ackd_info", "1, with version and identity.", ("version", "identity")
        )
        self.readiness = self._made.gauge(
            "ackd_readiness", "1 for each part that `/readyz` calls ok, else 0.", ("reason",)
        )
        self.readiness_warnings = self._made.gauge(
            "ackd_readiness_warnings", "1 while such a part is ok with a warning.", ("reason",)
        )
        self.store_up = self._made.gauge("ackd_store_up", "1 while the store answers.", ())
        self.store_call_seconds = self._made.histogram(
            "ackd_store_call_seconds", "How long a store call took, failed ones too.", ("call",)
        )
        self.store_batch_items = self._made.histogram(
            "ackd_store_batch_items", "Items that one script call decided.", ("call",), ITEMS
        )
        self.store_outages = self._made.counter(
            "ackd_store_outages", "Times that the store went away or refused to serve.", ()
        )
        self.store_unknown = self._made.counter(
            "ackd_store_unknown_outcomes", "Store calls whose answer was lost (R12).", ("call",)
        )
        self.possible_rollbacks = self._made.counter(
            "ackd_possible_rollbacks",
            "Times that the store may have lost its newest writes (failover, old backup).",
            (),
        )
        self.store_run_changes = self._made.counter(
            "ackd_store_run_changes",
            "Times that another server, or another run of it, answered: restart or failover.",
            (),
        )
        self.clock_skew = self._made.gauge(
            "ackd_clock_skew_seconds",
            "The store's clock minus this machine's. Deadlines are decided by the store's.",
            (),
        )
        self.store_data_lost = self._made.counter(
            "ackd_store_data_lost", "Times that data which must be in the store was not.", ()
        )
        self.broker_up = self._made.gauge(
            "ackd_broker_up", "1 while the broker answers.", ("broker",)
        )
        self.http_requests = self._made.counter(
            "ackd_http_requests",
            "HTTP requests; route is the template, not the address.",
            ("port", "method", "route", "status"),
        )
        self.http_seconds = self._made.histogram(
            "ackd_http_request_seconds", "How long a request took, waits included.", ("route",)
        )
        self.http_connections = self._made.gauge(
            "ackd_http_connections", "Open connections, by port: data, admin.", ("port",)
        )
        self.http_refused = self._made.counter(
            "ackd_http_refused_connections", "Connections closed at once: too many.", ("port",)
        )
        self.log_dropped = self._made.counter(
            "ackd_log_lines_dropped",
            "Log lines not written: repeated too often, reader too slow, malformed.",
            ("reason",),
        )

    def _define_peers(self) -> None:
        """Connections to the other sidecars of the store."""
        self.peers_connected = self._made.gauge(
            "ackd_peers_connected", "Connections to and from other sidecars that are open now.", ()
        )
        self.peers_unreachable = self._made.gauge(
            "ackd_peers_unreachable",
            "Other sidecars that this one needed in the last minute, for messages of their "
            "partitions, and that it could not reach.",
            (),
        )
        self.served = self._made.counter(
            "ackd_messages_served",
            "Messages handed out, by way: own (of its partitions, to applications beside it), "
            "for_peers (of its partitions, to those beside other sidecars), through_peers (of "
            "other sidecars' partitions, to applications beside it).",
            ("subscription", "way"),
        )
        self.peer_handshakes_refused = self._made.counter(
            "ackd_peer_handshakes_refused",
            "Connections between sidecars that were not made, by reason: garbage (no sidecar), "
            "version, key (of another store), name (another sidecar than was meant), crowded, "
            "timeout, tls, lost.",
            ("reason",),
        )
        self.peer_bytes = self._made.counter(
            "ackd_peer_bytes",
            "Bytes of connections to other sidecars, by direction: sent, received.",
            ("direction",),
        )

    def _define_traces(self) -> None:
        """Spans that leave the sidecar, or don't."""
        self.trace_spans = self._made.counter(
            "ackd_trace_spans",
            "Spans, by exporter (file, otlp) and outcome: written; full (dropped: the buffer had "
            "no room), failed (dropped: writing failed); crash (lost with the run before).",
            ("exporter", "outcome"),
        )
        self.trace_files_deleted = self._made.counter(
            "ackd_trace_files_deleted", "Trace files deleted because of disk_bytes_max.", ()
        )

    @property
    def families(self) -> Sequence[AnyFamily]:
        """Every metric, in the order of the documentation."""
        return tuple(self._made.families)

    def before_scrape(self, fill: Callable[[], None]) -> None:
        """Call `fill` before each scrape: for gauges that are cheaper to read than to keep."""
        self._before.append(fill)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The exposition for a scraper's Accept header, and its content type."""
        for fill in self._before:
            fill()
        for reason, count in tuple(log.DROPPED.items()):
            self.log_dropped.at(reason).inc(count - self._log_dropped[reason])
            self._log_dropped[reason] = count
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type


class PublishingMetrics:
    """Messages sent directly, and those accepted into an outbox.

    Each sidecar that shares an outbox reports the gauges of the whole outbox.
    """

    def __init__(self, made: FamilyRegistry) -> None:
        self.published = made.counter(
            "ackd_published",
            "Messages published, by outcome: stored, accepted (into the outbox), refused, "
            "not-stored, unknown, pressure.",
            ("broker", "outcome"),
        )
        self.publish_seconds = made.histogram(
            "ackd_publish_seconds", "How long a publish took, retries included.", ("broker",)
        )
        self.publish_retries = made.counter(
            "ackd_publish_retries", "Further tries after a first one failed.", ("broker",)
        )
        self.idempotency_keys_ratio = made.gauge(
            "ackd_idempotency_keys_ratio",
            "Idempotency keys that this sidecar keeps now, as a part of publish.idempotency_max; "
            "at 1 new ones are answered 429.",
            ("broker",),
        )
        self.outbox_accepted = made.counter(
            "ackd_outbox_accepted", "Messages accepted into the outbox.", ("broker",)
        )
        self.outbox_refused = made.counter(
            "ackd_outbox_refused",
            "Requests refused because the outbox is full: messages, bytes.",
            ("broker", "reason"),
        )
        self.outbox_sent = made.counter(
            "ackd_outbox_sent",
            "Tries to send from the outbox, by outcome: sent, refused, not-stored, unknown (sent "
            "again, perhaps twice), pressure.",
            ("broker", "outcome"),
        )
        self.outbox_lateness = made.histogram(
            "ackd_outbox_lateness_seconds",
            "How long after its due time a message was with the broker.",
            ("broker",),
        )
        self.outbox_waiting = made.gauge(
            "ackd_outbox_waiting", "Messages in the outbox, delayed ones too.", ("broker",)
        )
        self.outbox_due = made.gauge(
            "ackd_outbox_due",
            "Messages in it that should be at the broker by now. Alert when that stays above 0.",
            ("broker",),
        )
        self.outbox_bytes = made.gauge(
            "ackd_outbox_bytes", "Bytes of it (bound: outbox_bytes_max).", ("broker",)
        )
        self.outbox_failed = made.gauge(
            "ackd_outbox_failed",
            "Messages that the broker refused and that wait for somebody. Alert on it.",
            ("broker",),
        )
