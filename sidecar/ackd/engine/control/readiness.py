"""Readiness: one line per store, broker and subscription, with the reason why it is not ready."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from ackd.api.messages import Reason
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.cluster.settings_drift import SettingsDrift
from ackd.engine.control.control import Control
from ackd.engine.ownership.partition_increase import PartitionIncrease
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.retry.own_topic import RetryTopic
from ackd.ports import Broker, Clock, Store

NAMED_MAX = 3
"""Sidecars that can't be reached, in one line."""
GROUP_MS = 300_000
"""So long a group may take to assign: it waits for its slowest member (Kafka: 5 minutes). A sidecar
that owns nothing after that is one more than there are partitions.
"""


class SubscriptionReadiness:
    """Tells whether one subscription works on this sidecar."""

    def __init__(
        self,
        state: SubscriptionState,
        clock: Clock,
        partitions: OwnedPartitions,
        membership: Membership,
        drift: SettingsDrift,
        control: Control,
        increase: PartitionIncrease,
        retry_topic: RetryTopic,
    ) -> None:
        self._state = state
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._partitions = partitions
        self._membership = membership
        self._drift = drift
        self._control = control
        self._increase = increase
        self._retry_topic = retry_topic

    def reason(self) -> Reason:
        """Whether the subscription is ready, and everything that is wrong or worth a warning."""
        state, wrong = self._state, self._wrong()
        if wrong and state.health.detail:
            wrong.append(state.health.detail)
        warnings = [t.detail for t in state.conditions.values() if t.warning]
        details = [*wrong, *warnings, self._drift.warning(), self._retry_topic.warning]
        details.append(self._increase.words(list(self._partitions.assigned)))
        details.append("" if wrong else self._group_words())
        if self._membership.replaying():
            details.append("acks are being repeated to another run of the store")
        return Reason(
            f"subscription:{state.name}", ok=not wrong, detail="; ".join(filter(None, details))
        )

    def _wrong(self) -> list[str]:
        """What keeps it from being ready."""
        health, partitions, waiting = self._state.health, self._partitions, self._increase.waiting
        conditions = self._state.conditions.values()
        wrong = [f"{t.code}: {t.detail}" for t in conditions if not t.warning]
        if health.superseded:
            wrong.append("another process runs under this sidecar's name")
        if not health.joined:
            wrong.append("not joined yet")
        elif not (health.assigned_once or partitions.owned or self._stands_by()):
            wrong.append("no answer from the group yet")
        elif self._control.halted_for:
            pass  # an operation holds the records; applications can still settle leases
        elif missing := [
            tp for tp in partitions.assigned if tp not in partitions.owned and tp not in waiting
        ]:
            wrong.append(f"{len(missing)} partitions are being opened")
        elif any(not partition.grantable for partition in partitions.owned.values()):
            wrong.append("a record is being read again")
        return wrong

    def _group_words(self) -> str:
        """What the group has yet to do. Nothing waits for it but commits to the broker: any sidecar
        settles, and owners give messages to all applications.
        """
        owned, assigned = self._partitions.owned, self._partitions.assigned
        early = sum(tp not in assigned for tp in owned)
        if early:
            return (
                f"waiting for the group: it has not assigned {early} of the {len(owned)} "
                "partitions owned here yet; their progress is in the store and is committed then"
            )
        waited_ms = self._clock.monotonic_ms() - self._began_ms
        if owned or self._state.health.assigned_once or waited_ms >= GROUP_MS:
            return ""
        return "waiting for the group: it has assigned no partition to this sidecar yet"

    def _stands_by(self) -> bool:
        """The group assigned no partition to this sidecar and others own them all. The broker does
        not report that, but it is fine.
        """
        return any(member.owned for member in self._membership.alive)


def readiness(
    store: Store,
    brokers: Mapping[str, Broker],
    broker_errors: Mapping[str, str],
    subscriptions: Mapping[str, SubscriptionReadiness],
    failure: str = "",
    *,
    draining: bool,
    unreachable: Mapping[str, str] | None = None,
    unheard: str = "",
) -> list[Reason]:
    """List all reasons; the sidecar is ready if every one is ok. `failure`: a task that ended for
    good (`Vitals`). `unreachable`: why there is no link to which sidecars; None without peers.
    `unheard`: why no other sidecar can connect to this one.
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
    if unreachable is not None:
        details = filter(None, (unheard, _unlinked(unreachable)))
        reasons.append(Reason("peers", ok=True, detail="; ".join(details)))
    return reasons + [each.reason() for each in subscriptions.values()]


def _unlinked(unreachable: Mapping[str, str]) -> str:
    """Name some of the sidecars to which there is no link; everything goes on without them."""
    if not unreachable:
        return ""
    some = "; ".join(f"{name}: {why}" for name, why in islice(unreachable.items(), NAMED_MAX))
    return f"no link to {len(unreachable)} other sidecars: {some}"
