"""Membership in a group, by what the broker itself keeps alive: connections.

* A member shows itself by a reader on the first partition of each of its topics. The reader's name
  identifies the member, and the broker forgets it with the connection.

* The holder of a partition has an *Exclusive* consumer on the group's subscription. The broker
  admits nobody else meanwhile, so a hand-over takes place when its holder closes it (rule R34), and
  the broker releases a killed holder at once. The consumer asks for no message: reading bypasses
  it.

A thread checks at regular intervals and posts what it found as events.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import pulsar

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Assigned, Condition, Lost, Revoked, TopicInfo, TopicReplaced
from ackd_adapters.pulsar import errors
from ackd_adapters.pulsar.box import Box
from ackd_adapters.pulsar.connection import Connection
from ackd_adapters.pulsar.letters import is_retry
from ackd_adapters.pulsar.logs import Logs
from ackd_adapters.pulsar.names import SCHEME, partition_name
from ackd_adapters.pulsar.positions import Positions
from ackd_adapters.pulsar.rest import Json, table
from ackd_adapters.pulsar.share import wanted

ROSTER: Final = "ackd.member."
READER: Final = "-reader-"
"""What the client puts between our part of a reader's subscription name and its own."""
REFRESH_S: Final = 2.0
"""How often to check for new topics and for topics that were made again."""
HAND_OVER_S: Final = 2.0
"""How long a hand-over may take (rule R34)."""


