"""Readiness: one line per store, broker and subscription, with the reason why it is not ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ackd.api.messages import Reason
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.control.control import Control
from ackd.engine.ownership.ownership import Ownership
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.retry.own_topic import RetryTopic
from ackd.ports import Broker, Store


class ReadinessParts(Protocol):
    """The parts of a subscription that readiness reads."""

    state: SubscriptionState
    partitions: OwnedPartitions
    membership: Membership
    control: Control
    ownership: Ownership
    retry_topic: RetryTopic


def readiness(
    store: Store,
    brokers: Mapping[str, Broker],
    broker_errors: Mapping[str, str],
    subscriptions: Mapping[str, ReadinessParts],
    failure: str = "",
    *,
    draining: bool,
) -> list[Reason]:
    """All reasons; the sidecar is ready when every one is ok. `failure`: what can't go on
    (`Vitals`).
    """
    reasons = [Reason("draining", ok=False, detail="stopping")] if draining else []
    if failure:
        reasons.append(Reason("tasks", ok=False, detail=failure))
    conditions = store.conditions()
    up = bool(store.run) and not any(condition.away for condition in conditions)
    reasons.append(Reason("store", ok=up, detail="; ".join(t.detail for t in conditions)))
    for name, broker in brokers.items():
        wrong = [f"{t.code}: {t.detail}" for t in broker.conditions()]
        if name in broker_errors:
            wrong.append(broker_errors[name])
        reasons.append(Reason(f"broker:{name}", ok=not wrong, detail="; ".join(wrong)))
    reasons += [_subscription(name, each) for name, each in subscriptions.items()]
    return reasons


def _subscription(name: str, subscription: ReadinessParts) -> Reason:
    state, partitions = subscription.state, subscription.partitions
    health, growth = state.health, subscription.ownership.growth
    assigned, waiting = partitions.assigned, growth.waiting
    conditions = state.conditions.values()
    wrong = [f"{t.code}: {t.detail}" for t in conditions if not t.warning]
    if health.superseded:
        wrong.append("another process runs under this sidecar's name")
    if not health.joined:
        wrong.append("not joined yet")
    elif not (health.assigned_once or partitions.owned or _stands_by(subscription)):
        wrong.append("no answer from the group yet")
    elif subscription.control.halted_for:
        pass  # an operation holds the records; applications can still settle leases
    elif missing := [tp for tp in assigned if tp not in partitions.owned and tp not in waiting]:
        wrong.append(f"{len(missing)} partitions are being opened")
    elif any(not partition.grantable for partition in partitions.owned.values()):
        wrong.append("a record is being read again")
    if wrong and health.detail:
        wrong.append(health.detail)
    membership = subscription.membership
    warnings = [t.detail for t in conditions if t.warning]
    details = [*wrong, *warnings, membership.drift.warning(), subscription.retry_topic.warning]
    details.append(growth.words(list(assigned)))
    if membership.replaying():
        details.append("acks are being repeated to another run of the store")
    return Reason(f"subscription:{name}", ok=not wrong, detail="; ".join(filter(None, details)))


def _stands_by(subscription: ReadinessParts) -> bool:
    """The group assigned no partition to this sidecar and others own them all. The broker does not
    report that, but it is fine.
    """
    return any(member.owned for member in subscription.membership.view.alive)
