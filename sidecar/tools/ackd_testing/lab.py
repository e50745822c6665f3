"""What the suite has to know of the broker under test, and what it builds on that."""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import functools
import json
import subprocess
import sys
import threading
import typing
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import UnionType

from ackd.config.adapters import Adapter, find_adapter
from ackd.core.ids import TopicPartition
from ackd.ports import Broker, ConsumerSpec, Outgoing, Stored
from ackd_testing.reader import Reader
from ackd_testing.wait import eventually

OptionValue = str | int | bool | Mapping[str, str]


class NotPossibleError(Exception):
    """This broker's lab can't do that; the test that needs it is skipped."""


class Lab(abc.ABC):
    """One broker cluster that the tests may use, with topics of their own.

    `adapter` is the name of the entry point (group `ackd.adapters`), `options` its settings as
    plain values, so that another process can open the same cluster. The times say how long the
    tests wait at most for what a group does: `rebalance_s` for a member that joins or leaves in
    good order, `loss_s` for one that was killed or frozen, `refresh_s` until a new topic is seen.
    """

    adapter: str
    options: Mapping[str, OptionValue]
    rebalance_s: float = 60.0
    loss_s: float = 60.0
    refresh_s: float = 60.0
    hold_s: float = 2.0
    """How long a broker with broker-side acks holds messages under `options`, unless renewed."""
    holds_surely: bool = True
    """Whether it never delivers a held message again; a starved one may (R32)."""
    poll_s: float = 2.0
    """How long one question of a consumer of such a broker may wait for messages."""
    small_buffer: tuple[Mapping[str, OptionValue], int] | None = None
    """Options that make a consumer's buffer small, and how many bytes may lie in it then."""
    unreachable: Mapping[str, OptionValue] | None = None
    """Options with which there is no broker to be found; None = that can't happen."""

    @abc.abstractmethod
    async def create_topic(self, topic: str, partitions: int) -> None:
        """Make a topic and wait until it can be used."""

    @abc.abstractmethod
    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and wait until it may be made again."""

    async def create_group(self, group: str) -> None:  # noqa: B027 -- may be left out
        """Make a consumer group, where the broker wants that; else there is nothing to do."""

    async def truncate(self, partition: TopicPartition, before: int) -> None:
        """Drop the records below an offset, as retention would. NotPossibleError = can't."""
        raise NotPossibleError("this lab can't drop records")

    async def fill(self, partition: TopicPartition, values: Sequence[bytes]) -> list[int]:
        """Store these values in a partition, in this order, and return their offsets. Only for a
        broker whose adapter can't choose the partition of a message.
        """
        raise NotImplementedError

    def open(self, more: Mapping[str, OptionValue] | None = None) -> Broker:
        """Make a connection to the broker under test; the caller starts and closes it."""
        return open_broker(self.adapter, {**self.options, **(more or {})})

    @asynccontextmanager
    async def bench(self) -> AsyncIterator[Bench]:
        """A place for one test; everything opened on it is closed at its end, last one first."""
        # Looking for the adapter reads files, which the event loop must not wait for.
        await asyncio.to_thread(load, self.adapter)
        async with AsyncExitStack() as stack:
            yield Bench(self, stack)


class Bench:
    """Connections, topics, consumers and processes of one test."""

    def __init__(self, lab: Lab, stack: AsyncExitStack) -> None:
        self.lab = lab
        self._stack = stack

    async def broker(self, more: Mapping[str, OptionValue] | None = None) -> Broker:
        """Make and start a connection; the bench closes it."""
        broker = self.lab.open(more)
        self._stack.push_async_callback(broker.close)
        await broker.start()
        return broker

    async def topic(self, partitions: int = 1) -> list[TopicPartition]:
        """The partitions of a new topic."""
        name = f"contract-{uuid.uuid4().hex[:12]}"
        await self.lab.create_topic(name, partitions)
        return [TopicPartition(name, number) for number in range(partitions)]

    async def filled(
        self, broker: Broker, partitions: int, values: Sequence[bytes]
    ) -> list[TopicPartition]:
        """The partitions of a new topic, each with these values."""
        parts = await self.topic(partitions)
        for part in parts:
            await self.fill(broker, part, values)
        return parts

    async def fill(
        self, broker: Broker, partition: TopicPartition, values: Sequence[bytes]
    ) -> list[int]:
        """Store these values in a partition, in this order, and return their offsets."""
        if broker.capabilities.explicit_partition:
            return await fill(broker, partition, values)
        return await self.lab.fill(partition, values)

    async def reads(
        self, broker: Broker, topics: Sequence[str], group: str | None = None
    ) -> Reader:
        """A started consumer that can fetch by offset: in a group, or beside it where a group of
        this broker has no offsets.
        """
        if not broker.capabilities.broker_side_acks:
            return await self.join(broker, topics, group)
        spec = ConsumerSpec(group or new_group(), tuple(topics), "contract", joins=False)
        await self.lab.create_group(spec.group)
        return await self._started(broker, spec)

    async def join(
        self,
        broker: Broker,
        topics: Sequence[str],
        group: str | None = None,
        *,
        confirm: bool = True,
    ) -> Reader:
        """A started consumer in a group of its own, or of this name."""
        spec = ConsumerSpec(group or new_group(), tuple(topics), "contract")
        await self.lab.create_group(spec.group)
        return await self._started(broker, spec, confirm=confirm)

    async def _started(self, broker: Broker, spec: ConsumerSpec, *, confirm: bool = True) -> Reader:
        consumer = broker.consumer(spec)
        self._stack.push_async_callback(consumer.close)
        await consumer.start()
        return Reader(consumer, confirm=confirm)

    async def process(self, group: str, topics: Sequence[str]) -> OtherProcess:
        """Another process that joins the group and tells what it hears; gone at the test's end."""
        process = OtherProcess(self.lab, group, topics)
        self._stack.push_async_callback(process.kill)
        await process.start()
        return process


