"""Test support: an engine in memory that behaves, so that the HTTP side can be tested by itself.

One partition a topic, one subscription a topic of the same name. Leases, attempts, deadlines,
replays by `attempt_id` and idempotent publishing work as the facade says; nothing is durable.
`fail_with` lets a test take the store or the broker away.
"""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ackd.api.messages import (
    Accepted,
    Delivery,
    Explanation,
    HeldPartition,
    InFlight,
    LeaseView,
    PartitionLag,
    Published,
    PublishRequest,
    Reason,
    Received,
    ReceiveRequest,
    SettleItem,
    SettleResult,
    SettleVerb,
    Status,
    SubscriptionView,
    Unsettled,
)
from ackd.errors import (
    AckdError,
    AttemptMismatchError,
    BadLeaseTokenError,
    IdempotencyMismatchError,
    StoreError,
    UnknownSubscriptionError,
    UnknownTopicError,
)
from ackd.ports import Capabilities, Record, StartPolicy, Stored
from tests.unit.http.memory_control import MemoryControl
from tests.unit.http.memory_dead import MemoryDesk
from tests.unit.http.memory_outbox import MemoryOutbox
from tests.unit.http.memory_progress import MemoryProgress
from tests.unit.http.memory_unsettled import MemoryUnsettled

LEASE_MS = 30_000
CAPABILITIES = Capabilities(
    name="memory",
    order_within_partition=True,
    explicit_partition=True,
    delayed_publish=True,
    delay_max_ms=1000,
    start_policies=frozenset({StartPolicy.EARLIEST}),
    seek_by_time=False,
    commit_metadata_chars=0,
    value_bytes_max=1 << 20,
)


@dataclass(slots=True)
class Entry:
    """One message: `state` is ready, leased, retrying, acked or dead."""

    record: Record
    state: str = "ready"
    attempt: int = 0
    deadline_ms: int = 0
    due_ms: int = 0
    first_seen_ms: int = 0
    holder: str = ""


@dataclass(slots=True)
class Topic:
    """A topic and the one group that reads it."""

    name: str
    payload: str
    entries: list[Entry] = field(default_factory=list)
    replays: dict[str, tuple[tuple[object, ...], Received]] = field(default_factory=dict)


