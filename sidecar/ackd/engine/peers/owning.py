"""The owner's half: receives of other sidecars wait in this sidecar's queue, among its own.

The dispatcher treats both alike: it serves them in the order of their arrival, and the store grants
both the same leases. The owner remembers the tokens of each answer until the other sidecar says
what happened to them. After `PeerTaken` it forgets them. After `PeerLost` it gives them back (R21).
If the other sidecar dies before it says either, the leases expire at their deadlines, as the leases
of any application whose sidecar was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ackd.api.messages import Delivery, ReceiveRequest
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.base.tasks import Tasks
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.handed_leases import RELAYED
from ackd.engine.delivery.waiters import Waiter
from ackd.engine.peers.frames import PeerAnswer, PeerAsk, PeerReady, pack_deliveries, write_frame
from ackd.engine.peers.link_room import LinkRoom, PlaceOnLink
from ackd.engine.peers.sent_answers import AnswerKey, SentAnswer, SentAnswers
from ackd.engine.settlement.notes import ProgressNotes
from ackd.errors import AckdError, StoreError
from ackd.ports import PeerLink
from ackd.telemetry.metrics import FOR_PEERS

OFFERS_MAX = 10_000
"""Requests of other sidecars that wait here, at most, of each subscription (I8). Further requests
are answered without messages.
"""
OVER_MAX = 20_000
"""Requests that are known to be over, of each subscription (I8), some 200 bytes each."""


class _Offer:
    """One request that waits."""

    __slots__ = ("came_s", "key", "link", "place", "waiter")

    def __init__(self, link: PeerLink, number: int, waiter: Waiter, place: PlaceOnLink) -> None:
        self.link = link
        self.key = AnswerKey(link.instance, number)
        self.waiter = waiter
        self.place = place
        self.came_s = asyncio.get_running_loop().time()


class PeerOffers:
    """Gives messages of one subscription to other sidecars."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        dispatcher: Dispatcher,
        notes: ProgressNotes,
        room: Callable[[PeerLink], LinkRoom],
    ) -> None:
        self._state = state
        self._context = context
        self._dispatcher = dispatcher
        self._notes = notes
        self._room = room
        self._offers: dict[AnswerKey, _Offer] = {}
        self._sent = SentAnswers()
        self._watchers: dict[PeerLink, bool] = {}
        # Requests that were answered or lost, should they come again, or after that was said (on
        # another link): nobody waits for what they would get.
        self._over: dict[AnswerKey, None] = {}
        self._tasks = Tasks(f"peers.{state.name}", context.vitals)

    def inherit(self, before: PeerOffers) -> None:
        """Take over the state of `before`, as its subscription is built again."""
        self._sent, self._watchers, self._over = before._sent, before._watchers, before._over

    async def stop(self) -> None:
        """Answer all waiting requests without messages, and end what is under way."""
        self.decline()
        await self._tasks.stop()

    def decline(self) -> None:
        """Answer all waiting requests without messages, and so all that come later: the dispatcher
        lets nobody of other sidecars in any more.
        """
        for offer in list(self._offers.values()):
            self._leave(offer)
            self._send(offer.link, offer.key.number, 0, [])

    # --- requests

    def asked(self, link: PeerLink, ask: PeerAsk) -> None:
        for number in ask.taken:
            self.taken(link, number)
        key = AnswerKey(link.instance, ask.number)
        if key in self._offers or key in self._sent or key in self._over:
            return
        place = PlaceOnLink(self._room(link))
        waiter = self._enter(link, ask, place)
        if waiter is None:
            self._ended(key)
            self._send(link, ask.number, 0, [])
            return
        offer = self._offers[key] = _Offer(link, ask.number, waiter, place)
        waiter.future.add_done_callback(partial(self._answered, offer))

    def _enter(self, link: PeerLink, ask: PeerAsk, place: PlaceOnLink) -> Waiter | None:
        """Wait as a receive of this sidecar; None if it can't take any."""
        most_ms = self._state.settings.lease_ms_max
        if len(self._offers) >= OFFERS_MAX or not 0 < ask.lease_ms <= most_ms:
            return None
        request = ReceiveRequest(
            max=ask.max,
            wait_ms=ask.wait_ms,
            lease_ms=ask.lease_ms,
            bytes_max=ask.bytes_max,
            holder=f"{RELAYED}{link.name}: {ask.holder}",
        )
        try:
            return self._dispatcher.enter(request, relay=place)
        except AckdError:
            return None

    def _leave(self, offer: _Offer) -> None:
        """Nobody waits for it any more: what is granted to it goes back."""
        del self._offers[offer.key]
        self._ended(offer.key)
        self._dispatcher.leave(offer.waiter)
        offer.place.end()

    def _ended(self, key: AnswerKey) -> None:
        """A process uses a number once: who comes with this one again gets nothing."""
        self._over[key] = None
        if len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]

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
        return self._offers.get(offer.key) is offer

    def _answer(self, offer: _Offer, deliveries: list[Delivery]) -> None:
        if not self._waits(offer):
            return
        del self._offers[offer.key]
        self._ended(offer.key)
        waited_ms = max(int((offer.waiter.asked_s - offer.came_s) * 1000), 0)
        if deliveries:
            now_ms, lease_ms = self._context.clock.monotonic_ms(), offer.waiter.request.lease_ms
            leases = [each.lease for each in deliveries]
            self._sent.forget_ended(now_ms)
            answer = SentAnswer(offer.link.name, leases, now_ms + (lease_ms or 0))
            self._sent.add(offer.key, answer)
        self._send(offer.link, offer.key.number, waited_ms, deliveries)
        offer.place.end()

    def _send(
        self, link: PeerLink, number: int, waited_ms: int, deliveries: list[Delivery]
    ) -> None:
        ready, name = self._dispatcher.ready_count(), self._state.name
        link.send(
            write_frame(PeerAnswer(name, number, waited_ms, ready, pack_deliveries(deliveries)))
        )
        if link in self._watchers:
            self._watchers[link] = bool(deliveries) and ready > 0

    # --- what the other sidecar reports

    def taken(self, link: PeerLink, number: int) -> None:
        found = self._sent.take(AnswerKey(link.instance, number))
        if found is not None:
            served = self._context.metrics.served.at(self._state.name, FOR_PEERS)
            served.inc(len(found.leases))

    def cancelled(self, link: PeerLink, number: int) -> None:
        """Answer at once, without messages. The other side waits for an answer, even if this
        sidecar no longer knows the request.
        """
        offer = self._offers.get(AnswerKey(link.instance, number))
        if offer is not None:
            self._leave(offer)
        self._send(link, number, 0, [])

    def lost(self, link: PeerLink, numbers: list[int]) -> None:
        self.lost_by(link.instance, numbers)

    def lost_by(self, instance: str, numbers: list[int]) -> None:
        """Give back the leases of these requests of a process: no application has got, or will get,
        them.
        """
        now_ms = self._context.clock.monotonic_ms()
        for number in numbers:
            key = AnswerKey(instance, number)
            waiting, sent = self._offers.get(key), self._sent.take(key)
            if waiting is not None:
                self._leave(waiting)
            elif sent is None:
                self._ended(key)
            elif now_ms < sent.until_ms:
                self._dispatcher.give_back_leases(sent.leases)

    # --- messages that nobody waits for

    def watched(self, link: PeerLink, *, on: bool) -> None:
        if on:
            self._watchers[link] = False
        else:
            self._watchers.pop(link, None)
        self.surplus()

    def surplus(self) -> None:
        """Tell watching sidecars that messages are ready, at most one sidecar for each message.

        Each is told once, here or by an answer with messages; it is told again only after an answer
        without, or with none left, or if it has watched anew.
        """
        untold = [link for link, knows in self._watchers.items() if not knows]
        if not untold:
            return
        ready = self._dispatcher.ready_count()
        for link in untold[:ready]:
            self._watchers[link] = True
            link.send(write_frame(PeerReady(self._state.name, ready)))

    # --- links

    def serves(self, link: PeerLink) -> bool:
        """Whether the other sidecar watches for messages here, or one of its receives waits."""
        return link in self._watchers or any(each.link is link for each in self._offers.values())

    def opened(self, link: PeerLink) -> None:
        self._sent.forget_others(link.name, link.instance)

    def writable(self, link: PeerLink) -> None:
        """There is room for answers again."""
        self._dispatcher.has_room(link)

    def closed(self, link: PeerLink) -> None:
        self._watchers.pop(link, None)
        for offer in [each for each in self._offers.values() if each.link is link]:
            self._leave(offer)
        self._dispatcher.closed(link)
