"""This sidecar as a member: what it says of itself in heartbeats, and what it has heard of others.

The heartbeat keeps this true. Whoever grants, takes over or repairs only reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ackd.engine.base.context import Context
from ackd.engine.base.state import SubscriptionState
from ackd.engine.cluster.in_flight_share import InFlightShare
from ackd.engine.cluster.members import UNCONFIRMED_MS, MemberNote, View, behind
from ackd.engine.cluster.settings_agreement import SettingsDrift
from ackd.engine.cluster.store_clock import StoreClock
from ackd.ports import Member

POLL_MS = 20
HANDED_MAX = 10_000


class Membership:
    """One subscription's view of its sidecars.

    `replayed_run`: the server run on which this sidecar has repeated all that was confirmed (R10).
    `grace_until_ms` (monotonic): no lease ends before that (R23).
    """

    def __init__(self, state: SubscriptionState, context: Context, note: MemberNote) -> None:
        self._state = state
        self._context = context
        self.note = note
        self.view = View(context.identity, 0)
        self.share = InFlightShare()
        self.drift = SettingsDrift(state.name, note.settings)
        self.clock = StoreClock()
        self.replayed_run = ""
        self.grace_until_ms = 0
        self._inherited: dict[str, None] = {}
        self._confirmed_ms = 0
        self._heard_ms = 0

    # --- kept true by the heartbeat

    def registered(self, boot: int, earlier: Iterable[Member]) -> None:
        """This sidecar has a boot number. `earlier`: entries of before, its own name's among them,
        whose ledgers it carries on until somebody owns them.
        """
        name = self._context.identity
        self._inherited = dict.fromkeys(
            text for each in earlier if each.name == name for text in behind(each)
        )
        self.view = View(name, boot)
        self._heard_ms = self._context.clock.monotonic_ms()
        # Nothing is granted before the others can see this sidecar.
        self._confirmed_ms = self._heard_ms - UNCONFIRMED_MS
        self.replayed_run = self._context.store.run

    def confirmed_at(self, sent_ms: int) -> bool:
        """The store took the heartbeat that was sent at `sent_ms`; True if granting begins again
        with it.
        """
        again = not self.confirmed()
        self._confirmed_ms = self._heard_ms = sent_ms
        return again

    def describe(self, owned: Iterable[str]) -> None:
        """Bring the note up to date: ledgers that were given away, until somebody owns them."""
        self.note.run = self.replayed_run
        gone = self.view.taken().union(owned)
        for text in gone:
            self._inherited.pop(text, None)
        given = [text for text in self.note.handed if text not in gone]
        self.note.handed = list(dict.fromkeys([*given, *self._inherited]))

    def orphans(self) -> list[str]:
        """Ledgers without a living owner that are for this sidecar to take."""
        taken = self.view.taken()
        mine = [text for text in self._inherited if text not in taken]
        return list(dict.fromkeys([*mine, *self.view.orphans()]))

    def silent_ms(self) -> int:
        """For how long the store has not answered."""
        return self._context.clock.monotonic_ms() - self._heard_ms

    # --- what others tell it

    def inherit(self, texts: Iterable[str]) -> None:
        """Ledgers that are to be taken here; in the note until somebody owns them."""
        self._inherited.update(dict.fromkeys(texts))
        self._state.signals.beat()

    def handed_over(self, texts: list[str]) -> None:
        """These ledgers were given away; until somebody owns them, the others should know (R5)."""
        self.note.handed = [*self.note.handed, *texts][-HANDED_MAX:]
        self._state.signals.beat()

    # --- what others ask

    def confirmed(self) -> bool:
        """The store has heard of this sidecar lately (with failover: a replica of it too, R11)."""
        return self._context.clock.monotonic_ms() - self._confirmed_ms < UNCONFIRMED_MS

    def all_halted(self, operation: str, since_ms: int) -> bool:
        """No other sidecar grants anything, as heartbeats since then (own clock) say.

        One that is not seen yet will hear of the operation before its first grant.
        """
        return self._heard_ms >= since_ms and self.view.all_halted(operation)

    def all_replayed(self) -> bool:
        """This sidecar and every other living one have replayed to the server run of now."""
        run = self._context.store.run
        return bool(run) and self.replayed_run == run and self.view.all_replayed(run)

    def replaying(self) -> bool:
        """The store's server run changed, and not all that it had confirmed is repeated yet."""
        return self._context.store.run not in ("", self.replayed_run)

    async def jump_ms(self) -> int:
        """How far the store's clock jumped with the change to its run of now; waits for a heartbeat
        that this run answered.
        """
        if not self.clock.knows(self._context.store.run):
            self._state.signals.beat()
        while not self.clock.knows(self._context.store.run):  # noqa: ASYNC110 - of two ends
            await asyncio.sleep(POLL_MS / 1000)
        return self.clock.jump_ms
