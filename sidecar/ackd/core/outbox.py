"""The outbox of a broker: messages that ackd accepted and has yet to publish.

The reference for `store/outbox.lua`, which decides the same. Messages are in the order of their due
time, then of their number; a message without a delay is due when it is accepted. One sidecar at a
time holds the lease of the outbox and takes messages. The next holder also gets the messages that
the previous one took and did not confirm. They are marked `in_doubt`: the broker may have them
already.

A number is never used twice, because a sender may still hold the number of a message that a
failover of the store erased. So each server run has its own range of numbers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

RUN_NUMBERS = 1_000_000_000
"""A new server run begins this far above the last number that it knows (2^53 is reached after 9
million runs).
"""
PRUNE_MAX = 100
"""One call deletes at most this many outdated idempotency keys, failures and results."""


class NewMessage(NamedTuple):
    """A message as the store keeps it: its delay, and bytes that only the engine reads."""

    delay_ms: int
    body: bytes


class EnqueueRequest(NamedTuple):
    """Messages that are accepted together or not at all. They get consecutive numbers.

    `idempotency_key`: names the request, empty = none. A repeat with the same key
    gets the same numbers.
    """

    idempotency_key: bytes
    messages: tuple[NewMessage, ...]


class EnqueueResult(NamedTuple):
    """The answer to an `EnqueueRequest`. `first` 0: the outbox has no room; `refused` says
    `messages` or `bytes`.

    `now_ms`: the outbox's clock at acceptance. A message is due at `now_ms` plus its delay.
    """

    first: int
    now_ms: int
    refused: str = ""
    replayed: bool = False


class Bounds(NamedTuple):
    """Bounds of all messages in the outbox. `idempotency_ms`: for how long a key is remembered."""

    messages_max: int
    bytes_max: int
    idempotency_ms: int


class ResultRetention(NamedTuple):
    """For how long results of sent messages are kept and how many of them; for how long failed
    messages.
    """

    result_ms: int
    results_max: int
    failed_ms: int


class TakenMessage(NamedTuple):
    """A message for the holder to send. `in_doubt`: an earlier holder may have sent it."""

    number: int
    due_ms: int
    in_doubt: bool
    body: bytes


class TakeRequest(NamedTuple):
    """A sidecar that asks for messages. `term`: of its lease, as far as it knows (0: it has none).

    `seq` grows with every request, so that a late one changes nothing.
    """

    owner: str
    term: int
    seq: int
    lease_ms: int


class TakeResult(NamedTuple):
    """The answer to a take. `term` 0: the asker does not have the lease (`holder` has it; "" =
    nobody).

    `next_due_ms` 0: nothing waits. `waiting`: messages that nobody has taken; `due` of them are
    due.
    """

    term: int
    holder: str
    now_ms: int
    next_due_ms: int
    waiting: int
    due: int
    failed: int
    size: int
    messages: Sequence[TakenMessage] = ()


class SendResult(NamedTuple):
    """The outcome of a taken message. `result`: bytes for whoever asks later."""

    number: int
    result: bytes
    failed: bool = False


class MessageStatus(NamedTuple):
    """The state of a message: waiting, sending, sent, failed; "" = unknown or forgotten."""

    state: str
    due_ms: int = 0
    in_doubt: bool = False
    result: bytes = b""


@dataclass(slots=True)
class _QueuedMessage:
    due_ms: int
    body: bytes
    in_doubt: bool = False


# tidy: long-class attributes=14 -- the rules' whole state, a copy of the script's head
@dataclass(slots=True)
class Outbox:
    """One broker's outbox. Times are the store's, integer milliseconds."""

    last: int = 0
    run: str = ""
    clock_ms: int = 0
    term: int = 0
    owner: str = ""
    seen: tuple[str, int] = ("", 0)
    until_ms: int = 0
    size: int = 0
    items: dict[int, _QueuedMessage] = field(default_factory=dict)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    flight: dict[int, None] = field(default_factory=dict)
    failed: dict[int, int] = field(default_factory=dict)
    results: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    idempotency_keys: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)

    def decided_by(self, run: str) -> None:
        """Set the server run. A new one continues in its own range of numbers."""
        if self.run != run and self.last:
            self.last += RUN_NUMBERS
        self.run = run

    def _tick(self, now_ms: int) -> int:
        """The outbox's clock never goes back, because it orders the messages."""
        self.clock_ms = max(self.clock_ms, now_ms)
        return self.clock_ms

    # --- accepting

    def enqueue(
        self, requests: Sequence[EnqueueRequest], bounds: Bounds, now_ms: int
    ) -> list[EnqueueResult]:
        """Accept each request that fits."""
        now_ms = self._tick(now_ms)
        self._prune_idempotency_keys(now_ms)
        return [self._enqueue(request, bounds, now_ms) for request in requests]

    def _enqueue(self, request: EnqueueRequest, bounds: Bounds, now_ms: int) -> EnqueueResult:
        known = (
            self.idempotency_keys.get(request.idempotency_key) if request.idempotency_key else None
        )
        if known is not None:
            return EnqueueResult(known[0], known[1], replayed=True)
        if len(self.items) + len(request.messages) > bounds.messages_max:
            return EnqueueResult(0, now_ms, "messages")
        if self.size + sum(len(each.body) for each in request.messages) > bounds.bytes_max:
            return EnqueueResult(0, now_ms, "bytes")
        first = self.last + 1
        for new_message in request.messages:
            self.last += 1
            self.items[self.last] = _QueuedMessage(now_ms + new_message.delay_ms, new_message.body)
            self.size += len(new_message.body)
            self._wait(self.last)
        if request.idempotency_key:
            self.idempotency_keys[request.idempotency_key] = (
                first,
                now_ms,
                now_ms + bounds.idempotency_ms,
            )
        return EnqueueResult(first, now_ms)

    def _wait(self, number: int) -> None:
        insort(self.waiting, (self.items[number].due_ms, number))

    # --- sending

    def take(
        self,
        request: TakeRequest,
        most: int,
        bytes_max: int,
        now_ms: int,
        have: Sequence[int] | None = None,
    ) -> TakeResult:
        """Take or renew the lease, and take up to `most` due messages, the first one whatever its
        size.

        Nobody gets the lease of an empty outbox. A holder that does not know its term because an
        answer was lost, or whose lease the store forgot, gets a new one. `have`: after a lost
        answer, all messages that the holder knows it took; the others were never sent and wait
        again.
        """
        now_ms = self._tick(now_ms)
        owner, term, seq, lease_ms = request
        if self.seen[0] == owner and seq <= self.seen[1]:
            return self._take_result(0, now_ms)
        if self.owner != owner or self.term != term:
            idle = not most or not (self.waiting or self.flight)
            held = self.owner not in ("", owner) and self.until_ms > now_ms
            if held or (idle and self.owner != owner):
                return self._take_result(0, now_ms)
            self.owner, self.term = owner, max(self.term, term) + 1
            self._take_back(set(self.flight))
        self.seen = owner, seq
        self.until_ms = now_ms + lease_ms
        if have is not None:
            self._lay_back(set(self.flight) - set(have))
        messages: list[TakenMessage] = []
        while self.waiting and len(messages) < most and self.waiting[0][0] <= now_ms:
            due_ms, number = self.waiting[0]
            item = self.items[number]
            bytes_max -= len(item.body)
            if messages and bytes_max < 0:
                break
            del self.waiting[0]
            self.flight[number] = None
            messages.append(TakenMessage(number, due_ms, item.in_doubt, item.body))
        return self._take_result(self.term, now_ms, messages)

    def _take_result(
        self, term: int, now_ms: int, messages: Sequence[TakenMessage] = ()
    ) -> TakeResult:
        holder = self.owner if self.until_ms > now_ms else ""
        due = sum(due_ms <= now_ms for due_ms, _ in self.waiting)
        following = self.waiting[0][0] if self.waiting else 0
        counts = (len(self.waiting), due, len(self.failed), self.size)
        return TakeResult(term, holder, now_ms, following, *counts, messages)

    def _take_back(self, numbers: set[int]) -> None:
        """An earlier holder took these and may have sent them."""
        for number in numbers:
            self.items[number].in_doubt = True
        self._lay_back(numbers)

    def _lay_back(self, numbers: set[int]) -> None:
        for number in numbers:
            del self.flight[number]
            self._wait(number)

    def done(
        self,
        owner: str,
        term: int,
        lease_ms: int,
        sent: Sequence[SendResult],
        keep: ResultRetention,
        now_ms: int,
    ) -> bool:
        """Store the outcomes of taken messages. False: another sidecar has the lease."""
        now_ms = self._tick(now_ms)
        if self.owner != owner or self.term != term:
            return False
        self.until_ms = now_ms + lease_ms
        for number, result, failed in sent:
            if not self._taken(number, sent=not failed):
                continue
            if failed:
                self.failed[number] = now_ms + keep.failed_ms
            else:
                self.size -= len(self.items.pop(number).body)
            self.results[number] = (now_ms + (keep.failed_ms if failed else keep.result_ms), result)
        self._prune_results(keep, now_ms)
        return True

    def _taken(self, number: int, *, sent: bool) -> bool:
        """Remove it from flight. After a failover of the store a message that was sent may be
        among the waiting ones.
        """
        if number in self.flight:
            del self.flight[number]
            return True
        item = self.items.get(number)
        if item is None or number in self.failed or not sent:
            return False
        self.waiting.remove((item.due_ms, number))
        return True

    def release(self, owner: str, term: int, unsent: Sequence[int]) -> bool:
        """Give the lease back. `unsent`: messages that the holder took and certainly did not
        send.
        """
        if self.owner != owner or self.term != term:
            return False
        self._lay_back({number for number in unsent if number in self.flight})
        self._take_back(set(self.flight))
        self.owner, self.until_ms = "", 0
        return True

    # --- looking

    def status(self, number: int) -> MessageStatus:
        item, (_, result) = self.items.get(number), self.results.get(number, (0, b""))
        if item is None:
            return (
                MessageStatus("sent", result=result)
                if number in self.results
                else MessageStatus("")
            )
        if number in self.failed:
            return MessageStatus("failed", 0, item.in_doubt, result)
        state = "sending" if number in self.flight else "waiting"
        return MessageStatus(state, item.due_ms, item.in_doubt, result)

    def again(self, number: int, now_ms: int) -> bool:
        """Make a failed message due now. False: it has not failed."""
        now_ms = self._tick(now_ms)
        if self.failed.pop(number, None) is None:
            return False
        self.results.pop(number, None)
        self.items[number].due_ms = now_ms
        self._wait(number)
        return True

    # --- forgetting

    def _prune_idempotency_keys(self, now_ms: int) -> None:
        over = [key for key, (*_, until_ms) in self.idempotency_keys.items() if until_ms <= now_ms]
        for key in over[:PRUNE_MAX]:
            del self.idempotency_keys[key]

    def _prune_results(self, keep: ResultRetention, now_ms: int) -> None:
        """Delete outdated results; failed messages go with their bodies, the oldest first."""
        gone = sorted((until, n) for n, until in self.failed.items() if until <= now_ms)
        for _, number in gone[:PRUNE_MAX]:
            del self.failed[number]
            self.size -= len(self.items.pop(number).body)
        by_time = sorted((until, n) for n, (until, _) in self.results.items())
        most = len(by_time) - keep.results_max
        for index, (until_ms, number) in enumerate(by_time[:PRUNE_MAX]):
            if index >= most and until_ms > now_ms:
                break
            if number not in self.failed:
                del self.results[number]
