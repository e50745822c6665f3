"""Planted mistakes of an outbox; see `mutants`."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from ackd.core.outbox import Asking, Load, Outbox
from ackd.engine.publishing import publish
from ackd.engine.publishing.outbox_sender import OutboxSender
from ackd.ports import Failure, Stored
from tests.simulation.mutant import Mutant
from tests.simulation.outboxes import AWAY, FORGOTTEN, FULL


def late_questions_count() -> Any:
    """A question that nobody waits for any more takes messages, for one that never hears of it."""
    take = Outbox.take

    def late(self: Outbox, asking: Asking, *more: Any) -> Load:
        self.seen = "", 0
        term = self.term if asking.owner == self.owner else asking.term
        return take(self, asking._replace(term=term), *more)

    return patch.object(Outbox, "take", late)


def numbers_come_again() -> Any:
    """After a failover a number is given to another message."""
    return patch.object(Outbox, "decided_by", lambda *_: None)


def any_messages_of_a_request() -> Any:
    """A repeat is one for the outbox, whichever of its messages go there this time."""
    ticket = publish._ticket
    return patch.object(
        publish, "_ticket", lambda request, _: ticket(request, range(len(request.messages)))
    )


def lanes_are_not_kept() -> Any:
    """What has the same key is on its way together."""

    def choose(self: OutboxSender, now_ms: int) -> dict[int, Any]:
        held = self._held.items()
        return {n: each for n, each in held if not each.flying and each.again_ms <= now_ms}

    return patch.object(OutboxSender, "_choose", choose)


def unanswered_is_sent() -> Any:
    """What may be stored counts as stored."""
    answered = OutboxSender._answered

    def unknown(self: OutboxSender, number: int, held: Any, result: Any) -> None:
        if getattr(result, "failure", None) is Failure.UNKNOWN:
            result = Stored(held.message.topic, 0, 0)
        answered(self, number, held, result)

    return patch.object(OutboxSender, "_answered", unknown)


def takeovers_are_not_told() -> Any:
    """What a dead sidecar had taken is sent again and not said to be."""
    return patch.object(Outbox, "_take_back", Outbox._lay_back)


MUTANTS = (
    Mutant("a late question takes messages", "I6", late_questions_count, AWAY, 20),
    Mutant("a number comes again", "I6", numbers_come_again, FORGOTTEN),
    Mutant("a ticket is for any messages", "R20", any_messages_of_a_request, FULL),
    Mutant("lanes are not kept", "I6", lanes_are_not_kept, AWAY),
    Mutant("no answer of the broker is one", "I1", unanswered_is_sent, AWAY),
    Mutant("a takeover is not told", "R20", takeovers_are_not_told, AWAY),
)
