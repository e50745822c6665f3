"""Ends the process when a connection to a broker can't go on: a thread of its adapter has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ackd.engine.base.tasks import Vitals
from ackd.ports import Broker

LOOK_S = 0.5


async def watch_brokers(brokers: Mapping[str, Broker], vitals: Vitals) -> None:
    """Report every fatal condition of a connection as an inner task that has ended.

    Nobody makes a second connection: its first one has consumers, and answers that are awaited.
    """
    while True:
        for name, broker in brokers.items():
            for condition in broker.conditions():
                if condition.fatal:
                    vitals.failed(f"broker.{name}", f"{condition.code}: {condition.detail}")
        await asyncio.sleep(LOOK_S)
