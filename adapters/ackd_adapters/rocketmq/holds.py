"""What the broker holds back for this consumer, by handle: renewed while wanted, acked when
finished.

Each rule avoids a trap: only the newest handle counts, and an ack by an older one says OK; two
calls with one handle fork the message; a change after the ack revives it. So there is one call at a
time for each handle and none after its ack. A change whose answer was lost leaves no handle: the
message comes again, and the store's record says what it is (R32).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Final

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import AssignedPlace
from ackd_adapters.rocketmq.client import GroupClient, HeldMessage, code_of
from ackd_adapters.rocketmq.message import Taken, broker_of
from ackd_adapters.rocketmq.rpc import NO_ANSWER, UNREACHABLE

LOG = logging.getLogger("ackd.rocketmq")

ACK_BATCH: Final = 64
CALLS_MAX: Final = 16
"""For each broker: a call to one that is away takes long."""
IDLE_S: Final = 0.5
AGAIN_S: Final = 0.3
"""Constant: the holds of messages end meanwhile."""
BACK_MS: Final = 1_000
"""An unwanted message comes again after this; the broker's minimum is below it."""
DELIVERIES_MAX: Final = 8
HELD_MAX: Final = 10_000
"""Of each broker."""
FLUSH_LOOK_S: Final = 0.02


def monotonic_ms() -> int:
    """Milliseconds that never go back."""
    return time.monotonic_ns() // 1_000_000


class Delivery:
    """One delivery by the broker. `busy`: a call about it is pending. `gone`: its handle is
    worthless.
    """

    __slots__ = ("busy", "due_ms", "gone", "handle")

    def __init__(self, handle: str, due_ms: int) -> None:
        self.handle = handle
        self.due_ms = due_ms
        self.busy = self.gone = False


class Lane:
    """The calls to one broker: those to one that is away hold up none to the others. `count`: of
    messages that are held there.
    """

    __slots__ = ("calls", "count", "todo", "wake")

    def __init__(self) -> None:
        self.calls = asyncio.Semaphore(CALLS_MAX)
        self.todo: dict[Hold, None] = {}
        self.wake = asyncio.Event()
        self.count = 0


class Hold:
    """One message. After a crash the broker may have delivered it more than once."""

    __slots__ = ("back", "deliveries", "done", "lane", "message", "place", "topic")

    def __init__(self, topic: str, message: str, lane: Lane) -> None:
        self.topic = topic
        self.lane = lane
        self.message = message
        self.place: AssignedPlace | None = None
        self.deliveries: list[Delivery] = []
        self.done = self.back = False


