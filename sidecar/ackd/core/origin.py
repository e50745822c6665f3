"""The coordinate that identifies a message, whichever copy of it is delivered."""

from __future__ import annotations

from dataclasses import dataclass

from ackd.core.ids import message_id


@dataclass(frozen=True, slots=True)
class Origin:
    """The coordinate that a message has for ever, whatever carries it (I2)."""

    cluster: str
    topic_id: bytes
    topic: str
    partition: int
    offset: int

    @property
    def id(self) -> str:
        """The public id: `orders/3/2101`."""
        return message_id(self.topic, self.partition, self.offset)

    def text(self) -> str:
        """As in the header `ackd-origin`."""
        return f"{self.cluster}/{self.topic_id.hex()}/{self.topic}/{self.partition}/{self.offset}"
