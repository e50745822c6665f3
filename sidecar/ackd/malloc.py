"""What glibc's allocator keeps of freed memory: less, and it is given back (mallopt(3),
malloc_trim(3)). Where there is no glibc, nothing happens.
"""

from __future__ import annotations

import asyncio
import ctypes
from contextlib import suppress

M_ARENA_MAX = -8
ARENAS = 2
TRIM_S = 5.0
"""A trim of 100 MB takes up to 3 ms of another thread, and nothing where nothing was freed."""


def few_arenas() -> None:
    """Keep two arenas and not eight a core.

    The broker's client frees in one thread what it allocated in another; each arena of its own
    keeps megabytes that nobody uses.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


async def give_back() -> None:
    """Return free pages to the system, again and again; ends when it is cancelled.

    What was fetched ahead is freed in pieces between what stays, so the allocator by itself returns
    little of it: some 9 MB with 100,000 open messages.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return
    while True:
        await asyncio.sleep(TRIM_S)
        await asyncio.to_thread(trim, 0)