class Holds:
    """All holds of one consumer. `run` makes the calls that they need."""

    def __init__(self, client: GroupClient, hold_ms: int) -> None:
        self._client = client
        self._hold_ms = hold_ms
        self._by_message: dict[tuple[str, str], Hold] = {}
        self._by_place: dict[tuple[str, AssignedPlace], Hold] = {}
        self._lanes: dict[str, Lane] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        return len(self._by_message)

    async def room(self, broker: str) -> None:
        """Wait until fewer messages of this broker are held than the bound (I8)."""
        lane = self._lane(broker)
        while lane.count >= HELD_MAX:  # noqa: ASYNC110 -- many ends, and nobody hurries
            await asyncio.sleep(AGAIN_S)

    def _lane(self, broker: str) -> Lane:
        lane = self._lanes.get(broker)
        if lane is None:
            lane = self._lanes[broker] = Lane()
            if self._tasks is not None:
                self._tasks.create_task(self._settle(lane))
        return lane

    async def flush(self, within_s: float) -> None:
        """Wait until the broker has got every ack and every return, for a bounded time."""
        end_s = time.monotonic() + within_s
        while any(each.done or each.back for each in self._by_message.values()):
            if time.monotonic() >= end_s:
                return
            await asyncio.sleep(FLUSH_LOOK_S)

    # --- events

    def taken(self, messages: Iterable[Taken], asked_ms: int) -> None:
        """The broker delivered these; `asked_ms`: the holds began no earlier."""
        due_ms = asked_ms + self._hold_ms // 2
        for each in messages:
            key = each.topic, each.message_id
            hold = self._by_message.get(key)
            if hold is None or hold.back:
                if hold is not None:
                    hold.lane.count -= 1
                hold = self._by_message[key] = Hold(*key, self._lane(broker_of(each.handle)))
                hold.lane.count += 1
            hold.deliveries = [one for one in hold.deliveries if not one.gone]
            hold.deliveries = hold.deliveries[1 - DELIVERIES_MAX :]
            hold.deliveries.append(Delivery(each.handle, due_ms))
            if hold.done:
                self._do(hold)

    def placed(self, topic: str, message: str, place: AssignedPlace) -> None:
        """The engine knows the message by this position from now on."""
        hold = self._by_message.get((topic, message))
        if hold is not None:
            hold.place = place
            self._by_place[topic, place] = hold

    def unwanted(self, topic: str, message: str) -> None:
        """Let the broker deliver it again soon."""
        hold = self._by_message.get((topic, message))
        if hold is not None and not hold.done:
            hold.back = True
            self._do(hold)

    def release(self, partition: TopicPartition) -> None:
        """Another sidecar owns the partition now: let the broker deliver all of it again soon."""
        for (topic, place), hold in list(self._by_place.items()):
            if (topic, place.partition) == partition:
                self.unwanted(topic, hold.message)

    def return_all(self) -> None:
        """Let the broker deliver all that is not finished again soon."""
        for hold in list(self._by_message.values()):
            self.unwanted(hold.topic, hold.message)

    def finished(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        """Ack these offsets, repeating until the broker confirms."""
        for offset in offsets:
            hold = self._by_place.get((partition.topic, AssignedPlace(partition.partition, offset)))
            if hold is not None:
                hold.done = True
                self._do(hold)

    def kept(self, topic: str) -> list[tuple[bytes, AssignedPlace]]:
        """Messages that have an offset and are not finished."""
        return [
            (hold.message.encode(), hold.place)
            for hold in self._by_message.values()
            if hold.topic == topic and hold.place is not None and not hold.done
        ]

    def _do(self, hold: Hold) -> None:
        hold.lane.todo[hold] = None
        hold.lane.wake.set()

    # --- calls

    async def run(self) -> None:
        """Make the calls until cancelled. Pending calls are left as they are: the message comes
        again or not.
        """
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for lane in self._lanes.values():
                tasks.create_task(self._settle(lane))
            while True:
                await asyncio.sleep(min(IDLE_S, self._hold_ms / 10_000))
                now_ms = monotonic_ms()
                for hold in list(self._by_message.values()):
                    for each in hold.deliveries:
                        free = not (each.busy or each.gone or hold.done or hold.back)
                        if free and each.due_ms <= now_ms:
                            each.busy = True
                            tasks.create_task(self._change(hold, each, self._hold_ms))

    async def _settle(self, lane: Lane) -> None:
        while True:
            await lane.wake.wait()
            lane.wake.clear()
            todo, lane.todo = lane.todo, {}
            acks: dict[str, list[tuple[Hold, Delivery]]] = {}
            async with asyncio.TaskGroup() as tasks:
                for hold in todo:
                    for each in hold.deliveries:
                        if each.busy or each.gone:
                            continue  # The pending call's end comes back to it.
                        each.busy = True
                        if hold.done:
                            acks.setdefault(hold.topic, []).append((hold, each))
                        else:
                            tasks.create_task(self._change(hold, each, BACK_MS))
                    self._drop(hold)
                for topic, found in acks.items():
                    for start in range(0, len(found), ACK_BATCH):
                        batch = found[start : start + ACK_BATCH]
                        tasks.create_task(self._ack(lane, topic, batch))

    async def _ack(self, lane: Lane, topic: str, batch: list[tuple[Hold, Delivery]]) -> None:
        """Repeat with the same handles, which is harmless, until there is an answer."""
        held = [HeldMessage(hold.message, each.handle) for hold, each in batch]
        while True:
            try:
                async with lane.calls:
                    codes = await self._client.ack(topic, held)
            except BrokerError as error:
                LOG.debug("the broker did not take acks, ackd repeats them: %s", error.detail)
                await asyncio.sleep(AGAIN_S)
                continue
            break
        for (hold, each), code in zip(batch, codes, strict=True):
            if code != "OK":
                LOG.debug("the broker refused an ack (%s), the message comes again", code)
            each.busy, each.gone = False, True
            self._drop(hold)

    async def _change(self, hold: Hold, each: Delivery, hold_ms: int) -> None:
        asked_ms = monotonic_ms()
        try:
            async with hold.lane.calls:
                asked_ms = monotonic_ms()
                held = HeldMessage(hold.message, each.handle)
                each.handle = await self._client.change(hold.topic, held, hold_ms)
                each.due_ms = asked_ms + self._hold_ms // 2
        except BrokerError as error:
            each.gone = True
            if code_of(error) not in (NO_ANSWER, UNREACHABLE):
                LOG.debug("the broker did not renew the hiding of a message: %s", error.detail)
        finally:
            each.busy = False
        if hold.back and hold_ms == BACK_MS:
            each.gone = True
        if hold.done or hold.back:
            self._do(hold)
        else:
            self._drop(hold)

    def _drop(self, hold: Hold) -> None:
        """Forget the hold when nothing is left to do about it."""
        over = hold.done or hold.back
        if not over or not all(each.gone for each in hold.deliveries):
            return
        if self._by_message.get((hold.topic, hold.message)) is hold:
            del self._by_message[hold.topic, hold.message]
            hold.lane.count -= 1
        place = hold.place
        if place is not None and self._by_place.get((hold.topic, place)) is hold:
            del self._by_place[hold.topic, place]
