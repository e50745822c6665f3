"""What the engine offers to whoever serves it (HTTP today): plain values in and out.

Nothing here knows about HTTP. `Engine` is implemented by `ackd.engine.runtime.Runtime`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ackd.api.control import Cancel, CancelTo, Pause, Scope
from ackd.api.dead_letters import DeadLetterApi
from ackd.api.outbox import OutboxApi
from ackd.api.progress import ProgressApi
from ackd.core.origin import Origin
from ackd.core.record.settles import SettleVerb, Status
from ackd.errors import AckdError
from ackd.ports import Capabilities, Outgoing, Record, Stored

__all__ = ["SettleVerb", "Status"]  # of the core, which decides what a settle does


@dataclass(slots=True)
class SettleItem:
    """One settle. `lease_ms` and `note` (for the next attempt; None = as it is) are for extend,
    `delay_ms` (None = by the schedule) and `count` for retry.
    """

    lease: str
    do: SettleVerb
    delay_ms: int | None = None
    lease_ms: int | None = None
    reason: str | None = None
    count: bool = True
    note: str | None = None


@dataclass(slots=True)
class SettleResult:
    """The answer to one item, in the order of the request.

    `now_state`/`now_attempt` say where the message is when the lease is lost, `cancelled` that an
    operator ended it. `error` is set for `invalid` and `unavailable` and carries the problem's
    type.
    """

    status: Status
    late: bool = False
    deadline_ms: int | None = None
    due_ms: int | None = None
    now_state: str | None = None
    now_attempt: int | None = None
    error: AckdError | None = None
    cancelled: Cancel | None = None


ACKED = SettleResult(Status.ACKED)
"""Most results, so they share one; nobody changes it."""


@dataclass(slots=True)
class ReceiveRequest:
    """Ask for up to `max` messages, wait at most `wait_ms` for the first one.

    `lease_ms` None = the subscription's. `bytes_max` bounds the sum of the messages' sizes (the
    first one is always given). `attempt_id`: a repeat gets the same leases (rule R21). `holder`
    names the caller for `explain` (an address, say).
    """

    max: int = 1
    wait_ms: int = 0
    lease_ms: int | None = None
    bytes_max: int | None = None
    attempt_id: str | None = None
    holder: str = ""


@dataclass(slots=True)
class Delivery:
    """A message under a lease. `note`: what an earlier worker said with its last extend. `origin`:
    the message's own coordinate, if it comes from a copy.
    """

    lease: str
    topic: str
    partition: int
    record: Record
    attempt: int
    attempts_max: int
    first_seen_ms: int
    deadline_ms: int
    note: str | None = None
    origin: Origin | None = None

    @property
    def id(self) -> str:
        """`orders/3/2101`."""
        return f"{self.topic}/{self.partition}/{self.record.offset}"


@dataclass(slots=True)
class Received:
    """The answer to a receive.

    `paused` and `limited_by` say why it is empty. Call `abandon()` when not one byte of the answer
    was handed to the transport: the leases go back uncounted (rule R21).
    """

    messages: list[Delivery]
    limited_by: str | None = None
    paused: Mapping[str, object] | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """Messages for one topic. `idempotency_key` is only allowed with exactly one message or one
    batch. `respond_async`: the outbox may have it, if there is one.
    """

    messages: Sequence[Outgoing]
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    respond_async: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message is durable in the outbox of `broker` and will be sent at `due_ms` (store's
    clock).
    """

    broker: str
    number: int
    due_ms: int

    @property
    def id(self) -> str:
        """`main/17`."""
        return f"{self.broker}/{self.number}"


@dataclass(slots=True)
class Published:
    """One result per message: where it is stored (now, or soon), or the error why it isn't."""

    results: list[Stored | Accepted | AckdError]
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Reason:
    """One line of readiness: `ok` False means that it holds readiness back."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionView:
    """A subscription as configured and as it is. `settings` and `sources` have the same keys.

    `live_version` grows with every change of settings or of the group's pause at run time.
    """

    name: str
    broker: str
    adapter: str
    topics: tuple[str, ...]
    group: str
    state: str
    payload: str
    settings: Mapping[str, object]
    sources: Mapping[str, str]
    capabilities: Capabilities
    live_version: int = 0
    pauses: Sequence[Pause] = field(default_factory=list)


@dataclass(slots=True)
class LeaseView:
    """`state`: leased, acked, retrying, dead or lost. `deadline_ms` while leased, `due_ms` while
    retrying. `late`: leased, past its deadline, and not handed on yet.
    """

    state: str
    attempt: int
    deadline_ms: int | None = None
    due_ms: int | None = None
    late: bool = False


@dataclass(slots=True)
class PartitionLag:
    """Progress of one partition. Offsets; -1 = not known here. `owner` is the sidecar that
    grants.
    """

    topic: str
    partition: int
    owner: str
    end: int
    committed: int
    watermark: int
    done_above: int
    ready: int
    leased: int
    retrying: int
    oldest_age_ms: int | None


@dataclass(slots=True)
class InFlight:
    """A message that was handed out and is not finished. `since_ms` = first handed out, Unix time.

    `state`: leased, retrying, moving (to the retry topic), waiting_for_lease (a retry copy whose
    message is still leased under an earlier token), dead. `error`: why its copy could not be
    stored the last time.
    """

    id: str
    state: str
    attempt: int
    holder: str
    since_ms: int
    deadline_ms: int | None = None
    due_ms: int | None = None
    error: str | None = None


@dataclass(slots=True)
class HeldPartition:
    """What holds one partition's progress, and how and when it will be released."""

    topic: str
    partition: int
    watermark: int
    head: InFlight | None
    released_by: str


