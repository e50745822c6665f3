"""Asks the leader whether a log still has what was read of it.

A leader only appends to its log as long as it leads. So where the leader's epoch is still that of
the last message that was read, and the log is as long, nothing is gone: one question tells.

Otherwise a client of its own asks. librdkafka asks for the end of a leader epoch (KIP-320) when it
learns of a partition's leader epoch, and not at an assignment: a client that knows the topic
already would not ask. So each round of questions has a new client, which checks all waiting
partitions and ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from ackd.core.ids import TopicPartition
from ackd.errors import AckdError
from ackd_adapters.kafka.config import Properties
from ackd_adapters.kafka.errors import END_OF_PARTITION, OUT_OF_RANGE

LOG = logging.getLogger("ackd.kafka")
ROUND_S = 2.0
POLL_S = 0.2
ENDS_S = 0.5
"""How long the first question may take; without an answer, the second one decides."""


class Tail(NamedTuple):
    """An offset that was read to, and the leader epoch of the last message before it."""

    end: int
    leader_epoch: int


# By partition: empty if the log still has it all, else the client's text.
Answers = dict[TopicPartition, str]
AskEnds = Callable[[Sequence[TopicPartition]], dict[TopicPartition, Future[Tail]]]
"""Asks for the ends of logs and the epochs of their leaders."""


class LogCheck:
    """One round at a time; it omits partitions that got no answer within two seconds."""

    def __init__(self, group: str, properties: Callable[[], Properties], ask_ends: AskEnds) -> None:
        self._properties = properties
        self._ask_ends = ask_ends
        self._closing = False
        self.busy = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"ackd-log-check-{group}")

    def ask(
        self, tails: Mapping[TopicPartition, Tail], answered: Callable[[Answers], None]
    ) -> None:
        """Begin a round; the round's thread calls `answered`. It is `busy` until then."""
        self.busy = True
        self._pool.submit(self._round, dict(tails), answered)

    def close(self) -> None:
        """End the running round soon."""
        self._closing = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _round(
        self, tails: dict[TopicPartition, Tail], answered: Callable[[Answers], None]
    ) -> None:
        found: Answers = {}
        try:
            found = self._unchanged(tails)
            if found:
                return  # the others are asked about once more
            client = Client(self._properties() | {"fetch.wait.max.ms": 10})
            try:
                self._look(client, tails, found)
            finally:
                with suppress(KafkaException, RuntimeError):
                    client.close()
        except (KafkaException, AckdError, ValueError, TypeError, RuntimeError) as error:
            LOG.warning("ackd can't check logs for truncation: %r", error)
        finally:
            self.busy = False
            answered(found)

    def _unchanged(self, tails: dict[TopicPartition, Tail]) -> Answers:
        """Those that are led as they were when the tail was read, and are as long."""
        asked = self._ask_ends(list(tails))
        done, _ = wait(asked.values(), timeout=ENDS_S)
        found: Answers = {}
        for partition, future in asked.items():
            if future in done and future.exception() is None:
                tail, now = tails[partition], future.result()
                if now.leader_epoch == tail.leader_epoch and now.end >= tail.end:
                    found[partition] = ""
        return found

    def _look(self, client: Client, tails: dict[TopicPartition, Tail], found: Answers) -> None:
        client.incremental_assign(
            [
                ClientPartition(*each, tail.end, leader_epoch=tail.leader_epoch)
                for each, tail in tails.items()
            ]
        )
        until_s = monotonic() + ROUND_S
        while len(found) < len(tails) and monotonic() < until_s and not self._closing:
            message = client.poll(POLL_S)
            if message is None:
                continue
            partition = TopicPartition(message.topic() or "", message.partition() or 0)
            text = _answer(message)
            if partition in tails and text is not None and partition not in found:
                found[partition] = text
                client.incremental_unassign([ClientPartition(*partition)])


def _answer(message: Message) -> str | None:
    error = message.error()
    if error is None or error.code() == END_OF_PARTITION:
        return ""
    return error.str() if error.code() in OUT_OF_RANGE else None
