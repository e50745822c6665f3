"""Sorts a store's keys into those that this configuration uses and those that are left over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ackd.config.adapters import find_adapter
from ackd.config.schema import BrokerSettings, Settings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.cluster.members import FORGET_MS, SILENT_MS, read_note
from ackd.engine.ownership.broadcast import is_broadcast
from ackd.engine.retry.own_topic import dead_letter_topic, retry_topic
from ackd.errors import AckdError, BrokerError
from ackd.ports import Broker, ConsumerSpec, Member
from ackd.store.survey import FoundKeys, Survey

DEAD_SUFFIX = "!dead"
"""Suffix of a subscription's name in the records of its dead letters."""
BROKER_S = 20.0


@dataclass(slots=True)
class KnownNames:
    """What a broker reports of one subscription: the cluster, and topic identity -> topic name.

    `error` says why the broker reported nothing. Then no record counts as left over because of its
    topic or cluster.
    """

    cluster: str = ""
    topics: dict[bytes, str] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True)
class StoreRow:
    """A record. `orphan`: why nothing uses it any more; `owner`: the living sidecar that has it."""

    found: FoundKeys
    topic: str = ""
    orphan: str = ""
    owner: str = ""
    living: int = 0

    def as_json(self) -> dict[str, object]:
        key = self.found.key
        assert key is not None  # noqa: S101 -- only records become rows
        return {
            "cluster": key.cluster,
            "subscription": key.subscription,
            "topic_id": key.topic_id.hex(),
            "topic": self.topic,
            "partition": key.partition,
            "layout": self.found.layout,
            "watermark": self.found.watermark,
            "owner": self.owner,
            "orphan": self.orphan,
            "bytes": self.found.size,
            "bytes_by_kind": self.found.sizes,
        }


@dataclass(slots=True)
class KnownIdentity:
    """A sidecar's identity in the store. `state`: living, silent, left or forgotten."""

    subscription: str
    name: str
    state: str
    silent_ms: int | None
    boot: int

    @property
    def old(self) -> bool:
        """Whether the identity may be removed: its sidecar left, or has been silent for long."""
        hour = self.silent_ms is None or self.silent_ms >= FORGET_MS
        return self.state == "left" or (self.state != "living" and hour)


@dataclass(slots=True)
class Inventory:
    """All that the store keeps: records in `rows`, other keys in `rest`. `unknown`: subscription ->
    why its broker reported nothing. `orphans`: subscriptions that this configuration does not have
    and that have no living sidecar.
    """

    rows: list[StoreRow]
    rest: list[FoundKeys]
    identities: list[KnownIdentity]
    unknown: dict[str, str]
    orphans: list[str]


async def ask_brokers(settings: Settings) -> dict[str, KnownNames]:
    """Ask the brokers about all subscriptions, each for `BROKER_S` at most. Never raises."""
    brokers = {name: await _opened(name, each) for name, each in settings.brokers.items()}
    found = {}
    try:
        for name, subscription in settings.subscriptions.items():
            broker = brokers[subscription.broker]
            try:
                if isinstance(broker, AckdError):
                    raise broker
                async with asyncio.timeout(BROKER_S):
                    found[name] = await _known(broker, name, subscription)
            except (AckdError, TimeoutError) as error:
                found[name] = KnownNames(error=str(error) or "the broker does not answer")
    finally:
        for broker in brokers.values():
            if not isinstance(broker, AckdError):
                await broker.close()
    return found


async def _opened(name: str, settings: BrokerSettings) -> Broker | AckdError:
    """Connect one broker, for all its subscriptions."""
    try:
        adapter = await asyncio.to_thread(find_adapter, settings.adapter)
        broker = adapter.open(name, settings.options)
    except AckdError as error:
        return error
    try:
        async with asyncio.timeout(BROKER_S):
            await broker.start()
    except (AckdError, TimeoutError) as error:
        await broker.close()
        return error if isinstance(error, AckdError) else BrokerError("the broker does not answer")
    return broker


async def _known(broker: Broker, name: str, settings: SubscriptionSettings) -> KnownNames:
    own = (retry_topic(broker, name, settings).name, dead_letter_topic(broker, name, settings).name)
    topics = {}
    # One by one, because a pattern never matches ackd's own topics.
    for wanted in (settings.topics, (own[0],), (own[1],)):
        spec = ConsumerSpec(settings.group or name, wanted, client_id="ackd-store", joins=False)
        consumer = broker.consumer(spec)
        try:
            for info in await consumer.topics():
                topics[info.topic_id] = info.topic
        finally:
            await consumer.close()
    if not topics:
        raise BrokerError("the broker has none of its topics")
    return KnownNames(await broker.cluster_id(), topics)


