"""Membership in a group: a member shows itself at intervals, takes what is free of its share, and
gives back what another one should have when the engine is done with it (rule R34).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Assigned, Condition, ConsumerEvent, Lost, Revoked, TopicReplaced
from ackd_redis_stream.layout import BEAT, LEAVE, Topic
from ackd_redis_stream.server import Server, explained
from ackd_redis_stream.share import share

HAND_OVER_S: Final = 2.0
Find = Callable[[], Awaitable[dict[str, Topic]]]


class Member:
    """`find` tells the topics to read now, `tell` takes events."""

    def __init__(
        self,
        server: Server,
        group: str,
        name: str,
        find: Find,
        tell: Callable[[ConsumerEvent], None],
    ) -> None:
        self.name = name
        self._server = server
        self._keys = [server.key(kind, group) for kind in ("beat", "want", "held")]
        self._find = find
        self._tell = tell
        self._known: dict[str, Topic] = {}
        self._held: dict[str, TopicPartition] = {}
        self._leaving: dict[str, tuple[float, asyncio.Event]] = {}
        self._look = asyncio.Event()
        self._away = False
        self._stopped = False

    async def run(self) -> None:
        """Take part in the group until `stop`."""
        while not self._stopped:
            try:
                await self._step()
                if self._away:
                    self._tell(Condition("group", "", cleared=True))
                self._away = False
            except BrokerError as error:
                self._tell(Condition("group", error.detail, away=True))
                self._away = True
            pause_ms = 50 if self._leaving else self._server.options.beat_ms
            try:
                async with asyncio.timeout(pause_ms / 1000):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()

    def look(self) -> None:
        """Look at the group now, and not only at the next beat."""
        self._look.set()

    def stop(self) -> None:
        self._stopped = True
        self._look.set()

    async def leave(self) -> None:
        """Give everything back. Raises BrokerError."""
        await self._server.script(LEAVE, self._keys, [self.name])

    async def _step(self) -> None:
        topics = await self._find()
        self._replaced(topics)
        arguments = [self.name, self._server.options.session_ms, json.dumps(sorted(topics))]
        wants, holders = map(_pairs, await self._server.script(BEAT, self._keys, arguments))
        lost = [place for place in self._held if holders.get(place) != self.name]
        self._lose(lost)
        await self._release()
        mine: dict[str, TopicPartition] = {}
        for name, topic in topics.items():
            members = sorted(who for who, texts in wants.items() if name in json.loads(texts))
            held = {n: holders.get(topic.place(n)) for n in range(topic.partitions)}
            for number, who in share(name, members, held).items():
                if who == self.name:
                    mine[topic.place(number)] = TopicPartition(name, number)
        self._give([place for place in self._held if place not in mine])
        free = {place: at for place, at in mine.items() if holders.get(place) is None}
        await self._take(free)

    def _replaced(self, topics: dict[str, Topic]) -> None:
        for name, topic in topics.items():
            before = self._known.get(name)
            if before is not None and before.identity != topic.identity:
                self._tell(TopicReplaced(name, bytes.fromhex(topic.identity)))
                self._lose([place for place, at in self._held.items() if at.topic == name])
        self._known |= topics

    def _lose(self, places: list[str]) -> None:
        if places:
            self._tell(Lost(tuple(sorted(self._held.pop(place) for place in places))))
        for place in places:
            self._leaving.pop(place, None)

    def _give(self, places: list[str]) -> None:
        fresh = [place for place in places if place not in self._leaving]
        if not fresh:
            return
        done = _Done(self._look)
        until = asyncio.get_running_loop().time() + HAND_OVER_S
        for place in fresh:
            self._leaving[place] = (until, done.event)
        self._tell(Revoked(tuple(sorted(self._held[place] for place in fresh)), done))

    async def _release(self) -> None:
        now = asyncio.get_running_loop().time()
        over = [p for p, (until, done) in self._leaving.items() if done.is_set() or now >= until]
        if over:
            await self._server.script(LEAVE, self._keys, [self.name, *over])
        for place in over:
            del self._leaving[place]
            self._held.pop(place, None)

    async def _take(self, places: dict[str, TopicPartition]) -> None:
        taken = []
        for place, at in sorted(places.items()):
            with explained("the group"):
                if await self._server.client.hsetnx(self._keys[2], place, self.name):
                    self._held[place] = at
                    taken.append(at)
        if taken:
            self._tell(Assigned(tuple(taken)))


class _Done:
    """What a `Revoked` calls back."""

    def __init__(self, look: asyncio.Event) -> None:
        self.event = asyncio.Event()
        self._look = look

    def set(self) -> None:
        """Mark as done, and let the member look."""
        self.event.set()
        self._look.set()


def _pairs(flat: list[bytes]) -> dict[str, str]:
    texts = [each.decode() for each in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))
