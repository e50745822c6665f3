"""How long a coroutine keeps the event loop to itself, in calls and returns of functions.

Counted and not timed, so that a busy machine changes nothing.
"""

import asyncio
import sys
from collections.abc import Awaitable


async def longest_turn(work: Awaitable[object]) -> int:
    """The most events of functions between two turns of others while `work` is awaited."""
    loop = asyncio.get_running_loop()
    events = longest = 0
    working = True

    def seen(*_: object) -> None:
        nonlocal events
        events += 1

    def turn() -> None:
        nonlocal events, longest
        longest, events = max(longest, events), 0
        if working:
            loop.call_later(0, turn)

    turn()
    sys.setprofile(seen)
    try:
        await work
    finally:
        sys.setprofile(None)
        working = False
    turn()
    return longest
