"""A broker for publishing that fails as a test says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ackd.engine.base.context import Context
from ackd.errors import BrokerError
from ackd.ports import Failure, NotStored, Outgoing, PublishResult, Stored
from tests.unit.engine.world import CAPABILITIES, TestBroker, TestConsumer

ABLE = replace(CAPABILITIES, delayed_publish=True, delay_max_ms=60_000)


class ScriptedBroker(TestBroker):
    """Each value fails as often as its script says. `sent`: the values of each call; offsets count
    all that was stored.
    """

    def __init__(self, script: Mapping[bytes, Sequence[Failure]] | None = None) -> None:
        super().__init__(TestConsumer(), ABLE)
        self.sent: list[list[bytes]] = []
        self.stored: list[Outgoing] = []
        self.raises: BrokerError | None = None
        self._left = {value: list(failures) for value, failures in (script or {}).items()}

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        self.sent.append([message.value or b"" for message in messages])
        if self.raises is not None:
            raise self.raises
        return [self._answer(message) for message in messages]

    def fails(self, value: bytes, *failures: Failure) -> None:
        """Messages of this value fail so, one after the other, and are stored then."""
        self._left[value] = list(failures)

    def _answer(self, message: Outgoing) -> PublishResult:
        if left := self._left.get(message.value or b""):
            failure = left.pop(0)
            return NotStored(failure, failure.value, "scripted")
        self.stored.append(message)
        return Stored(message.topic, message.partition or 0, len(self.stored) - 1)


def metric(context: Context, name: str, **labels: str) -> float:
    """As a scrape shows it; 0 if it is not there."""
    return context.metrics.registry.get_sample_value(name, labels) or 0.0
