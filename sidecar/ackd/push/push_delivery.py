"""One call with its leases: extends them while the call runs, and settles them by its result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import time_ns

from ackd.api.messages import Delivery, Engine, SettleItem, SettleVerb, Status, Unsettled
from ackd.config.subscription import SubscriptionSettings
from ackd.push.answer import PushVerdict, judge, judge_items
from ackd.push.call import Failed, PushAnswer, PushClient, PushFailure
from ackd.push.push_request import PushRequestBuilder
from ackd.telemetry.metrics import Metrics

LOG = logging.getLogger("ackd.push")

EXTEND_SHARE = 2
"""A lease is extended when one part in this many of it has passed."""
AGAIN_SHARE = 8
"""While the store is away, extending is tried again after this part of the lease."""
SETTLE_PAUSE_S = 0.2
"""Constant: the leases end meanwhile."""
_OVER = ("finished", "dead")
"""States of messages that the application itself may have settled meanwhile."""


class PushDelivery:
    """Delivers for one subscription. `kept` counts what the application settles by itself."""

    def __init__(
        self,
        name: str,
        settings: SubscriptionSettings,
        engine: Engine,
        metrics: Metrics,
        client: PushClient,
        secrets: Sequence[bytes],
    ) -> None:
        self._name = name
        self._push = settings.push
        self._engine = engine
        self._metrics = metrics
        self._client = client
        self._form = PushRequestBuilder(settings.push, settings.payload, secrets)
        self._now = asyncio.get_running_loop().time
        self.kept: Unsettled = engine.unsettled(name)

    async def deliver(
        self, messages: Sequence[Delivery], learn: Callable[[PushVerdict | PushFailure], None]
    ) -> PushVerdict | PushFailure:
        """Call the application with these messages and settle their leases, unless it asks for a
        pause (`pause_ms`): then `put_back` or `hold`. Returns the verdict, or the failure of the
        call. `learn` hears of it before the settle, which may take long.
        """
        start_s = self._now()
        result = await self._call(messages)
        self._metrics.push_seconds.at(self._name).observe(self._now() - start_s)
        leases = [message.lease for message in messages]
        if isinstance(result, PushFailure):
            self._metrics.push_calls.at(self._name, result.how.value).inc()
            learn(result)
            await self._settle(_after(result, leases))
            return result
        verdict = judge(result.status, result.headers, time_ns() // 1_000_000)
        by_items = (
            self._push.mode == "batch" and verdict.do is SettleVerb.ACK and not verdict.explicit
        )
        self._metrics.push_calls.at(self._name, "items" if by_items else verdict.outcome).inc()
        learn(verdict)
        if by_items:
            await self._settle_items(result, messages)
        elif verdict.do is None:
            self.kept.add(messages)
        elif not verdict.pause_ms:
            await self.put_back(messages, verdict)
        return verdict

    async def put_back(self, messages: Sequence[Delivery], verdict: PushVerdict) -> None:
        """Settle the messages as the verdict says."""
        items = [verdict.item(message.lease) for message in messages]
        await self._settle([item for item in items if item is not None])

    async def hold(
        self, messages: Sequence[Delivery], pause_s: float, stopped: asyncio.Event
    ) -> list[Delivery]:
        """Keep the leases until the pause is over, or `stopped`. Returns the messages whose lease
        is surely still ours.
        """
        bound = asyncio.timeout(pause_s)
        gone: list[str] = []
        async with asyncio.TaskGroup() as group:
            leases = [message.lease for message in messages]
            extending = group.create_task(self._extend(leases, bound, gone))
            with suppress(TimeoutError):
                async with bound:
                    await stopped.wait()
            extending.cancel()
        results = await self._engine.settle(
            [SettleItem(message.lease, SettleVerb.EXTEND) for message in messages]
        )
        return [
            message
            for message, result in zip(messages, results, strict=True)
            if result.status is Status.EXTENDED
        ]

    async def _settle_items(self, answer: PushAnswer, messages: Sequence[Delivery]) -> None:
        """Settle each message of a batch as the application's answer says."""
        items, readable = judge_items(answer.body, [message.lease for message in messages])
        if not readable:
            LOG.warning(
                "%s: the application answered a batch %d, without a readable list of items",
                self._name,
                answer.status,
            )
        await self._settle(items)
        extended = {item.lease for item in items if item.do is SettleVerb.EXTEND}
        self.kept.add([message for message in messages if message.lease in extended])

    @property
    def _lease_s(self) -> float:
        return self._engine.lease_ms(self._name) / 1000

    # --- the call

    def _most_s(self) -> float:
        """Return how long a call may run, in seconds: never longer than ackd can hold its lease."""
        lease_s = self._lease_s
        if self._push.auto_extend:
            lease_s = max(lease_s, self._push.auto_extend_max_ms / 1000 + lease_s / EXTEND_SHARE)
        return min(self._push.timeout_ms / 1000, lease_s)

    async def _call(self, messages: Sequence[Delivery]) -> PushAnswer | PushFailure:
        request = self._form.request(messages, time_ns() // 1_000_000_000)
        bound = asyncio.timeout(self._most_s())
        gone: list[str] = []
        async with asyncio.TaskGroup() as group:
            leases = [message.lease for message in messages]
            extending = group.create_task(self._extend(leases, bound, gone))
            result = await self._client.post(request, bound)
            extending.cancel()
        if gone and isinstance(result, PushFailure):
            return PushFailure(Failed.LOST, "the message has gone to somebody else")
        return result

    async def _extend(self, leases: list[str], bound: asyncio.Timeout, gone: list[str]) -> None:
        """Extend the leases at half their time. If all were lost to other consumers (`gone`), end
        the call: its work is in vain.
        """
        if not self._push.auto_extend:
            return
        end_s = self._now() + self._push.auto_extend_max_ms / 1000
        share = EXTEND_SHARE
        while leases:
            await asyncio.sleep(self._lease_s / share)
            if self._now() >= end_s:
                return
            share = EXTEND_SHARE
            results = await self._engine.settle(
                [SettleItem(each, SettleVerb.EXTEND) for each in leases]
            )
            kept = []
            for lease, result in zip(leases, results, strict=True):
                if result.status is Status.UNAVAILABLE:
                    share = AGAIN_SHARE
                if result.status in {Status.EXTENDED, Status.UNAVAILABLE}:
                    kept.append(lease)
                elif result.now_state not in _OVER or result.cancelled is not None:
                    gone.append(lease)  # Otherwise the application settled it meanwhile.
            if gone and not kept:
                bound.reschedule(self._now())
                return
            leases = kept

    # --- settling

    async def _settle(self, items: Sequence[SettleItem]) -> None:
        """Settle; while the store is away, repeat until the leases have ended."""
        end_s = self._now() + self._lease_s
        left = list(items)
        while left:
            results = await self._engine.settle(left)
            away = []
            for item, result in zip(left, results, strict=True):
                if result.status is Status.UNAVAILABLE:
                    away.append(item)
                elif result.status in {Status.LOST, Status.INVALID}:
                    LOG.info(
                        "%s: the settle %s of a pushed message had no effect: %s",
                        self._name,
                        item.do,
                        result.status,
                    )
            left = away
            if left and self._now() >= end_s:
                LOG.warning(
                    "%s: %d messages could not be settled in time and are delivered again",
                    self._name,
                    len(left),
                )
                return
            if left:
                await asyncio.sleep(SETTLE_PAUSE_S)


def _after(failure: PushFailure, leases: Sequence[str]) -> list[SettleItem]:
    """Decide what a call without an answer means: a retry, which does not count if the call reached
    nobody (R28 bounds that).
    """
    match failure.how:
        case Failed.LOST:
            return []
        case Failed.UNREACHABLE:
            return [SettleItem(lease, SettleVerb.RELEASE) for lease in leases]
        case Failed.TIMEOUT | Failed.BROKEN:
            reason = f"{failure.how}: {failure.detail}"
            return [SettleItem(lease, SettleVerb.RETRY, reason=reason) for lease in leases]
