"""The server as the broker and its consumers use it: few questions, errors in ackd's words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd_redis_stream.config import RedisStreamOptions
from ackd_redis_stream.layout import Topic, entry_id, offset_of


class Server:
    """A pool of connections; one for each partition that is read. Used in one event loop."""

    def __init__(self, options: RedisStreamOptions) -> None:
        self.options = options
        timeout_s = options.request_timeout_ms / 1000
        # `driver_info`: else the client reads files for each connection, which blocks the loop.
        self._client: Any = Redis.from_url(
            options.url,
            protocol=2,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            driver_info=None,
        )
        self.closed = False

    @property
    def client(self) -> Any:
        """The client (its types are of little use). Raises BrokerError after `close`."""
        if self.closed:
            raise BrokerError("the connection is closed")
        return self._client

    def key(self, *parts: str | int) -> str:
        """Name of a key: prefix and parts, joined by `:`."""
        return ":".join((self.options.prefix, *map(str, parts)))

    async def topics(self) -> dict[str, Topic]:
        """All there are. Raises BrokerError."""
        with explained("topics"):
            rows: Mapping[bytes, bytes] = await self.client.hgetall(self.key("topics"))
        found = {name.decode(): Topic.parse(row) for name, row in rows.items()}
        return {name: topic for name, topic in found.items() if topic is not None}

    async def topic(self, name: str) -> Topic | None:
        """One of them. Raises BrokerError."""
        with explained("topics"):
            return Topic.parse(await self.client.hget(self.key("topics"), name))

    async def log(self, partition: TopicPartition) -> str:
        """The stream's key. Raises BrokerError where there is no such partition."""
        topic = await self.topic(partition.topic)
        if topic is None:
            raise BrokerError(f"there is no topic {partition.topic}")
        topic.place(partition.partition)
        return self.key("log", topic.identity, partition.partition)

    async def range(self, log: str) -> tuple[int, int]:
        """(first offset, end offset) of a stream; one that nobody wrote to yet is (0, 0)."""
        with explained("the log"):
            if not await self.client.exists(log):
                return 0, 0
            # The end before the start: what is published between the two questions is no gap.
            end = offset_of((await self.client.xinfo_stream(log))["last-generated-id"]) + 1
            first = await self.client.xrange(log, count=1)
        start = offset_of(first[0][0]) if first else end
        return start, max(start, end)

    async def offset_at(self, log: str, timestamp_ms: int) -> int:
        """By halving; the server's clock gives entries their times in order."""
        low, high = await self.range(log)
        while low < high:
            middle = (low + high) // 2
            with explained("the log"):
                row = await self.client.xrange(log, min=entry_id(middle), count=1)
            if not row or int(row[0][1][b"t"]) >= timestamp_ms:
                high = middle
            else:
                low = middle + 1
        return low

    async def script(self, text: str, keys: Sequence[str], arguments: Sequence[object]) -> Any:
        """Run a script. Raises BrokerError."""
        with explained("a script"):
            return await self.client.eval(text, len(keys), *keys, *arguments)

    async def close(self) -> None:
        """Close the connection. Never raises."""
        self.closed = True
        with contextlib.suppress(RedisError, OSError):
            await self._client.aclose()


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """What the client raises, as BrokerError."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise BrokerError(f"{what}: {error}") from error
