"""Tries to reach all that a configuration names, for `TRY_S_MAX` each: store, brokers, topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal, TypeVar

from ackd.config.adapters import find_adapter
from ackd.config.mistakes import without_user_info
from ackd.config.schema import BrokerSettings, Settings
from ackd.errors import AckdError
from ackd.ports import Broker
from ackd.store.build import open_store

TRY_S_MAX = 20.0

Level = Literal["ok", "warn", "FAILED"]
OK: Level = "ok"
WARN: Level = "warn"
FAILED: Level = "FAILED"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Whether one part could be reached, and details for people."""

    part: str
    level: Level
    detail: str


async def probe(settings: Settings) -> list[ProbeResult]:
    """Try all parts concurrently; the results have the configuration's order."""
    tries = [_store(settings)]
    tries += [_broker(settings, name, broker) for name, broker in settings.brokers.items()]
    return [result for results in await asyncio.gather(*tries) for result in results]


async def _store(settings: Settings) -> list[ProbeResult]:
    part = f"store {without_user_info(settings.store.url)}"
    try:
        store = open_store(settings.store, settings.state_dir)
    except AckdError as error:
        return [ProbeResult(part, FAILED, str(error))]
    try:
        await _bounded(store.start())
        conditions = [each for each in store.conditions() if not each.cleared]
    except (AckdError, TimeoutError) as error:
        return [ProbeResult(part, FAILED, _reason(error))]
    finally:
        await store.close()
    # As in readiness: the conditions that the store reports concern the operator; it still serves.
    return [
        ProbeResult(part, OK, "answers"),
        *(ProbeResult(part, WARN, each.detail) for each in conditions),
    ]


def _reason(error: AckdError | TimeoutError) -> str:
    return str(error) or f"no answer in {TRY_S_MAX:.0f} s"


async def _broker(settings: Settings, name: str, broker: BrokerSettings) -> list[ProbeResult]:
    part = f"broker {name} ({broker.adapter})"
    try:
        # In a thread, because loading a client library reads files.
        adapter = await asyncio.to_thread(find_adapter, broker.adapter)
        opened = adapter.open(name, broker.options)
    except AckdError as error:
        return [ProbeResult(part, FAILED, str(error))]
    try:
        await _bounded(opened.start())
        results = [ProbeResult(part, OK, f"cluster {await _bounded(opened.cluster_id())}")]
        results += [
            ProbeResult(part, FAILED, condition.detail)
            for condition in opened.conditions()
            if not condition.cleared
        ]
        topics = [
            (subscription, topic)
            for subscription, each in settings.subscriptions.items()
            if each.broker == name
            for topic in each.topics
        ]
        for subscription, topic in topics:
            results.append(await _topic(opened, subscription, topic))
    except (AckdError, TimeoutError) as error:
        return [ProbeResult(part, FAILED, _reason(error))]
    finally:
        await opened.close()
    return results


async def _topic(broker: Broker, subscription: str, topic: str) -> ProbeResult:
    part = f"subscription {subscription}, topic {topic}"
    if topic.startswith("^"):
        return ProbeResult(part, OK, "a regular expression; topics may come and go")
    try:
        count = await _bounded(broker.partitions(topic))
    except AckdError as error:
        return ProbeResult(part, FAILED, str(error))
    if count is None:
        # Not a failure: the first publisher may create the topic later.
        return ProbeResult(part, WARN, "is not there yet")
    return ProbeResult(part, OK, f"{count} partition{'' if count == 1 else 's'}")


async def _bounded(work: Awaitable[T]) -> T:
    return await asyncio.wait_for(work, TRY_S_MAX)
