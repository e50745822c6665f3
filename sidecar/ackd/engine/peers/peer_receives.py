"""The asking half: receives of this sidecar's application wait at the owners of partitions.

A receive waits at one owner at a time. When another owner has messages, the receive moves: this
sidecar cancels the request, waits for the answer to it, and then asks the other owner. Thus no
receive gets more than it asked for. If an answer brings messages that no receive here takes, this
sidecar sends `PeerLost`, and the owner gives their leases back (R21).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from ackd.api.messages import Delivery
from ackd.core.peer_choice import PeerChoice
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.delivery.waiters import Waiter
from ackd.engine.peers.answer_reports import AnswerReports
from ackd.engine.peers.frames import (
    MESSAGES_MAX,
    PeerAnswer,
    PeerAsk,
    PeerCancel,
    PeerReady,
    PeerWatch,
    unpack_deliveries,
    write_frame,
)
from ackd.ports import Clock, PeerLink

ANSWER_BYTES_MAX = 8 << 20
"""The most bytes of messages in one answer. Its first message may be longer."""
MARGIN_MS = 30
"""The owner's wait ends this much before that of the receive, so that its answer is in time."""
AT_ONCE_MS = 500
"""A receive whose own wait is over, or that has none, waits for an owner that has messages no
longer than this.
"""
HOLDER_MAX = 1024


class Links(Protocol):
    """What is asked of `ackd.engine.peers.links.PeerLinks`."""

    def to(self, name: str) -> PeerLink | None: ...
    def all(self) -> Iterable[PeerLink]: ...
    def want(self, name: str, address: str) -> None: ...
    def number(self) -> int: ...


class Receives(Protocol):
    """The receives of this sidecar's application."""

    def most(self, waiter: Waiter) -> int: ...
    def bring(self, waiter: Waiter, deliveries: list[Delivery]) -> bool: ...
    def nothing_elsewhere(self, waiter: Waiter) -> None: ...
    def failed(self, count: int) -> None: ...