@dataclass(slots=True)
class HeldKey:
    """What holds later messages of its key (or partition), with an `ordering`.

    `key` None: it has none, or its body lies on the disk. `behind`: how many wait for it.
    `blocked`: the whole key waits in the retry topic.
    """

    head: InFlight
    key: str | None
    behind: int
    blocked: bool


@dataclass(slots=True)
class Explanation:
    """`limits`: what keeps messages from being delivered now, in words, the strongest first.
    `ordered`: the keys behind which most messages wait.

    `repeats`: messages settled without delivery, by this sidecar since it joined.
    """

    subscription: str
    partitions: list[HeldPartition] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    repeats: int = 0
    ordered: list[HeldKey] = field(default_factory=list)


class Unsettled(Protocol):
    """Leases of one consumer, and which of them nobody has settled yet (AMQP's word)."""

    def add(self, messages: Sequence[Delivery]) -> None:
        """Count these deliveries."""

    def count(self) -> int:
        """How many of them are still open: not settled by anyone, and not run out."""

    def leases(self) -> list[str]:
        """The tokens of those."""

    async def wait(self, timeout_s: float) -> None:
        """Return when leases may have ended, when a drain begins, or when the time is over."""

    def close(self) -> None:
        """Stop counting."""


class Engine(Protocol):
    """The whole of what can be asked. Every method may raise `AckdError`."""

    @property
    def progress(self) -> ProgressApi:
        """Everything about the group's progress."""

    @property
    def dead(self) -> DeadLetterApi:
        """Everything about dead letters."""

    @property
    def outbox(self) -> OutboxApi:
        """What was accepted and is sent later."""

    def subscriptions(self) -> list[SubscriptionView]:
        """All configured subscriptions."""

    def subscription(self, name: str) -> SubscriptionView:
        """One of them. Raises UnknownSubscriptionError."""

    async def receive(self, name: str, request: ReceiveRequest) -> Received:
        """Lease messages. Cancelling the call gives back what it had been granted."""

    async def abandon(self, received: Received) -> None:
        """Release, uncounted, the leases of an answer of which not one byte was sent (R21)."""

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleResult]:
        """Settle leases of any subscription; one result per item, never raises for a single
        item.
        """

    async def settle_and_receive(
        self, items: Sequence[SettleItem], name: str, request: ReceiveRequest
    ) -> tuple[list[SettleResult], Received | AckdError]:
        """The joined call. If a settle is unavailable, nothing is received (StoreError instead); a
        receive that fails hides no settle. Raises UnknownSubscriptionError, BadParameterError.
        """

    async def lease(self, token: str) -> LeaseView:
        """Look at a lease without changing it."""

    async def publish(self, broker: str | None, request: PublishRequest) -> Published:
        """Publish; `broker` None = the only one, or the one whose subscription has the topic."""

    async def pause(
        self, name: str, scope: Scope, reason: str, for_ms: int | None
    ) -> SubscriptionView:
        """Deliver nothing, here (`pod`) or at every sidecar (`group`). Settles go on."""

    async def resume(self, name: str, scope: Scope) -> SubscriptionView:
        """End such a pause."""

    async def configure(
        self, name: str, changes: Mapping[str, object], *, open_leases: bool, force: bool
    ) -> SubscriptionView:
        """Change settings at every sidecar; None takes a change back. Raises MistakesError."""

    async def cancel(self, name: str, message: str, then: CancelTo, reason: str) -> Cancel:
        """End a message that is in flight. Raises NotInFlightError."""

    def unsettled(self, name: str) -> Unsettled:
        """Count the leases of one consumer; to be closed. Raises UnknownSubscriptionError."""

    def lease_ms(self, name: str) -> int:
        """The lease time in force now: it may be changed live."""

    def hold_back(self, name: str, source: str, why: str | None) -> None:
        """Note for `explain` why `source` delivers nothing now; None when it delivers."""

    async def explain(self, name: str) -> Explanation:
        """What holds each partition's progress."""

    async def in_flight(self, name: str, older_ms: int, limit: int) -> list[InFlight]:
        """Leased and waiting messages, oldest first."""

    async def lag(self, name: str) -> list[PartitionLag]:
        """Progress per partition."""

    def readiness(self) -> list[Reason]:
        """Broker, store and partitions of every subscription; also `draining`."""

    def info(self) -> Mapping[str, object]:
        """Version, identity, uptime, adapters."""