class OtherProcess:
    """A member in a process of its own (`ackd_testing.member`), to be killed and frozen.

    `assigned` follows its events; `lost` holds every partition that it was ever told to have lost.
    """

    def __init__(self, lab: Lab, group: str, topics: Sequence[str]) -> None:
        self.assigned: set[TopicPartition] = set()
        self.lost: set[TopicPartition] = set()
        self._order = json.dumps(
            {
                "adapter": lab.adapter,
                "options": dict(lab.options),
                "group": group,
                "topics": list(topics),
            }
        )
        self._popen: subprocess.Popen[str] | None = None

    async def start(self) -> None:
        """Start it; it joins by itself."""
        self._popen = await asyncio.to_thread(self._spawn)
        threading.Thread(target=self._listen, args=(self._popen,), daemon=True).start()

    def signal(self, number: int) -> None:
        """Send the process this signal number."""
        assert self._popen is not None
        self._popen.send_signal(number)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._popen is not None:
            self._popen.kill()
            if self._popen.stdin is not None:
                self._popen.stdin.close()
            await asyncio.to_thread(self._popen.wait, 10)

    async def until_assigned(self, partitions: set[TopicPartition], timeout_s: float) -> None:
        """Wait until it has been assigned exactly these."""
        await eventually(
            lambda: self.assigned == partitions, f"the other has {partitions}", timeout_s
        )

    def _spawn(self) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "ackd_testing.member", self._order]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        if process.stdout is None:
            return
        with process.stdout:
            for line in process.stdout:
                kind, *names = line.split()
                parts = {_partition(name) for name in names}
                if kind == "assigned":
                    self.assigned = self.assigned | parts
                else:
                    self.assigned = self.assigned - parts
                if kind == "lost":
                    self.lost = self.lost | parts


def new_group() -> str:
    """A name that no other test uses."""
    return f"contract-{uuid.uuid4().hex[:12]}"


@functools.cache
def load(adapter: str) -> Adapter:
    """The adapter of this name, looked for once."""
    return find_adapter(adapter)


def open_broker(adapter: str, options: Mapping[str, OptionValue]) -> Broker:
    """A connection by plain values, as another process got them."""
    found = load(adapter)
    return found.open("contract", make_options(found, options))


def make_options(adapter: Adapter, values: Mapping[str, OptionValue]) -> object:
    """The adapter's options from plain values: a text becomes a path where a path is asked for."""
    hints = typing.get_type_hints(adapter.options)
    known = {field.name for field in dataclasses.fields(adapter.options)}
    assert values.keys() <= known, f"no such options: {values.keys() - known}"
    return adapter.options(
        **{
            name: Path(str(value)) if _is_path(hints[name]) else value
            for name, value in values.items()
        }
    )


async def store(broker: Broker, *messages: Outgoing) -> list[Stored]:
    """Publish, and insist that everything is stored."""
    results = await broker.publish(messages)
    assert len(results) == len(messages)
    stored = [each for each in results if isinstance(each, Stored)]
    assert len(stored) == len(messages), f"not stored: {results}"
    return stored


async def fill(broker: Broker, partition: TopicPartition, values: Sequence[bytes]) -> list[int]:
    """Publish these values to one partition, where one can be chosen; returns their offsets."""
    number = partition.partition if broker.capabilities.explicit_partition else None
    messages = [Outgoing(partition.topic, None, value, (), number) for value in values]
    return [each.offset for each in await store(broker, *messages)]


def _is_path(hint: object) -> bool:
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        return Path in typing.get_args(hint)
    return hint is Path


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("/")
    return TopicPartition(topic, int(number))
