"""Planted mistakes of an outbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from ackd.core.outbox import (
    Bounds,
    EnqueueRequest,
    EnqueueResult,
    Outbox,
    TakenMessage,
    TakeRequest,
    TakeResult,
)
from ackd.engine.publishing.outbox_codec import read_message, write_message
from ackd.ports import Failure, NotStored, Outgoing, PublishResult, Stored
from ackd.store.memory import MemoryStore
from ackd.store.memory_outbox import MemoryOutboxes
from tests.simulation.broker import SimBroker
from tests.simulation.mutant import Mutant
from tests.simulation.outboxes import AWAY, FORGOTTEN, FULL, OUT
from tests.simulation.parts import Parts
from tests.simulation.store_client import SimStore
from tests.simulation.store_more import SimOutboxes


class HearsLateQuestions(MemoryOutboxes):
    """A question that nobody waits for any more takes messages, for one that never hears of it."""

    async def take(
        self,
        name: str,
        request: TakeRequest,
        most: int,
        bytes_max: int,
        have: Sequence[int] | None = None,
    ) -> TakeResult:
        """Whenever it was asked, under whatever term."""
        outbox = self._outboxes.setdefault(name, Outbox())
        outbox.seen = "", 0
        term = outbox.term if request.owner == outbox.owner else request.term
        return await super().take(name, request._replace(term=term), most, bytes_max, have)


class LateQuestionsCount(MemoryStore):
    """See `HearsLateQuestions`."""

    @property
    def outboxes(self) -> MemoryOutboxes:
        """With the mistake."""
        return HearsLateQuestions(self.data.outboxes, self._now_us, self.run)


class NumbersComeAgain(MemoryStore):
    """After a failover a number is given to another message."""

    @property
    def outboxes(self) -> MemoryOutboxes:
        """It never hears of another run."""
        return MemoryOutboxes(self.data.outboxes, self._now_us, "always")


class OneTicket(SimOutboxes):
    """A repeat is one for the outbox, whichever of its messages go there this time."""

    async def enqueue(
        self, name: str, requests: Sequence[EnqueueRequest], bounds: Bounds
    ) -> list[EnqueueResult]:
        """The key names the request alone."""
        return await super().enqueue(name, [self._named(each) for each in requests], bounds)

    @staticmethod
    def _named(enqueue: EnqueueRequest) -> EnqueueRequest:
        value = read_message(enqueue.messages[0].body).value or b""
        return enqueue._replace(
            idempotency_key=enqueue.idempotency_key and value.rpartition(b".")[0]
        )


class KeepsNoLanes(SimOutboxes):
    """What has the same key is on its way together."""

    async def take(
        self,
        name: str,
        request: TakeRequest,
        most: int,
        bytes_max: int,
        have: Sequence[int] | None = None,
    ) -> TakeResult:
        """Nothing has a key, or a partition."""
        answer = await super().take(name, request, most, bytes_max, have)
        return answer._replace(messages=[self._free(each) for each in answer.messages])

    @staticmethod
    def _free(taken: TakenMessage) -> TakenMessage:
        message = replace(read_message(taken.body), key=None, partition=None)
        return taken._replace(body=write_message(message))


class TakesOverInSilence(SimOutboxes):
    """What a dead sidecar had taken is sent again and not said to be."""

    async def take(
        self,
        name: str,
        request: TakeRequest,
        most: int,
        bytes_max: int,
        have: Sequence[int] | None = None,
    ) -> TakeResult:
        """Nothing is in doubt."""
        answer = await super().take(name, request, most, bytes_max, have)
        return answer._replace(messages=[each._replace(in_doubt=False) for each in answer.messages])


class WithOneKey(SimStore):
    """See `OneTicket`."""

    OUTBOXES: ClassVar[type[SimOutboxes]] = OneTicket


class WithoutLanes(SimStore):
    """See `KeepsNoLanes`."""

    OUTBOXES: ClassVar[type[SimOutboxes]] = KeepsNoLanes


class InSilence(SimStore):
    """See `TakesOverInSilence`."""

    OUTBOXES: ClassVar[type[SimOutboxes]] = TakesOverInSilence


class UnansweredIsSent(SimBroker):
    """What may be stored counts as stored."""

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """As the first of its topic."""
        return [_known(each) for each in await super().publish(messages)]


def _known(result: PublishResult) -> PublishResult:
    unknown = isinstance(result, NotStored) and result.failure is Failure.UNKNOWN
    return Stored(OUT, 0, 0) if unknown else result


MUTANTS = (
    Mutant("a late question takes messages", "I6", Parts(memory=LateQuestionsCount), AWAY, 42),
    Mutant("a number comes again", "I6", Parts(memory=NumbersComeAgain), FORGOTTEN),
    Mutant("a key is for any messages", "R20", Parts(store=WithOneKey), FULL, 11),
    Mutant("lanes are not kept", "I6", Parts(store=WithoutLanes), AWAY),
    Mutant("no answer of the broker is one", "I1", Parts(broker=UnansweredIsSent), AWAY),
    Mutant("a takeover is not told", "R20", Parts(store=InSilence), AWAY),
)
