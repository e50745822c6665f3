"""Spans of one subscription: what its partitions share, and settles of leases of other owners.

Nothing of this exists when traces are off. docs/operate/traces.md explains the spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ackd.core.ids import LedgerKey
from ackd.core.lease_token import Token
from ackd.core.origin import Origin
from ackd.core.record.operations import Settle
from ackd.core.record.protocol import OpResult, RecordCall, RecordReply
from ackd.core.record.settles import OF_OUTCOME, OF_VERB, Due
from ackd.core.record.transitions import Outcome
from ackd.engine.base.live import Live
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.base.tasks import Tasks
from ackd.engine.partition.copy_headers import RetryCopy
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.tracing.partition_spans import PartitionSpans
from ackd.engine.tracing.untraced import Untraced
from ackd.errors import BrokerError
from ackd.ports import Clock
from ackd.telemetry.caller import CALLER
from ackd.telemetry.spans import MASK_56, MessageSpans, SpanEvent, SpanPlace, number, text, truth

if TYPE_CHECKING:
    from ackd.engine.partition.partition import Partition
    from ackd.telemetry.traces import Traces

HOLDERS_MAX = 1_000
LIVES_MAX = 10_000
UNPLACED_MAX = 1_000
UNPLACED_MS = 60_000
ASK_MS = 2_000
"""The broker is asked for topics that are not known here no sooner again."""


class _Unplaced(NamedTuple):
    """Settles of one partition whose topic may not be known yet. Times in milliseconds; `now_ms` is
    the store's, `until_ms` monotonic.
    """

    token: Token
    ends: Sequence[tuple[Settle, SpanEvent, str]]
    epoch: int
    now_ms: int
    until_ms: int


class SubscriptionSpans(Untraced):
    """Makes the spans of one subscription's messages, and names the places that they belong to."""

    on = True

    def __init__(
        self,
        state: SubscriptionState,
        clock: Clock,
        partitions: OwnedPartitions,
        topics: Topics,
        retry_topic: str,
        traces: Traces,
    ) -> None:
        self._state = state
        self._clock = clock
        self._partitions = partitions
        self._topics = topics
        self._retry_topic = retry_topic
        self.traces = traces
        self._spans: dict[Partition, PartitionSpans] = {}
        self._lives: dict[tuple[bytes, int, int], MessageSpans] = {}
        self._holders: dict[str, str] = {}
        self._unplaced: list[_Unplaced] = []
        self._ask_again_ms = 0
        self._tasks = Tasks(f"spans.{state.name}")
        traces.collect(self, self._place_again)

    # --- what is told of owned partitions

    def taken(self, partition: Partition, took_ms: int) -> None:
        lives = self.lives(partition.copies.origin(0), partition.epoch)
        start_us = self._clock.wall_ms() * 1000 - took_ms * 1000
        self.traces.own("takeover", lives.attributes, start_us=start_us, of=lives.place.topic)

    def of(self, partition: Partition) -> PartitionSpans:
        """The spans of one partition's messages."""
        known = self._spans.get(partition)
        if known is None:
            known = self._spans[partition] = PartitionSpans(partition, self)
        return known

    def flushed(self, partition: Partition) -> None:
        """The spans of a partition that this sidecar has let go have left."""
        self._spans.pop(partition, None)

    def on_reply(self, partition: Partition, call: RecordCall, reply: RecordReply) -> None:
        self.of(partition).on_reply(call, reply)

    def expired(self, partition: Partition, found: Iterable[Sequence[int]]) -> None:
        self.of(partition).expired(found)

    def copied(
        self,
        event: SpanEvent,
        topic: str,
        partition: Partition,
        offset: int,
        generation: int,
        now_ms: int,
    ) -> None:
        self.of(partition).copied(event, offset, generation, topic, now_ms)

    def committed(self, partition: Partition, offset: int) -> None:
        self.of(partition).committed(offset, partition.end)

    # --- what partitions share

    def lives(self, origin: Origin, epoch: int) -> MessageSpans:
        """Spans of the messages of one partition; made once."""
        key = (origin.topic_id, origin.partition, epoch)
        known = self._lives.get(key)
        if known is None:
            state = self._state
            place = SpanPlace(
                state.broker.capabilities.name,
                origin.cluster,
                state.name,
                state.settings.group or state.name,
                origin.topic,
                origin.topic_id,
                origin.partition,
            )
            known = self._lives[key] = MessageSpans(place, epoch, self.traces.settings.application)
            if len(self._lives) > LIVES_MAX:
                self._lives.pop(next(iter(self._lives)))
        return known

    def epoch(self, origin: Origin) -> int:
        """The reset epoch of a copy's origin, as far as this sidecar knows; 0 otherwise."""
        partition = self._partitions.by_ledger.get((origin.topic_id, origin.partition))
        return 0 if partition is None else partition.epoch

    def named(self, identity: str) -> Origin | None:
        """The coordinate behind a public id, of a topic that is known here."""
        parts = identity.rsplit("/", 2)
        info = self._topics.known.get(parts[0])
        if info is None or len(parts) != 3:  # noqa: PLR2004 - topic, partition, offset
            return None
        topic, partition, offset = parts
        cluster = self._state.cluster
        return Origin(cluster, info.topic_id, topic, int(partition), int(offset))

    def holder(self, name: str) -> str:
        """The receiver of the lease, as an attribute after a comma."""
        known = self._holders.get(name)
        if known is None:
            known = f",{text('ackd.holder', name)}" if name else ""
            if len(self._holders) >= HOLDERS_MAX:
                self._holders.clear()
            self._holders[name] = known
        return known

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    # --- what operators do

    def sought(self, key: LedgerKey, topic: str, epoch: int, offset: int) -> None:
        origin = Origin(key.cluster, key.topic_id, topic, key.partition, 0)
        lives = self.lives(origin, epoch)
        # A sidecar that goes on with the operation after a kill reports it again.
        self.traces.own(
            "seek",
            {**lives.attributes, "ackd.seek.offset": offset},
            of=topic,
            once=f"{lives.trace_base:x}",
        )

    def changed(self, before: Live, after: Live) -> None:
        names = [
            name
            for name in Live.__struct_fields__
            if name != "version" and getattr(before, name) != getattr(after, name)
        ]
        values = before.settings, after.settings
        names += [
            f"settings.{name}"
            for name in sorted(values[0].keys() | values[1].keys())
            if values[0].get(name) != values[1].get(name)
        ]
        more: dict[str, str | int] = {
            "ackd.subscription": self._state.name,
            "ackd.config.changed": ",".join(names),
            "ackd.config.version": after.version,
        }
        self.traces.own("config", more, of=self._state.name, caller=CALLER.get())

    def redriven(self, letters: Sequence[tuple[RetryCopy, str]], now_ms: int) -> None:
        for retry_copy, dead in letters:
            origin = retry_copy.origin
            lives = self.lives(origin, retry_copy.reset_epoch)
            more = f",{text('ackd.redriven.from', dead)}"
            place = origin.offset, 1, now_ms * 1000, now_ms * 1000, now_ms
            self.traces.add(SpanEvent.REDRIVE, [lives.span(SpanEvent.REDRIVE, *place, more)])

    # --- leases of others

    def settled(self, tokens: Sequence[Token], ops: Sequence[Settle], reply: RecordReply) -> None:
        for token, op, result in zip(tokens, ops, reply.results, strict=True):
            if result.outcome is Outcome.LOST:
                self._late(token, op, result.attempt)
        owned = self._partitions.by_ledger
        if (tokens[0].topic_id, tokens[0].partition) not in owned:
            self._not_owned(tokens[0], ops, reply)

    def _not_owned(self, token: Token, ops: Sequence[Settle], reply: RecordReply) -> None:
        """Settles of another owner's partition. The owner reports them too, with what it knows of
        the message and with the same ids; but at the moment there may be no owner.
        """
        events = [(op, *_event(op, result)) for op, result in zip(ops, reply.results, strict=True)]
        ends = [(op, event, more) for op, event, more in events if event is not None]
        if not ends:
            return
        for _, event, _ in ends:
            self.traces.expect(event, 1)
        until_ms = self.now_ms() + UNPLACED_MS
        self._place(_Unplaced(token, ends, reply.epoch, reply.now_ms, until_ms))

    def _place(self, settles: _Unplaced) -> None:
        """Write the external settles whose topic is known. A sidecar that has just started may
        serve some before it has asked the broker; what stays unknown counts as dropped.
        """
        origin = self._origin(settles.token)
        if origin is not None:
            self._write_settles(settles, self.lives(origin, settles.epoch))
        elif self._of_copy(settles.token):  # its coordinate says nothing of its message
            for _, event, _ in settles.ends:
                self.traces.expect(event, -1)
        elif len(self._unplaced) < UNPLACED_MAX and self.now_ms() < settles.until_ms:
            self._unplaced.append(settles)
            self._ask()
        else:
            self._drop(settles)

    def _ask(self) -> None:
        """Ask the broker for the topics, now and then: a sidecar that owns nothing has had no other
        reason to.
        """
        if self.now_ms() >= self._ask_again_ms:
            self._ask_again_ms = self.now_ms() + ASK_MS
            self._tasks.start(self._learn(), "topics", vital=False, ends=True)

    async def _learn(self) -> None:
        with suppress(BrokerError):
            await self._topics.read()

    def _place_again(self) -> None:
        unplaced, self._unplaced = self._unplaced, []
        for each in unplaced:
            self._place(each)

    def _drop(self, settles: _Unplaced) -> None:
        for _, event, _ in settles.ends:
            self.traces.drop(event)

    def close(self) -> None:
        """Settles whose topic is still unknown count as dropped."""
        self._ask_again_ms = self.now_ms() + UNPLACED_MS
        self._tasks.let_end()
        self._place_again()
        for each in self._unplaced:
            self._drop(each)
        self._unplaced.clear()
        self.traces.collected(self)

    def _write_settles(self, settles: _Unplaced, lives: MessageSpans) -> None:
        for op, event, more in settles.ends:
            if event is SpanEvent.ACK and self.left_out(lives, op):
                self.traces.expect(event, -1)
                continue
            if event is SpanEvent.ACK and op.attempt == 1 and not more:
                more = self.traces.weight  # noqa: PLW2901
            place = op.offset, op.attempt, op.fence, op.fence, settles.now_ms
            self.traces.put(event, [lives.span(event, *place, more)], 1)

    def left_out(self, lives: MessageSpans, op: Settle) -> bool:
        """Whether an ack is not sampled."""
        below = lives.trace(op.offset) & MASK_56 < self.traces.threshold
        return op.attempt == 1 and below

    def _late(self, token: Token, op: Settle, attempt: int) -> None:
        """A settle whose lease was lost. `attempt`: the message's attempt now; a first attempt is
        sampled as its ack is.
        """
        origin = self._origin(token)
        if origin is None:
            return
        lives = self.lives(origin, self.epoch(origin))
        more = f",{text('ackd.late.of', op.verb.name.lower())}"
        if max(attempt, token.attempt) <= 1:
            if lives.trace(token.offset) & MASK_56 < self.traces.threshold:
                return
            more += self.traces.weight
        now_ms = self._clock.wall_ms()
        place = token.offset, token.attempt, token.fence, now_ms * 1000, now_ms
        self.traces.add(SpanEvent.LATE, [lives.span(SpanEvent.LATE, *place, more, ordinal=now_ms)])

    def _of_copy(self, token: Token) -> bool:
        """Whether a lease is that of a copy in the group's retry topic, as far as is known."""
        info = self._topics.known.get(self._retry_topic)
        return info is not None and info.topic_id == token.topic_id

    def _origin(self, token: Token) -> Origin | None:
        """The coordinate of a lease's message; None for a copy, or if the topic is not known."""
        own = self._retry_topic
        for name, info in self._topics.known.items():
            if info.topic_id == token.topic_id and name != own:
                cluster = self._state.cluster
                return Origin(cluster, token.topic_id, name, token.partition, token.offset)
        return None


_ENDS = {Outcome.ALREADY_ACKED: SpanEvent.ACK} | {
    outcome: SpanEvent[rule.span.upper()] for outcome, rule in OF_OUTCOME.items() if rule.ends
}


def _event(op: Settle, result: OpResult) -> tuple[SpanEvent | None, str]:
    """The event of a settle, and attributes of its own."""
    rule = OF_VERB[op.verb]
    event = _ENDS.get(result.outcome) if rule.ends else None
    more = f",{truth('ackd.late')}" if result.late else ""
    if event is not None and rule.due is Due.DELAY:
        more += f",{number('ackd.due.unix_ms', result.when_ms)}"
        more += "" if op.counted else f",{truth('ackd.uncounted')}"
    elif result.outcome is Outcome.ALREADY_ACKED:
        more += f",{truth('ackd.repeat')}"
    return event, more