class _PeerRequest:
    """A request at an owner. `cancelled`: its receive has gone, or will ask another owner once this
    one has answered.
    """

    __slots__ = ("cancelled", "lease_ms", "link", "owner", "sent_ms", "timer", "waiter")

    def __init__(
        self, waiter: Waiter, owner: str, link: PeerLink, sent_ms: int, lease_ms: int
    ) -> None:
        self.waiter = waiter
        self.owner = owner
        self.link = link
        self.sent_ms = sent_ms
        self.lease_ms = lease_ms
        self.cancelled = False
        self.timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class PeerReceives:
    """Receives of one subscription that wait at other sidecars."""

    def __init__(
        self,
        state: SubscriptionState,
        clock: Clock,
        links: Links,
        receives: Receives,
    ) -> None:
        self._state = state
        self._clock = clock
        self._links = links
        self._receives = receives
        self._choice = PeerChoice()
        self._addresses: Mapping[str, str] = {}
        self._owners: Collection[str] = ()
        self._ready: Mapping[str, int] = {}
        self._asked: dict[int, _PeerRequest] = {}
        self._idle: dict[Waiter, None] = {}
        self._reports = AnswerReports(state.name, clock)
        self._unwatched: dict[PeerLink, None] = dict.fromkeys(links.all())

    def inherit(self, before: PeerReceives) -> None:
        """Take over the state of `before`, as its subscription is built again."""
        self._reports = before._reports

    # --- owners

    def seen(
        self,
        addresses: Mapping[str, str],
        owners: Collection[str],
        ready: Mapping[str, int],
        *,
        whole: bool,
    ) -> None:
        """Take in what a heartbeat has read: the addresses of all other living sidecars, which of
        them own partitions, and how many messages are ready at whom; not `whole`: at some of those.
        The same object says nothing new.
        """
        self._addresses = addresses
        self._reports.tell_all()
        if owners is not self._owners:
            self._owners = owners
            self._choice.owners(owners)
        before, self._ready = self._ready, ready
        new = ready is not before
        if new:
            self._choice.seen(ready, whole=whole)
        for name in {asked.owner for asked in self._asked.values()} - addresses.keys():
            link = self._links.to(name)
            if link is not None:
                link.close()  # it is silent: receives that wait there go elsewhere
        for number, asked in self._asked.items():
            if asked.owner not in owners or self._receives.most(asked.waiter) <= 0:
                self._cancel(number, asked)
        for name in self._reports.unheard():
            if name in addresses:  # it may be silent for a while, and come back
                self._links.want(name, addresses[name])
        self.ask_idle()
        for name, count in ready.items() if new else ():
            if name in before:  # ready for a heartbeat: no receive there wants them
                self._move(name, count)

    # --- what the dispatcher asks (`ackd.engine.delivery.elsewhere`)

    def wait(self, waiter: Waiter) -> bool:
        if waiter.elsewhere:
            return True
        if not self._may_ask(waiter):
            return False
        asked = self._ask(waiter)
        if not asked and not self._left_ms(waiter):
            self._idle.pop(waiter, None)
        return asked

    def reached(self) -> bool:
        return any(self._links.to(name) is not None for name in self._owners)

    def end(self, waiter: Waiter) -> None:
        self._idle.pop(waiter, None)
        number = waiter.elsewhere
        waiter.asked_at(0)
        asked = self._asked.get(number)
        if asked is not None:
            self._cancel(number, asked)

    # --- asking

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    @staticmethod
    def _left_ms(waiter: Waiter, more_ms: int = 0) -> int:
        left_s = waiter.end_s - asyncio.get_running_loop().time()
        return max(int(left_s * 1000) + more_ms, 0)

    def _may_ask(self, waiter: Waiter) -> bool:
        """Whether an owner's answer can come before the receive has to be answered."""
        if self._left_ms(waiter) > MARGIN_MS:
            return True
        return self._left_ms(waiter, AT_ONCE_MS) > 0 and self._choice.any_ready(self._now_ms())

    def _ask(self, waiter: Waiter) -> bool:
        """Ask the best owner, or queue the receive until there is one. Returns whether it asked."""
        now_ms, most = self._now_ms(), self._receives.most(waiter)
        owner = self._choice.best(now_ms) if most > 0 else None
        link = None if owner is None else self._links.to(owner)
        if owner is not None and link is None:
            self._choice.skip(owner, now_ms)
            self._links.want(owner, self._addresses[owner])
            owner = self._choice.best(now_ms, lambda name: self._links.to(name) is not None)
            link = None if owner is None else self._links.to(owner)
        if owner is None or link is None:
            self._idle[waiter] = None
            return False
        self._idle.pop(waiter, None)
        self._watch()
        request, number = waiter.request, self._links.number()
        lease_ms = request.lease_ms or self._state.settings.lease_ms
        asked = _PeerRequest(waiter, owner, link, now_ms, lease_ms)
        self._asked[number] = asked
        waiter.asked_at(number)
        self._choice.began(owner, most)
        bytes_max = ANSWER_BYTES_MAX
        if request.bytes_max is not None:
            bytes_max = min(request.bytes_max, bytes_max)
        wait_ms = max(self._left_ms(waiter) - MARGIN_MS, 0)
        holder, name = request.holder[:HOLDER_MAX], self._state.name
        most, taken = min(most, MESSAGES_MAX), self._reports.with_request(link)
        ask = PeerAsk(name, number, most, bytes_max, lease_ms, wait_ms, holder, taken)
        link.send(write_frame(ask))
        if not wait_ms:
            late_s = self._left_ms(waiter, AT_ONCE_MS) / 1000
            loop = asyncio.get_running_loop()
            asked.timer = loop.call_later(late_s, self._overdue, number)
        return True

    def _cancel(self, number: int, asked: _PeerRequest) -> None:
        """Ask the owner to answer at once. Messages of that answer go to the receive if it still
        waits, or else back to the owner.
        """
        asked.stop_timer()
        if not asked.cancelled:
            asked.cancelled = True
            asked.link.send(write_frame(PeerCancel(self._state.name, number)))

    def _overdue(self, number: int) -> None:
        """Called when an owner has not answered within the `AT_ONCE_MS` after a receive's wait."""
        asked = self._asked.get(number)
        if asked is not None and asked.waiter.elsewhere == number:
            self.end(asked.waiter)
            self._receives.nothing_elsewhere(asked.waiter)

    def _again(self, waiter: Waiter) -> None:
        """Let a receive that got nothing from its owner ask another one."""
        if not waiter.waits or waiter.grants or waiter.elsewhere:
            return
        if not self._may_ask(waiter) or not self._ask(waiter):
            self._receives.nothing_elsewhere(waiter)

    def ask_idle(self) -> None:
        """Let queued receives ask, as an owner may have messages now."""
        for waiter in list(self._idle):
            if not waiter.waits or waiter.grants or waiter.elsewhere:
                self._idle.pop(waiter, None)
                continue
            if not self._ask(waiter):
                return  # no owner may be asked now

    # --- what owners say

    def answered(self, link: PeerLink, answer: PeerAnswer) -> None:
        asked = self._asked.get(answer.number)
        if asked is None or asked.link is not link:
            self._refuse(link, answer)
            return
        del self._asked[answer.number]
        asked.stop_timer()
        waiter, owner, now_ms = asked.waiter, asked.owner, self._now_ms()
        if waiter.elsewhere == answer.number:
            waiter.asked_at(0)
        self._choice.ended(owner)
        # The owner asked the store at least `waited_ms` after this sidecar sent the request, so the
        # leases last at least until then.
        until_ms = asked.sent_ms + answer.waited_ms + asked.lease_ms
        if not answer.messages:
            self._choice.empty(owner)
            if not asked.cancelled and self._left_ms(waiter) > MARGIN_MS:
                self._choice.skip(owner, now_ms)  # it ended the wait early
            self._again(waiter)
            return
        self._choice.gave(owner, answer.ready)
        if now_ms < until_ms and self._receives.bring(waiter, unpack_deliveries(answer.messages)):
            self._reports.taken(link, [answer.number])
        else:
            self._refuse(link, answer)
            self._again(waiter)
        if answer.ready and self._idle:
            self.ask_idle()

    def _refuse(self, link: PeerLink, answer: PeerAnswer) -> None:
        if answer.messages:
            self._reports.lost(link, [answer.number])

    def ready(self, link: PeerLink, ready: PeerReady) -> None:
        """Let a receive ask an owner that has messages which no receive there waits for."""
        self._choice.ready(link.name, ready.ready)
        self.ask_idle()
        if not self._asked:
            self._unwatched[link] = None
            link.send(write_frame(PeerWatch(self._state.name, on=False)))
            return
        self._move(link.name, ready.ready)

    def lost_lately(self) -> Iterable[tuple[str, list[int]]]:
        """Return the owners' processes whose link has closed lately, with the requests whose
        answers are lost.
        """
        return self._reports.lost_lately()

    def expired(self, count: int) -> None:
        """Count expired leases that this sidecar's application got from another sidecar."""
        self._receives.failed(count)

    def _move(self, owner: str, ready: int) -> None:
        """Let receives that wait at other owners ask this one, for up to `ready` messages.

        Each request is cancelled where it waits; its receive asks again when that is answered.
        """
        if any(a.owner == owner and not a.cancelled for a in self._asked.values()):
            return  # receives that wait there already will get them
        for number, asked in list(self._asked.items()):
            if ready <= 0:
                return
            waiter = asked.waiter
            if asked.cancelled or not waiter.waits or waiter.elsewhere != number:
                continue
            ready -= waiter.request.max
            self._cancel(number, asked)

    def _watch(self) -> None:
        """Ask every linked sidecar to report ready messages, as a receive waits."""
        while self._unwatched:
            link, _ = self._unwatched.popitem()
            link.send(write_frame(PeerWatch(self._state.name, on=True)))

    def waits(self) -> bool:
        """Whether a receive of this sidecar waits at an owner, or for one."""
        return bool(self._asked or self._idle)

    def unwatch(self, link: PeerLink) -> None:
        """Tell the other side that no receive here waits, so that it reports no ready messages."""
        if link not in self._unwatched:
            self._unwatched[link] = None
            link.send(write_frame(PeerWatch(self._state.name, on=False)))

    # --- links

    def opened(self, link: PeerLink) -> None:
        self._unwatched[link] = None
        self._reports.opened(link)
        self._choice.reachable(link.name)
        self.ask_idle()
        if self._asked:
            self._watch()

    def closed(self, link: PeerLink) -> None:
        """Note that requests on this link are lost, and let their receives ask other owners."""
        self._unwatched.pop(link, None)
        gone = [(n, asked) for n, asked in self._asked.items() if asked.link is link]
        name, now_ms = link.name, self._now_ms()
        if not self._reports.closed(link, [number for number, _ in gone]):
            return
        other = self._links.to(name)
        if other is not None:
            self._reports.opened(other)
        elif name in self._addresses:
            self._choice.skip(name, now_ms)
            self._links.want(name, self._addresses[name])
        for number, asked in gone:
            del self._asked[number]
            asked.stop_timer()
            self._choice.ended(asked.owner)
            if asked.waiter.elsewhere == number:
                asked.waiter.asked_at(0)
        for _, asked in gone:
            self._again(asked.waiter)
