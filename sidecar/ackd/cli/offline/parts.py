"""Store and broker of one subscription, for commands that work without a running sidecar."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from ackd.cli import common, exit_codes
from ackd.cli.client.admin import RefusedError
from ackd.cli.offline.inventory import is_living
from ackd.config.adapters import find_adapter
from ackd.config.schema import Settings
from ackd.config.subscription import SubscriptionSettings
from ackd.core.ids import INCARNATION_BITS, ROLLBACK_EPOCH_BITS, LedgerKey, TopicPartition
from ackd.core.record.operations import Gap
from ackd.core.record.protocol import CallStatus, Open, RecordCall, Snapshot
from ackd.errors import StoreDataError
from ackd.ports import Broker, Consumer, ConsumerSpec, Groups, SingleAcks, Store, TopicInfo
from ackd.store.build import open_store
from ackd.store.survey import FoundKeys, Survey

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

OWNER = "operator#0"
FINISHED_A_CALL = 500
T = TypeVar("T", bound="DataclassInstance")


@dataclass(slots=True)
class Parts:
    """Connected store and broker. `groups` is None if the broker shows no groups from outside."""

    name: str
    settings: SubscriptionSettings
    cluster: str
    store: Store
    survey: Survey
    broker: Broker
    consumer: Consumer
    topics: list[TopicInfo]
    records: dict[LedgerKey, FoundKeys]

    @property
    def group(self) -> str:
        return self.settings.group or self.name

    @property
    def groups(self) -> Groups | None:
        """The broker, if it can do that."""
        return self.broker if isinstance(self.broker, Groups) else None

    @property
    def single_acks(self) -> SingleAcks | None:
        """The broker, if its plain groups remember acks of single messages."""
        return self.broker if isinstance(self.broker, SingleAcks) else None

    def partitions(self) -> list[tuple[TopicPartition, LedgerKey]]:
        """All partitions of the subscription's topics, with the keys of their records."""
        return [
            (TopicPartition(info.topic, number), self.key(info, number))
            for info in sorted(self.topics, key=lambda each: each.topic)
            for number in range(info.partitions)
        ]

    def key(self, info: TopicInfo, partition: int) -> LedgerKey:
        """The key of a partition's record."""
        return LedgerKey(self.cluster, self.name, info.topic_id, partition)

    async def members(self) -> list[str]:
        """The members of the broker's group. Raises BrokerError."""
        return [] if self.groups is None else await self.groups.group_members(self.group)

    async def sidecars(self) -> list[str]:
        """Living sidecars of the subscription. Raises StoreError."""
        there = (await self.survey.members()).get(self.name, [])
        return [each.name for each in there if is_living(each)]

    async def open(self, key: LedgerKey, create_at: int | None = None) -> Snapshot:
        """Take a record over. Raises StoreError."""
        request = Open(
            key,
            OWNER,
            rollback_epoch=secrets.randbits(ROLLBACK_EPOCH_BITS),
            incarnation=secrets.randbits(INCARNATION_BITS) | 1,
            grace_ms=0,
            create_at=create_at,
        )
        snapshot = await self.store.open(request)
        if snapshot.verdict is not CallStatus.OK:
            raise StoreDataError(f"the record {key.text()} is {snapshot.verdict.name}")
        return snapshot

    async def finish(self, key: LedgerKey, ranges: Sequence[tuple[int, int]]) -> None:
        """Mark ranges [start, end) as finished: nobody gets their messages any more. Raises
        StoreError.
        """
        snapshot = await self.open(key)
        for at in range(0, len(ranges), FINISHED_A_CALL):
            gaps = [Gap(start, end) for start, end in ranges[at : at + FINISHED_A_CALL]]
            seq = snapshot.seq + 1 + at // FINISHED_A_CALL
            (reply,) = await self.store.apply([RecordCall(key, gaps, snapshot.term, seq)])
            if reply.verdict is not CallStatus.OK:
                raise StoreDataError(f"the record {key.text()} is {reply.verdict.name}")

    def reading(self, topic: str) -> Consumer:
        """A consumer that reads a topic without joining the group; the caller closes it."""
        spec = ConsumerSpec(self.group, (topic,), client_id="ackd-reader", joins=False)
        return self.broker.consumer(spec)


@asynccontextmanager
async def opened(settings: Settings, name: str) -> AsyncIterator[Parts]:
    """Connect to the store and broker of a subscription. Raises RefusedError, StoreError,
    BrokerError.
    """
    subscription = settings.subscriptions.get(name)
    if subscription is None:
        raise RefusedError(f"there is no subscription {name!r} in this configuration")
    if subscription.mode == "broadcast":
        raise RefusedError(f"{name} broadcasts: its progress is each sidecar's, not the group's")
    section = settings.brokers[subscription.broker]
    adapter = await asyncio.to_thread(find_adapter, section.adapter)
    store = await asyncio.to_thread(
        lambda: open_store(settings.store, settings.state_dir, beside=True)
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        await store.start()
        broker = adapter.open(subscription.broker, section.options)
        stack.push_async_callback(broker.close)
        await broker.start()
        spec = ConsumerSpec(
            subscription.group or name, subscription.topics, client_id="ackd-reader", joins=False
        )
        consumer = broker.consumer(spec)
        stack.push_async_callback(consumer.close)
        survey = Survey(store)
        everything = await survey.everything()
        yield Parts(
            name=name,
            settings=subscription,
            cluster=await broker.cluster_id(),
            store=store,
            survey=survey,
            broker=broker,
            consumer=consumer,
            topics=await consumer.topics(),
            records={each.key: each for each in everything if each.key is not None},
        )


def answer(
    arguments: argparse.Namespace,
    work: Callable[[Settings], Coroutine[None, None, T]],
    done: Callable[[T], bool],
) -> int:
    """Print the result of `work` as JSON; 2 if `work` raises RefusedError, or `done` says no."""
    settings = common.settings_of(arguments)
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        found = common.run_loop(work(settings))
    except RefusedError as error:
        print(f"ackd: {error}", file=sys.stderr)
        return exit_codes.CONFIG
    print(json.dumps(asdict(found), indent=2))
    return exit_codes.DONE if done(found) else exit_codes.CONFIG
