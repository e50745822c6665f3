"""Makes records of the client's messages, with the offsets that their places have in the log.

This is done for each message, and each question to the client's message costs. So what all messages
of a ledger or of a batch have in common is asked for once.
"""

from __future__ import annotations

from typing import Any

from ackd.core.ids import TopicPartition
from ackd.ports import Record
from ackd_adapters.pulsar.heads import Place
from ackd_adapters.pulsar.ids import batch_size
from ackd_adapters.pulsar.message import read_headers, read_key
from ackd_adapters.pulsar.numbering import Position
from ackd_adapters.pulsar.tables import Tables

NOWHERE = (-1, -1)


class RecordMaker:
    """For one partition. What a message tells of its place and time is kept for the next one."""

    def __init__(self, tables: Tables, partition: TopicPartition) -> None:
        self._tables = tables
        self._partition = partition
        self._ledger, self._base, self._room = -1, 0, 0
        self._batch, self._batch_messages, self._batch_ms = NOWHERE, 0, 0

    def make(self, message: Any) -> tuple[Record, int, Place | None]:
        """The record, the next offset (after the entry, when this is its last message), and where
        it is if it is in no batch. Raises BrokerError.
        """
        found = message.message_id()
        place = found.ledger_id(), found.entry_id()
        index = found.batch_index()
        if place[0] != self._ledger:
            self._number(place[0])
        first = self._base + place[1] * self._room
        if index < 0:
            offset, after = first, first + self._room
            published_ms = message.publish_timestamp()
        else:
            if place != self._batch:
                self._batch, self._batch_messages = place, batch_size(found)
                self._batch_ms = message.publish_timestamp()
            published_ms = self._batch_ms
            offset = after = first + index
            if index >= self._room:
                self._refuse(Position(*place, index))
            elif index + 1 < self._batch_messages:
                after += 1
            else:
                after = first + self._room
        given = message.properties()
        value = message.data() or (None if message.has_null_value() else b"")
        key = read_key(message.partition_key(), given)
        headers = read_headers(given) if given else ()
        alone = place if index < 0 else None
        return Record(offset, key, value, headers, published_ms), after, alone

    def _number(self, ledger: int) -> None:
        """The offset of a ledger's first entry, and its room for a batch: they never change."""
        found = self._tables.numbering(self._partition, ledger, gives=True)
        self._base, self._room = found.offset(Position(ledger, 0, 0)), found.room(ledger)
        self._ledger = ledger

    def _refuse(self, position: Position) -> None:
        """Raise the error that says what to do about a batch that is too large."""
        self._tables.numbering(self._partition, position.ledger, gives=True).offset(position)
