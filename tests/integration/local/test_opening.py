"""A queue that can't be opened yet."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.errors import BrokerError
from ackd.ports import Outgoing, Stored
from ackd_adapters.local import LocalOptions, adapter


async def test_a_queue_is_opened_once_it_can_be(folder: Path, stack: AsyncExitStack) -> None:
    """A volume that comes late, for example: each start fails until the folder can be made."""
    await asyncio.to_thread(folder.write_text, "in its place")
    broker = adapter.open("test", LocalOptions(path=folder))
    stack.push_async_callback(broker.close)
    for _ in range(3):
        with pytest.raises(BrokerError):
            await broker.start()
    await asyncio.to_thread(folder.unlink)
    await broker.start()
    await broker.ensure_topic("t", {})
    (stored,) = await broker.publish([Outgoing("t", None, b"1")])
    assert isinstance(stored, Stored)
