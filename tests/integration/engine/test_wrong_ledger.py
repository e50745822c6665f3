"""A ledger whose counts are wrong, by whatever mistake, begins anew from its record (I8)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.api.messages import SettleVerb
from tests.integration.engine.test_send_back import NAME, Place
from tests.support.wait import wait_until_async


async def test_i8_counts_that_are_wrong_are_said_and_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as stack:
        sidecar = await Place(stack, tmp_path, None).start()
        await sidecar.publish(2)
        held = await sidecar.collect(2)
        owned = sidecar.runtime._subscriptions[NAME].partitions.owned.values()
        (partition,) = (each for each in owned if not each.ledger.holds_copies)
        partition.ledger._entries.leased += 1
        assert partition.ledger.mistakes() == ["leased: 3, not 2"]

        async def mended() -> bool:
            return not partition.ledger.mistakes() and not partition.ledger.dirty

        await wait_until_async(mended, "the ledger to be read again", timeout_s=60)
        assert "the ledger is wrong: leased: 3, not 2" in caplog.text
        await sidecar.settle(held, SettleVerb.ACK)
        assert (partition.ledger.leased, len(partition.ledger.entries)) == (0, 0)
