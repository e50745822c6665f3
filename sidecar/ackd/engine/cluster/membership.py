"""This sidecar as a member: what its heartbeats say, and what it knows of the other sidecars.

The heartbeat keeps this up to date. The parts that grant, take over or repair only read it.

A subscription can bound the leases that all its sidecars have open together. Each sidecar gets a
share by its partitions: leased messages belong to a partition and go with it to its next owner, so
the shares never add up to more than the bound. Partitions without an owner count as another
sidecar's. Heartbeats carry the number of leases of each sidecar, so that the others leave room for
one that has more than its share, because it had more partitions before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.members import (
    UNCONFIRMED_MS,
    LostAnswers,
    MemberNote,
    RecordsBySidecar,
    View,
    left_behind,
    read_note,
)
from ackd.engine.cluster.ready_counts import ReadyCounts
from ackd.engine.cluster.settings_drift import SettingsDrift
from ackd.engine.cluster.store_clock import StoreClock
from ackd.ports import NOTHING_READY, Member, Members, ReadyReport

POLL_MS = 20
HANDED_MAX = 10_000
EXACT = 16
"""Leases of a smaller share are reported exactly."""
BACK_MS = 250
"""A group may take seconds to assign what it has revoked. Who had it takes it back after this time,
if nobody else has it then.
"""
REMEMBER_MS = 2_000
"""For this long after a handover a partition counts for both owners, so that the shares never add
up to more than the bound.
"""


class InFlightShare:
    """Computes how many leases this sidecar may open."""

    def __init__(self) -> None:
        self._totals: deque[tuple[int, int]] = deque()
        self._total = 0
        self._others = self._leased = self._reported = 0
        self._state: object = None
        self._mine: set[str] = set()

    def received(self, view: View, mine: set[str], now_ms: int) -> None:
        """After a heartbeat: count the records (as texts) and leases of the other sidecars."""
        if view.state is not self._state or mine != self._mine or view.handed:
            self._count(view, mine)
        self._totals.append((now_ms, len(mine) + self._others))
        while self._totals and self._totals[0][0] < now_ms - REMEMBER_MS:
            self._totals.popleft()
        self._total = max(total for _, total in self._totals)

    def _count(self, view: View, mine: set[str]) -> None:
        taken = view.taken() | mine
        left = [each for each in view.dead if not taken.issuperset(left_behind(each))]
        self._leased = sum(read_note(each.note).leased for each in [*view.alive, *left])
        others = view.taken().union(view.handed, *(left_behind(each) for each in view.dead)) - mine
        self._others = len(others)
        # What is handed over counts until it has an owner, though nobody else changes then.
        self._state, self._mine = None if view.handed else view.state, mine

    def room(self, bound: int, mine: int, leased: int) -> int:
        """Return how many more leases the owner of `mine` partitions may open when it has
        `leased`.
        """
        return min(self._share(bound, mine), bound - self._leased) - leased

    def _share(self, bound: int, mine: int) -> int:
        total = max(mine + self._others, self._total)
        return bound if mine >= total else max(bound * mine // total, 1)

    def reported(self, bound: int, mine: int, leased: int) -> int:
        """Return what the others hear of `leased`: never less, nor more than the share because
        of it. All others read each change, so it changes with an eighth of the share only.
        """
        share = self._share(bound, mine)
        slack = share // 4 if share >= EXACT else 0
        if not leased <= self._reported <= leased + slack:
            self._reported = min(leased + slack // 2, max(leased, share)) if leased else 0
        return self._reported


# tidy: long-class methods=28 attributes=15 -- most of them answer one question in one line
class Membership:
    """One subscription's view of its sidecars.

    `replayed_run`: the server run to which this sidecar has replayed all that was confirmed (R10).
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
        # Records to take here, and from when on (monotonic).
        self._inherited: dict[str, int] = {}
        # Given away, as the last heartbeat says and as the one before it said.
        self._given_now: list[str] = []
        self._given_before: set[str] = set()
        self._confirmed_ms = 0
        self._received_ms = 0
        self._counts = ReadyCounts(context.clock)

    # --- kept true by the heartbeat

    def keep_until(self, until_ms: int) -> None:
        """No lease ends before `until_ms` (R23)."""
        self.grace_until_ms = until_ms

    def replayed(self, run: str) -> None:
        """This sidecar has replayed to the server run all that was confirmed."""
        self.replayed_run = run

    def leave(self, *, left: bool) -> None:
        """Take nothing any more, and say so: others take at once what is handed over. `left`: this
        sidecar has stopped.
        """
        self.note = replace(self.note, leaving=True, left=left)

    def registered(self, boot: int, earlier: Iterable[Member]) -> None:
        """Start with a new boot number.

        `earlier`: entries of before; this sidecar carries on the records of those with its own name
        until a sidecar owns them. What a process served before it registered again is still to be
        replayed.
        """
        name = self._context.identity
        self._inherited = {
            text: 0 for each in earlier if each.name == name for text in left_behind(each)
        }
        self.view = View(name, boot)
        self._received_ms = self._context.clock.monotonic_ms()
        # Nothing is granted before the others can see this sidecar.
        self._confirmed_ms = self._received_ms - UNCONFIRMED_MS
        self.replayed_run = self.replayed_run or self._context.store.run

    def confirmed_at(self, sent_ms: int) -> bool:
        """Note that the store took the heartbeat sent at `sent_ms`; True if this sidecar may grant
        again.
        """
        again = not self.confirmed()
        self._confirmed_ms = self._received_ms = sent_ms
        return again

    def answered_by(self, run: str, store_ms: int, sent_ms: int) -> None:
        """Note that this server run answered the heartbeat sent at `sent_ms`, at `store_ms` of its
        own clock.
        """
        self.clock.seen(run, store_ms, sent_ms, self._context.clock.monotonic_ms())

    def received(self, members: Members, owned: Collection[str], beating_ms: int) -> set[str]:
        """Take in who the other sidecars are, how many leases they have, and their settings.

        Returns those of the `owned` records that others list too, if the others said anything new.
        """
        view, mine = self.view, set(owned)
        before = view.state
        view.update(members, self.note.handed, beating_ms)
        self.share.received(view, mine, self._context.clock.monotonic_ms())
        self._counts.received(members.ready)
        if view.state is not before:
            self._counts.others(view.alive)
        notes = ((each.name, read_note(each.note).settings) for each in view.alive)
        self.drift.look_if_new(view.state, notes, frozenset(self._state.live.settings))
        return set() if view.state is before else view.taken() & mine

    def forgettable(self, owned: Iterable[str]) -> list[Member]:
        """Return dead sidecars that have nothing left to take over."""
        return self.view.forgettable(owned)

    def not_taken(self, owned: Collection[str]) -> tuple[RecordsBySidecar, RecordsBySidecar]:
        """Return (records of dead sidecars, records that living ones let go of) that nobody has
        taken yet, by sidecar.
        """
        return self.view.left(owned), self.view.given_away(self.note.handed, owned)

    def describe(self, owned: Collection[str], leased: int, ready: int) -> ReadyReport:
        """Update the note: messages under lease and ready, and the records that were given away and
        that no sidecar owns yet. All others read each change of it, so the counts are rounded.
        Returns what is said of ready messages beside it.
        """
        bound = self._state.settings.in_flight_max
        halt, peer = self._state.live.halt, self.note.peer
        handed, others = self.note.handed, len(self.view.alive)
        if handed or self._inherited:
            gone = self.view.taken().union(owned)
            for text in gone:
                self._inherited.pop(text, None)
            given = [text for text in handed if text not in gone]
            handed = list(dict.fromkeys([*given, *self._inherited]))
        self.note = replace(
            self.note,
            run=self.replayed_run,
            handed=handed,
            halted="" if halt is None else halt.operation,
            leased=self.share.reported(bound, len(owned), leased),
            ready=self._counts.in_note(ready, others) if peer else 0,
        )
        self._given_now = handed
        return self._counts.report(ready, others) if peer else NOTHING_READY

    def successors(self) -> set[str]:
        """Return the sidecars that must take what this heartbeat was the first to give away, as
        this one leaves.
        """
        if not self.note.leaving:
            return set()
        fresh, self._given_before = set(self._given_now) - self._given_before, set(self._given_now)
        return {self.winner(text) for text in fresh} - {self._context.identity}

    def orphans(self) -> list[str]:
        """Return the records without a living owner that this sidecar must take."""
        if self.note.leaving:
            return []
        taken, now_ms = self.view.taken(), self._context.clock.monotonic_ms()
        due = (text for text, from_ms in self._inherited.items() if from_ms <= now_ms)
        mine = [text for text in due if text not in taken]
        return list(dict.fromkeys([*mine, *self.view.orphans()]))

    def next_back_ms(self) -> int | None:
        """Return in how many ms this sidecar takes something back, if nobody else has it then."""
        now_ms = self._context.clock.monotonic_ms()
        return min((at - now_ms for at in self._inherited.values() if at > now_ms), default=None)

    def silent_ms(self) -> int:
        """Return for how long the store has not answered."""
        return self._context.clock.monotonic_ms() - self._received_ms

    # --- changed by other parts

    def inherit(self, texts: Iterable[str]) -> None:
        """Take these records here; the note names them until a sidecar owns them."""
        self._inherited.update(dict.fromkeys(texts, 0))
        self._state.signals.beat()

    def handed_over(self, texts: list[str], *, back_ms: int | None = None) -> None:
        """Name these given-away records in the note until a sidecar owns them (R5). `back_ms`: this
        one takes them back after so long, unless another one has them by then.
        """
        if back_ms is not None:
            from_ms = self._context.clock.monotonic_ms() + back_ms
            self._inherited.update(dict.fromkeys(texts, from_ms))
        self.note = replace(self.note, handed=[*self.note.handed, *texts][-HANDED_MAX:])
        self._state.signals.beat()

    def lost_answers(self, lost: list[LostAnswers]) -> None:
        """Tell owners of answers that were lost (R21), with the next heartbeats."""
        if lost != self.note.lost:
            self.note = replace(self.note, lost=lost)
            self._state.signals.beat()

    def want_ready(self) -> None:
        """A receive has found nothing here: hear where messages lie ready."""
        self._counts.want()

    # --- read by other parts

    def ready_elsewhere(self) -> Mapping[str, int]:
        """How many messages lie ready at whom; another object when that was said anew."""
        return self._counts.elsewhere

    def all_sign(self) -> bool:
        """Whether all living sidecars sign the copies that they make: an older build does not."""
        return all(read_note(each.note).signs for each in self.view.alive)

    @property
    def alive(self) -> list[Member]:
        """The other living sidecars, as of the last heartbeat."""
        return self.view.alive

    def winner(self, text: str) -> str:
        """The living sidecar that does what each of them could do; all of them choose the same."""
        return self.view.winner(text, leaving=self.note.leaving)

    def staying(self) -> list[str]:
        """The living sidecars that share what any of them could do; all of them know the same."""
        return self.view.staying(leaving=self.note.leaving)

    def confirmed(self) -> bool:
        """Whether the store confirmed a heartbeat lately (with failover: a replica too, R11)."""
        return self._context.clock.monotonic_ms() - self._confirmed_ms < UNCONFIRMED_MS

    def all_halted(self, operation: str, since_ms: int) -> bool:
        """Whether no other sidecar grants anything, by heartbeats since `since_ms` (own clock).

        A sidecar that is not visible yet reads of the operation before its first grant.
        """
        return self._received_ms >= since_ms and self.view.all_halted(operation)

    def all_replayed(self) -> bool:
        """Whether this sidecar and every other living one have replayed to the current server
        run.
        """
        run = self._context.store.run
        return bool(run) and self.replayed_run == run and self.view.all_replayed(run)

    def replaying(self) -> bool:
        """Whether the server run changed and this sidecar has not replayed everything yet. One that
        has just started knows nothing to replay.
        """
        return bool(self.replayed_run) and self._context.store.run not in ("", self.replayed_run)

    async def jump_ms(self) -> int:
        """Return how far the store's clock jumped when its current run began; wait for a heartbeat
        that this run answered.
        """
        if not self.clock.knows(self._context.store.run):
            self._state.signals.beat()
        while not self.clock.knows(self._context.store.run):  # noqa: ASYNC110 - of two ends
            await asyncio.sleep(POLL_MS / 1000)
        return self.clock.jump_ms
