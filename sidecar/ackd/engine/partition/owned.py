"""The partitions that this sidecar owns, and what it knows of the topics they belong to."""

from __future__ import annotations

from ackd.core.ids import SidecarId, TopicPartition
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError
from ackd.ports import TopicInfo


class Topics:
    """The topics of one subscription, as the broker last described them."""

    def __init__(self, state: SubscriptionState) -> None:
        self._state = state
        self.known: dict[str, TopicInfo] = {}

    async def read(self) -> None:
        """Ask the broker for all topics. Raises BrokerError."""
        self.known = {each.topic: each for each in await self._state.consumer.topics()}

    async def of(self, topic: str) -> TopicInfo:
        """Return one topic; ask the broker only if it is not known. Raises BrokerError."""
        if topic not in self.known:
            await self.read()
        info = self.known.get(topic)
        if info is None:
            raise BrokerError(f"the broker did not describe topic {topic!r}")
        return info

    def id_of(self, topic: str) -> bytes | None:
        """Return the current identity of a topic; None if this sidecar does not know it."""
        info = self.known.get(topic)
        return None if info is None else info.topic_id

    def names(self) -> dict[str, str]:
        """Return the names of the known topics by their identities in hex."""
        return {each.topic_id.hex(): each.topic for each in self.known.values()}

    def forget(self, topic: str) -> None:
        """Forget the topic, so that its next use asks the broker for its identity again."""
        self.known.pop(topic, None)

    async def is_gone(self, topic_id: bytes) -> bool:
        """Whether the broker has no topic of this identity any more; then no sidecar opens its
        records again.
        """
        try:
            await self.read()
        except BrokerError:
            return False
        return bool(self.known) and all(i.topic_id != topic_id for i in self.known.values())


class OwnedPartitions:
    """The partitions that this sidecar may grant from. The store's term is the right, this is its
    cache.

    `me`: this sidecar's name and boot number. `assigned`: partitions that the broker's group
    assigned to this sidecar, owned or not. `opening`: those that it takes just now. `set_aside`:
    keys of records that were let go for an operation only; others still count them as owned.
    """

    def __init__(self, identity: str) -> None:
        self.me = SidecarId(identity, 0)
        self.owned: dict[TopicPartition, Partition] = {}
        self.by_ledger: dict[tuple[bytes, int], Partition] = {}
        self.assigned: dict[TopicPartition, None] = {}
        self.opening: dict[TopicPartition, Partition] = {}
        self.set_aside: dict[TopicPartition, str] = {}

    def registered(self, boot: int) -> None:
        """The store has given this process a boot number."""
        self.me = SidecarId(self.me.name, boot)

    def assign(self, tp: TopicPartition) -> None:
        """Note that the broker's group assigned the partition to this sidecar."""
        self.assigned[tp] = None

    def unassign(self, tp: TopicPartition) -> None:
        self.assigned.pop(tp, None)

    def set_all_aside(self) -> None:
        """Note that all that is owned will be let go for an operation only."""
        self.set_aside = {tp: each.key.text() for tp, each in self.owned.items()}

    def take_back(self) -> dict[TopicPartition, str]:
        """Return the keys of the records that were set aside; none is from now on."""
        keys, self.set_aside = self.set_aside, {}
        return keys

    def opens(self, partition: Partition) -> None:
        """Note that this sidecar takes the partition: others must not, once it has the term."""
        self.opening[partition.tp] = partition

    def opens_no_more(self, partition: Partition) -> None:
        """Note that it owns the partition now, or leaves it to others."""
        self.opening.pop(partition.tp, None)

    def add(self, partition: Partition) -> None:
        """Note that this sidecar owns the partition from now on."""
        key = partition.key
        self.owned[partition.tp] = partition
        self.by_ledger[key.topic_id, key.partition] = partition

    def remove(self, partition: Partition) -> bool:
        """Note that this sidecar lost the partition; False if it did not own it (or not this
        one).
        """
        if self.owned.get(partition.tp) is not partition:
            return False
        del self.owned[partition.tp]
        self.by_ledger.pop((partition.key.topic_id, partition.key.partition), None)
        return True

    def all(self) -> list[Partition]:
        """Return a copy, safe to iterate while partitions come and go."""
        return list(self.owned.values())

    def leased(self) -> int:
        """Count the messages under lease now."""
        return sum([each.ledger.leased for each in self.owned.values()])

    def waiting(self) -> int:
        """Count the messages that wait for their retry."""
        return sum(each.ledger.waiting for each in self.owned.values())

    def held(self) -> tuple[int, int]:
        """Return (messages ready, bytes of bodies held)."""
        owned = self.owned.values()
        return sum(each.ledger.ready for each in owned), sum(each.ledger.bytes for each in owned)

    def keys(self) -> list[str]:
        """Return the keys of the owned records, as texts."""
        return [partition.key.text() for partition in self.owned.values()]

    def claimed(self) -> list[str]:
        """Return the keys of the records that are not owned now, and that nobody else must take
        while this sidecar lives: what it has the term of and has not opened yet, and what it set
        aside.
        """
        taking = [each.key.text() for each in self.opening.values() if each.handle.term]
        return [*taking, *self.set_aside.values()]
