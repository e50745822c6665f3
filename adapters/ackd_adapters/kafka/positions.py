"""Reads a group's committed positions, with a client of the group that is not a member of it.

The admin client could answer too, but librdkafka 2.16 ends the process (it follows a null pointer)
when the coordinator replies to an admin client that it is still loading, as it does for moments
after a broker's start.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Committed
from ackd_adapters.kafka.config import Properties
from ackd_adapters.kafka.worker import Worker

LOG = logging.getLogger("ackd.kafka")
IDLE_S = 10.0
"""A client that gets no question for this long is closed, because it costs memory and threads."""

Found = dict[TopicPartition, Committed]


class PositionReader(Worker):
    """Answers one question after the other; ends by itself when none are left."""

    def __init__(self, group: str, properties: Callable[[], Properties], timeout_s: float) -> None:
        super().__init__(f"ackd-positions-{group}")
        self._properties = properties
        self._timeout_s = timeout_s
        self._client: Client

    def ask(self, partitions: Sequence[TopicPartition]) -> Future[Found]:
        """Put a question; the future fails with KafkaException or BrokerError."""
        answer: Future[Found] = Future()
        self.commands.put(lambda: self._answer(partitions, answer))
        return answer

    def open_client(self) -> None:
        """Make the client. It subscribes to nothing, so it joins nothing."""
        self._client = Client(self._properties())

    def step(self) -> None:
        """Answer one question, or end."""
        try:
            question = self.commands.get(timeout=IDLE_S)
        except queue.Empty:
            self.closing = True
            return
        question()

    def close_client(self) -> None:
        self._client.close()

    def on_crash(self, error: BaseException) -> None:
        """Log it: whoever asked gets the error, and the next question gets a new reader."""
        LOG.warning("ackd can't read committed positions: %r", error)

    def _answer(self, partitions: Sequence[TopicPartition], answer: Future[Found]) -> None:
        try:
            wanted = [ClientPartition(*each) for each in partitions]
            answer.set_result(_found(self._client.committed(wanted, timeout=self._timeout_s)))
        except KafkaException as error:
            answer.set_exception(error)
        except RuntimeError as error:  # The client was closed meanwhile.
            answer.set_exception(BrokerError(f"committed positions: {error}"))


def _found(answer: Sequence[ClientPartition]) -> Found:
    found = {}
    for each in answer:
        if each.error is not None:
            raise KafkaException(each.error)
        # Other clients see a NUL byte after what this client wrote, and may write such a byte
        # themselves.
        metadata = (each.metadata or "").removesuffix("\0")
        place = TopicPartition(each.topic, each.partition)
        found[place] = Committed(max(each.offset, -1), metadata)
    return found
