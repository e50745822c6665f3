"""The owner's half: receives of other sidecars wait in this sidecar's queue, among its own.

The dispatcher treats both alike: it serves them in the order of their arrival, and the store grants
both the same leases. The owner remembers the leases of each answer until the other sidecar says
what happened to them. After `PeerTaken` it forgets them. After `PeerLost` it gives them back (R21).
If the other sidecar dies before it says either, the leases expire at their deadlines, as the leases
of any application whose sidecar was killed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from ackd.api.messages import Delivery, ReceiveRequest
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.base.tasks import Tasks
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.handed_leases import RELAYED
from ackd.engine.delivery.waiters import Waiter
from ackd.engine.peers.frames import PeerAnswer, PeerAsk, PeerReady, pack_deliveries, write_frame
from ackd.engine.settlement.notes import ProgressNotes
from ackd.errors import AckdError, StoreError
from ackd.ports import PeerLink

OFFERS_MAX = 10_000
"""Requests of other sidecars that wait here plus answers that are not confirmed, at most, of each
subscription (I8). Further requests are answered without messages.
"""
UNSENT_MAX = 16 << 20
"""While more bytes than this are unsent on a link, requests that come on it wait."""


class _Offer:
    """One request of another sidecar. `deliveries`: the messages of its answer. `until_ms`: when
    their leases end.
    """

    __slots__ = ("came_s", "deliveries", "link", "number", "until_ms", "waiter")

    def __init__(self, link: PeerLink, number: int, waiter: Waiter, came_s: float) -> None:
        self.link = link
        self.number = number
        self.waiter = waiter
        self.came_s = came_s
        self.deliveries: list[Delivery] = []
        self.until_ms = 0


class PeerOffers:
    """Gives messages of one subscription to other sidecars."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        dispatcher: Dispatcher,
        notes: ProgressNotes,
    ) -> None:
        self._state = state
        self._context = context
        self._dispatcher = dispatcher
        self._notes = notes
        self._offers: dict[tuple[str, int], _Offer] = {}
        self._sent: dict[tuple[str, int], _Offer] = {}
        self._held: dict[PeerLink, deque[PeerAsk]] = {}
        self._watchers: dict[PeerLink, bool] = {}
        # Requests that the other sidecar reported as lost before they came, on another link.
        self._void: dict[tuple[str, int], None] = {}
        self._tasks = Tasks(f"peers.{state.name}", context.vitals)

    def inherit(self, before: PeerOffers) -> None:
        """Take over the state of `before`, as its subscription is built again."""
        self._sent, self._watchers, self._void = before._sent, before._watchers, before._void

    async def stop(self) -> None:
        """Answer all waiting requests without messages, and end what is under way."""
        self.decline()
        await self._tasks.stop()

    def decline(self) -> None:
        """Answer all waiting requests without messages, and so all that come later: the dispatcher
        lets nobody of other sidecars in any more.
        """
        offers, self._offers = self._offers, {}
        for offer in offers.values():
            self._dispatcher.leave(offer.waiter)
            self._send(offer.link, offer.number, 0, [])
        for link in list(self._held):
            self.writable(link)

    # --- requests

    def asked(self, link: PeerLink, ask: PeerAsk) -> None:
        if link in self._watchers:
            self._watchers[link] = False
        held = self._held.get(link)
        if link.unsent > UNSENT_MAX and (held is None or len(held) < OFFERS_MAX):
            self._held.setdefault(link, deque()).append(ask)
            return
        key = link.instance, ask.number
        if key in self._offers or key in self._sent or key in self._void:
            return
        self._purge()
        waiter = self._enter(link, ask)
        if waiter is None:
            self._send(link, ask.number, 0, [])
            return
        offer = _Offer(link, ask.number, waiter, asyncio.get_running_loop().time())
        self._offers[key] = offer
        waiter.future.add_done_callback(partial(self._answered, offer))

    def _enter(self, link: PeerLink, ask: PeerAsk) -> Waiter | None:
        """Queue the request as a receive of this sidecar; None if it takes no more."""
        most_ms = self._state.settings.lease_ms_max
        if len(self._offers) + len(self._sent) >= OFFERS_MAX or not 0 < ask.lease_ms <= most_ms:
            return None
        request = ReceiveRequest(
            max=ask.max,
            wait_ms=ask.wait_ms,
            lease_ms=ask.lease_ms,
            bytes_max=ask.bytes_max,
            holder=f"{RELAYED}{link.name}: {ask.holder}",
        )
        try:
            return self._dispatcher.enter(request, relayed=True)
        except AckdError:
            return None

    def _purge(self) -> None:
        """Forget unconfirmed answers whose leases have ended."""
        now_ms = self._context.clock.monotonic_ms()
        while self._sent:
            key = next(iter(self._sent))
            if self._sent[key].until_ms > now_ms:
                return
            del self._sent[key]

    def _answered(self, offer: _Offer, future: asyncio.Future[list[Delivery]]) -> None:
        """Called when the dispatcher has served the request or ended its wait."""
        if not self._waits(offer):
            return
        deliveries = [] if future.cancelled() or future.exception() else future.result()
        if deliveries and offer.waiter.noted:
            self._tasks.start(self._annotate(offer, deliveries), "notes", ends=True)
        else:
            self._answer(offer, deliveries)

    async def _annotate(self, offer: _Offer, deliveries: list[Delivery]) -> None:
        try:
            await self._notes.attach(deliveries)
        except StoreError:
            if self._waits(offer):
                self._dispatcher.give_back(deliveries)
            deliveries = []
        self._answer(offer, deliveries)

    def _waits(self, offer: _Offer) -> bool:
        """Whether the request still needs an answer. If not, it was given up, and the dispatcher
        gives its leases back.
        """
        return self._offers.get((offer.link.instance, offer.number)) is offer

    def _answer(self, offer: _Offer, deliveries: list[Delivery]) -> None:
        if not self._waits(offer):
            return
        key = offer.link.instance, offer.number
        del self._offers[key]
        waited_ms = max(int((offer.waiter.asked_s - offer.came_s) * 1000), 0)
        if deliveries:
            lease_ms = offer.waiter.request.lease_ms or 0
            offer.deliveries = deliveries
            offer.until_ms = self._context.clock.monotonic_ms() + lease_ms
            self._sent[key] = offer
        self._send(offer.link, offer.number, waited_ms, deliveries)

    def _send(
        self, link: PeerLink, number: int, waited_ms: int, deliveries: list[Delivery]
    ) -> None:
        ready, name = self._dispatcher.ready_count(), self._state.name
        link.send(
            write_frame(PeerAnswer(name, number, waited_ms, ready, pack_deliveries(deliveries)))
        )

    # --- what the other sidecar reports

    def taken(self, link: PeerLink, number: int) -> None:
        self._sent.pop((link.instance, number), None)

    def cancelled(self, link: PeerLink, number: int) -> None:
        """Answer at once, without messages. The other side waits for an answer, even if this
        sidecar no longer knows the request.
        """
        held = self._held.get(link)
        if held is not None:
            self._held[link] = deque(ask for ask in held if ask.number != number)
        offer = self._offers.pop((link.instance, number), None)
        if offer is not None:
            self._dispatcher.leave(offer.waiter)
        self._send(link, number, 0, [])

    def lost(self, link: PeerLink, numbers: list[int]) -> None:
        """Give back the leases of these requests: no application has got, or will get, them."""
        now_ms = self._context.clock.monotonic_ms()
        for number in numbers:
            key = link.instance, number
            waiting, sent = self._offers.pop(key, None), self._sent.pop(key, None)
            if waiting is not None:
                self._dispatcher.leave(waiting.waiter)
            elif sent is None:
                self._void[key] = None
            elif now_ms < sent.until_ms:
                self._dispatcher.give_back(sent.deliveries)
        while len(self._void) > OFFERS_MAX:
            del self._void[next(iter(self._void))]

    # --- messages that nobody waits for

    def watched(self, link: PeerLink, *, on: bool) -> None:
        if on:
            self._watchers[link] = False
        else:
            self._watchers.pop(link, None)
        self.surplus()

    def surplus(self) -> None:
        """Tell watching sidecars that messages are ready, at most one sidecar for each message.

        Each is told once; it is told again only after it has asked, or has watched anew.
        """
        if not self._watchers:
            return
        ready = self._dispatcher.ready_count()
        for link in [link for link, notified in self._watchers.items() if not notified][:ready]:
            self._watchers[link] = True
            link.send(write_frame(PeerReady(self._state.name, ready)))

    # --- links

    def serves(self, link: PeerLink) -> bool:
        """Whether the other sidecar watches for messages here, or one of its receives waits."""
        if link in self._watchers or link in self._held:
            return True
        return any(offer.link is link for offer in self._offers.values())

    def writable(self, link: PeerLink) -> None:
        held = self._held.pop(link, None)
        while held:
            self.asked(link, held.popleft())

    def closed(self, link: PeerLink) -> None:
        self._held.pop(link, None)
        self._watchers.pop(link, None)
        for key, offer in list(self._offers.items()):
            if offer.link is link:
                del self._offers[key]
                self._dispatcher.leave(offer.waiter)
