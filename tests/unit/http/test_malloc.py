"""Memory that was freed between what stays goes back to the system."""

import asyncio
import ctypes
import os
import subprocess
import sys

import pytest

from ackd import malloc
from ackd.engine.base.tasks import Tasks
from tests.bench.measure import rss_mb
from tests.support.paths import REPO
from tests.support.wait import wait_until_async

BLOCK = 8_192
COUNT = 8_000
HALF_MB = BLOCK * COUNT / 2e6


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="there is no glibc")
def test_freed_pages_are_given_back() -> None:
    """In a process of its own: in this one others have freed, too, and what is free is used."""
    code = "from tests.unit.http.test_malloc import free_and_wait; free_and_wait()"
    subprocess.run([sys.executable, "-c", code], cwd=REPO, check=True, timeout=100)


def free_and_wait() -> None:
    """Free all but the last of many blocks; they are the allocator's until they are given back."""
    before_mb = rss_mb(os.getpid())
    blocks = [bytes(BLOCK) for _ in range(COUNT)]
    stays = blocks[-1]
    blocks.clear()
    kept_mb = rss_mb(os.getpid())
    assert kept_mb > before_mb + HALF_MB, "the allocator does it by itself"
    malloc.TRIM_S = 0.01
    asyncio.run(_given_back(before_mb + HALF_MB))
    assert len(stays) == BLOCK


async def _given_back(most_mb: float) -> None:
    tasks = Tasks("test")
    tasks.start(malloc.give_back(), "malloc")

    async def small() -> bool:
        return rss_mb(os.getpid()) < most_mb

    try:
        await wait_until_async(small, "half of it to be gone")
    finally:
        await tasks.stop()


async def test_without_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    malloc.few_arenas()
    await malloc.give_back()
