"""One session: a task that reads a partition and keeps one batch ready."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Condition, ConsumerEvent, EndReached, Fetched, OutOfRange
from ackd_redis_stream.layout import record
from ackd_redis_stream.server import Server, explained

BLOCK_MS: Final = 500
"""So long the server holds a question that it has no answer to; well below the time-out."""
RETRY_S: Final = 0.3


class Reading:
    """A batch that nobody takes holds up the next one, which is the bound."""

    def __init__(
        self,
        server: Server,
        partition: TopicPartition,
        session: int,
        offset: int,
        news: asyncio.Event,
    ) -> None:
        self.task: asyncio.Task[None] | None = None
        self._server = server
        self._partition = partition
        self._session = session
        self._next = offset
        self._news = news
        self._ready: list[ConsumerEvent] = []
        self._taken = asyncio.Event()
        self._going = asyncio.Event()
        self._going.set()
        self._reported_end = -1
        self._away = False
        self._stopped = False

    def pause(self) -> None:
        """Hand out nothing; a batch that is ready waits."""
        self._going.clear()

    def resume(self) -> None:
        self._going.set()
        self._news.set()

    def take(self) -> list[ConsumerEvent]:
        """What waits, unless the session is paused."""
        if not self._going.is_set():
            return []
        found, self._ready = self._ready, []
        self._taken.set()
        return found

    def stop(self) -> None:
        """End soon. The client may swallow a cancellation, so there is a flag, too."""
        self._stopped = True
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Until it is cancelled, or the offset is out of range."""
        code = f"{self._partition.topic}/{self._partition.partition}"
        log = ""
        while not self._stopped:
            try:
                log = log or await self._server.log(self._partition)
                over = await self._step(log)
                if self._away:
                    self._away = False
                    await self._put(Condition(code, "", cleared=True))
                if over:
                    return
            except BrokerError as error:
                self._away = True
                await self._put(Condition(code, error.detail, away=True))
                await asyncio.sleep(RETRY_S)

    async def _step(self, log: str) -> bool:
        """Read once; True when the session is over."""
        await self._going.wait()
        rows = await self._read(log, None)
        if not rows or record(*rows[0]).offset > self._next:
            first, end = await self._server.range(log)
            if not first <= self._next <= end:
                await self._put(OutOfRange(self._partition, self._session, first, end))
                return True
        if not rows:
            if self._reported_end != self._next:
                self._reported_end = self._next
                await self._put(EndReached(self._partition, self._session, self._next))
            rows = await self._read(log, BLOCK_MS)
            if not rows or record(*rows[0]).offset > self._next or not self._going.is_set():
                # A gap is looked at once more; what comes in a pause is read after it.
                return False
        records = [record(*row) for row in rows]
        self._next = records[-1].offset + 1
        await self._put(Fetched(self._partition, self._session, records))
        return False

    async def _read(self, log: str, block_ms: int | None) -> list[Any]:
        count = self._server.options.fetch_records_max
        with explained("reading"):
            # Entries behind the id of `next - 1`.
            found = await self._server.client.xread(
                {log: f"0-{self._next}"}, count=count, block=block_ms
            )
        return list(found[0][1]) if found else []

    async def _put(self, event: ConsumerEvent) -> None:
        """Hand over, when what was handed over before has been taken."""
        while self._ready:
            self._taken.clear()
            await self._taken.wait()
        self._ready.append(event)
        self._news.set()
