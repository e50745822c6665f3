"""A group's committed positions: a Pulsar subscription of the group's name on each partition.

The exact position and its metadata are a property of the subscription, which the broker stores
before it answers. The subscription's cursor follows by cumulative acks, for the broker's retention
and backlog. The broker may forget those in a crash; this does no harm, because a cursor before the
property means nothing. An operator has moved a cursor that is *ahead* of it (skip, clear backlog),
and it wins. All calls block.
"""

from __future__ import annotations

from typing import Final

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Committed
from ackd_adapters.pulsar.connection import Connection
from ackd_adapters.pulsar.logs import NOT_FOUND, Logs
from ackd_adapters.pulsar.numbering import Position
from ackd_adapters.pulsar.rest import Json, RestError, table
from ackd_adapters.pulsar.tables import GroupProperties, Tables

PROPERTY: Final = "ackd.position"
METADATA_CHARS_MAX: Final = 4096
NONE: Final = Committed(-1, "")


class Positions:
    """The positions of one group."""

    def __init__(
        self, connection: Connection, logs: Logs, tables: Tables, properties: GroupProperties
    ) -> None:
        self._connection = connection
        self._logs = logs
        self._tables = tables
        self._properties = properties
        self.group = properties.group
        self._last: dict[TopicPartition, int] = {}

    def ensure(self, partition: TopicPartition) -> None:
        """Make the subscription unless it exists; from the first message on, so that the broker
        deletes nothing before the group's start is known. Raises BrokerError.
        """
        self._properties.create(partition, {PROPERTY: _text(NONE)})

    def committed(self, partition: TopicPartition) -> Committed:
        """The group's position in a partition, with its metadata. Raises BrokerError."""
        rest = self._connection.rest
        try:
            path = self._logs.rest_path(partition)
            stats = rest.table(f"{path}/stats")
        except RestError as error:
            if error.status_code == NOT_FOUND:
                return NONE
            raise
        found = table(table(stats.get("subscriptions")).get(self.group))
        if not found:
            return NONE
        kept = table(found.get("subscriptionProperties")).get(PROPERTY)
        ours = _parse(kept) if isinstance(kept, str) else None
        inner = rest.table(f"{path}/internalStats")
        cursor = table(table(inner.get("cursors")).get(self.group)).get("markDeletePosition")
        ledger, _, entry = str(cursor).partition(":")
        if not ledger.isdecimal():
            return ours or NONE
        numbering = self._tables.read(partition)[0]
        if not numbering.knows(int(ledger)):
            return ours or NONE
        after = numbering.offset(Position(int(ledger), int(entry) + 1, 0))
        if ours is None:
            return Committed(after, "")
        if ours.offset < 0:
            return NONE
        return ours if after <= ours.offset else Committed(after, "")

    def commit(self, partition: TopicPartition, position: Committed) -> None:
        """Durable when it returns. Raises BrokerError."""
        if len(position.metadata.encode("utf-16-le")) > 2 * METADATA_CHARS_MAX:
            raise BrokerError(f"metadata of more than {METADATA_CHARS_MAX} characters")
        before = self._last.get(partition)
        if before is None:
            before = self.committed(partition).offset
        self._properties.write(partition, PROPERTY, _text(position))
        self._last[partition] = position.offset
        if position.offset < before:
            self.move_back(partition, position.offset)

    def forget(self, partition: TopicPartition) -> None:
        """Drop the cache: another sidecar may have committed meanwhile."""
        self._last.pop(partition, None)

    def ackable(self, partition: TopicPartition, offset: int) -> Position | None:
        """Up to where the cursor may be acked: the last whole entry below an offset, but never the
        log's last message. So a ledger stays until the table knows its final length.
        """
        numbering, log = self._tables.look(partition)
        last = log.last()
        if last is None or offset <= numbering.bases[0]:
            return None
        at = numbering.position(offset - 1)
        if at.batch + 1 < numbering.room(at.ledger):
            at = Position(at.ledger, at.entry - 1, 0)
        if (at.ledger, at.entry) >= (last.ledger, last.entry):
            at = Position(last.ledger, last.entry - 1, 0)
        return at if at.entry >= 0 else None

    def move_back(self, partition: TopicPartition, offset: int) -> None:
        """Set the cursor, so that plain consumers go on with this message. Raises BrokerError."""
        numbering, log = self._tables.look(partition)
        at = numbering.position(max(offset, numbering.range(log)[0]))
        body: Json = {"ledgerId": at.ledger, "entryId": at.entry, "partitionIndex": -1}
        path = f"{self._properties.path(partition)}/resetcursor"
        self._connection.rest.ask("POST", path, body)


def _text(position: Committed) -> str:
    return f"{position.offset}|{position.metadata}"


def _parse(text: str) -> Committed | None:
    offset, bar, metadata = text.partition("|")
    try:
        return Committed(int(offset), metadata) if bar else None
    except ValueError:
        return None
