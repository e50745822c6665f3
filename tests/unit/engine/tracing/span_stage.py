"""The spans of one subscription, as they leave the process, and what was counted of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ackd.config.traces import TraceSettings
from ackd.engine.partition.partition import Partition, Policy
from ackd.engine.tracing.subscription_spans import SubscriptionSpans
from ackd.ports import TopicInfo
from ackd.telemetry.spans import SpanEvent
from ackd.telemetry.trace_line import line_parts
from ackd.telemetry.traces import Traces
from ackd.telemetry.traceway import TraceBatch, TraceExporter
from tests.support.otlp import flat_spans, read_line
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC
from tests.unit.engine.world import PLAIN, TOPIC, TOPIC_ID, World

Flat = dict[str, Any]


class SpanStage:
    """The real parts, but for the exporter: this object takes the batches."""

    def __init__(self, world: World, *, sample: float = 1.0) -> None:
        self.world = world
        settings = TraceSettings(sample=sample, application="shop")
        self.traces = Traces(settings, "pod-1", Path("unused"), world.metrics)
        self.traces._open()
        self.traces.exports.exporters.append(cast("TraceExporter", self))
        world.topics.known = {
            TOPIC: TopicInfo(TOPIC, TOPIC_ID, 4),
            RETRY_TOPIC: TopicInfo(RETRY_TOPIC, RETRY_ID, 1),
        }
        self.spans = SubscriptionSpans(
            world.state, world.clock, world.partitions, world.topics, RETRY_TOPIC, self.traces
        )
        self._left: list[Flat] = []
        self._counted: Counter[SpanEvent] = Counter()

    def offer(self, batch: TraceBatch) -> bool:
        """As an exporter does it."""
        line = b"".join(line_parts(batch.resource, batch.spans, batch.scope, batch.acks))
        self._left += flat_spans(read_line(line))
        for event in SpanEvent:
            self._counted[event] += batch.events[event]
        return True

    def seen(self, *events: str) -> list[Flat]:
        """The spans that have left since the last look, of these events; none given: of all but
        takeovers.
        """
        self.traces.flush_all()
        left, self._left = self._left, []
        if not events:
            return [each for each in left if each["ackd.event"] != "takeover"]
        return [each for each in left if each["ackd.event"] in events]

    def balanced(self) -> bool:
        """Whether everything that was expected has left, or was counted as dropped: what is
        missing would count as lost by a crash.
        """
        self.traces.flush_all()
        counts = self.traces.counts
        return all(
            counts.made[event] == self._counted[event] + counts.dropped[event]
            for event in SpanEvent
        )

    def collects(self, owner: object) -> bool:
        """Whether a flush asks this part for its spans."""
        return owner in self.traces._collectors

    def dropped(self, event: SpanEvent) -> int:
        return self.traces.counts.dropped[event]

    async def owns(
        self, *offsets: int, policy: Policy = PLAIN, topic: tuple[str, bytes] = (TOPIC, TOPIC_ID)
    ) -> Partition:
        """A partition whose replies the spans see before its ledger does."""
        wiring = self.world.events.wiring()
        observers = (self.spans.on_reply, Partition.apply)
        partition = await self.world.owns(
            policy=policy, wiring=replace(wiring, observers=observers), topic=topic
        )
        self.spans.taken(partition, 0)
        self.world.fetches(partition, offsets)
        return partition
