"""Share one subscription's messages between sidecars: connects the asking half, the owner's half
and the questions, and tells them which other sidecars live.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from ackd.api.messages import Delivery
from ackd.core.lease_token import Token
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.members import LostAnswers
from ackd.engine.cluster.membership import Membership
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.waiters import Waiter
from ackd.engine.delivery.waits_elsewhere import WaitsElsewhere
from ackd.engine.peers.frames import PeerExpired, read_delivery, write_delivery, write_frame
from ackd.engine.peers.links import PeerLinks, Sides
from ackd.engine.peers.owning import PeerOffers
from ackd.engine.peers.peer_receives import PeerReceives
from ackd.engine.peers.questions import PeerQuestions
from ackd.engine.peers.seen_owners import SeenOwners
from ackd.engine.settlement.notes import ProgressNotes

LEASED = "leased"
"""The kind of question that asks for the message of a lease. Its body is the lease."""
LOOK = "look"
"""The kind of question that has nothing to answer: the one who asks has given something away."""
ASK_MS = 1_000


class PeerSharing:
    """Implements `ackd.engine.delivery.elsewhere.Elsewhere`.

    `release` gives back leases on partitions of other sidecars. `brought` is called with the leases
    on such partitions that the application here gets, and `failed` with the number of those that
    have expired.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        membership: Membership,
        dispatcher: Dispatcher,
        waits: WaitsElsewhere,
        notes: ProgressNotes,
        links: PeerLinks,
        release: Callable[[Sequence[str]], None],
        brought: Callable[[Iterable[str]], None],
        failed: Callable[[int], None],
    ) -> None:
        self._name = state.name
        self._membership = membership
        self._waits = waits
        self._links = links
        self._release = release
        self._brought = brought
        self._failed = failed
        self._seen = SeenOwners()
        self._asking = PeerReceives(state, context.clock, links, self)
        self._owning = PeerOffers(state, context, dispatcher, notes, links.room)
        self.questions = PeerQuestions(state.name, links)
        self.questions.on(LOOK, self._look)
        self._beat = state.signals.beat
        links.register(state.name, Sides(self._asking, self._owning, self.questions))

    def inherit(self, before: PeerSharing) -> None:
        """Take over the state of `before`, as its subscription is built again."""
        self._asking.inherit(before._asking)
        self._owning.inherit(before._owning)

    def others_seen(self) -> None:
        """Take in which sidecars live and what they own, after a heartbeat has read that."""
        seen = self._seen
        seen.look(self._membership.alive, self._membership.ready_elsewhere())
        self._lost_by_others(seen.lost)
        for name in self._membership.successors():
            self.questions.tell(name, LOOK)
        if self._asking.waits():
            self._membership.want_ready()
        self.questions.seen(seen.addresses)
        self._asking.seen(seen.addresses, seen.owners, seen.ready, whole=seen.whole)
        self._links.close_idle()
        me, lost = self._links.instance, self._asking.lost_lately()
        self._membership.lost_answers([LostAnswers(owner, me, numbers) for owner, numbers in lost])

    async def _look(self, _: bytes) -> bytes:
        """Another sidecar leaves, and this one must take what it has given away: do not wait for
        the next heartbeat.
        """
        self._beat()
        return b""

    def _lost_by_others(self, lost: Iterable[LostAnswers]) -> None:
        """Give back what another sidecar has lost, though there may be no link to it (R21)."""
        for each in lost:
            if each.owner == self._links.instance:
                self._owning.lost_by(each.asker, each.numbers)

    def expired(self, counts: Mapping[str, int]) -> None:
        """Tell other sidecars how many leases of their applications have expired here."""
        for name, count in counts.items():
            link = self._links.to(name)
            if link is not None:
                link.send(write_frame(PeerExpired(self._name, count)))

    def look_again(self) -> None:
        """Let receives ask owners again, for example after a pause of the subscription."""
        self._asking.ask_idle()

    async def leased_elsewhere(self, token: Token, lease: str) -> Delivery | None:
        """Ask for the message of a lease: the owner of its partition, then the others, which may
        have its copy.
        """
        end = f":{token.topic_id.hex()}:{token.partition}"
        first: list[str] = []
        others: list[str] = []
        for member in self._membership.alive:
            if any(text.endswith(end) for text in member.owned):
                first.append(member.name)
            elif member.owned:
                others.append(member.name)
        for names in (first, others):
            replies, _ = await self.questions.ask_all(names, LEASED, lease.encode(), ASK_MS)
            for reply in filter(None, replies.values()):
                return read_delivery(reply)
        return None

    def answer_leased(self, find: Callable[[str], Awaitable[Delivery | None]]) -> None:
        """Answer other sidecars that ask for the message of a lease, with what `find` returns."""

        async def answer(lease: bytes) -> bytes:
            found = await find(lease.decode())
            return b"" if found is None else write_delivery(found)

        self.questions.on(LEASED, answer)

    def decline(self) -> None:
        """Give other sidecars nothing any more: they ask elsewhere."""
        self._owning.decline()

    async def stop(self) -> None:
        """Stop answering other sidecars."""
        await self.questions.stop()
        await self._owning.stop()

    # --- what the dispatcher asks

    def wait(self, waiter: Waiter) -> bool:
        self._membership.want_ready()
        return self._asking.wait(waiter)

    def end(self, waiter: Waiter) -> None:
        self._asking.end(waiter)

    def reached(self) -> bool:
        return self._asking.reached()

    def surplus(self) -> None:
        self._owning.surplus()

    def give_back(self, leases: Sequence[str]) -> None:
        self._release(leases)

    # --- what answers bring

    def most(self, waiter: Waiter) -> int:
        return self._waits.most(waiter)

    def bring(self, waiter: Waiter, deliveries: list[Delivery]) -> bool:
        """Answer a receive with messages of another sidecar, if it still waits."""
        if not self._waits.bring(waiter, deliveries):
            return False
        self._brought(each.lease for each in deliveries)
        return True

    def failed(self, count: int) -> None:
        self._failed(count)

    def nothing_elsewhere(self, waiter: Waiter) -> None:
        self._waits.nothing(waiter)
