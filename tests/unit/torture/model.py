"""A tiny queue in virtual time, whose clients write histories as real ones do; and its mutants.

The queue keeps every rule when `mutant` is empty. A mutant breaks exactly one rule, now and then,
and counts in `planted` how often it truly did so. Latencies between a client and the queue are
random, so requests overlap in every way.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from ackd_torture.history import Event, EventKind

WALL_OFFSET_US = 1_700_000_000_000_000
LEASE_MS = 50
WAIT_US = 40_000
SUB = "orders"


@dataclass
class Message:
    """A message as the queue sees it."""

    place: str
    name: str
    state: str = "ready"
    lease: str = ""
    attempt: int = 0
    deadline_ms: int = 0
    done: set[str] = field(default_factory=set)
    waiting_from: int = 0


@dataclass
class Waiter:
    """A long poll that found nothing yet."""

    until_us: int
    answer: Callable[[Message | None], None]
    open: bool = True


class Model:
    """The queue and its clients. `run` gives the histories, sorted.

    `keys`: how many there are, in whose order it hands out; 0 = in no order.
    """

    def __init__(
        self, seed: int, mutant: str = "", messages: int = 40, clients: int = 4, keys: int = 0
    ) -> None:
        self.random = random.Random(seed)
        self.mutant = mutant
        self.keys = keys
        self.planted = 0
        self.now_us = 1_000_000
        self.events: list[Event] = []
        self.messages: list[Message] = []
        self.waiters: list[Waiter] = []
        self.fence = 0
        self.calls = 0
        self.agenda: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = 0
        if keys:
            self.note("p", EventKind.ORDERED, note="key")
        self.publish(messages)
        for number in range(clients):
            self.after(self.some(20_000), partial(self.ask, f"c{number}"))

    def run(self) -> list[Event]:
        """Go on until every message is finished (a mutant may make that impossible: bounded)."""
        end_us = self.now_us + 3_000_000
        while self.agenda and self.now_us < end_us:
            at_us, _, act = heapq.heappop(self.agenda)
            self.now_us = max(self.now_us, at_us)
            act()
            if all(each.state in {"acked", "gone"} for each in self.messages):
                end_us = min(end_us, self.now_us + 200_000)
        self.note("all", EventKind.DRAINED)
        return sorted(self.events, key=lambda event: event.mono_us)

    # --- plumbing

    def some(self, most_us: int) -> int:
        """A random latency."""
        return self.random.randint(1, most_us)

    def after(self, delay_us: int, act: Callable[[], None]) -> None:
        """Do something later."""
        self.serial += 1
        heapq.heappush(self.agenda, (self.now_us + delay_us, self.serial, act))

    def note(self, client: str, kind: EventKind, **facts: object) -> None:
        """Write a line of a history, now."""
        wall_us = self.now_us + WALL_OFFSET_US
        event = Event(kind=kind, client=client, mono_us=self.now_us, wall_us=wall_us, sub=SUB)
        self.events.append(msgspec.structs.replace(event, **facts))

    def now_ms(self) -> int:
        """The queue's clock: whole milliseconds of Unix time."""
        return (self.now_us + WALL_OFFSET_US) // 1000

    def fires(self, mutant: str, share: float = 0.15) -> bool:
        """Whether this mutant acts here."""
        return self.mutant == mutant and self.random.random() < share

    # --- publishing

    def publish(self, count: int) -> None:
        """Publish everything first; some answers are lost."""
        for number in range(count):
            name, place = f"m{number}", f"{SUB}/0/{number}"
            self.now_us += self.some(500)
            self.note("p", EventKind.PUBLISH, msg=name)
            self.now_us += self.some(500)
            stored = self.random.random() < 0.9
            if stored or self.random.random() < 0.5:
                if self.fires("lost") and stored:
                    self.planted += 1
                else:
                    self.messages.append(Message(place, name))
            if stored:
                self.note("p", EventKind.PUBLISHED, msg=name, id=place)
            else:
                self.note("p", EventKind.PUBLISH_UNKNOWN, msg=name)
        if self.mutant == "unexpected":
            self.planted += 1
            self.messages.append(Message(f"{SUB}/0/{count}", "nobody"))

    # --- the queue

    def pick(self) -> Message | None:
        """What may be handed out now."""
        for each in self.messages:
            if each.state == "leased" and self.over(each):
                each.state = "ready"
            if each.state == "ready" and each.waiting_from <= self.now_us and self.turn(each):
                return each
            if each.state == "leased" and self.fires("double", 0.05):
                self.planted += 1
                return each
        return None

    def key(self, message: Message) -> str:
        """Of a message."""
        return f"k{int(message.place.rpartition('/')[2]) % self.keys}" if self.keys else ""

    def turn(self, message: Message) -> bool:
        """Whether it may go by the order of its key."""
        if not self.keys:
            return True
        earlier = itertools.takewhile(lambda each: each is not message, self.messages)
        held = any(m.state != "acked" and self.key(m) == self.key(message) for m in earlier)
        if held and self.fires("disorder", 0.02):
            self.planted += 1
            return True
        return not held

    def over(self, each: Message) -> bool:
        """Whether the lease has ended by time."""
        if self.mutant == "late":
            self.planted = 1
            return self.now_ms() >= each.deadline_ms + 30
        if self.mutant == "early" and self.now_ms() >= each.deadline_ms - LEASE_MS // 2:
            self.planted += self.now_ms() < each.deadline_ms - 5
            return True
        return self.now_ms() >= each.deadline_ms

    def grant(self, message: Message) -> Message:
        """Lease it to somebody."""
        self.fence += 1
        message.state = "leased"
        message.attempt += 1
        message.lease = f"v1.{message.place}.{self.fence}"
        message.deadline_ms = self.now_ms() + LEASE_MS
        return message

    def decide(self, message: Message, lease: str, verb: str) -> tuple[str, int]:
        """(status, deadline) of one settle, changing the message."""
        current = lease == message.lease
        if message.state in {"acked", "gone"}:
            return ("already_acked" if verb == "ack" else "lost"), 0
        if self.fires("early_lost") and current and self.now_ms() < message.deadline_ms - 10:
            self.planted += 1
            return "lost", 0
        if not current and self.fires("false_yes", 0.7):
            self.planted += 1
            return ("acked" if verb == "ack" else "extended"), self.now_ms() + LEASE_MS
        if not current or message.state != "leased":
            return "lost", 0
        if verb == "ack":
            return self.acked(message), 0
        if verb == "extend":
            message.deadline_ms = self.now_ms() + LEASE_MS
            return "extended", message.deadline_ms
        message.state, message.waiting_from = "ready", self.now_us + 5_000
        if self.fires("stranded"):
            self.planted += 1
            message.state = "gone"
        self.after(5_001, self.wake)
        return "retrying", 0

    def acked(self, message: Message) -> str:
        """The ack of the lease that is held."""
        for mutant, status in (("already", "already_acked"), ("acked_again", "acked")):
            if self.fires(mutant):
                self.planted += 1
                return status
        message.state = "acked"
        if self.keys:
            self.after(1, self.wake)  # the next one of its key may go
        return "acked"

    def wake(self) -> None:
        """Serve waiters, as timers do in the real thing."""
        while self.waiters and (found := self.pick()) is not None:
            waiter = self.waiters.pop(0)
            if waiter.open:
                waiter.open = False
                waiter.answer(self.grant(found))
                delay_ms = LEASE_MS - (25 if self.mutant == "early" else 0)
                delay_ms += 30 if self.mutant == "late" else 0
                self.after(delay_ms * 1000, self.wake)

    # --- clients

    def ask(self, client: str) -> None:
        """A client sends a receive."""
        self.calls += 1
        call = self.calls
        self.note(client, EventKind.ASK, call=call)
        self.after(self.some(3_000), lambda: self.receive(client, call))

    def receive(self, client: str, call: int) -> None:
        """The receive arrives and waits its turn."""
        waiter = Waiter(self.now_us + WAIT_US, lambda got: self.reply(client, call, got))
        self.waiters.append(waiter)
        self.wake()
        if waiter.open:
            self.after(WAIT_US, lambda: self.give_up(waiter))

    def give_up(self, waiter: Waiter) -> None:
        """The long poll ends with nothing."""
        if waiter.open:
            waiter.open = False
            self.waiters.remove(waiter)
            waiter.answer(None)

    def reply(self, client: str, call: int, message: Message | None) -> None:
        """The answer leaves."""
        seen = None if message is None else Message(**vars(message))
        self.after(self.some(3_000), lambda: self.read(client, call, seen))

    def read(self, client: str, call: int, seen: Message | None) -> None:
        """The client has read the answer; it goes on to work and to ask again."""
        if seen is not None:
            name = seen.name
            if self.fires("corrupt"):
                self.planted += 1
                name = "garbled"
            self.note(
                client,
                EventKind.DELIVERED,
                call=call,
                msg=name,
                id=seen.place,
                lease=seen.lease,
                attempt=seen.attempt,
                key=self.key(seen),
                lease_ms=LEASE_MS,
                deadline_ms=seen.deadline_ms,
            )
            self.work(client, seen)
        self.note(client, EventKind.ANSWERED, call=call, count=int(seen is not None))
        self.after(self.some(1_000), lambda: self.ask(client))

    def work(self, client: str, seen: Message) -> None:
        """What a worker does with a message: finish, retry, extend, or crash."""
        what = self.random.random()
        if what < 0.1:
            return  # A crashed worker: the lease runs out.
        plan = ["ack"] if what < 0.7 else ["retry"] if what < 0.8 else ["extend", "ack"]
        delay_us = self.some(80_000 if self.random.random() < 0.2 else 20_000)
        for verb in plan:
            self.after(delay_us, partial(self.settle, client, seen, verb))
            delay_us += self.some(20_000)

    def settle(self, client: str, seen: Message, verb: str) -> None:
        """A client sends a settle."""
        self.calls += 1
        call = self.calls
        facts = {"call": call, "lease": seen.lease, "do": verb, "lease_ms": LEASE_MS}
        self.note(client, EventKind.SETTLE, **facts)
        self.after(self.some(2_000), lambda: self.apply(client, seen, verb, call))

    def apply(self, client: str, seen: Message, verb: str, call: int) -> None:
        """The settle takes effect, and is answered or not."""
        message = next(each for each in self.messages if each.place == seen.place)
        status, deadline_ms = self.decide(message, seen.lease, verb)
        facts: dict[str, object] = {"call": call, "lease": seen.lease, "do": verb}
        if self.random.random() < 0.05:
            self.after(50, lambda: self.note(client, EventKind.SETTLE_UNKNOWN, **facts))
            return
        facts |= {"status": status, "deadline_ms": deadline_ms}
        self.after(self.some(2_000), lambda: self.note(client, EventKind.SETTLED, **facts))