async def take(survey: Survey, settings: Settings, known: dict[str, KnownNames]) -> Inventory:
    """Survey the whole store. `known` is empty if nobody asked the brokers. Raises StoreError."""
    everything = await survey.everything()
    members = await survey.members()
    rows = [_row(each, settings, known, members) for each in everything if each.key is not None]
    identities = []
    for subscription, there in sorted(members.items()):
        identities += [_identity(subscription, member) for member in there]
        names = {member.name for member in there}
        for name in await survey.boots(subscription):
            if name not in names:
                identities.append(KnownIdentity(subscription, name, "forgotten", None, 0))
    orphans = [
        name
        for name, there in sorted(members.items())
        if not _is_here(name, settings) and not any(map(is_living, there))
    ]
    unknown = {name: each.error for name, each in known.items() if each.error}
    rest = [each for each in everything if each.key is None]
    return Inventory(rows, rest, identities, unknown, orphans)


def _is_here(name: str, settings: Settings) -> bool:
    """Whether this configuration has the subscription; a broadcast one has a name per sidecar."""
    base, at, _ = name.rpartition("@")
    each = settings.subscriptions.get(base) if at else None
    return name in settings.subscriptions or (each is not None and is_broadcast(each))


def is_living(member: Member) -> bool:
    """Whether the sidecar sends heartbeats and has not announced that it leaves."""
    return member.silent_ms < SILENT_MS and not read_note(member.note).left


def _row(
    found: FoundKeys,
    settings: Settings,
    known: dict[str, KnownNames],
    members: dict[str, list[Member]],
) -> StoreRow:
    key = found.key
    assert key is not None  # noqa: S101 -- only records get here
    subscription = key.subscription.removesuffix(DEAD_SUFFIX)
    _, at, identity = key.cluster.partition("@")
    place = f"{subscription}@{identity}" if at else subscription
    living = [each for each in members.get(place, ()) if is_living(each)]
    row = StoreRow(found, living=len(living))
    row.owner = next((each.name for each in living if key.text() in each.owned), "")
    if subscription not in settings.subscriptions:
        row.orphan = "its subscription is not in this configuration"
        return row
    if at:
        # A broadcasting sidecar's own progress. Nobody but the operator knows whether that sidecar
        # will come back.
        if not is_broadcast(settings.subscriptions[subscription]):
            row.orphan = f"it is of {identity}, and the subscription broadcasts no more"
        return row
    named = known.get(subscription)
    if named is None or named.error:
        return row
    row.topic = named.topics.get(key.topic_id, "")
    if key.cluster != named.cluster:
        row.orphan = f"it is of another cluster than {named.cluster}"
    elif not row.topic:
        row.orphan = "its topic was deleted, or is no longer one of the subscription's"
    return row


def _identity(subscription: str, member: Member) -> KnownIdentity:
    note = read_note(member.note)
    state = "left" if note.left else "living" if is_living(member) else "silent"
    silent_ms, boot = member.silent_ms, member.boot
    return KnownIdentity(subscription, member.name, state, silent_ms, boot)


def refused(row: StoreRow) -> str:
    """The reason why nobody may remove the record now; an empty text if it may be removed."""
    if row.owner:
        return f"the living sidecar {row.owner} owns it"
    if row.living and not row.orphan:
        return f"{row.living} living sidecars have this subscription"
    return ""


def select(
    rows: Sequence[StoreRow],
    *,
    orphans: bool,
    subscription: str | None,
    topic_id: str,
    partition: int,
) -> list[StoreRow]:
    """The rows that an operator named: orphans, or a subscription's; `partition` -1 = all."""
    found = []
    for row in rows:
        key = row.found.key
        if key is None or (orphans and not row.orphan):
            continue
        if subscription is not None and key.subscription.removesuffix(DEAD_SUFFIX) != subscription:
            continue
        wrong_topic = bool(topic_id) and key.topic_id.hex() != topic_id
        if not wrong_topic and partition in (-1, key.partition):
            found.append(row)
    return found
