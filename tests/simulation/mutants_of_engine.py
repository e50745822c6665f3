"""Planted mistakes of answers: what an application or engine is told, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ackd.api import messages as api
from ackd.core.ids import LedgerKey
from ackd.core.record.protocol import CallStatus, RecordCall, RecordReply
from ackd.core.record.transitions import Outcome, State, Verb
from ackd.errors import StoreUnknownError
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts, SeededRuntime
from tests.simulation.plan import DRAINED, Story
from tests.simulation.process import Process
from tests.simulation.seams import DONE
from tests.simulation.store import StoreServer
from tests.simulation.store_client import SimStore


class AnswersBefore(SeededRuntime):
    """An ack of which the store has said nothing is answered as one that counts."""

    async def settle(self, items: Sequence[api.SettleItem]) -> list[api.SettleResult]:
        """Never unavailable."""
        results = await super().settle(items)
        for item, result in zip(items, results, strict=True):
            if item.do is api.SettleVerb.ACK and result.status is api.Status.UNAVAILABLE:
                result.status = api.Status.ACKED
        return results


class UnknownIsYes(SimStore):
    """A call that may have been decided is taken for one that was, as it was wanted."""

    def __init__(self, server: StoreServer, process: Process, timeout_ms: int) -> None:
        super().__init__(server, process, timeout_ms)
        self._last: dict[LedgerKey, RecordReply] = {}

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Raises StoreUnknownError only of calls to which no answer can be made up."""
        try:
            replies = await super().apply(calls)
        except StoreUnknownError:
            if all(call.key in self._last and _YES.keys() >= _verbs(call) for call in calls):
                return [self._wanted(call) for call in calls]
            raise
        pairs = zip(calls, replies, strict=True)
        self._last |= {call.key: each for call, each in pairs if each.verdict is CallStatus.OK}
        return replies

    def _wanted(self, call: RecordCall) -> RecordReply:
        results = [_YES[op.verb] for op in call.ops]
        return replace(self._last[call.key], results=results, journal=[])


_YES = {
    Verb.ACK: DONE._replace(outcome=Outcome.ACKED, state=State.FINISHED),
    Verb.ADVANCE: DONE,
    Verb.DROP: DONE,
}


def _verbs(call: RecordCall) -> set[Verb]:
    return {op.verb for op in call.ops}


class GivesBackWhatWasTold(SeededRuntime):
    """Leases that are on their way to an application are given back."""

    async def receive(self, name: str, request: api.ReceiveRequest) -> api.Received:
        """And told all the same."""
        received = await super().receive(name, request)
        await self.abandon(received)
        return received


MUTANTS = (
    Mutant("a lease that ended is counted on", "I8"),
    Mutant("an unknown outcome is ignored", "R12", story=Story(("net",))),
    Mutant(
        "an ack is answered before the store", "R11", Parts(runtime=AnswersBefore), Story(("net",))
    ),
    Mutant("an unknown outcome is a yes", "R12", Parts(store=UnknownIsYes), Story(("net",))),
    Mutant("a look that is repeated is an ack", "I4", story=DRAINED),
    Mutant("a told lease is given back", "R21", Parts(runtime=GivesBackWhatWasTold)),
)
