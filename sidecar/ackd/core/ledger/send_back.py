"""Which messages hold the watermark for too long, and how they leave the window (R2-R4, I5).

The owner polls `stuck` and asks the store to move each of those messages to the retry topic
(MOVE_TO_RETRY). If the store agrees, a `SendBack` effect asks the engine to store the retry copy.
A key is blocked while earlier messages of it are in the retry topic.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple

from ackd.core.ledger.entries import Entries
from ackd.core.ledger.entry import UNKNOWN_ROLLBACK_EPOCH, B, Entry, EntryStatus
from ackd.core.ledger.lifecycle import Lifecycle
from ackd.core.ledger.order import KeyOrder
from ackd.core.ledger.repair import held
from ackd.core.ledger.sent_back import LeftOpen, MovedMessages, SentBack
from ackd.core.record.operations import CopyRef
from ackd.core.record.protocol import OpResult
from ackd.core.record.transitions import Outcome, State

FOLLOWERS_MAX = 256
"""`stuck` returns at most this many messages of blocked keys at a time."""
STEPS_MAX = 500
"""`stuck` examines at most this many messages, from the watermark on, at a time."""
ENDS_SOON_MS = 500
"""A message whose lease ends within this time stays for up to this time longer: nobody can get it
while its copy is on its way, and its deadline would be kept late (I4).
"""


class Rules(NamedTuple):
    """When to move a message to the retry topic; times in ms.

    `min_age_ms`: the longer of the usual lease and `stuck_min_age_ms`. A span larger than
    `span_max` counts only once the head is older than that (R3).
    """

    stuck_after_ms: int
    min_age_ms: int
    span_max: int


class Why(StrEnum):
    """Why a message moves to the retry topic."""

    AGE = "age"
    SPAN = "span"
    DELAY = "delay"
    BYTES = "bytes"
    KEY = "key"
    """Earlier messages of its key have moved (R19)."""


class Stuck(NamedTuple):
    """A message to move to the retry topic. `key`: the key that this blocks, 0 = none."""

    offset: int
    why: Why
    key: int = 0


_ON_ITS_WAY = frozenset({EntryStatus.MOVING, EntryStatus.DEAD, EntryStatus.EXHAUSTED})
_LEFT = frozenset({EntryStatus.MOVING, EntryStatus.DEAD})


class SendBackTracker(Generic[B]):
    """Moves messages to the retry topic when the window can't wait for them any longer.

    `rules` None: nothing new moves. Moves that were started before, or by an earlier owner, are
    still completed.
    """

    __slots__ = ("_asked", "_entries", "_excess", "_life", "_long", "rules", "sent_before")

    def __init__(self, entries: Entries[B], life: Lifecycle[B], rules: Rules | None) -> None:
        self.rules = rules
        self.sent_before = SentBack()
        self._entries = entries
        self._life = life
        self._excess = 0
        self._asked: set[int] = set()
        self._long: dict[int, None] = {}

    def began_waiting(self, offset: int) -> None:
        """Check this message's delay at the next `stuck`: it may be long enough to count."""
        if self.rules is not None:
            self._long[offset] = None

    def relieve(self, excess_bytes: int) -> None:
        """Free this many bytes of memory, but only by moving messages that are older than
        `Rules.min_age_ms`.
        """
        self._excess = excess_bytes

    # --- who is stuck

    def stuck(self, now_ms: int) -> list[Stuck]:
        """Messages to move now. Returns each one again only after the store answered for it.

        Returns a message at once if its delay alone would make it stuck. Returns any other message
        only when it is the smallest unfinished offset, or all before it are moving already or will
        do so soon (`ENDS_SOON_MS`).
        """
        entries = self._entries
        entries.clock.saw(now_ms + entries.clock.skew_ms)
        if self.rules is None or entries.dirty:
            return []
        found = self._delayed(self.rules, now_ms)
        offset = entries.watermark
        for _ in range(STEPS_MAX):
            entry = entries.by_offset.get(offset)
            if entry is None:
                break
            if offset not in self._asked and entry.status not in _ON_ITS_WAY:
                why = self._why(entry, self.rules, now_ms)
                if why is None or self._undelivered(entry, offset):
                    break
                if why is not Why.AGE or not self._ends_soon(entry, self.rules, now_ms):
                    found.append(Stuck(offset, why, self.key(offset)))
                    self._asked.add(offset)
            offset = entries.finished.first_clear(offset + 1)
        self._excess = 0
        order = self._life.order
        if order is not None and order.following:
            found += self._followers(order)
        return found

    def _followers(self, order: KeyOrder[B]) -> list[Stuck]:
        """Messages that must follow their blocked key, in order. The next ones come when the store
        has answered for these.

        One call of the store decides all of them, so either all move or none (R19).
        """
        found: list[Stuck] = []
        known_to = order.end(self._entries.position)
        for key in list(order.following):
            if len(found) >= FOLLOWERS_MAX:
                break
            del order.following[key]
            for offset in order.of_key(key):
                entry = self._entries.by_offset.get(offset)
                if entry is not None and entry.status in _LEFT:
                    continue
                ready = (
                    entry is not None and entry.status is EntryStatus.READY and offset < known_to
                )
                if not ready or offset in self._asked or len(found) >= FOLLOWERS_MAX:
                    break
                found.append(Stuck(offset, Why.KEY, self.key(offset)))
            else:
                continue
            order.following[key] = None
        self._asked.update(each.offset for each in found)
        return found

    def key(self, offset: int) -> int:
        """The hash of a message's key as the store knows it, 0 = none."""
        return 0 if self._life.order is None else self._life.order.key(offset)

    @property
    def blocked(self) -> Collection[Hashable]:
        """Keys that may be blocked. The owner asks the store when a message of one arrives."""
        return () if self._life.order is None else self._life.order.blocked.keys()

    def _key_known(self, entry: Entry[B]) -> bool:
        """False for a lease of an earlier owner whose message was not fetched yet: its key is
        unknown until then (R19).
        """
        return self._life.order is None or entry.body is not None or entry.gone

    def _undelivered(self, entry: Entry[B], offset: int) -> bool:
        """Whether nobody was given this message of a key, though its attempts are in the store
        (`foreign_delays`). It moves only if its key is blocked (R19), so as one of `_followers`.
        """
        return not entry.fence and entry.status is EntryStatus.READY and self.key(offset) > 0

    def _delayed(self, rules: Rules, now_ms: int) -> list[Stuck]:
        found = []
        long, self._long = self._long, {}
        for offset in long:
            entry = self._entries.by_offset.get(offset)
            if entry is not None and not self._key_known(entry):
                self._long[offset] = None
            elif (
                entry is not None
                and entry.status is EntryStatus.WAITING
                and entry.first_s
                and entry.due_ms - now_ms >= rules.stuck_after_ms
                and offset not in self._asked
            ):
                found.append(Stuck(offset, Why.DELAY, self.key(offset)))
                self._asked.add(offset)
        return found

    def _why(self, entry: Entry[B], rules: Rules, now_ms: int) -> Why | None:
        age_ms = self._age_ms(entry, now_ms)
        if age_ms is None or not self._key_known(entry):
            return None
        if age_ms >= rules.stuck_after_ms:
            return Why.AGE
        entries = self._entries
        if entries.position - entries.watermark > rules.span_max and age_ms > rules.min_age_ms:
            return Why.SPAN
        if self._excess > 0 and age_ms > rules.min_age_ms:
            self._excess -= entry.size
            return Why.BYTES
        return None

    def _ends_soon(self, entry: Entry[B], rules: Rules, now_ms: int) -> bool:
        age_ms = self._age_ms(entry, now_ms) or 0
        return (
            entry.status is EntryStatus.LEASED
            and entry.due_ms < now_ms + ENDS_SOON_MS
            and age_ms < rules.stuck_after_ms + ENDS_SOON_MS
        )

    def _age_ms(self, entry: Entry[B], now_ms: int) -> int | None:
        """Ms since its first delivery; None if it does not hold up anything.

        A ready message holds others up only if something above it is finished. If nothing is, then
        no application is asking for messages.
        """
        if not entry.first_s:
            return None
        entries = self._entries
        if entry.status is EntryStatus.READY:
            if len(entries.by_offset) >= entries.position - entries.watermark:
                return None
        elif entry.status is not EntryStatus.LEASED and entry.status is not EntryStatus.WAITING:
            return None
        # `first_s` is rounded down to seconds: no message may move too early.
        return now_ms + entries.clock.skew_ms - entry.first_s * 1000 - 999

    # --- to read

    @property
    def leased(self) -> int:
        """How many messages that it moved are still under the lease of before."""
        return self.sent_before.leased(self._entries.clock.ticked_ms)

    @property
    def asking(self) -> bool:
        """The store has not answered yet for some messages that `stuck` returned."""
        return bool(self._asked)

    def may_go(self, offset: int) -> bool:
        """Whether the store may have moved this message: it was asked, or its answer is unknown."""
        return self._entries.dirty or offset in self._asked

    def head(self) -> Entry[B] | None:
        """The smallest unfinished message that is not leaving the window; None if it was never
        delivered.
        """
        offset = self._entries.watermark
        for _ in range(STEPS_MAX):
            entry = self._entries.by_offset.get(offset)
            if entry is None or entry.status not in _ON_ITS_WAY:
                return entry if entry is not None and entry.first_s else None
            offset = self._entries.finished.first_clear(offset + 1)
        return None

    def head_left_ms(self, now_ms: int) -> int | None:
        """Ms until the head moves to the retry topic unless it is settled; None = never."""
        entry = self._entries.by_offset.get(self._entries.watermark)
        if self.rules is None or entry is None:
            return None
        age_ms = self._age_ms(entry, now_ms)
        return None if age_ms is None else max(self.rules.stuck_after_ms - age_ms, 0)

    # --- the store's answers

    def sent(
        self, offset: int, result: OpResult, rollback_epoch: int, store_ms: int, now_ms: int
    ) -> None:
        """Apply the store's answer to MOVE_TO_RETRY."""
        self._asked.discard(offset)
        entries, life = self._entries, self._life
        entry = entries.by_offset.get(offset)
        if entry is None:
            return
        match result.outcome:
            case Outcome.SENT:
                key = self.key(offset)
                if life.order is not None and key:  # stays blocked when the message has left
                    life.order.block(key)
                if entry.status is EntryStatus.MOVING and entry.fence == result.fence:
                    return  # asked twice; its retry copy is being stored
                known = (
                    entry.status is EntryStatus.LEASED
                    and entry.rollback_epoch != UNKNOWN_ROLLBACK_EPOCH
                )
                lease = entry.fence, entry.rollback_epoch, entry.attempt, entry.due_ms
                self.sent_before[offset] = MovedMessages(
                    *(result.fence, rollback_epoch, result.attempt, key, now_ms),
                    lease if known else None,
                )
                entries.renew(entry, result.fence, rollback_epoch, result.attempt)
                life.hold(offset, entry, State.MOVING, result.when_ms, store_ms, now_ms)
            case Outcome.FINISHED:
                life.finish(offset)
                entries.advance()
            case Outcome.HELD:
                self._again(offset)
            case Outcome.LOST:
                entry.first_s = result.first_s  # 0 if the store knows of no delivery
                self.key_free(self.key(offset))
            case _:
                life.seen(entry, result.fence, result.attempt)
                life.hold(offset, entry, result.state, result.when_ms, store_ms, now_ms)

    def not_sent(self, offsets: Iterable[int]) -> None:
        """The store decided nothing about these: `stuck` returns them again."""
        for offset in offsets:
            self._asked.discard(offset)
            self._again(offset)

    def _again(self, offset: int) -> None:
        self._long[offset] = None
        if self._life.order is not None:
            self._life.order.follow(offset)

    def sent_back(self, offset: int, place: CopyRef | None = None) -> None:
        """The retry copy is durable (at `place`, if known), and the record has the message as
        finished.
        """
        entry, sent = self._entries.by_offset.get(offset), self.sent_before.get(offset)
        ticked_ms = self._entries.clock.ticked_ms
        if sent is not None:
            sent.stored, sent.since_ms = True, max(sent.since_ms, ticked_ms)
            sent.place = place
        elif entry is not None:  # an earlier owner started the move
            self.sent_before[offset] = MovedMessages(
                *(entry.fence, entry.rollback_epoch, entry.attempt, self.key(offset), ticked_ms),
                stored=True,
                place=place,
            )
        self._life.finish(offset)
        self._entries.advance()

    def vanished(self, offset: int) -> None:
        """The log lost the message before its copy was stored, and the record has it as finished.

        There is nothing to restore after a rollback: then the log shows again that it is gone.
        """
        if offset in self.sent_before:
            del self.sent_before[offset]
        self._life.finish(offset)
        self._entries.advance()

    def key_free(self, key: Hashable) -> None:
        """The store reported a key as free: deliver its messages from the window again."""
        if self._life.order is not None:
            self._life.next_turn(self._life.order.release(key))

    # --- moved messages, after a possible rollback

    def left_open(self) -> LeftOpen:
        """What this owner may have to replay after it has released the partition."""
        return LeftOpen(self.sent_before, held(self._entries.by_offset))

    def restart(self, *, same: bool) -> None:
        """The record is being read again. `same` False: copies from before don't belong to it."""
        self._asked.clear()
        self._long.clear()
        if not same:
            self.sent_before.clear()

    def reread(self, store_ms: int, now_ms: int) -> Sequence[tuple[int, MovedMessages]]:
        """Re-apply moves to the retry topic that the re-read record no longer shows."""
        found: list[tuple[int, MovedMessages]] = []
        entries, order = self._entries, self._life.order
        for offset, sent in self.sent_before.young(now_ms).items():
            entry = entries.by_offset.get(offset)
            if entry is not None and entry.fence > sent.generation:
                del self.sent_before[offset]  # delivered or moved again since
                continue
            found.append((offset, sent))
            if order is not None and sent.key:
                order.block(sent.key)
            if sent.stored:
                if entry is not None:
                    entries.uncount(entry)
                    entry.status = EntryStatus.MOVING
                self._life.finish(offset)
            elif not entries.over(offset) and (
                entry is None or entry.status is not EntryStatus.MOVING
            ):
                if entry is None:
                    entry = Entry(None)
                    entries.add(offset, entry)
                entries.renew(entry, sent.generation, sent.rollback_epoch, sent.attempt)
                self._life.hold(offset, entry, State.MOVING, entry.when_ms, store_ms, now_ms)
        return tuple(found)
