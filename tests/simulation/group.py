"""The simulated consumer group: members, slow session expiry, cooperative rebalances, commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ackd.core.ids import TopicPartition
from ackd.ports import Committed
from tests.simulation.log import Cluster, Topic
from tests.simulation.process import Process
from tests.simulation.world import MS, World

HANDOVER_US = 2_000 * MS
BEAT_US = 250 * MS
ROUND_US = 1_200 * MS
"""A partition that was given up is assigned in the next round, which may take so long to come."""

SOON = 0.5
"""Of the hand-overs so many are the last that the group has waited for."""


class Listener(Protocol):
    """What a member hears of the group."""

    process: Process

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """New partitions."""

    def revoked(self, partitions: list[TopicPartition], done: Callable[[], None]) -> None:
        """Taken in good order."""

    def expelled(self, partitions: list[TopicPartition]) -> None:
        """The session ended without a word; it has to join anew."""


@dataclass(slots=True)
class Member:
    """One member. `committed`: number of its last commit; `synced`: it has a generation."""

    name: str
    listener: Listener
    seen_us: int
    owned: list[TopicPartition] = field(default_factory=list)
    leaving: list[TopicPartition] = field(default_factory=list)
    committed: int = 0
    synced: bool = False


class Ticket(NamedTuple):
    """Fences a commit: who, in which generation of the group, the how manieth."""

    member: str
    generation: int
    number: int


class Group:
    """One group on one cluster."""

    def __init__(
        self, world: World, cluster: Cluster, topics: tuple[str, ...], session_us: int
    ) -> None:  # fmt: skip
        self.world = world
        self.cluster = cluster
        self.topics = topics
        self.members: dict[str, Member] = {}
        self.offsets: dict[TopicPartition, Committed] = {}
        self.on_commit: list[Callable[[Process | None, TopicPartition, Committed], None]] = []
        self._random = world.random("group")
        self._rounds = world.random("rounds")
        self.session_us = session_us
        self.generation = 0
        self._joins = 0
        self._start = 0
        self._commits = 0
        cluster.on_replaced.append(self._replaced)
        world.after(BEAT_US, self._beat)

    # --- membership

    def join(self, listener: Listener) -> str:
        """A new member; partitions come later."""
        self._joins += 1
        name = f"m{self._joins}"
        self.members[name] = Member(name, listener, self.world.now_us)
        self._rebalance_soon()
        return name

    def leave(self, name: str) -> None:
        """A member goes by itself."""
        if self.members.pop(name, None) is not None:
            self._rebalance_soon()

    def read(self, topic: str) -> None:
        """One more topic, for all members."""
        if topic not in self.topics:
            self.topics = (*self.topics, topic)
            self._rebalance_soon()

    def shuffle(self) -> None:
        """A rebalance for no reason that a member could see."""
        self._start += 1
        self._rebalance_soon()

    def _order(self) -> list[Member]:
        return list(self.members.values())

    def _beat(self) -> None:
        """Clients send heartbeats by themselves; those that do not live lose their session."""
        for member in self._order():
            if member.listener.process.running and self.cluster.up:
                member.seen_us = self.world.now_us
            elif self.world.now_us - member.seen_us > self.session_us:
                self.world.note("group", "session ended", member.name, member.listener.process.name)
                del self.members[member.name]
                member.listener.expelled(member.owned + member.leaving)
                self._rebalance_soon()
        self.world.after(BEAT_US, self._beat)

    # --- assignment

    def _rebalance_soon(self) -> None:
        self.world.after(self._random.randint(5, 400) * MS, self._rebalance)

    def _partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(name, number)
            for name in self.topics
            for number in range(len(self.cluster.topics[name].logs))
        ]

    def _rebalance(self) -> None:
        """Cooperative: keep what can stay, take away what is too much, hand out what is free."""
        members = self._order()
        if not members:
            return
        if not self.cluster.up:
            self._rebalance_soon()
            return
        partitions = self._partitions()
        target: dict[str, list[TopicPartition]] = {member.name: [] for member in members}
        for number, tp in enumerate(partitions):
            target[members[(self._start + number) % len(members)].name].append(tp)
        for member in members:
            member.synced = True
            gone = [tp for tp in member.owned if tp not in target[member.name]]
            if gone:
                self._revoke(member, gone)
        self._assign_all()

    def _revoke(self, member: Member, gone: list[TopicPartition]) -> None:
        member.owned = [tp for tp in member.owned if tp not in gone]
        member.leaving += gone
        told: list[bool] = []

        def done() -> None:
            if not told:
                told.append(True)
                member.leaving = [tp for tp in member.leaving if tp not in gone]
                soon = self._rounds.random() < SOON
                after_us = 0 if soon else self._rounds.randrange(ROUND_US)
                self.world.after(after_us, self._assign_all)

        member.listener.revoked(gone, lambda: self.world.after(MS, done))
        self.world.after(HANDOVER_US + 100 * MS, done)

    def _assign_all(self) -> None:
        """Free partitions go to whoever has the fewest; each change is a new generation."""
        members = self._order()
        taken = {tp for member in members for tp in (*member.owned, *member.leaving)}
        new: dict[str, list[TopicPartition]] = {}
        for tp in self._partitions():
            if tp in taken or not members:
                continue
            member = min(members, key=lambda each: len(each.owned))
            member.owned.append(tp)
            new.setdefault(member.name, []).append(tp)
        self.generation += bool(new)
        for name, partitions in new.items():
            self.world.note("group", "assigned", name, [tp.partition for tp in partitions])
            self.members[name].synced = True
            self.members[name].listener.assigned(partitions)

    def _replaced(self, topic: Topic) -> None:
        """The coordinator drops a deleted topic's offsets."""
        for tp in [tp for tp in self.offsets if tp.topic == topic.name]:
            del self.offsets[tp]

    # --- commits

    def ticket(self, member: str) -> Ticket:
        """What a member's commit carries when it is sent."""
        self._commits += 1
        return Ticket(member, self.generation, self._commits)

    def commit(
        self,
        ticket: Ticket | None,
        by: Process | None,
        positions: dict[TopicPartition, Committed],
    ) -> bool:
        """Store positions; False if it comes from a former member or an earlier generation, or
        lands after a later one of the same member, or this one has joined and no more.

        `ticket` None: an operator's tool or a plain consumer.
        """
        if ticket is not None:
            member = self.members.get(ticket.member)
            if member is None or not member.synced or ticket.generation != self.generation:
                return False
            if ticket.number < member.committed:
                return False
            member.committed = ticket.number
        for tp, committed in positions.items():
            self.offsets[tp] = committed
            for tell in self.on_commit:
                tell(by, tp, committed)
        return True
