"""Names in production code that planted mistakes change; the only place where any stands.

Whoever renames or moves one of these mends one line here. A mistake comes to this table only if no
part of the simulator (`parts`) and no row of the transition table can make it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from importlib import import_module
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from ackd.api.messages import SettleVerb
from ackd.engine.base.copy_signature import Proof
from ackd.errors import StoreError, StoreUnknownError


class Inside(NamedTuple):
    """A public name of a module (`Class.method` too), and what becomes of that which it names."""

    module: str
    name: str
    becomes: Callable[[Any], object]

    def owner(self) -> object:
        """What the name is an attribute of. Raises ImportError, AttributeError."""
        return reduce(getattr, self.name.split(".")[:-1], import_module(self.module))

    @property
    def exists(self) -> bool:
        """Production code still has it."""
        try:
            return hasattr(self.owner(), self.name.rpartition(".")[2])
        except (ImportError, AttributeError):
            return False

    @contextmanager
    def planted(self) -> Iterator[None]:
        """It is so meanwhile."""
        owner, name = self.owner(), self.name.rpartition(".")[2]
        with patch.object(owner, name, self.becomes(getattr(owner, name))):
            yield


def _always(_: object) -> object:
    return lambda *_: True


def _deaf_to_the_unknown(failed: Callable[..., None]) -> object:
    def deaf(self: object, call: object, error: StoreError) -> None:
        if not isinstance(error, StoreUnknownError):
            failed(self, call, error)

    return deaf


def _as_settles(ask_all: Callable[..., Awaitable[None]]) -> object:
    async def as_settles(self: object, pending: object, _: object, answered: object) -> None:
        def ask(group: Any) -> object:
            return group.of.ask(group, group.ops)

        await ask_all(self, pending, ask, answered)

    return as_settles


def _counts_on(_: object) -> object:
    return lambda *_: None


async def _believed(*_: object) -> None:
    """Whatever is committed."""


def _both(bring: Callable[..., bool]) -> object:
    def both(self: object, waiter: Any, deliveries: list[object]) -> bool:
        if waiter.waits and waiter.grants:
            waiter.deliveries += deliveries
            return True
        return bring(self, waiter, deliveries)

    return both


def _at_once(ready: Callable[..., None]) -> object:
    def at_once(self: Any, link: object, said: object) -> None:
        for asked in list(self._asked.values()):
            asked.waiter.elsewhere = 0
            self.wait(asked.waiter)
        ready(self, link, said)

    return at_once


def _passed_on(enter: Callable[..., object]) -> object:
    def passed_on(self: object, *args: object, relayed: bool = False) -> object:
        del relayed
        return enter(self, *args)

    return passed_on


def _bound_of_all(_: object) -> object:
    def room(_: object, bound: int, mine: int, leased: int) -> int:
        del mine
        return bound - leased

    return room


async def _idle(*_: object) -> None:
    """Does nothing."""


def _after_the_settle(deliver: Callable[..., Awaitable[object]]) -> object:
    async def after(self: object, messages: object, learn: Callable[[object], None]) -> object:
        heard: list[object] = []
        result = await deliver(self, messages, heard.append)
        for each in heard:
            learn(each)
        return result

    return after


def _all_at_once(unreachable: Callable[..., bool]) -> object:
    def all_at_once(self: Any, now_s: float) -> bool:
        limit = self.limit
        opened = unreachable(self, now_s)
        self.limit = limit
        return opened

    return all_at_once


def _refused_is_done(judge: Callable[..., Any]) -> object:
    def refused(*args: object) -> object:
        verdict = judge(*args)
        wrong = verdict.outcome == "retry" and not verdict.explicit
        return replace(verdict, do=SettleVerb.ACK, reason=None) if wrong else verdict

    return refused


def _unknown_is_done(after: Callable[..., list[Any]]) -> object:
    def unknown(*args: object) -> list[Any]:
        return [replace(each, do=SettleVerb.ACK) for each in after(*args)]

    return unknown


TABLE: Final[dict[str, Inside]] = {
    "any signature is good": Inside(
        "ackd.engine.base.copy_keys", "proof", lambda _: lambda *_: Proof.SIGNED
    ),
    "what is forged has a place in the order": Inside(
        "ackd.engine.ownership.ownership", "Ownership._signed", _always
    ),
    "an unknown outcome is ignored": Inside(
        "ackd.engine.partition.partition", "Partition.failed", _deaf_to_the_unknown
    ),
    "a look that is repeated is an ack": Inside(
        "ackd.engine.settlement.settle", "Settler._ask_all", _as_settles
    ),
    "a lease that ended is counted on": Inside(
        "ackd.core.ledger.entries", "Entries.uncount", _counts_on
    ),
    "a receive gets from here and from there": Inside(
        "ackd.engine.delivery.waits_elsewhere", "WaitsElsewhere.bring", _both
    ),
    "requests of a closed link wait on": Inside(
        "ackd.engine.peers.owning", "PeerOffers.closed", _counts_on
    ),
    "a receive asks two owners at once": Inside(
        "ackd.engine.peers.peer_receives", "PeerReceives.ready", _at_once
    ),
    "a request of another sidecar is passed on": Inside(
        "ackd.engine.delivery.dispatcher", "Dispatcher.enter", _passed_on
    ),
    "leases for other sidecars cost no token": Inside(
        "ackd.engine.delivery.rate_limit", "RateLimit.spend", _counts_on
    ),
    "a reset is not judged by its owner": Inside(
        "ackd.engine.ownership.broker_events", "BrokerEvents._judge_again", lambda _: _believed
    ),
    "what was revoked is taken back from its next owner": Inside(
        "ackd.engine.cluster.members", "View.taken", lambda _: lambda _: set()
    ),
    "a pause holds nobody back": Inside(
        "ackd.push.call_limit", "CallLimit.wait_s", lambda _: lambda *_: 0.0
    ),
    "nobody is away": Inside(
        "ackd.push.call_limit", "CallLimit.unreachable", lambda _: lambda *_: False
    ),
    "the breaker opens after the settle": Inside(
        "ackd.push.push_delivery", "PushDelivery.deliver", _after_the_settle
    ),
    "who is back gets as many calls as before": Inside(
        "ackd.push.call_limit", "CallLimit.unreachable", _all_at_once
    ),
    "a call keeps no lease": Inside(
        "ackd.push.push_delivery", "PushDelivery._extend", lambda _: _idle
    ),
    "what an application refuses is done": Inside(
        "ackd.push.push_delivery", "judge", _refused_is_done
    ),
    "a call without an answer is done": Inside(
        "ackd.push.push_delivery", "_after", _unknown_is_done
    ),
    "each owner has the whole bound": Inside(
        "ackd.engine.cluster.membership", "InFlightShare.room", _bound_of_all
    ),
}
"""By the name of the mistake."""
