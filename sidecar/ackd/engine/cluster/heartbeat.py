"""This sidecar's heartbeat, and what it hears of the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ackd.core.ids import SidecarId
from ackd.engine.base.context import Context
from ackd.engine.base.tasks import Tasks
from ackd.engine.cluster.admission import Admission
from ackd.engine.cluster.in_flight_share import Share
from ackd.engine.cluster.lease_keys import agree
from ackd.engine.cluster.members import (
    HEARTBEAT_MS,
    UNCONFIRMED_MS,
    Note,
    Rival,
    View,
    behind,
    read_note,
    write_note,
)
from ackd.engine.cluster.store_clock import StoreClock
from ackd.errors import BrokerError, BrokerFatalError, StoreError
from ackd.ports import Members

if TYPE_CHECKING:
    from ackd.engine.subscription import Subscription

LOG = logging.getLogger("ackd.engine")

REREAD_POLL_MS = 20
HANDED_MAX = 10_000


class Presence:
    """Registers, beats, takes over from the silent ones, and notices a change of the server run."""

    def __init__(self, subscription: Subscription, context: Context, note: Note) -> None:
        self._subscription = subscription
        self._context = context
        self._note = note
        self._rejoining = ""
        self._soon = asyncio.Event()
        self.view = View(context.identity, 0)
        self.share = Share()
        layouts = context.store.layouts
        note.layouts = (layouts.oldest, layouts.newest)
        self.admission = Admission(subscription, context, note)
        self.drift = self.admission.drift
        self._before: Members | None = None
        self.replayed_run = ""
        self._tasks = Tasks(f"presence.{subscription.name}", context.vitals)
        self._clock = StoreClock()
        self._inherited: dict[str, None] = {}
        self._beating_since_ms = 0
        self._confirmed_ms = 0
        self._heard_ms = 0
        self.grace_until_ms = 0
        self._beaten = False
        self._agreed = True
        self._rival: Rival | None = None

    async def register(self) -> None:
        """Get a boot number, and what an earlier run of the same name left. Raises StoreError.

        Its entry is read before the first own heartbeat replaces it (a beat of boot 0 writes
        nothing over a newer one), and is carried on in this one's note until somebody owns the
        ledgers.
        """
        name, store = self._context.identity, self._context.store
        boot = await store.register(self._subscription.name, name)
        before = await store.heartbeat(self._subscription.name, name, 0, (), "")
        self._before = before
        self._inherited = dict.fromkeys(
            text for each in before.members if each.name == name for text in behind(each)
        )
        self._subscription.control.heard(before.live, before.now_ms)
        self._subscription.ownership.me = SidecarId(name, boot)
        self.view = View(name, boot)
        self._beaten = False
        self._beating_since_ms = self._heard_ms = self._context.clock.monotonic_ms()
        # Nothing is granted before the others can see this sidecar.
        self._confirmed_ms = self._heard_ms - UNCONFIRMED_MS
        self.replayed_run = self._context.store.run
        self._subscription.health.store_ok = True

    async def admit(self) -> None:
        """Find out whether this sidecar may join. Raises StoreError; StoreLayoutError and
        SettingsDifferError when it may not.
        """
        before, self._before = self._before, None
        if before is None:
            name, store = self._context.identity, self._context.store
            before = await store.heartbeat(self._subscription.name, name, 0, (), "")
            self._subscription.control.heard(before.live, before.now_ms)
        await self.admission.enter(before)

    async def run(self) -> None:
        """Beat until cancelled. Raises BrokerFatalError to leave."""
        health = self._subscription.health
        while True:
            self._soon.clear()
            try:
                await self._beat()
                self._store_back()
            except StoreError as error:
                self._beating_since_ms = self._context.clock.monotonic_ms()
                health.store_ok = False
                health.detail = f"heartbeat: {error.detail}"
                self._leave_group_if_told()
            except BrokerError as error:
                health.detail = f"taking over: {error.detail}"
            if health.refusal is not None:
                raise BrokerFatalError(f"{health.refusal.type}: {health.refusal.detail}")
            self._subscription.ownership.retry_takes()
            self._subscription.control.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_MS / 1000):
                    await self._soon.wait()

    def _leave_group_if_told(self) -> None:
        """End the subscription's run when the store is away for too long (R34).

        The next one joins after it has registered. Raises BrokerFatalError.
        """
        most_ms = self._subscription.settings.leave_without_store_ms
        away_ms = self._context.clock.monotonic_ms() - self._heard_ms
        if most_ms is not None and away_ms >= most_ms:
            self._subscription.ownership.drop_all()
            raise BrokerFatalError(f"no word from the store for {away_ms} ms: leaving the group")

    def inherit(self, texts: Iterable[str]) -> None:
        """Ledgers that are to be taken here; in the note until somebody owns them."""
        self._inherited.update(dict.fromkeys(texts))
        self.beat_soon()

    def handed_over(self, texts: list[str]) -> None:
        """These ledgers were given away; until somebody owns them, the others should know (R5)."""
        self._note.handed = [*self._note.handed, *texts][-HANDED_MAX:]
        self.beat_soon()

    def beat_soon(self) -> None:
        """What this sidecar owns has changed: tell it at once, so that a crash finds it written."""
        self._soon.set()

    def _store_back(self) -> None:
        """After the store was away, no lease ends before the grace is over (R23)."""
        health = self._subscription.health
        if not health.store_ok:
            self.grace_until_ms = self._context.clock.monotonic_ms() + self._context.grace_ms
            for partition in self._subscription.owned.values():
                partition.ledger.deadlines.keep_until(self.grace_until_ms)
            self._subscription.sweeper.wake()
        health.store_ok = True

    async def _beat(self) -> None:
        self._context.memory.purge()
        if self._note.left:
            return  # the last word was what is left behind
        subscription, ownership = self._subscription, self._subscription.ownership
        owned = [partition.key.text() for partition in ownership.owned.values()]
        self._note.run = self.replayed_run
        self._note.halted = subscription.control.halted_for
        self._note.leased = subscription.hand_out.in_flight()
        gone = self.view.taken().union(owned)
        for text in gone:
            self._inherited.pop(text, None)
        given = [text for text in self._note.handed if text not in gone]
        self._note.handed = list(dict.fromkeys([*given, *self._inherited]))
        me, clock, run = ownership.me, self._context.clock, self._context.store.run
        sent_ms = clock.monotonic_ms()
        members = await self._context.store.heartbeat(
            subscription.name,
            me.name,
            me.boot,
            [*owned, *ownership.set_aside],
            write_note(self._note),
        )
        if run == self._context.store.run:
            self._clock.seen(run, members.now_ms, sent_ms, clock.monotonic_ms())
        else:
            self._soon.set()  # which run answered is not known; the next beat will tell
        if members.superseded:
            await self._superseded(members)
            return
        self._confirm(sent_ms)
        await self._check_for_loss(members)
        subscription.control.heard(members.live, members.now_ms)
        await subscription.control.repair()
        beating_ms = clock.monotonic_ms() - self._beating_since_ms
        self.view.update(members, self._note.handed, beating_ms)
        self.share.heard(self.view, set(owned), clock.monotonic_ms())
        notes = ((each.name, read_note(each.note).settings) for each in self.view.alive)
        self.drift.look(notes, subscription.control.live.settings)
        await self.admission.stay()
        self._rejoin()
        ownership.settle_repairs()
        for member in self.view.forgettable(owned):
            if member.name != me.name:
                await self._context.store.forget(subscription.name, member.name, member.boot)
        taken = self.view.taken()
        mine = [text for text in self._inherited if text not in taken]
        orphans = list(dict.fromkeys([*mine, *self.view.orphans()]))
        if orphans:
            await ownership.take_orphans(orphans)

    def _rejoin(self) -> None:
        """After a change of the server run: read every record again and replay; then say so
        (R10).
        """
        run = self._context.store.run
        if not run or run == self.replayed_run:
            return
        owned = self._subscription.ownership.owned.values()
        if run != self._rejoining:
            self._rejoining = run
            for partition in list(owned):
                partition.reload()
            self._tasks.start(self._replay(run), "replay")

    async def _replay(self, run: str) -> None:
        """Repeat confirmed acks, wait for the own records, then say that this sidecar is done."""
        memory, name = self._context.memory, self._subscription.name
        await memory.replay(name)
        while any(p.behind for p in self._subscription.owned.values()):  # noqa: ASYNC110 - many ends
            await asyncio.sleep(REREAD_POLL_MS / 1000)
        await memory.replay_let_go(name)  # others may have taken records before they were read here
        if run == self._rejoining:
            self.replayed_run = run
            self._subscription.ownership.settle_repairs()
            self.beat_soon()

    async def jump_ms(self) -> int:
        """How far the store's clock jumped with the change to its run of now; waits for a heartbeat
        that this run answered.
        """
        if not self._clock.knows(self._context.store.run):
            self.beat_soon()
        while not self._clock.knows(self._context.store.run):  # noqa: ASYNC110 - of two ends
            await asyncio.sleep(REREAD_POLL_MS / 1000)
        return self._clock.jump_ms

    async def _check_for_loss(self, members: Members) -> None:
        """Our last heartbeat is not in the store: its data is gone, and with it the key that signs
        leases (R27). Raises StoreError.
        """
        me = self._subscription.ownership.me
        there = any(each.name == me.name and each.boot == me.boot for each in members.members)
        if self._beaten and not there:
            LOG.warning("%s: the store has lost our heartbeat", self._subscription.name)
            self._agreed = False
        self._beaten = True
        if not self._agreed and await agree(self._context.store, self._context.keys):
            LOG.warning("leases are signed with another sidecar's key from now on")
        self._agreed = True
        for partition in self._subscription.owned.values():
            partition.sign()

    def _confirm(self, sent_ms: int) -> None:
        was_confirmed, self._confirmed_ms = self.confirmed(), sent_ms
        self._heard_ms = sent_ms
        if not was_confirmed:
            for partition in self._subscription.owned.values():
                self._subscription.hand_out.ready(partition)

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

    async def _superseded(self, members: Members) -> None:
        """A newer process has our name: stop granting, fail readiness, don't fight (R24).

        It is waited for until it is silent. Raises StoreError.
        """
        health, ownership = self._subscription.health, self._subscription.ownership
        if self._rival is None:
            LOG.error("another process runs under the name %s", self._context.identity)
            self._rival = Rival()
        health.superseded = True
        ownership.drop_all()
        now_ms = self._context.clock.monotonic_ms()
        if not self._rival.gone(members, self._context.identity, now_ms):
            return
        LOG.warning("the other process named %s is silent", self._context.identity)
        replayed_run = self.replayed_run
        await self.register()
        self.replayed_run = replayed_run  # what this process served is still to be replayed
        self._rival, health.superseded = None, False
        for tp in list(ownership.nominated):
            ownership.take(tp)
        self.beat_soon()

    async def leave(self) -> None:
        """Say that this sidecar has gone and what it leaves behind. Raises StoreError."""
        owned = self._subscription.ownership.owned.values()
        texts = [partition.key.text() for partition in owned]
        texts += self._subscription.ownership.set_aside
        self._note.left = True
        me = self._subscription.ownership.me
        await self._context.store.heartbeat(
            self._subscription.name, me.name, me.boot, texts, write_note(self._note)
        )

    async def stop(self) -> None:
        """End what is under way."""
        await self._tasks.stop()
