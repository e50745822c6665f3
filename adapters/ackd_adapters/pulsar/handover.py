"""Taking a group over from plain consumers and giving it back, with the acks of single messages.

A Shared subscription remembers which messages above its mark-delete position are acked. `ackd
adopt` reads them into the store, `ackd release-group` acks at the broker what is finished in the
store. Only whole entries: the broker does not show which messages of a batch are acked. All calls
block.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pulsar

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Committed
from ackd_adapters.pulsar import errors
from ackd_adapters.pulsar.connection import Connection
from ackd_adapters.pulsar.logs import NOT_FOUND, Logs
from ackd_adapters.pulsar.names import SCHEME
from ackd_adapters.pulsar.numbering import Log, Numbering, Position
from ackd_adapters.pulsar.positions import PROPERTY, Positions
from ackd_adapters.pulsar.rest import RestError, table
from ackd_adapters.pulsar.tables import GroupProperties, Tables

Ranges = Sequence[tuple[int, int]]
ACKED_S: Final = 60.0
"""How long acks may take until the broker shows them: the client sends them later than it says."""
_LOOK_S: Final = 0.2
_RANGE: Final = re.compile(r"\((-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)\]")


class Handover:
    """One group without members."""

    def __init__(self, connection: Connection, logs: Logs, group: str) -> None:
        self._connection = connection
        self._logs = logs
        self._group = group
        self._properties = GroupProperties(connection, logs, group)
        self._tables = Tables(connection, logs, self._properties, joins=True)
        self._positions = Positions(connection, logs, self._tables, self._properties)

    def members(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """The consumers of its subscription. Raises BrokerError."""
        found: dict[str, None] = {}
        for partition in partitions:
            stats = self._connection.rest.table(f"{self._logs.rest_path(partition)}/stats")
            group = table(table(stats.get("subscriptions")).get(self._group))
            consumers = group.get("consumers")
            for each in consumers if isinstance(consumers, list) else []:
                found[str(table(each).get("consumerName"))] = None
        return list(found)

    def finished(self, partition: TopicPartition) -> list[tuple[int, int]]:
        """[start, end) of what is acked above the mark-delete position. Raises BrokerError."""
        numbering, log = self._tables.read(partition)
        found = []
        for first, last in self._acked(partition)[1]:
            with contextlib.suppress(BrokerError):  # of a ledger that is gone
                start = numbering.after_entry(Position(*first, 0))
                found.append((start, numbering.after_entry(Position(*last, 0))))
        end = numbering.range(log)[1]
        return [(start, min(after, end)) for start, after in sorted(found) if start < end]

    def take(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Write ackd's positions. Raises BrokerError."""
        for partition, position in positions.items():
            self._positions.ensure(partition)
            self._positions.commit(partition, position)

    def give(
        self,
        positions: Mapping[TopicPartition, Committed],
        finished: Mapping[TopicPartition, Ranges],
    ) -> None:
        """Leave the subscription as plain consumers would: the cursor at the position, all that is
        finished above it acked, no mark of ackd's. Raises BrokerError.
        """
        for partition, position in positions.items():
            self._positions.ensure(partition)
            numbering, log = self._tables.read(partition)
            first, end = numbering.range(log)
            last = log.last()
            if last is not None:
                at = numbering.position(max(position.offset, first))
                at = min(Position(at.ledger, at.entry, 0), last)
                self._positions.move_back(partition, numbering.offset(at))
                ranges = [(numbering.offset(at), position.offset), *finished.get(partition, ())]
                self._ack(partition, [*_entries(numbering, log, ranges, end)])
            self._properties.write(partition, PROPERTY, None)

    def _ack(self, partition: TopicPartition, entries: list[Position]) -> None:
        if not entries:
            return
        try:
            consumer: Any = self._connection.client.subscribe(
                SCHEME + self._logs.full_name(partition),
                self._group,
                consumer_type=pulsar.ConsumerType.Shared,
                receiver_queue_size=0,  # it takes no message away from anybody
            )
            try:
                for at in entries:
                    consumer.acknowledge(pulsar.MessageId(-1, at.ledger, at.entry, -1))
            finally:
                consumer.close()
        except pulsar.PulsarException as error:
            raise errors.broker_error(f"acks of {partition}", error) from error
        until = time.monotonic() + ACKED_S
        while left := self._unacked(partition, entries):
            if time.monotonic() > until:
                raise BrokerError(f"the broker does not show {left} acks of {partition}: try again")
            time.sleep(_LOOK_S)

    def _unacked(self, partition: TopicPartition, entries: Sequence[Position]) -> int:
        mark, ranges = self._acked(partition)
        places = [(at.ledger, at.entry) for at in entries]
        return sum(
            place > mark and not any(first < place <= last for first, last in ranges)
            for place in places
        )

    def _acked(
        self, partition: TopicPartition
    ) -> tuple[tuple[int, int], list[tuple[tuple[int, int], tuple[int, int]]]]:
        """(mark-delete position, ranges (first, last] of entries that are acked above it)."""
        try:
            stats = self._connection.rest.table(f"{self._logs.rest_path(partition)}/internalStats")
        except RestError as error:
            if error.status_code != NOT_FOUND:
                raise
            return (-1, -1), []
        cursor = table(table(stats.get("cursors")).get(self._group))
        ledger, _, entry = str(cursor.get("markDeletePosition", "-1:-1")).partition(":")
        found = [
            ((int(a), int(b)), (int(c), int(d)))
            for a, b, c, d in _RANGE.findall(str(cursor.get("individuallyDeletedMessages", "")))
        ]
        return (int(ledger), int(entry)), found


def _entries(numbering: Numbering, log: Log, ranges: Ranges, end: int) -> Iterator[Position]:
    """The entries of a log that lie in the ranges as a whole. No number is more than the entries
    of the log.
    """
    for start, after in ranges:
        at = numbering.position(start)
        if at.batch:
            at = Position(at.ledger, at.entry + 1, 0)
        for ledger in log.ledgers:
            if ledger.number < at.ledger or not numbering.knows(ledger.number):
                continue
            count = log.last_entry + 1 if ledger.number == log.last_ledger else ledger.entries
            for entry in range(at.entry if ledger.number == at.ledger else 0, count):
                place = Position(ledger.number, entry, 0)
                if numbering.after_entry(place) > min(after, end):
                    break
                yield place