# tidy: long-class attributes=18 -- what one thread owns
class Member:
    """One member's thread. `find` lists the topics to read now; it blocks."""

    def __init__(
        self,
        connection: Connection,
        logs: Logs,
        positions: Positions,
        box: Box,
        name: str,
        find: Callable[[], list[TopicInfo]],
    ) -> None:
        self._connection = connection
        self._logs = logs
        self._positions = positions
        self._box = box
        self._name = name
        self._mark = f"{ROSTER}{quote(positions.group, safe='')}."
        self._find = find
        self._known: dict[str, bytes] = {}
        self._shown: dict[str, Any] = {}
        self._held: dict[TopicPartition, Any] = {}
        self._leaving: dict[TopicPartition, tuple[float, threading.Event]] = {}
        self._look = threading.Event()
        self._topics: list[TopicInfo] = []
        self._asked = True
        self._refresh_at = 0.0
        self._stopped = False
        self._away = False
        self._thread = threading.Thread(target=self._run, name="ackd-pulsar-member", daemon=True)

    def start(self) -> None:
        """Join; assignments come as events."""
        self._thread.start()

    def look(self) -> None:
        """Check now: the topics have changed."""
        self._asked = True
        self._look.set()

    def holding(self, partition: TopicPartition) -> Any:
        """The consumer that holds a partition, None when this member does not hold it."""
        return self._held.get(partition)

    def leave(self, seconds: float) -> None:
        """Give every partition back; blocks for a bounded time."""
        self._stopped = True
        self._look.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        pause_s = self._connection.options.group_poll_ms / 1000
        while not self._stopped:
            try:
                self._step()
                self._tell_away("")
            except (BrokerError, pulsar.PulsarException) as error:
                self._tell_away(errors.broker_error("the group", error).detail)
            except Exception as error:  # noqa: BLE001 -- a thread's last words must be heard
                self._box.put(Condition("group", f"the member ended: {error!r}", fatal=True))
                break
            self._look.wait(0.05 if self._leaving else pause_s)
            self._look.clear()
        for consumer in [*self._held.values(), *self._shown.values()]:
            _close(consumer)

    def _step(self) -> None:
        if self._asked or time.monotonic() >= self._refresh_at:
            self._asked = False
            self._topics = self._find()
            self._refresh_at = time.monotonic() + REFRESH_S
        topics = self._topics
        for info in topics:
            before = self._known.get(info.topic)
            self._known[info.topic] = info.topic_id
            if before is not None and before != info.topic_id:
                self._replaced(info)
        gone = [topic for topic in self._shown if topic not in {each.topic for each in topics}]
        for topic in gone:
            _close(self._shown.pop(topic))
        for info in topics:
            if info.topic not in self._shown:
                self._shown[info.topic] = self._show(info)
        self._release()
        readers: dict[str, set[str]] = {}
        holders: dict[TopicPartition, str | None] = {}
        for info in topics:
            readers[info.topic] = {self._name}
            self._see(info, readers[info.topic], holders)
        self._check_held(holders)
        retry = {topic for topic in readers if is_retry(topic)}
        share = wanted(self._name, readers, holders, retry)
        self._give(sorted(self._held.keys() - share - self._leaving.keys()))
        self._take(sorted(at for at in share - self._held.keys() if holders[at] is None))

    def _show(self, info: TopicInfo) -> Any:
        first = self._logs.full_name(TopicPartition(info.topic, 0))
        return self._connection.client.create_reader(
            SCHEME + first,
            pulsar.MessageId.latest,
            receiver_queue_size=1,
            reader_name=self._name,
            subscription_role_prefix=self._mark + self._name,
        )

    def _see(
        self,
        info: TopicInfo,
        readers: set[str],
        holders: dict[TopicPartition, str | None],
    ) -> None:
        """Find out who reads a topic, and who holds its partitions."""
        names = self._connection.names
        path, count = names.path(info.topic), self._logs.count(info.topic)
        rest = self._connection.rest
        if count:
            more = "partitioned-stats?perPartition=true"
            every = table(rest.table(f"{names.rest(info.topic)}/{more}").get("partitions"))
        else:
            every = {SCHEME + path: dict(rest.table(f"{names.rest(info.topic)}/stats"))}
        for number in range(info.partitions):
            full = SCHEME + partition_name(path, number, count)
            found = table(table(every.get(full)).get("subscriptions"))
            if number == 0:
                for subscription in found:
                    if subscription.startswith(self._mark):
                        readers.add(subscription.removeprefix(self._mark).rpartition(READER)[0])
            consumers = table(found.get(self._positions.group)).get("consumers")
            holders[TopicPartition(info.topic, number)] = _holder(consumers)

    def _check_held(self, holders: dict[TopicPartition, str | None]) -> None:
        """Another member holds what was ours: our connection was gone for too long."""
        lost = [at for at in self._held if holders.get(at) not in (self._name, None)]
        for at in lost:
            _close(self._held.pop(at))
            self._leaving.pop(at, None)
        if lost:
            self._box.put(Lost(tuple(sorted(lost))))

    def _give(self, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        done = _Done(self._look)
        for at in partitions:
            self._leaving[at] = (time.monotonic() + HAND_OVER_S, done.event)
        self._box.put(Revoked(tuple(partitions), done))

    def _release(self) -> None:
        now = time.monotonic()
        for at, (until, done) in list(self._leaving.items()):
            if done.is_set() or now >= until:
                del self._leaving[at]
                if at in self._held:
                    _close(self._held.pop(at))

    def _take(self, partitions: list[TopicPartition]) -> None:
        """Raises BrokerError; what was taken before that is reported all the same."""
        fresh: dict[TopicPartition, None] = {}
        try:
            for at in partitions:
                if self._hold(at):
                    fresh[at] = None
        finally:
            if fresh:
                self._box.put(Assigned(tuple(fresh)))

    def _hold(self, at: TopicPartition) -> bool:
        """Whether it is held now; not if another member was faster."""
        self._positions.ensure(at)
        self._positions.forget(at)
        try:
            self._held[at] = self._connection.client.subscribe(
                SCHEME + self._logs.full_name(at),
                self._positions.group,
                consumer_type=pulsar.ConsumerType.Exclusive,
                consumer_name=self._name,
                receiver_queue_size=0,
                initial_position=pulsar.InitialPosition.Earliest,
            )
        except pulsar.ConsumerBusy:
            return False
        return True

    def _replaced(self, info: TopicInfo) -> None:
        self._logs.forget(info.topic)
        mine = [at for at in self._held if at.topic == info.topic]
        for at in mine:
            _close(self._held.pop(at))
            self._leaving.pop(at, None)
        if info.topic in self._shown:
            _close(self._shown.pop(info.topic))
        self._box.put(TopicReplaced(info.topic, info.topic_id))
        if mine:
            self._box.put(Lost(tuple(sorted(mine))))

    def _tell_away(self, detail: str) -> None:
        if detail:
            self._box.put(Condition("group", detail, away=True))
        elif self._away:
            self._box.put(Condition("group", "", cleared=True))
        self._away = bool(detail)


class _Done:
    """What a `Revoked` calls when it is done."""

    def __init__(self, look: threading.Event) -> None:
        self.event = threading.Event()
        self._look = look

    def set(self) -> None:
        """Note the end of the hand-over, and let the member check."""
        self.event.set()
        self._look.set()


def _holder(consumers: Json) -> str | None:
    if not isinstance(consumers, list) or not consumers:
        return None
    return str(table(consumers[0]).get("consumerName"))


def _close(what: Any) -> None:
    with contextlib.suppress(pulsar.PulsarException, RuntimeError):
        what.close()
