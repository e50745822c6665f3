"""Whether a broker that was killed can still bring messages back.

RocketMQ 5.5 may come up with timers that stand still for good (apache/rocketmq#10668): from then on
no hold ends and no delayed message comes, for any client. What was not acked then does not come
back, and a test of that fails as for any other loss: it says what it found about the timers.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.support.rocketmq.bare import bare, now_ms, some
from tests.support.rocketmq.broker import RocketMQ

DELAY_MS = 4_000
"""One that is nearly due goes past the timers."""
COMES_S = 30.0
STILL = "the killed broker's timers stand still (apache/rocketmq#10668)"


@contextmanager
def judged(rocketmq: RocketMQ) -> Iterator[None]:
    """For what must have come after a kill. A failure stays one; when the broker's timers stand
    still, it says so, and the broker is made anew for the tests that follow.
    """
    try:
        yield
    except AssertionError as error:
        if not timers_work(rocketmq):
            error.add_note(f"{STILL}:\n{rocketmq.complaints()}")
            rocketmq.stop()
            rocketmq.start()
        raise


def timers_work(rocketmq: RocketMQ) -> bool:
    """Whether a delayed message comes."""

    async def comes() -> bool:
        async with bare(rocketmq, kind="DELAY") as it:
            await it.send(b"due", due_ms=now_ms() + DELAY_MS)
            return bool(await it.within(COMES_S, some))

    with ThreadPoolExecutor(1) as thread:  # the caller may have a loop of its own
        return thread.submit(asyncio.run, comes()).result()
