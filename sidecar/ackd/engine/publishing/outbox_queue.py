"""The messages of an outbox that this sidecar has taken: which may go now, and what became of them.

Two messages of a topic with the same key, or for the same explicit partition, are in one lane. A
lane's messages go one after the other, so that the broker stores them in order (I6).
"""

from __future__ import annotations

from collections.abc import Iterable

from ackd.core.backoff import Backoff
from ackd.core.outbox import SendResult, TakenMessage
from ackd.ports import Outgoing

HELD_MAX = 1_000
HELD_BYTES_MAX = 16 * 1024 * 1024
BATCH_MAX = 500

Lane = tuple[str, bytes | int]


class UnsentMessage:
    """A message that this sidecar has taken and not finished. `flying`: the broker has been given
    it and has not answered.
    """

    __slots__ = ("again_ms", "due_ms", "flying", "in_doubt", "lanes", "message", "size", "tries")

    def __init__(self, taken: TakenMessage, message: Outgoing) -> None:
        self.message = message
        self.size = len(taken.body)
        self.due_ms = taken.due_ms
        self.in_doubt = taken.in_doubt
        self.lanes: tuple[Lane, ...] = ()
        if message.key is not None:
            self.lanes += ((message.topic, message.key),)
        if message.partition is not None:
            self.lanes += ((message.topic, message.partition),)
        self.tries = 0
        self.again_ms = 0
        self.flying = False

    def fly(self) -> None:
        """The broker is given the message."""
        self.flying = True

    def failed(self, again: Backoff, now_ms: int, *, in_doubt: bool) -> None:
        """The broker did not store it, or perhaps did (`in_doubt`): it goes again after a pause."""
        self.flying = False
        self.tries += 1
        self.again_ms = now_ms + again.delay_ms(self.tries)
        self.in_doubt |= in_doubt


class OutboxQueue:
    """`results`: of messages that are sent or refused, until the store has confirmed them."""

    def __init__(self) -> None:
        self._held: dict[int, UnsentMessage] = {}
        self.results: dict[int, SendResult] = {}

    def __len__(self) -> int:
        """How many messages are not sent."""
        return len(self._held)

    def __contains__(self, number: int) -> bool:
        """Whether this sidecar has the message, sent or not."""
        return number in self._held or number in self.results

    def numbers(self) -> list[int]:
        """The messages that this sidecar has, sent or not."""
        return [*self._held, *self.results]

    def room(self) -> int:
        """How many more messages may be taken."""
        size = sum(held.size for held in self._held.values())
        return HELD_MAX - len(self._held) if size < HELD_BYTES_MAX else 0

    def add(self, taken: TakenMessage, message: Outgoing) -> None:
        self._held[taken.number] = UnsentMessage(taken, message)

    def choose(self, now_ms: int) -> dict[int, UnsentMessage]:
        """Pick messages in order, and only the first one of each lane."""
        busy: set[Lane] = {
            lane for held in self._held.values() if held.flying for lane in held.lanes
        }
        chosen: dict[int, UnsentMessage] = {}
        for number, held in self._held.items():
            if held.flying:
                continue
            free = busy.isdisjoint(held.lanes) and held.again_ms <= now_ms
            busy.update(held.lanes)
            if free:
                chosen[number] = held
                if len(chosen) >= BATCH_MAX:
                    break
        return chosen

    def has(self, number: int, held: UnsentMessage) -> bool:
        """Whether this sidecar still has the message, since it was chosen."""
        return self._held.get(number) is held

    def finish(self, result: SendResult) -> None:
        """The message is sent, or never will be."""
        self._held.pop(result.number, None)
        self.results[result.number] = result

    def confirmed(self, results: Iterable[SendResult]) -> None:
        """The store has these results."""
        for each in results:
            self.results.pop(each.number, None)

    def failing(self) -> bool:
        """Whether a message was tried in vain."""
        return any(held.tries for held in self._held.values())

    def pauses_ms(self, now_ms: int) -> list[int]:
        """For how long each message waits that was tried in vain."""
        return [h.again_ms - now_ms for h in self._held.values() if h.again_ms > now_ms]

    def never_sent(self) -> list[int]:
        """The messages that the broker has certainly not been given."""
        return [n for n, held in self._held.items() if not (held.flying or held.in_doubt)]

    def clear(self) -> None:
        """Forget everything: another sidecar may send it."""
        self._held.clear()
        self.results.clear()
