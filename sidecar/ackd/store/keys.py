"""Names of keys. `{prefix}:v1:{cluster:subscription:topic:partition}:...` for a partition's record.

The text in braces is the hash tag: Redis Cluster keeps all keys of a record on one node, and an
operator sees whose they are. No key of a record ever has a TTL (R14).
"""

from __future__ import annotations

from urllib.parse import quote

from ackd.core.ids import LedgerKey

LEDGERS_MAX = 100_000
_SAFE = "._-~/+=@"
"""Characters that stay as they are; braces and colons would change the meaning of a key."""


class Keys:
    """Builds key names below one prefix. It caches the names of records: building one is slow."""

    def __init__(self, prefix: str) -> None:
        self.base = f"{prefix}:v1:"
        self._ledgers: dict[LedgerKey, str] = {}

    def ledger(self, key: LedgerKey) -> str:
        """The meta hash of a record; the scripts make the names of its other keys from it."""
        name = self._ledgers.get(key)
        if name is None:
            tag = f"{escape(key.cluster)}:{escape(key.subscription)}"
            name = f"{self.base}{{{tag}:{key.topic_id.hex()}:{key.partition}}}:m"
            if len(self._ledgers) >= LEDGERS_MAX:
                self._ledgers.clear()  # a forged header may name any number of records
            self._ledgers[key] = name
        return name

    def texts(self, key: LedgerKey) -> str:
        """Key `t` of a record: the texts that applications reported."""
        return f"{self.ledger(key)[:-1]}t"

    def members(self, subscription: str) -> str:
        """The hash with what a subscription's sidecars say of themselves; the script makes the
        names of the keys beside it, under the same tag.
        """
        return f"{self.base}{{members:{escape(subscription)}}}:e"

    def beats(self, subscription: str) -> str:
        """The times of the last heartbeats of a subscription's sidecars, beside its members."""
        return f"{self.base}{{members:{escape(subscription)}}}:t"

    def changes(self, subscription: str) -> list[str]:
        """What changed last in a subscription's members: the head, entries, and removed names."""
        return [f"{self.base}{{members:{escape(subscription)}}}:{letter}" for letter in "hcg"]

    def ready(self, subscription: str) -> str:
        """How many messages lie ready at a subscription's sidecars, beside its members."""
        return f"{self.base}{{members:{escape(subscription)}}}:q"

    @property
    def pattern(self) -> str:
        """The glob that matches all keys below the prefix."""
        return "".join(f"\\{sign}" if sign in "*?[]\\" else sign for sign in self.base) + "*"

    def boots(self, subscription: str) -> str:
        """The hash with the last boot number of each sidecar's name, beside the members."""
        return f"{self.base}{{members:{escape(subscription)}}}:n"

    def live(self, subscription: str) -> str:
        """The live value of a subscription, beside its members."""
        return f"{self.base}{{members:{escape(subscription)}}}:l"

    def bucket(self, subscription: str) -> str:
        """The rate bucket of a subscription. It has a TTL, because it fills up by itself."""
        return f"{self.base}{{members:{escape(subscription)}}}:r"

    def outbox(self, broker: str) -> str:
        """The meta hash of a broker's outbox; all its other keys have the same tag."""
        return f"{self.base}{{outbox:{escape(broker)}}}:m"

    def seen(self, subscription: str) -> str:
        """The meta hash of a subscription's deduplication keys. All of them have a TTL, as they may
        be lost.
        """
        return f"{self.base}{{seen:{escape(subscription)}}}:m"

    def places(self, subscription: str, topic_id: bytes) -> str:
        """The prefix of the keys that remember broker message ids of a topic. They have a TTL, but
        for those with the generations of its logs and with its brokers.
        """
        return f"{self.base}{{places:{escape(subscription)}:{topic_id.hex()}}}:"

    def log_generations(self, subscription: str, topic_id: bytes) -> str:
        """The hash with the generations of a topic's logs, which belongs to its records: without it
        a message at an offset that was used before would be taken for the finished one (I1).
        """
        return f"{self.places(subscription, topic_id)}g"

    def sources(self, subscription: str, topic_id: bytes) -> str:
        """The hash with the partition numbers of a topic's brokers, by which its records are
        found.
        """
        return f"{self.places(subscription, topic_id)}b"

    def value(self, name: str) -> str:
        return f"{self.base}value:{escape(name)}"


def escape(text: str) -> str:
    """Percent-encode everything but letters, digits and the signs of `_SAFE`."""
    return quote(text, safe=_SAFE)
