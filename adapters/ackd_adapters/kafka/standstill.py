"""Finds partitions that the fetching client has forgotten, and begins fetching them again.

When a partition has no leader for a moment, as after a broker was killed and then froze, librdkafka
2.16 sometimes leaves an assigned partition in the fetch state "none" for ever: its statistics show
the leader, and nothing asks it for messages. No event tells of it. Giving the partition back and
assigning it anew mends it (24 partitions, 30 times killed and frozen: 8 stood still, all went on).

So partitions that were silent for a while are asked for their logs' ends. One that has more, and is
still silent although the client has nothing left to pass on, is begun again. Slow ones (large
messages over a slow network) get twice the time after each restart.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaException

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd_adapters.kafka.log_check import Tail
from ackd_adapters.kafka.worker import settled

LOG = logging.getLogger("ackd.kafka")
LOOK_S = 0.5
SILENT_S = 1.5
CONFIRM_S = 0.4
IDLE_S = 10.0
"""How often a partition is asked about that has been silent for long."""
SLOW_S = 300.0
ANSWER_S = 10.0
"""An admin client may forget a question."""


@dataclass(slots=True)
class PartitionFetch:
    """A partition that is being fetched. `next`: first offset that the engine has not got yet.

    `unchecked`: what the log must still contain before fetching begins.
    """

    session: int
    attempt: int
    next: int
    paused: bool = False
    unchecked: Tail | None = None

    @property
    def at(self) -> tuple[int, int]:
        """Changes with each event and each attempt."""
        return self.attempt, self.next


@dataclass(slots=True)
class _Silence:
    """Since when a partition stands where it is. `unread_s`: when its log was seen to have more,
    0 = it was not.
    """

    at: tuple[int, int]
    ask_s: float
    wait_s: float
    unread_s: float = 0.0


class FetchWatch:
    """Looks at the fetched partitions twice a second, on the loop.

    `ends` starts asking for the ends of logs. `drained_s`: when the client last had nothing to pass
    on. `begin` fetches a partition anew. `clock` and `drained_s`: seconds, monotonic, of one clock.
    """

    def __init__(
        self,
        fetched: Mapping[TopicPartition, PartitionFetch],
        ends: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, Future[int]]],
        drained_s: Callable[[], float],
        begin: Callable[[TopicPartition, PartitionFetch], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._fetched = fetched
        self._ends = ends
        self._drained_s = drained_s
        self._begin = begin
        self._clock = clock
        self._silences: dict[TopicPartition, _Silence] = {}
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look now and then, until `close`."""
        self._timer = self._loop.call_later(LOOK_S, self.start)
        self.look()

    def close(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def look(self) -> None:
        """Begin again what stands still; ask about what has been silent."""
        silent, now_s = [], self._clock()
        for partition in self._silences.keys() - self._fetched.keys():
            del self._silences[partition]
        for partition, fetch in self._fetched.items():
            silence = self._silences.get(partition)
            if fetch.paused or fetch.unchecked is not None:
                self._silences.pop(partition, None)
            elif silence is None or silence.at != fetch.at:
                self._silences[partition] = _Silence(fetch.at, now_s + SILENT_S, SILENT_S)
            elif silence.unread_s:
                self._unread(partition, fetch, silence, now_s)
            elif now_s >= silence.ask_s:
                silent.append(partition)
        if silent and (self._asking is None or self._asking.done()):
            self._asking = self._loop.create_task(self._ask(silent))

    def _unread(
        self, partition: TopicPartition, fetch: PartitionFetch, silence: _Silence, now_s: float
    ) -> None:
        if now_s < silence.unread_s + CONFIRM_S:
            return  # they may be on their way
        if self._drained_s() <= silence.unread_s:
            return  # they may wait in the client behind those of others
        LOG.warning(
            "%s: the Kafka client stands still at offset %d though the log goes on; ackd begins"
            " fetching it again",
            partition,
            fetch.next,
        )
        self._begin(partition, fetch)
        wait_s = min(2 * silence.wait_s, SLOW_S)
        self._silences[partition] = _Silence(fetch.at, now_s + wait_s, wait_s)

    async def _ask(self, partitions: Sequence[TopicPartition]) -> None:
        before = {each: self._silences[each] for each in partitions}
        with suppress(BrokerError, KafkaException, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                for partition, future in self._ends(partitions).items():
                    # Without a leader or a broker there is nothing to fetch from.
                    with suppress(KafkaException):
                        self._answered(partition, before[partition], await settled(future))

    def _answered(self, partition: TopicPartition, silence: _Silence, end: int) -> None:
        fetch, now_s = self._fetched.get(partition), self._clock()
        if fetch is None or fetch.at != silence.at:
            return
        if end > fetch.next:
            silence.unread_s = now_s
        else:
            silence.wait_s = max(silence.wait_s, min(2 * silence.wait_s, IDLE_S))
            silence.ask_s = now_s + silence.wait_s
