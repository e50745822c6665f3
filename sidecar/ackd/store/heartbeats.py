"""Heartbeats on a server: what comes together goes in one write, and each brings what has changed.

The subscriptions of a process beat at the same time (`ackd.engine.base.pace`). Each waits for
the server's second connection; who gets it first sends the heartbeats of all that wait. Sending one
twice does no harm, so one whose sender was cancelled is sent by the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ackd.errors import StoreDataError, StoreError
from ackd.ports import Members, ReadyReport
from ackd.store.answers import checked, moving
from ackd.store.connect import Link
from ackd.store.exchange import Answer, Command
from ackd.store.keys import Keys
from ackd.store.nodes import Node, Topology
from ackd.store.roster import Roster
from ackd.store.scripts import MEMBERS
from ackd.store.server_calls import ServerCalls

KEYS_MAX = 20
"""Most heartbeats of one script, so that other clients of the server get their turn."""
TOGETHER_S = 0.001
"""Heartbeats that are due in the same millisecond go together."""
TRIES = 4
"""A heartbeat is repeated at once if the store has another entry than thought, and if all is to be
read again.
"""


@dataclass(slots=True, eq=False)
class Waiting:
    """A heartbeat that waits for the connection."""

    key: str
    words: tuple[str | int | bytes, ...]
    answer: Answer | StoreError = None


class Heartbeats:
    """The members of all subscriptions, for the sidecars of this process."""

    def __init__(self, keys: Keys, topology: Topology, calls: ServerCalls) -> None:
        self._keys = keys
        self._topology = topology
        self._calls = calls
        self._rosters: dict[tuple[str, str], Roster] = {}
        self._waiting: dict[Waiting, None] = {}

    async def register(self, subscription: str, name: str) -> int:
        """Give a boot number."""
        return int(await self._alone(subscription, "register", name, 0))

    async def forget(self, subscription: str, name: str, boot: int) -> None:
        """Remove a member, unless a newer boot has its name."""
        await self._alone(subscription, "forget", name, boot)

    async def _alone(self, subscription: str, what: str, name: str, boot: int) -> Answer:
        key = self._keys.members(subscription)
        command = ("EVALSHA", MEMBERS.sha, 1, key, what, name, boot)

        async def ask(node: Node, link: Link) -> Answer:
            return await self._calls.ask_one(node, link, command, MEMBERS, ownership=True)

        return await self._calls.ask_node_of(key, ask)

    async def beat(
        self, subscription: str, name: str, boot: int, entry: bytes, ready: ReadyReport
    ) -> Members:
        """Send a heartbeat; what changed since the last one completes the list of members."""
        roster = self._rosters.setdefault((subscription, name), Roster())
        key = self._keys.members(subscription)
        for _ in range(TRIES):
            beat = roster.beat(boot, entry, ready)
            now_us, answer = await self._call(key, (name, *beat))
            members = roster.answered(beat, name, now_us, answer)
            if members is not None:
                return members
        raise StoreDataError(f"the members of {subscription} can't be read")

    async def _call(self, key: str, words: tuple[str | int | bytes, ...]) -> Answer:
        mine = Waiting(key, words)
        self._waiting[mine] = None
        try:
            if len(self._rosters) > 1:
                await asyncio.sleep(TOGETHER_S)
            return await self._calls.ask_node_of(key, partial(self._ask, mine), wrote=True)
        finally:
            self._waiting.pop(mine, None)

    async def _ask(self, mine: Waiting, node: Node, link: Link) -> Answer:
        """Return what another one brought along, or send all that wait for this node."""
        if mine.answer is None:
            some = [mine, *(each for each in self._waiting if self._with(mine, each, node))]
            most = KEYS_MAX if self._topology.together else 1
            groups = [some[start : start + most] for start in range(0, len(some), most)]
            commands = [_command(group) for group in groups]
            scripts = [MEMBERS] * len(commands)
            replica = node.had_replicas
            try:
                answers = await self._calls.ask(link, commands, scripts, by_replica=replica)
            except StoreError as error:
                answers = [error] * len(groups)
            for group, answer in zip(groups, answers, strict=True):
                _share(group, answer)
        answer, mine.answer = mine.answer, None
        if isinstance(answer, StoreError):
            if moving(answer):
                await link.close()
            raise answer
        return answer

    def _with(self, mine: Waiting, other: Waiting, node: Node) -> bool:
        """Whether another call that waits can go to this node now."""
        if other is mine or other.answer is not None:
            return False
        try:
            return self._topology.node(other.key) is node
        except StoreError:
            return False


def _command(group: Sequence[Waiting]) -> Command:
    keys = [each.key for each in group]
    words = [word for each in group for word in each.words]
    return ("EVALSHA", MEMBERS.sha, len(keys), *keys, "heartbeat", *words)


def _share(group: Sequence[Waiting], answer: Answer | StoreError) -> None:
    """Give each heartbeat of one script its answer, with the server's time."""
    if isinstance(answer, StoreError):
        for each in group:
            each.answer = answer
        return
    now_us = int(answer[0])
    for each, one in zip(group, answer[1:], strict=True):
        found = checked(one, "")
        each.answer = found if isinstance(found, StoreError) else (now_us, found)
