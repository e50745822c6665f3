"""What one partition remembers for the copies of its messages: names, reasons to move, errors.

These notes serve people and headers only; other parts decide what happens to a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ackd.core.ids import LedgerKey, TopicPartition, message_id, message_place
from ackd.core.ledger.entry import EntryStatus
from ackd.core.ledger.ledger import Ledger
from ackd.core.ledger.send_back import Stuck
from ackd.core.origin import Origin
from ackd.core.record.operations import MarkDead, Op, PlaceCopy
from ackd.engine.base.copy_keys import CopyKeys
from ackd.engine.base.copy_signature import CopyKind, Proof
from ackd.engine.base.spill_file import Held, Stub
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_of
from ackd.ports import Record

N = TypeVar("N")
NOTES_MAX = 10_000


# tidy: long-class methods=24 -- most of them keep or return one note
class Copies:
    """Notes of one partition, bounded: with too many failures the oldest notes are dropped."""

    def __init__(self, tp: TopicPartition, key: LedgerKey, ledger: Ledger[Held]) -> None:
        self._tp = tp
        self._key = key
        self._ledger = ledger
        self._topic_ids: Callable[[str], bytes | None] = lambda _: None
        self._errors: dict[int, tuple[str, str]] = {}
        self._why: dict[int, str] = {}
        self._out_of_time: dict[int, str] = {}
        self._histories: dict[int, bytes] = {}
        self._aside: dict[int, str] = {}
        self._keys: CopyKeys | None = None

    def verify_with(self, keys: CopyKeys) -> None:
        """Verify copies with these keys; without any, each counts as signed."""
        self._keys = keys

    def find_topics(self, topic_ids: Callable[[str], bytes | None]) -> None:
        """`topic_ids` tells the identity that a topic has now; None if this sidecar does not know
        it.
        """
        self._topic_ids = topic_ids

    # --- whose

    def origin(self, offset: int) -> Origin:
        """Return the coordinate of a message of this partition that is no copy."""
        return Origin(self._key.cluster, self._key.topic_id, *self._tp, offset)

    def retry_copy(self, body: Record) -> RetryCopy | None:
        """Return what a message stands for if it is a retry copy, else None."""
        if not self._ledger.holds_copies or body.offset in self._aside:
            return None
        return retry_copy_of(body, self._key.subscription)

    def proof(self, body: Record) -> Proof:
        """Return what speaks for a retry copy. Its origin record may know more (`VouchCopy`)."""
        if self._keys is None or not self._ledger.holds_copies:
            return Proof.SIGNED
        return self._keys.proof(body, CopyKind.RETRY, self._tp, self._key.topic_id)

    def put_aside(self, offset: int, why: str) -> None:
        """The record is a dead letter of its own, whatever message it names."""
        _note(self._aside, offset, why)

    def aside(self, offset: int) -> str:
        """Return why the record was put aside; empty if it was not."""
        return self._aside.get(offset, "")

    def name_of(self, offset: int) -> str:
        """Return the public id of a message; of a retry copy, that of its origin."""
        entry = self._ledger.entry(offset)
        body = None if entry is None else entry.body
        if isinstance(body, Stub) and body.name:
            return body.name
        retry_copy = self.retry_copy(body) if isinstance(body, Record) else None
        return message_id(*self._tp, offset) if retry_copy is None else self.id(offset, retry_copy)

    def record_of(self, name: str) -> tuple[LedgerKey, int] | None:
        """Return the record of the message with this public id, and its offset; None if this
        sidecar does not know the topic.
        """
        tp, offset = message_place(name)
        topic_id, key = self._topic_ids(tp.topic), self._key
        if topic_id is None:
            return None
        return LedgerKey(key.cluster, key.subscription, topic_id, tp.partition), offset

    def named(self, retry_copy: RetryCopy) -> bool:
        """Whether a copy is shown under the name of its origin.

        Not if that name belongs to another message of this cluster: when the origin is in another
        cluster, or in a topic that was deleted and made again, or never existed.
        """
        origin = retry_copy.origin
        there = self._topic_ids(origin.topic)
        return origin.cluster == self._key.cluster and there in (None, origin.topic_id)

    def id(self, offset: int, retry_copy: RetryCopy) -> str:
        """Return the public id of a copy."""
        return retry_copy.origin.id if self.named(retry_copy) else message_id(*self._tp, offset)

    @staticmethod
    def place(offset: int, generation: int, attempt: int, due_ms: int, first_s: int) -> PlaceCopy:
        """Make the operation for a copy that claimed its origin: now this partition's record keeps
        it.
        """
        return PlaceCopy(offset, generation, attempt=attempt, due_ms=due_ms, first_s=first_s)

    @staticmethod
    def place_dead(offset: int, generation: int, attempt: int, first_s: int) -> list[Op]:
        """Make the same operations for a message that its origin record has dead-lettered: dead
        here at once.

        Of the two answers only that of `MarkDead` counts.
        """
        placed = PlaceCopy(offset, generation, attempt, first_s=first_s, then_dead=True)
        return [placed, MarkDead(offset, generation, claimed=True)]

    # --- why

    def going(self, found: Iterable[Stuck]) -> None:
        """Note why these messages leave the window: the store is being asked to let them go."""
        for each in found:
            _note(self._why, each.offset, each.why.value)

    def why(self, offset: int) -> str:
        """Return why a message moved to the retry topic; empty when an earlier owner moved it."""
        return self._why.get(offset, "")

    def failed_with(self, offset: int, error: str) -> None:
        """Keep an application's failure reason: the copy carries the first and the last."""
        first, _ = self._errors.get(offset, (error, ""))
        _note(self._errors, offset, (first, error))

    def failed_so(self, offset: int, first: str, last: str) -> None:
        """Take over the reasons that the store has; they win over ours."""
        _note(self._errors, offset, (first, last))

    def delivered_so(self, offset: int, history: bytes) -> None:
        """Keep a message's history for the copy that is about to be made."""
        _note(self._histories, offset, history)

    def history(self, offset: int) -> bytes:
        return self._histories.get(offset, b"")

    def take_errors(self, offset: int, other: Copies, there: int) -> None:
        """Take over the reasons that came under the lease of the copy's original."""
        texts = other._errors.pop(there, None)
        if texts is not None:
            first, _ = self._errors.get(offset, texts)
            _note(self._errors, offset, (first, texts[1]))

    def errors(self, offset: int) -> tuple[str, str]:
        """Return the (first, last) error, empty where this sidecar got none."""
        return self._errors.get(offset, ("", ""))

    def out_of_time(self, offset: int) -> None:
        """Note that the message is dead-lettered because its first delivery was too long ago."""
        _note(self._out_of_time, offset, self._too_long())

    def _too_long(self) -> str:
        seconds = self._ledger.limits.message_ttl_ms / 1000
        return f"older than message_ttl_ms: {seconds:g} s after its first delivery"

    def reason(self, offset: int) -> str:
        """Return why a message leaves the window, for the copy's header."""
        entry = self._ledger.entry(offset)
        if entry is None or entry.status is not EntryStatus.DEAD:
            return self.why(offset)
        if offset in self._out_of_time:
            return self._out_of_time[offset]
        default = ""
        if 0 < self._ledger.limits.deliveries_max <= entry.attempt:
            default = f"no attempt left after {entry.attempt} deliveries"
        elif self._ledger.limits.out_of_time(entry):
            default = self._too_long()
        return self._errors.get(offset, ("", default))[1]

    def forget(self, offset: int) -> None:
        """Drop the notes of a message that has left."""
        self._errors.pop(offset, None)
        self._histories.pop(offset, None)
        self._why.pop(offset, None)
        self._out_of_time.pop(offset, None)
        self._aside.pop(offset, None)


def _note(notes: dict[int, N], offset: int, note: N) -> None:
    notes[offset] = note
    if len(notes) > NOTES_MAX:
        notes.pop(next(iter(notes)))
