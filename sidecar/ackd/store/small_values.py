"""Small values on the server: values by name, and what the sidecars of a subscription share."""

from __future__ import annotations

from ackd.core.rate_bucket import TokensTaken
from ackd.errors import StoreDataError, StoreError
from ackd.store.connect import Link
from ackd.store.exchange import Answer
from ackd.store.keys import Keys
from ackd.store.nodes import Node
from ackd.store.scripts import APPLY, FLOW
from ackd.store.server_calls import TRIES, ServerCalls


class SmallValues:
    """Reads and writes them; each method is one of `ackd.ports.Store`."""

    def __init__(self, keys: Keys, calls: ServerCalls) -> None:
        self._keys = keys
        self._calls = calls

    # --- live settings and the rate

    async def set_live(self, subscription: str, expected: bytes, value: bytes) -> bytes:
        key = self._keys.live(subscription)
        answer = await self._flow(key, "live", expected, value, ownership=True)
        if not isinstance(answer, bytes):
            raise StoreDataError(f"the live value of {subscription} is not a string")
        return answer

    async def take(
        self, subscription: str, wanted: int, rate_per_s: float, burst: int
    ) -> TokensTaken:
        """Take tokens by the server's clock. If the answer is lost, so are the tokens."""
        key = self._keys.bucket(subscription)
        granted, wait_ms = await self._flow(key, "take", wanted, repr(rate_per_s), burst)
        return TokensTaken(int(granted), int(wait_ms))

    async def _flow(
        self, key: str, what: str, *words: str | bytes | int, ownership: bool = False
    ) -> Answer:
        async def ask(node: Node, link: Link) -> Answer:
            command = ("EVALSHA", FLOW.sha, 1, key, what, *words)
            return await self._calls.ask_one(node, link, command, FLOW, ownership=ownership)

        return await self._calls.ask_node_of(key, ask)

    # --- small values

    async def get(self, name: str) -> bytes | None:
        answer = await self._value(name, "GET")
        if answer is None or isinstance(answer, bytes):
            return answer
        raise StoreDataError(f"the value {name} is not a string")

    async def put(self, name: str, value: bytes, ttl_ms: int | None = None) -> None:
        await self._value(name, "SET", value, *_ttl(ttl_ms))

    async def put_new(self, name: str, value: bytes, ttl_ms: int | None = None) -> bytes | None:
        """Set a value unless there is one. That one may expire between the two commands: then try
        again.
        """
        for _ in range(TRIES):
            if await self._value(name, "SET", value, "NX", *_ttl(ttl_ms)) is not None:
                return None
            there = await self.get(name)
            if there is not None:
                return there
        raise StoreError(f"the value {name} comes and goes")

    async def swap(self, name: str, expected: bytes | None, value: bytes) -> bytes | None:
        """Set the value if it is as expected; an empty text stands for no value."""
        key = self._keys.value(name)
        answer = await self._flow(key, "live", expected or b"", value, ownership=True)
        if not isinstance(answer, bytes):
            raise StoreDataError(f"the value {name} is not a string")
        return answer or None

    async def delete(self, name: str) -> None:
        await self._value(name, "DEL")

    async def _value(self, name: str, verb: str, *words: str | bytes | int) -> Answer:
        key = self._keys.value(name)

        async def ask(node: Node, link: Link) -> Answer:
            return await self._calls.ask_one(node, link, (verb, key, *words), APPLY)

        return await self._calls.ask_node_of(key, ask)


def _ttl(ttl_ms: int | None) -> tuple[str | int, ...]:
    return () if ttl_ms is None else ("PX", ttl_ms)
