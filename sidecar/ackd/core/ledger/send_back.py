"""What holds the watermark for too long, and how it leaves the window (rules R2-R4, I5).

The owner asks `stuck` from time to time, has each answer decided by the store (SEND), and the copy
is stored in the retry topic (`SendBack`). A message whose attempts are used up is buried.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from ackd.core.ledger.entry import HOLD_OF, UNKNOWN_RTERM, B, Entry, Hold
from ackd.core.ledger.foreign_delays import Delays
from ackd.core.ledger.order import Turns
from ackd.core.ledger.repair import held
from ackd.core.ledger.sent_back import LeftOpen, Sent, SentBack
from ackd.core.record.protocol import Result
from ackd.core.record.transitions import Outcome, State

FOLLOWERS_MAX = 256
"""So many messages of parked keys are named in one go."""
STEPS_MAX = 500
"""So many messages from the watermark on are looked at in one go."""


class Rules(NamedTuple):
    """When a message is sent back; times in ms.

    `min_age_ms`: the longer of the usual lease and `stuck_min_age_ms`; a span larger than
    `span_max` counts only for a head that is older (R3).
    """

    stuck_after_ms: int
    min_age_ms: int
    span_max: int


class Why(StrEnum):
    """Why a message is sent back."""

    AGE = "age"
    SPAN = "span"
    DELAY = "delay"
    BYTES = "bytes"
    KEY = "key"
    """Earlier messages of its key were (R19)."""


class Stuck(NamedTuple):
    """A message to be sent back. `key`: what is parked with it, 0 = nothing."""

    offset: int
    why: Why
    key: int = 0


_ON_ITS_WAY = frozenset({Hold.SENDING, Hold.DEAD, Hold.BURYING})
_LEFT = frozenset({Hold.SENDING, Hold.DEAD})


class SendingBack(Delays[B]):
    """Adds what a message goes through when its window can't wait for it any more.

    `rules` None: nothing is sent back. `excess`: so many bytes have to leave the memory, though
    only with messages that are older than `min_age_ms`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rules: Rules | None = None
        self.excess = 0
        self._asked: set[int] = set()
        self.sent_before = SentBack()
        self._long: dict[int, None] = {}

    def _time(self, offset: int, entry: Entry[B], due_ms: int) -> None:
        super()._time(offset, entry, due_ms)
        if self.rules is not None and entry.hold is Hold.WAITING:
            self._long[offset] = None

    def stuck(self, now_ms: int) -> list[Stuck]:
        """Messages to be sent back now; each is named again only after it was answered for.

        What waits for so long that it would be stuck is named at once, the rest only as the
        smallest unfinished offset (or behind such that go already).
        """
        self.seen_ms = max(self.seen_ms, now_ms + self._skew_ms)
        if self.rules is None or self.dirty:
            return []
        found = self._delayed(self.rules, now_ms)
        offset = self.watermark
        for _ in range(STEPS_MAX):
            entry = self.entries.get(offset)
            if entry is None:
                break
            if offset not in self._asked and entry.hold not in _ON_ITS_WAY:
                why = self._why(entry, self.rules, now_ms)
                if why is None:
                    break
                found.append(Stuck(offset, why, self.key(offset)))
                self._asked.add(offset)
            offset = self.finished.first_clear(offset + 1)
        self.excess = 0
        if self.turns is not None and self.turns.following:
            found += self._followers(self.turns)
        return found

    def _followers(self, turns: Turns) -> list[Stuck]:
        """What has to go after its parked key: in order, the next ones when these were answered.

        All of them are decided by one call of the store, so either each is sent or none (R19).
        """
        found: list[Stuck] = []
        known_to = self._known_to()
        for chain in list(turns.following):
            if len(found) >= FOLLOWERS_MAX:
                break
            del turns.following[chain]
            for offset in turns.chain(chain):
                entry = self.entries.get(offset)
                if entry is not None and entry.hold in _LEFT:
                    continue
                ready = entry is not None and entry.hold is Hold.READY and offset < known_to
                if not ready or offset in self._asked or len(found) >= FOLLOWERS_MAX:
                    break
                found.append(Stuck(offset, Why.KEY, self.key(offset)))
            else:
                continue
            turns.following[chain] = None
        self._asked.update(each.offset for each in found)
        return found

    def unparked(self, chain: Hashable) -> None:
        """The store says that a key is free: its messages are handed out from the window again."""
        turns = self.turns
        if turns is None or chain not in turns.parked:
            return
        del turns.parked[chain]
        turns.following.pop(chain, None)
        self._next_turn(next(turns.chain(chain), None))

    def _key_known(self, entry: Entry[B]) -> bool:
        """A lease of an earlier owner tells no key before its message was fetched (R19)."""
        return self.turns is None or entry.body is not None or entry.gone

    @property
    def asking(self) -> bool:
        """The store was asked to let some go and has not answered."""
        return bool(self._asked)

    def may_go(self, offset: int) -> bool:
        """The store was asked to let this one go, or what it answered is not known."""
        return self.dirty or offset in self._asked

    def head(self) -> Entry[B] | None:
        """The smallest unfinished message that was handed out and is still here."""
        offset = self.watermark
        for _ in range(STEPS_MAX):
            entry = self.entries.get(offset)
            if entry is None or entry.hold not in _ON_ITS_WAY:
                return entry if entry is not None and entry.first_s else None
            offset = self.finished.first_clear(offset + 1)
        return None

    def _delayed(self, rules: Rules, now_ms: int) -> list[Stuck]:
        found = []
        long, self._long = self._long, {}
        for offset in long:
            entry = self.entries.get(offset)
            if entry is not None and not self._key_known(entry):
                self._long[offset] = None
            elif (
                entry is not None
                and entry.hold is Hold.WAITING
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
        if self.position - self.watermark > rules.span_max and age_ms > rules.min_age_ms:
            return Why.SPAN
        if self.excess > 0 and age_ms > rules.min_age_ms:
            self.excess -= entry.size
            return Why.BYTES
        return None

    def _age_ms(self, entry: Entry[B], now_ms: int) -> int | None:
        """How long ago it was first handed out; None if it does not hold anything up.

        What is merely ready does only if something above it is finished: else nobody is asking.
        """
        if not entry.first_s:
            return None
        if entry.hold is Hold.READY:
            if len(self.entries) >= self.position - self.watermark:
                return None
        elif entry.hold is not Hold.LEASED and entry.hold is not Hold.WAITING:
            return None
        # `first_s` is cut to seconds: nothing may go too early.
        return now_ms + self._skew_ms - entry.first_s * 1000 - 999

    def send_back_ms(self, now_ms: int) -> int | None:
        """In how many ms the head is sent back if nothing becomes of it; None = not at all."""
        entry = self.entries.get(self.watermark)
        if self.rules is None or entry is None:
            return None
        age_ms = self._age_ms(entry, now_ms)
        return None if age_ms is None else max(self.rules.stuck_after_ms - age_ms, 0)

    # --- what was sent back, after a possible rollback

    def left_open(self) -> LeftOpen:
        """For who lets the partition go."""
        return LeftOpen(self.sent_before, held(self.entries))

    def _homes_again(self, store_ms: int, now_ms: int) -> Sequence[tuple[int, Sent]]:
        """What the record does not know to have left the window has left it nevertheless."""
        found: list[tuple[int, Sent]] = []
        for offset, sent in self.sent_before.young(now_ms).items():
            entry = self.entries.get(offset)
            if entry is not None and entry.fence > sent.generation:
                del self.sent_before[offset]  # it was handed out or sent again since
                continue
            found.append((offset, sent))
            if self.turns is not None and sent.key:
                self.turns.parked[sent.key] = self.turns.following[sent.key] = None
            if sent.stored:
                if entry is not None:
                    self._let_go(entry)
                    entry.hold = Hold.SENDING
                self._finish(offset)
            elif not self.over(offset) and (entry is None or entry.hold is not Hold.SENDING):
                if entry is None:
                    entry = self.entries[offset] = Entry(None)
                    self._bodiless.add(offset)
                entry.fence, entry.rterm, entry.attempt = sent.generation, sent.rterm, sent.attempt
                self._hold(offset, entry, State.SENDING, entry.when_ms, store_ms, now_ms)
        return tuple(found)

    def dropped(self, committed: int) -> None:
        """The broker has `committed`: bits below it are not needed any more."""
        self.finished.drop_below(min(committed, self.watermark))
        self.sent_before.drop(committed, self._ticked_ms)

    # --- what the store said

    def sent(self, offset: int, result: Result, rterm: int, store_ms: int, now_ms: int) -> None:
        """The answer to SEND."""
        self._asked.discard(offset)
        entry = self.entries.get(offset)
        if entry is None:
            return
        match result.outcome:
            case Outcome.SENT:
                self._park(offset)
                if entry.hold is Hold.SENDING and entry.fence == result.fence:
                    return  # asked twice; its copy is on the way
                known = entry.hold is Hold.LEASED and entry.rterm != UNKNOWN_RTERM
                lease = entry.fence, entry.rterm, entry.attempt, entry.due_ms
                self.sent_before[offset] = Sent(
                    *(result.fence, rterm, result.attempt, self.key(offset), now_ms),
                    lease if known else None,
                )
                entry.fence, entry.rterm, entry.attempt = result.fence, rterm, result.attempt
                self._hold(offset, entry, State.SENDING, result.when_ms, store_ms, now_ms)
            case Outcome.FINISHED:
                self._finish(offset)
                self._advance()
            case Outcome.HELD:
                self._again(offset)
            case Outcome.LOST:
                entry.first_s = 0  # the store does not know that it was ever handed out
                self.unparked(self.key(offset))
            case _:
                self._see(entry, result.fence)
                entry.attempt = result.attempt
                self._hold(offset, entry, result.state, result.when_ms, store_ms, now_ms)

    def not_sent(self, offsets: Iterable[int]) -> None:
        """The store decided nothing: they are named again."""
        for offset in offsets:
            self._asked.discard(offset)
            self._again(offset)

    def _again(self, offset: int) -> None:
        self._long[offset] = None
        if self.turns is not None:
            self.turns.follow(offset)

    def _park(self, offset: int) -> None:
        """Its key is parked, and stays so when the message itself has left."""
        key = self.key(offset)
        if self.turns is not None and key:
            self.turns.parked[key] = None
            self.turns.following[key] = None

    def sent_back(self, offset: int) -> None:
        """The copy is durable and the record says finished."""
        entry, sent = self.entries.get(offset), self.sent_before.get(offset)
        if sent is not None:
            sent.stored, sent.since_ms = True, max(sent.since_ms, self._ticked_ms)
        elif entry is not None:  # an earlier owner had it sent
            self.sent_before[offset] = Sent(
                *(entry.fence, entry.rterm, entry.attempt, self.key(offset), self._ticked_ms),
                stored=True,
            )
        self._finish(offset)
        self._advance()

    def buried(self, offset: int, result: Result, rterm: int, store_ms: int, now_ms: int) -> bool:
        """The answer to BURY; False: the record has to be read again."""
        entry = self.entries.get(offset)
        if entry is None:
            return True
        if result.outcome is Outcome.FINISHED:
            self._finish(offset)
            self._advance()
            return True
        if result.outcome is Outcome.LOST:
            return False
        entry.fence, entry.rterm, entry.attempt = result.fence, rterm, result.attempt
        if result.outcome is not Outcome.HELD:
            self._hold(offset, entry, result.state, result.when_ms, store_ms, now_ms)
            return True
        # Not now. It waits until it may be asked again, without being buried at once.
        self._let_go(entry)
        entry.hold = HOLD_OF.get(result.state, Hold.WAITING)
        entry.when_ms = result.when_ms
        self._time(offset, entry, now_ms + result.when_ms - store_ms)
        return True
