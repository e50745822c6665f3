"""The coordinate that identifies a message, whichever copy of it is delivered."""

from __future__ import annotations

from dataclasses import dataclass

from ackd.core.ids import message_id

PARTITION_MAX = (1 << 31) - 1
OFFSET_MAX = (1 << 53) - 2
"""The store's scripts count in doubles (exact up to 2^53), and up to the next offset after this
one.
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """The coordinate of a message. Its copies keep it (I2)."""

    cluster: str
    topic_id: bytes
    topic: str
    partition: int
    offset: int

    @property
    def id(self) -> str:
        """Public id of the message: `topic/partition/offset`, say `orders/3/2101`."""
        return message_id(self.topic, self.partition, self.offset)

    @property
    def possible(self) -> bool:
        """Whether partition and offset are within their bounds."""
        return 0 <= self.partition <= PARTITION_MAX and 0 <= self.offset <= OFFSET_MAX

    def text(self) -> str:
        """The form of the header `ackd-origin`."""
        return f"{self.cluster}/{self.topic_id.hex()}/{self.topic}/{self.partition}/{self.offset}"
