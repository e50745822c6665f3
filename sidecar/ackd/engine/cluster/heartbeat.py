"""This sidecar's heartbeat: it writes into the store what it owns, and acts on the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ackd.core.ids import TopicPartition
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.base.tasks import Tasks
from ackd.engine.cluster.lease_keys import agree
from ackd.engine.cluster.members import Rival, beat_ms, write_note
from ackd.engine.cluster.membership import POLL_MS, Membership
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError, BrokerFatalError, StoreError
from ackd.ports import Members

LOG = logging.getLogger("ackd.engine")


class Owner(Protocol):
    """What a heartbeat calls of `ackd.engine.ownership.ownership.Ownership`."""

    def take(self, tp: TopicPartition) -> None: ...
    def drop_all(self) -> None: ...
    def retry_takes(self) -> None: ...
    def settle_repairs(self) -> None: ...
    async def take_orphans(self, orphans: list[str]) -> None: ...


class LiveValue(Protocol):
    """What a heartbeat calls of `ackd.engine.control.control.Control`."""

    def received(self, there: bytes, now_ms: int) -> None: ...
    def look(self) -> None: ...
    async def repair(self) -> None: ...


# tidy: long-class attributes=14 -- eight collaborators, and what is under way
class Heartbeat:
    """Registers, beats, takes over from silent sidecars, and notices a change of the server run.

    `ready` is called for each partition that this sidecar may grant from again.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        membership: Membership,
        partitions: OwnedPartitions,
        owner: Owner,
        live: LiveValue,
        ready: Callable[[Partition], None],
    ) -> None:
        self._state = state
        self._context = context
        self._membership = membership
        self._partitions = partitions
        self._owner = owner
        self._live = live
        self._ready = ready
        self._soon = asyncio.Event()
        self._rejoining = ""
        self._tasks = Tasks(f"heartbeat.{state.name}", context.vitals)
        self._beating_since_ms = 0
        self._beaten = False
        self._keys_at: str | None = context.store.run  # the server run that has them, as we know
        self._rival: Rival | None = None

    async def register(self) -> None:
        """Get the keys of copies, a boot number, and what an earlier process of the same name left.
        Raises StoreError.

        The earlier entry is read before our first heartbeat replaces it (a heartbeat of boot 0
        overwrites nothing newer); our note carries it on until a sidecar owns its records.
        """
        name, store = self._context.identity, self._context.store
        await self._state.copy_keys.load(store, self._state.name)
        boot = await store.register(self._state.name, name)
        before = await store.heartbeat(self._state.name, name, 0, (), "")
        self._live.received(before.live, before.now_ms)
        self._partitions.registered(boot)
        self._membership.registered(boot, before.members)
        self._beaten = False
        self._beating_since_ms = self._context.clock.monotonic_ms()
        self._state.health.store_answered()

    async def run(self) -> None:
        """Beat until cancelled. Raises BrokerFatalError to leave."""
        health = self._state.health
        while True:
            self._soon.clear()
            try:
                await self._beat()
                self._store_back()
            except StoreError as error:
                self._beating_since_ms = self._context.clock.monotonic_ms()
                health.store_failed(f"heartbeat: {error.detail}")
                self._leave_group_if_configured()
            except BrokerError as error:
                health.fails(f"taking over: {error.detail}")
            self._owner.retry_takes()
            self._live.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rest_ms() / 1000):
                    await self._soon.wait()

    def _rest_ms(self) -> int:
        """Return the time until the next heartbeat: all subscriptions of a process beat together,
        in one call, but for what is to be taken back earlier.
        """
        now_ms = self._context.clock.monotonic_ms()
        period_ms = beat_ms(len(self._membership.alive))
        rest_ms = self._context.pace.rest_ms(self._state.name, now_ms, period_ms)
        back_ms = self._membership.next_back_ms()
        return rest_ms if back_ms is None else min(rest_ms, back_ms)

    def _leave_group_if_configured(self) -> None:
        """End the subscription's run when the store is away longer than the settings allow (R34).

        The next run joins after it has registered. Raises BrokerFatalError.
        """
        most_ms = self._state.settings.leave_without_store_ms
        away_ms = self._membership.silent_ms()
        if most_ms is not None and away_ms >= most_ms:
            self._owner.drop_all()
            raise BrokerFatalError(f"no answer from the store for {away_ms} ms: leaving the group")

    def beat_soon(self) -> None:
        """Beat at once: what this sidecar owns has changed, and a crash should find it written."""
        self._soon.set()

    def _store_back(self) -> None:
        """After the store was away, no lease ends before the grace is over (R23)."""
        health = self._state.health
        if not health.store_ok:
            grace_until_ms = self._context.clock.monotonic_ms() + self._context.grace_ms
            self._membership.keep_until(grace_until_ms)
            for partition in self._partitions.owned.values():
                partition.ledger.deadlines.keep_until(grace_until_ms)
            self._state.signals.timers()
        health.store_answered()

    async def _beat(self) -> None:
        self._context.replay_log.purge()
        state, membership, partitions = self._state, self._membership, self._partitions
        if membership.note.left:
            return  # the last heartbeat says what is left behind
        owned = partitions.keys()
        ready = 0 if state.paused_everywhere else partitions.held()[0]
        report = membership.describe(owned, partitions.leased(), ready)
        me, clock, run = partitions.me, self._context.clock, self._context.store.run
        sent_ms = clock.monotonic_ms()
        members = await self._context.store.heartbeat(
            state.name,
            me.name,
            me.boot,
            [*owned, *partitions.claimed()],
            write_note(membership.note),
            report,
        )
        if run == self._context.store.run:
            membership.answered_by(run, members.now_ms, sent_ms)
        else:
            self._soon.set()  # unknown which run answered; the next heartbeat tells
        if members.superseded:
            await self._superseded(members)
            return
        if self._membership.confirmed_at(sent_ms):
            for partition in self._partitions.owned.values():
                self._ready(partition)
        await self._check_for_loss(members)
        self._live.received(members.live, members.now_ms)
        await self._live.repair()
        beating_ms = clock.monotonic_ms() - self._beating_since_ms
        self._doubt(membership.received(members, owned, beating_ms))
        state.signals.members()
        self._rejoin()
        self._owner.settle_repairs()
        for member in membership.forgettable(owned):
            if member.name != me.name:
                await self._context.store.forget(state.name, member.name, member.boot)
        orphans = membership.orphans()
        if orphans:
            await self._owner.take_orphans(orphans)

    def _doubt(self, claimed: set[str]) -> None:
        """Read records again that other sidecars list too: they may have been taken from this one.

        The group tells only those to which it had assigned a partition. Who took one over from a
        sidecar that has gone would otherwise hear of its next owner with its next write.
        """
        for at, partition in self._partitions.owned.items() if claimed else ():
            if at not in self._partitions.assigned and partition.key.text() in claimed:
                partition.reload()

    def _rejoin(self) -> None:
        """After a change of the server run: read every record again and replay; then report it in
        the note (R10).
        """
        run = self._context.store.run
        if not run or run == self._membership.replayed_run:
            return
        owned = self._partitions.all()
        if run != self._rejoining:
            self._rejoining = run
            for partition in owned:
                partition.reload()
            self._tasks.start(self._replay(run), "replay", ends=True)

    async def _replay(self, run: str) -> None:
        """Replay confirmed acks, wait for the own records, then report that this sidecar has
        replayed.
        """
        replay_log, name = self._context.replay_log, self._state.name
        await replay_log.replay(name)
        while any(p.needs_reread for p in self._partitions.owned.values()):  # noqa: ASYNC110 - many ends
            await asyncio.sleep(POLL_MS / 1000)
        await replay_log.replay_released(name)  # others may have taken records before we read them
        if run == self._rejoining:
            self._membership.replayed(run)
            self._owner.settle_repairs()
            self.beat_soon()

    async def _check_for_loss(self, members: Members) -> None:
        """If the store lacks our last heartbeat, its data is gone, and with it the key that signs
        leases (R27). Raises StoreError.
        """
        me = self._partitions.me
        run = self._context.store.run
        there = any(each.name == me.name and each.boot == me.boot for each in members.members)
        if not self._beaten and run != self._keys_at:
            self._keys_at = None  # a failover between reading the keys and the first heartbeat
        if self._beaten and not there:
            LOG.warning(
                "%s: the store lost this sidecar's heartbeat, so it may have lost other data, too",
                self._state.name,
            )
            self._keys_at = None
        self._beaten = True
        if self._keys_at is None:
            await self._state.copy_keys.sync()
        if self._keys_at is None and await agree(self._context.store, self._context.keys):
            LOG.warning(
                "the store lost the key of lease tokens: this sidecar takes another sidecar's key"
            )
        self._keys_at = run
        for partition in self._partitions.owned.values():
            partition.sign()

    async def _superseded(self, members: Members) -> None:
        """A newer process has our identity: stop granting, fail readiness, don't fight (R24).

        Register again once it is silent. Raises StoreError.
        """
        health = self._state.health
        if self._rival is None:
            LOG.error(
                "another process has the same identity, %s: this one delivers nothing until one of "
                "them stops or gets another `identity`",
                self._context.identity,
            )
            self._rival = Rival()
        health.identity_taken(taken=True)
        self._owner.drop_all()
        now_ms = self._context.clock.monotonic_ms()
        if not self._rival.gone(members, self._context.identity, now_ms):
            return
        LOG.warning(
            "the other process with the identity %s has stopped: this one delivers again",
            self._context.identity,
        )
        await self.register()
        self._rival = None
        health.identity_taken(taken=False)
        for tp in list(self._partitions.assigned):
            self._owner.take(tp)
        self.beat_soon()

    async def leave(self) -> None:
        """Write that this sidecar has stopped and what it leaves behind. Raises StoreError."""
        texts = [*self._partitions.keys(), *self._partitions.claimed()]
        self._membership.leave(left=True)
        me = self._partitions.me
        await self._context.store.heartbeat(
            self._state.name, me.name, me.boot, texts, write_note(self._membership.note)
        )

    async def stop(self) -> None:
        """Cancel a replay that is under way."""
        await self._tasks.stop()
