"""Settings of Pulsar's own clients, and what does the same in ackd.

Names are those of the clients for Java and Python; case and underscores do not matter.
"""

from __future__ import annotations

from typing import Final

_TYPE: Final = (
    "ackd holds Pulsar's subscription by itself, so there is no type to choose; `ordering` does "
    'it: leave it out for Shared, "key" for Key_Shared, "partition" for Failover and Exclusive'
)
_LEASE: Final = "`lease_ms` says when a message comes again that nobody settled"
_RETRY: Final = "`retry_delays_ms` says when, and a `retry` may name its own `delay_ms`"
_ATTEMPTS: Final = "`attempts_max` says after how many attempts a message is dead"
_DEAD: Final = f"`dead_letter_topic` names the topic of dead letters; {_ATTEMPTS}"
_NO_LETTERS: Final = (
    f"retries are kept by ackd and need no topic of Pulsar's; {_RETRY}. `read_retry_topic` in the "
    "broker's options reads what lies in one"
)
_ACKS: Final = "an ack is durable before it is answered, each by itself; there is nothing to choose"
_KEYS: Final = '`ordering = "key"` needs no ranges: a key has no fixed consumer'
_QUEUE: Final = (
    "`receiver_queue` in the broker's options bounds what the client holds ready, `buffer_max` "
    "what waits for the application"
)
_START: Final = "`start` says where a new group starts"
_TOPICS: Final = "`topics` has all of them; one that begins with `^` is an expression"
_TRUST: Final = "`tls_ca_file` names who is trusted; certificates and names are always checked"
_IDENTITY: Final = "name a `token_file`, a `tls_cert_file` or an `oauth2_issuer_url` instead"

_WORDS: Final = {
    _TYPE: ("subscription_type", "consumer_type", "subscription_mode"),
    "`group` names Pulsar's subscription; by default the section's name does": (
        "subscription_name",
        "subscription",
    ),
    _START: ("initial_position", "subscription_initial_position", "start_message_id"),
    _LEASE: (
        "ack_timeout",
        "ack_timeout_ms",
        "ack_timeout_millis",
        "unacked_messages_timeout_ms",
        "tick_duration_millis",
    ),
    _RETRY: (
        "negative_ack_redelivery_delay",
        "negative_ack_redelivery_delay_ms",
        "negative_ack_redelivery_delay_micros",
        "negative_ack_redelivery_backoff",
        "ack_timeout_redelivery_backoff",
    ),
    _ATTEMPTS: ("max_redeliver_count", "max_redelivery_count"),
    _DEAD: ("dead_letter_policy",),
    _NO_LETTERS: ("enable_retry", "retry_enable", "retry_letter_topic"),
    _ACKS: (
        "batch_index_ack_enabled",
        "batch_index_ack",
        "enable_batch_index_acknowledgment",
        "acknowledgment_group_time",
        "acknowledgements_group_time_micros",
        "ack_receipt_enabled",
        "is_ack_receipt_enabled",
    ),
    _KEYS: ("key_shared_policy", "key_shared_mode", "consumer_key_shared_policy"),
    _QUEUE: ("receiver_queue_size", "max_total_receiver_queue_size_across_partitions"),
    _TOPICS: ("topic", "topic_names", "topics_pattern", "topic_pattern"),
    _TRUST: (
        "tls_trust_certs_file_path",
        "tls_allow_insecure_connection",
        "tls_validate_hostname",
        "enable_tls_hostname_verification",
    ),
    _IDENTITY: ("authentication", "auth_plugin", "auth_plugin_class_name", "auth_params"),
}

KNOWN_ELSEWHERE: Final = {word: text for text, words in _WORDS.items() for word in words}
"""From a setting of Pulsar's clients to a sentence, for reports on the configuration."""
