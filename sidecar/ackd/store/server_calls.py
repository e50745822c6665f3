"""Calls to the servers of a store: the right node, the durability barrier, scripts that it lacks.

Everything in this package that asks a server goes through here, and so does every note on whether
the store is away.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from ackd.errors import StoreError
from ackd.store.answers import checked, moving
from ackd.store.away import Away
from ackd.store.connect import Link
from ackd.store.durable import Barrier
from ackd.store.exchange import Answer, Command, ServerError
from ackd.store.nodes import ElsewhereError, Node, Topology
from ackd.store.scripts import OUTBOX, Script

LOG = logging.getLogger("ackd.store")
TRIES = 3

Ask = Callable[[Node, Link], Awaitable[Answer]]


class ServerCalls:
    """`away`: whether the servers answer, as the last call found."""

    def __init__(self, topology: Topology, barrier: Barrier) -> None:
        self._topology = topology
        self._barrier = barrier
        self.away = Away()

    async def ask(
        self,
        link: Link,
        commands: Sequence[Command],
        scripts: Sequence[Script],
        *,
        by_replica: bool,
    ) -> list[Answer | StoreError]:
        """Send commands, then the barrier; load scripts that the server lacks, and repeat."""
        if link.server is None:
            raise StoreError("not connected")
        barrier = self._barrier.commands(link.server, by_replica=by_replica)
        got = await link.ask([*commands, *barrier])
        short = self._barrier.shortfall(barrier, got[len(commands) :])
        answers = [checked(answer, short) for answer in got[: len(commands)]]
        unknown = [
            i
            for i, a in enumerate(got[: len(commands)])
            if isinstance(a, ServerError) and a.code == "NOSCRIPT"
        ]
        if unknown:
            sources = dict.fromkeys(scripts[i] for i in unknown)
            again: list[Command] = [("SCRIPT", "LOAD", script.source) for script in sources]
            again += [commands[i] for i in unknown]
            got = (await link.ask([*again, *barrier]))[len(sources) :]
            short = self._barrier.shortfall(barrier, got[len(unknown) :])
            for index, answer in zip(unknown, got, strict=False):
                answers[index] = checked(answer, short)
        return answers

    async def ask_node_of(self, name: str, ask: Ask, *, wrote: bool = False) -> Answer:
        """Ask the node of the key `name`, and again if that turns out to be elsewhere. `wrote`: an
        answer proves that the server takes writes.
        """
        error: StoreError = ElsewhereError()
        for _ in range(TRIES):
            try:
                node = self._topology.node(name)
                async with node.aux_link() as link:
                    answer = await ask(node, link)
            except ElsewhereError as elsewhere:
                error = elsewhere
                if not await self.map_moved():
                    break
            except StoreError as other:
                error = other
                break
            else:
                self.note(None, wrote=wrote)
                return answer
        self.note(error)
        raise error

    async def ask_one(
        self,
        node: Node,
        link: Link,
        command: Command,
        script: Script,
        *,
        ownership: bool = False,
    ) -> Answer:
        """Ask with one command. `ownership`: one replica confirms it, if the node had replicas."""
        answers = await self.ask(
            link, [command], [script], by_replica=ownership and node.had_replicas
        )
        answer = answers[0]
        if isinstance(answer, StoreError):
            if moving(answer):
                await link.close()
            raise answer
        return answer

    def note(self, error: StoreError | None, *, wrote: bool = False) -> None:
        """Take down that a call failed, or that one succeeded (None)."""
        if error is None:
            self.away.answered(wrote=wrote)
        else:
            self.away.failed(error)

    async def map_moved(self) -> bool:
        """Read the cluster's map again; True if a repeat may succeed."""
        try:
            return await self._topology.moved()
        except StoreError as error:
            LOG.warning("the cluster's map can't be read: %s", error.detail)
            return False

    async def run_script(
        self, key: str, script: Script, words: Sequence[str | bytes | int]
    ) -> Answer:
        """Run a script on one key; an outbox also gets its server's run."""
        outbox = script is OUTBOX

        async def ask(node: Node, link: Link) -> Answer:
            command = ("EVALSHA", script.sha, 1, key, *words, *((node.run,) if outbox else ()))
            return await self.ask_one(node, link, command, script, ownership=outbox)

        return await self.ask_node_of(key, ask)
