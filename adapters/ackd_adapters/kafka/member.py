"""The member's thread: belongs to the group, receives assignments, commits.

It fetches nothing: its partitions stay paused for ever. It resolves regular expressions itself
because librdkafka and the broker read them differently (KIP-848 wants the whole name to match,
classic a part) and do not know ackd's own topics. It does not subscribe to the retry topic, whose
partitions go with those of the topics (`companions.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Assigned, Committed, ConsumerEvent, Lost, Revoked
from ackd_adapters.kafka import errors
from ackd_adapters.kafka.companions import Companions
from ackd_adapters.kafka.config import Properties
from ackd_adapters.kafka.health import ClientHealth, Conditions
from ackd_adapters.kafka.names import is_pattern, matching
from ackd_adapters.kafka.worker import Command, Worker

POLL_S = 0.02
REVOKE_WAIT_S = 2.0
RESOLVE_S = 1.0
COUNT_S = 0.5
"""How soon to count again while a topic is unknown that others say is there."""
_IGNORED = errors.OUT_OF_RANGE | {errors.END_OF_PARTITION}

Positions = list[ClientPartition]


class _HandOver:
    """`Revoked.done()` calls it on the loop; it wakes the thread that waits in the rebalance
    callback.
    """

    def __init__(self, wake: Callable[[Command], None]) -> None:
        self.over = False
        self._wake = wake

    def set(self) -> None:
        """The engine has finished the hand-over."""
        self.over = True
        self._wake(lambda: None)


class Member(Worker):
    """`post` gets assignments, revocations and losses in their order, from this thread."""

    def __init__(
        self,
        name: str,
        properties: Callable[[], Properties],
        topics: tuple[str, ...],
        refresh_ms: int,
        conditions: Conditions,
        post: Callable[[ConsumerEvent], None],
    ) -> None:
        super().__init__(f"ackd-member-{name}")
        self._properties = properties
        self._topics = topics
        self._companions = Companions()
        self._refresh_s = refresh_ms / 1000
        self._conditions = conditions
        self._health = ClientHealth(conditions, "member")
        self._post = post
        self._client: Client
        self._subscribed: list[str] = []
        self._refresh_at = 0.0
        self._revoking = False
        self._commit: Future[None] | None = None

    def also(self, topic: str) -> None:
        """Have a topic's partitions go with those of the others; before `start` or after it."""

        def add() -> None:
            self._companions.add(topic)
            self._refresh_at = 0.0

        self.commands.put(add)

    def keep(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Commit positions again as far as they are of companions that this member has still.

        The group does not subscribe to their topic, so the broker would forget a position after
        `offsets.retention.minutes`, counted from its last commit.
        """
        self.commands.put(lambda: self._keep(positions))

    def commit(self, positions: Positions) -> Future[None]:
        """Put a commit; the future gets the broker's answer, however late it comes.

        One at a time: a commit that the client repeats by itself could otherwise arrive after a
        newer one and move the group back.
        """
        answer: Future[None] = Future()
        self.commands.put(lambda: self._begin_commit(positions, answer))
        return answer

    # --- the thread ---------------------------------------------------------------------------

    def open_client(self) -> None:
        """Make the consumer and subscribe to the plain names; patterns follow in the first turn."""
        callbacks = {"error_cb": self._health.on_error, "on_commit": self._on_commit}
        self._client = Client(self._properties() | callbacks)
        if not self._patterns():
            self._subscribe(list(self._topics))

    def step(self) -> None:
        """Look for new topics and partitions now and then; poll, which calls the callbacks."""
        if time.monotonic() >= self._refresh_at:
            self._refresh()
        message = self._client.poll(POLL_S)
        error = None if message is None else message.error()
        if message is not None and error is not None and error.code() not in _IGNORED:
            self._on_message_error(message.topic() or "", error)
        self._health.probe(self._client, self._subscribed[0] if self._subscribed else None)

    def close_client(self) -> None:
        """Leave the group. A pending commit is answered first, or the client abandons it."""
        self._client.close()
        if self._commit is not None:
            _fail(self._commit, BrokerError("commit: the consumer was closed"))

    def on_crash(self, error: BaseException) -> None:
        """Report the crash; a new consumer has to be made."""
        self._conditions.report("member/crash", repr(error), fatal=True)

    def _patterns(self) -> bool:
        return any(is_pattern(topic) for topic in self._topics)

    def _refresh(self) -> None:
        """Subscribe to the topics that match now; count the partitions if some go with others."""
        self._refresh_at = time.monotonic() + self._refresh_s
        try:
            if self._patterns():
                wanted = matching(
                    self._topics, list(self._client.list_topics(timeout=RESOLVE_S).topics)
                )
                if wanted != self._subscribed:
                    self._subscribe(wanted)
            if self._companions.topics:
                self._count()
        except KafkaException:
            return

    def _count(self) -> None:
        """Count the partitions of all topics; then some may come or go without a rebalance.

        Members count at different moments, so two may want one partition for a while. Then the
        store's terms decide, as in a takeover.
        """
        counts: dict[str, int | None] = {}
        for topic in (*self._subscribed, *self._companions.topics):
            found = self._client.list_topics(topic, timeout=RESOLVE_S).topics.get(topic)
            if found is not None and found.error is None:
                counts[topic] = len(found.partitions)
            else:
                gone = found is not None and found.error.code() in errors.UNKNOWN_TOPIC
                counts[topic] = 0 if gone else None
            if not counts[topic]:
                self._refresh_at = time.monotonic() + min(COUNT_S, self._refresh_s)
        came, went = self._companions.counted(counts)
        if went:
            self._post(Revoked(tuple(went), _HandOver(self.commands.put)))
        if came:
            self._post(Assigned(tuple(came)))

    def _subscribe(self, topics: list[str]) -> None:
        self._subscribed = topics
        if topics:
            self._client.subscribe(
                topics,
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        else:
            self._client.unsubscribe()

    def _on_message_error(self, topic: str, error: KafkaError) -> None:
        if errors.is_fatal(error):
            self._health.on_error(error)
        elif topic or error.code() in errors.UNKNOWN_TOPIC:
            self._health.on_topic_error(topic or ",".join(self._subscribed), error)
        else:
            name = errors.code_name(error).lower().replace("_", "-")
            self._conditions.report(f"member/group/{name}", error.str())

    # --- rebalances, called inside `poll` -----------------------------------------------------

    def _on_assign(self, client: Client, partitions: Positions) -> None:
        """Take the partitions, paused: librdkafka asks for no committed offset when it gets a start
        offset.
        """
        client.incremental_assign([ClientPartition(p.topic, p.partition, 0) for p in partitions])
        client.pause(partitions)
        self._conditions.clear_all("member/group/")
        for topic in {partition.topic for partition in partitions}:
            self._health.topic_works(topic)
        if partitions:
            ours = _ours(partitions)
            self._post(Assigned((*ours, *self._companions.assigned(ours))))

    def _on_revoke(self, client: Client, partitions: Positions) -> None:
        """Let the engine hand over and commit, at most 2 s (rule R34), then give the partitions
        back.
        """
        if partitions and not self.closing:
            done = _HandOver(self.commands.put)
            ours = _ours(partitions)
            gone = (*ours, *self._companions.revoked(ours))
            # Both protocols that ackd uses assign in a second round what they revoke in the first.
            self._post(Revoked(gone, done, rejoins=True))
            until = time.monotonic() + REVOKE_WAIT_S
            self._revoking = True
            while not (done.over or self._is_closing()) and time.monotonic() < until:
                self.wait_command(max(until - time.monotonic(), 0))
            self._revoking = False
        client.incremental_unassign(partitions)

    def _is_closing(self) -> bool:
        """Whether `close` was called while the callback waits."""
        return self.closing

    def _on_lost(self, client: Client, partitions: Positions) -> None:
        """The partitions are gone already: report it and wait for nobody."""
        if partitions and not self.closing:
            ours = _ours(partitions)
            self._post(Lost((*ours, *self._companions.revoked(ours))))
        client.incremental_unassign(partitions)

    # --- commits ------------------------------------------------------------------------------

    def _begin_commit(self, positions: Positions, answer: Future[None]) -> None:
        if self.closing:
            _fail(answer, BrokerError("commit: the consumer is closed"))
            return
        if self._commit is not None and not self._revoking:
            _fail(answer, BrokerError("commit: an earlier one has no answer yet"))
            return
        try:
            if self._revoking:
                # `poll` would call `on_commit`, and we are inside it. The coordinator was reachable
                # a moment ago: it asked us to revoke.
                done = self._client.commit(offsets=positions, asynchronous=False)
                _finish(answer, None, done or [])
            else:
                self._client.commit(offsets=positions, asynchronous=True)
                self._commit = answer
        except KafkaException as error:
            _fail(answer, errors.broker_error("commit", error))

    def _keep(self, positions: Mapping[TopicPartition, Committed]) -> None:
        if self._commit is None and not self._revoking:
            again = [
                ClientPartition(*each, position.offset, position.metadata)
                for each, position in positions.items()
                if each in self._companions
            ]
            if again:
                self._begin_commit(again, Future())

    def _on_commit(self, error: KafkaError | None, partitions: Positions) -> None:
        answer, self._commit = self._commit, None
        if answer is not None:
            _finish(answer, error, partitions)


def _finish(answer: Future[None], error: KafkaError | None, partitions: Positions) -> None:
    """Complete a commit; it succeeded only if no partition failed."""
    failed = error or next((each.error for each in partitions if each.error is not None), None)
    if failed is None:
        answer.set_result(None)
    else:
        _fail(answer, errors.broker_error("commit", KafkaException(failed)))


def _fail(answer: Future[None], error: BrokerError) -> None:
    if not answer.done():
        answer.set_exception(error)


def _ours(partitions: Positions) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(each.topic, each.partition) for each in partitions))