class MemoryEngine(MemoryControl):
    """See the module."""

    def __init__(self, topics: Mapping[str, str]) -> None:
        super().__init__()
        self.topics = {name: Topic(name, payload) for name, payload in topics.items()}
        self.changed = asyncio.Condition()
        self.abandoned: list[Received] = []
        self.cancelled = 0
        self.waiting = 0
        self.fail_with: AckdError | None = None
        self.away: set[str] = set()
        self.dead = MemoryDesk(self._topic)
        self.progress = MemoryProgress(self._topic)
        self.outbox = MemoryOutbox()
        self._answers: dict[str, tuple[bytes, Published]] = {}

    # --- subscriptions ----------------------------------------------------------------------------

    def _topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise UnknownSubscriptionError(f"{name!r} is not configured here.")
        return self.topics[name]

    def subscriptions(self) -> list[SubscriptionView]:
        """All."""
        return [self.subscription(name) for name in self.topics]

    def subscription(self, name: str) -> SubscriptionView:
        """One."""
        topic = self._topic(name)
        return SubscriptionView(
            name,
            "memory",
            "memory",
            (name,),
            name,
            "running",
            topic.payload,
            {},
            {},
            CAPABILITIES,
            pauses=self.pauses_of(name),
        )

    # --- leases -----------------------------------------------------------------------------------

    @staticmethod
    def token(topic: str, offset: int, attempt: int) -> str:
        """`v1.` + base64url, as the real ones look."""
        inside = f"{topic}/{offset}/{attempt}".encode()
        return "v1." + urlsafe_b64encode(inside).decode().rstrip("=")

    def _open(self, token: str) -> tuple[Entry, int]:
        try:
            raw = urlsafe_b64decode(token.removeprefix("v1.") + "===").decode()
            name, offset, attempt = raw.rsplit("/", 2)
            return self.topics[name].entries[int(offset)], int(attempt)
        except (ValueError, KeyError, IndexError) as error:
            raise BadLeaseTokenError from error

    @staticmethod
    def _refresh(entry: Entry) -> None:
        now_ms = time.time_ns() // 1_000_000
        if entry.state == "leased" and entry.deadline_ms <= now_ms:
            entry.state = "ready"
        if entry.state == "retrying" and entry.due_ms <= now_ms:
            entry.state = "ready"

    async def receive(self, name: str, request: ReceiveRequest) -> Received:
        """Lease messages; a cancelled call leaves nothing leased."""
        topic = self._topic(name)
        self._raise("receive")
        asked = (request.max, request.lease_ms, request.bytes_max)
        if request.attempt_id is not None and request.attempt_id in topic.replays:
            before, received = topic.replays[request.attempt_id]
            if before != asked:
                raise AttemptMismatchError
            return Received(received.messages, replayed=True)
        received = Received(self._take(topic, request))
        if not received.messages and request.wait_ms:
            self.waiting += 1
            try:
                received = await self._wait(topic, request)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            finally:
                self.waiting -= 1
        if request.attempt_id is not None and received.messages:
            topic.replays[request.attempt_id] = (asked, received)
        return received

    async def _wait(self, topic: Topic, request: ReceiveRequest) -> Received:
        try:
            async with asyncio.timeout(request.wait_ms / 1000), self.changed:
                while True:
                    await self.changed.wait()
                    if messages := self._take(topic, request):
                        return Received(messages)
        except TimeoutError:
            return Received([], limited_by="no messages")

    def _take(self, topic: Topic, request: ReceiveRequest) -> list[Delivery]:
        now_ms = time.time_ns() // 1_000_000
        found: list[Delivery] = []
        size = 0
        for entry in topic.entries:
            self._refresh(entry)
            if entry.state != "ready":
                continue
            size += entry.record.size()
            if found and request.bytes_max is not None and size > request.bytes_max:
                break
            entry.state = "leased"
            entry.attempt += 1
            entry.first_seen_ms = entry.first_seen_ms or now_ms
            entry.deadline_ms = now_ms + (request.lease_ms or LEASE_MS)
            entry.holder = request.holder
            found.append(self._delivery(topic, entry))
            if len(found) >= request.max:
                break
        return found

    def _delivery(self, topic: Topic, entry: Entry) -> Delivery:
        return Delivery(
            lease=self.token(topic.name, entry.record.offset, entry.attempt),
            topic=topic.name,
            partition=0,
            record=entry.record,
            attempt=entry.attempt,
            attempts_max=17,
            first_seen_ms=entry.first_seen_ms,
            deadline_ms=entry.deadline_ms,
        )

    async def abandon(self, received: Received) -> None:
        """Give back, uncounted."""
        self.abandoned.append(received)
        for each in received.messages:
            entry = self.topics[each.topic].entries[each.record.offset]
            entry.state, entry.attempt = "ready", entry.attempt - 1
        await self._tell()

    def _live(self, lease: str) -> bool:
        entry, attempt = self._open(lease)
        self._refresh(entry)
        return entry.state == "leased" and entry.attempt == attempt

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def _raise(self, call: str) -> None:
        if self.fail_with is not None and (not self.away or call in self.away):
            raise self.fail_with

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleResult]:
        """One result per item; `away` holding leases makes those unavailable."""
        results = [self._settle(item) for item in items]
        await self._tell()
        return results

    async def settle_and_receive(
        self, items: Sequence[SettleItem], name: str, request: ReceiveRequest
    ) -> tuple[list[SettleResult], Received | AckdError]:
        """The joined call: settle, then receive unless a settle is unavailable."""
        results = await self.settle(items)
        if any(result.status is Status.UNAVAILABLE for result in results):
            return results, StoreError()
        try:
            return results, await self.receive(name, request)
        except AckdError as error:
            return results, error

    def _settle(self, item: SettleItem) -> SettleResult:  # noqa: PLR0911  one per outcome
        error = self.fail_with
        if error is not None and (item.lease in self.away or "settle" in self.away):
            return SettleResult(Status.UNAVAILABLE, error=error)
        try:
            entry, attempt = self._open(item.lease)
        except BadLeaseTokenError as bad:
            return SettleResult(Status.INVALID, error=bad)
        self._refresh(entry)
        if entry.state == "acked" and item.do is SettleVerb.ACK:
            return SettleResult(Status.ALREADY_ACKED)
        if entry.attempt != attempt or entry.state not in {"leased", "ready"}:
            return SettleResult(Status.LOST, now_state=entry.state, now_attempt=entry.attempt)
        late = entry.state == "ready"
        now_ms = time.time_ns() // 1_000_000
        if item.do is SettleVerb.ACK:
            entry.state = "acked"
            return SettleResult(Status.ACKED, late=late)
        if item.do is SettleVerb.RETRY:
            entry.state = "retrying"
            entry.due_ms = now_ms + (item.delay_ms or 0)
            return SettleResult(Status.RETRYING, due_ms=entry.due_ms)
        if item.do is SettleVerb.EXTEND:
            entry.state, entry.deadline_ms = "leased", now_ms + (item.lease_ms or LEASE_MS)
            return SettleResult(Status.EXTENDED, late=late, deadline_ms=entry.deadline_ms)
        if item.do is SettleVerb.DEAD:
            entry.state = "dead"
            return SettleResult(Status.DEAD)
        entry.state, entry.attempt = "ready", entry.attempt - 1
        return SettleResult(Status.RELEASED)

    async def lease(self, token: str) -> LeaseView:
        """Look."""
        self._raise("lease")
        entry, attempt = self._open(token)
        self._refresh(entry)
        if entry.attempt != attempt and entry.state != "acked":
            return LeaseView("lost", entry.attempt)
        state = "lost" if entry.state == "ready" else entry.state
        deadline_ms = entry.deadline_ms if state == "leased" else None
        due_ms = entry.due_ms if state == "retrying" else None
        return LeaseView(state, entry.attempt, deadline_ms, due_ms)

    # --- publishing -------------------------------------------------------------------------------

    async def publish(self, broker: str | None, request: PublishRequest) -> Published:
        """Append; a repeated idempotency key gives the first answer."""
        self._raise("publish")
        key = request.idempotency_key
        if key is not None and key in self._answers:
            fingerprint, answer = self._answers[key]
            if fingerprint != request.fingerprint:
                raise IdempotencyMismatchError
            return Published(answer.results, replayed=True)
        results: list[Stored | Accepted | AckdError] = []
        for message in request.messages:
            if request.respond_async:
                results.append(self.outbox.accept(message.delay_ms))
                continue
            topic = self.topics.get(message.topic)
            if topic is None:
                results.append(UnknownTopicError(f"There is no topic {message.topic!r}."))
                continue
            offset = len(topic.entries)
            now_ms = time.time_ns() // 1_000_000
            record = Record(offset, message.key, message.value, message.headers, now_ms)
            topic.entries.append(Entry(record))
            results.append(Stored(topic.name, 0, offset))
        published = Published(results)
        if key is not None:
            self._answers[key] = (request.fingerprint, published)
        await self._tell()
        return published

    # --- looking ----------------------------------------------------------------------------------

    async def explain(self, name: str) -> Explanation:
        """The first unfinished message holds the only partition."""
        open_ones = await self.in_flight(name, 0, 1)
        head = open_ones[0] if open_ones else None
        return Explanation(name, [HeldPartition(name, 0, 0, head, "its deadline")], ["no messages"])

    async def in_flight(self, name: str, older_ms: int, limit: int) -> list[InFlight]:
        """Leased and retrying."""
        topic = self._topic(name)
        found = []
        for each in topic.entries:
            self._refresh(each)
            if each.state in {"leased", "retrying"}:
                found.append(
                    InFlight(
                        id=f"{name}/0/{each.record.offset}",
                        state=each.state,
                        attempt=each.attempt,
                        holder=each.holder,
                        since_ms=each.first_seen_ms,
                        deadline_ms=each.deadline_ms,
                    )
                )
        return found[:limit]

    async def lag(self, name: str) -> list[PartitionLag]:
        """One partition."""
        topic = self._topic(name)
        states = [each.state for each in topic.entries]
        acked, ready, leased, retrying = map(states.count, ("acked", "ready", "leased", "retrying"))
        size = len(states)
        return [PartitionLag(name, 0, "memory", size, -1, 0, acked, ready, leased, retrying, None)]

    def unsettled(self, name: str) -> Unsettled:
        """Counted in the entries themselves."""
        self._topic(name)
        return MemoryUnsettled(self.changed, self._live)

    def lease_ms(self, name: str) -> int:
        """Half a minute."""
        return 30_000

    def hold_back(self, name: str, source: str, why: str | None) -> None:
        """Nobody looks at it here."""

    def readiness(self) -> list[Reason]:
        """Ready unless told otherwise."""
        return [Reason("store", self.fail_with is None, str(self.fail_with or ""))]

    def info(self) -> Mapping[str, object]:
        """Little."""
        return {"version": "test"}
