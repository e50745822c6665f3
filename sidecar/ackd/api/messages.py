"""What the engine offers to its front ends (HTTP, push): plain values in and out.

Nothing here knows about HTTP. `Engine` is implemented by `ackd.engine.runtime.Runtime`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ackd.api.control import Cancel, CancelTo, Pause, Scope
from ackd.api.dead_letters import DeadLetterApi
from ackd.api.outbox import OutboxApi
from ackd.api.past_deliveries import PastDelivery
from ackd.api.progress import ProgressApi
from ackd.api.quotas import Quota
from ackd.core.origin import Origin
from ackd.core.record.settles import SettleVerb, Status
from ackd.errors import AckdError
from ackd.ports import Capabilities, Outgoing, Record, Stored

__all__ = ["SettleVerb", "Status"]  # of the core, which decides what a settle does


@dataclass(slots=True)
class SettleItem:
    """One settle. `lease_ms` and `note` belong to an extend (`note`: for the next attempt; None
    = keep it), `delay_ms` (None = by the schedule) and `count` to a retry. `holder`: who settles,
    for the message's history where its sidecar does not know who got the lease.
    """

    lease: str
    do: SettleVerb
    delay_ms: int | None = None
    lease_ms: int | None = None
    reason: str | None = None
    count: bool = True
    note: str | None = None
    holder: str = ""


@dataclass(slots=True)
class SettleResult:
    """The answer to one item, in the order of the request.

    `now_state` and `now_attempt`: where the message is, if the lease is lost. `cancelled`: an
    operator ended the message. `error`: for `invalid` and `unavailable`, with the problem's type.
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
"""The most frequent result: one value for all of them, which nobody changes."""


@dataclass(slots=True)
class ReceiveRequest:
    """Ask for up to `max` messages, and wait at most `wait_ms` for the first one.

    `lease_ms` None = the subscription's. `bytes_max` bounds the sum of the messages' sizes, but for
    the first message. `attempt_id`: a repeat gets the same leases (rule R21). `holder` names the
    caller for `explain` (an address, say).
    """

    max: int = 1
    wait_ms: int = 0
    lease_ms: int | None = None
    bytes_max: int | None = None
    attempt_id: str | None = None
    holder: str = ""


@dataclass(slots=True)
class Delivery:
    """A message under a lease. `note`: what an earlier worker left with its last extend. `origin`:
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
        """Public id: `topic/partition/offset`, say `orders/3/2101`."""
        return f"{self.topic}/{self.partition}/{self.record.offset}"


@dataclass(slots=True)
class Received:
    """The answer to a receive.

    `paused` and `limited_by` say why it is empty. If not one byte of the answer reached the
    transport, call `abandon()`: the leases go back uncounted (rule R21). `wait_ms_max`: the longest
    wait, if the caller asked for a longer one.
    """

    messages: list[Delivery]
    limited_by: str | None = None
    paused: Mapping[str, object] | None = None
    replayed: bool = False
    wait_ms_max: int | None = None


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """Messages for one topic. `idempotency_key` is only allowed with exactly one message or one
    batch. `respond_async`: the outbox may take it, if there is one.
    """

    messages: Sequence[Outgoing]
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    respond_async: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that is durable in the outbox of `broker`; a sidecar sends it at `due_ms`
    (store's clock).
    """

    broker: str
    number: int
    due_ms: int

    @property
    def id(self) -> str:
        """Id in the outbox: `broker/number`, say `main/17`."""
        return f"{self.broker}/{self.number}"


@dataclass(slots=True)
class Published:
    """One result per message: where the broker stored it, its place in the outbox, or the error.
    `quotas`: what is left of the bounds for publishers.
    """

    results: list[Stored | Accepted | AckdError]
    replayed: bool = False
    quotas: Sequence[Quota] = ()


@dataclass(frozen=True, slots=True)
class Reason:
    """One line of readiness. `ok` False: the sidecar is not ready because of it."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionView:
    """A subscription: its configuration and its state. `settings` and `sources` have the same keys.

    `live_version` grows with every change, at run time, of settings or of the group's pause.
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
    """Progress of one partition, as offsets; -1 = this sidecar does not know. `owner`: the
    sidecar that grants leases. `retry_topic`: it is a partition of the group's retry topic.
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
    retry_topic: bool = False


@dataclass(slots=True)
class MessagesServed:
    """Messages that one sidecar has handed out since it began: `own` of its partitions to
    applications beside it, `for_peers` of its partitions to those beside other sidecars,
    `through_peers` of other sidecars' partitions to applications beside it.
    """

    own: int = 0
    for_peers: int = 0
    through_peers: int = 0


@dataclass(slots=True)
class SidecarShare:
    """What one sidecar of the group owns and does. `lag`: of its partitions of the topics, -1 = not
    known. `served`: absent if it did not tell.
    """

    sidecar: str
    partitions: int = 0
    retry_topic_partitions: int = 0
    lag: int = 0
    served: MessagesServed | None = None

    def add(self, row: PartitionLag) -> None:
        """Count a partition that it owns."""
        if row.retry_topic:
            self.retry_topic_partitions += 1
            return
        self.partitions += 1
        if row.watermark < 0 or row.end < 0 or self.lag < 0:
            self.lag = -1
        else:
            self.lag += max(row.end - row.watermark, 0)


STATES = ("ready", "leased", "retrying", "dead", "moving", "waiting_for_lease")
"""What an unfinished message can be. Dead: until its dead letter is stored."""


@dataclass(slots=True)
class InFlight:
    """A message that was delivered and is not finished. `since_ms`: its first delivery, Unix time.
    `published_ms`: when it was published, also of a retry copy; None if its owner has not fetched
    it yet, or its broker does not say.

    `state`: leased, retrying, moving (to the retry topic), waiting_for_lease (a retry copy whose
    message is still leased under an earlier token), dead. `holder`: who has the lease. `error`: why
    the last try to store its copy failed, else the reason of its last failure.
    """

    id: str
    state: str
    attempt: int
    holder: str
    since_ms: int
    deadline_ms: int | None = None
    due_ms: int | None = None
    error: str | None = None
    published_ms: int | None = None

    def known(self, holder: str, error: str | None) -> None:
        """Take over who holds it, and why it failed, from its record."""
        self.holder, self.error = holder, self.error or error


@dataclass(slots=True)
class HeldPartition:
    """The message that holds one partition's progress, and what will release it, and when."""

    topic: str
    partition: int
    watermark: int
    head: InFlight | None
    released_by: str


@dataclass(slots=True)
class HeldKey:
    """A message that holds later messages of its key (or partition), with an `ordering`.

    `key` None: the message has none, or its body is on disk. `waiting`: how many messages wait for
    it. `blocked`: the whole key waits in the retry topic.
    """

    head: InFlight
    key: str | None
    waiting: int
    blocked: bool


@dataclass(slots=True)
class Explanation:
    """`limits`: what keeps messages from being delivered now, in words, the strongest first.
    `ordered`: the keys of which most messages wait.

    `repeats`: how many messages this sidecar has settled without delivery since it joined.
    """

    subscription: str
    partitions: list[HeldPartition] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    repeats: int = 0
    ordered: list[HeldKey] = field(default_factory=list)


@dataclass(slots=True)
class GroupLag:
    """A row for each partition of the group, and one for each sidecar. `missing`: sidecars that did
    not answer, or whose former partitions nobody owns yet, and why; rows of theirs have -1 for what
    is not known.
    """

    partitions: list[PartitionLag]
    missing: dict[str, str] = field(default_factory=dict)
    sidecars: list[SidecarShare] = field(default_factory=list)


@dataclass(slots=True)
class GroupInFlight:
    """The oldest messages of the group; `missing` as in `GroupLag`."""

    messages: list[InFlight]
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class GroupMessages:
    """A page of the group's unfinished messages. `cursor` None: the last page. `missing` as in
    `GroupLag`.
    """

    messages: list[InFlight]
    cursor: str | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class MessageView:
    """Where one message is, without its content.

    `state`: one of `InFlight`, ready, redriving (its dead letter is on its way), or how it ended:
    acked, dead, finished (without an answer: deleted by the broker, skipped by an operator, or
    settled in a copy long ago). `owner`: the sidecar that grants its leases, empty if none does.
    `since_ms`: its first delivery, Unix time. `published_ms` as in `InFlight`. `copy`: its copy in
    the retry topic; `dead_letter`: its dead letter, `letters_unread` if there was not time for all.
    `released_by`: what it waits for. `history`: its deliveries, the oldest first. `missing` as in
    `GroupLag`.
    """

    id: str
    state: str
    attempt: int = 0
    owner: str = ""
    holder: str = ""
    since_ms: int | None = None
    deadline_ms: int | None = None
    due_ms: int | None = None
    error: str | None = None
    first_error: str | None = None
    released_by: str = ""
    copy: str | None = None
    dead_letter: str | None = None
    letters_unread: bool = False
    published_ms: int | None = None
    history: list[PastDelivery] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class GroupExplanation:
    """As `Explanation`, with the partitions and keys of the whole group; `elsewhere`: the limits at
    other sidecars that own partitions. `missing` as in `GroupLag`.
    """

    subscription: str
    partitions: list[HeldPartition]
    limits: list[str]
    repeats: int
    ordered: list[HeldKey]
    elsewhere: dict[str, list[str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class GroupView(Protocol):
    """One subscription. Without `others` only what this sidecar knows itself."""

    async def lag(self, *, others: bool = True) -> GroupLag: ...

    async def in_flight(
        self, older_ms: int, limit: int, *, others: bool = True
    ) -> GroupInFlight: ...

    async def explain(self, *, others: bool = True) -> GroupExplanation: ...

    async def messages(
        self, states: frozenset[str], cursor: str | None, limit: int, *, others: bool = True
    ) -> GroupMessages:
        """List unfinished messages in these states, those delivered first the longest ago first,
        then those that were never delivered. Raises BadParameterError (cursor).
        """

    async def message(self, name: str, *, others: bool = True) -> MessageView:
        """Say where the message with this id is. Raises UnknownMessageError."""


class Unsettled(Protocol):
    """The leases of one consumer that nobody has settled yet (AMQP's word)."""

    def add(self, messages: Sequence[Delivery]) -> None: ...

    def count(self) -> int:
        """Count the leases that nobody has settled and that have not run out."""

    def leases(self) -> list[str]:
        """Return the tokens of those leases."""

    async def wait(self, timeout_s: float) -> None:
        """Wait until leases may have ended, a drain begins, or the time is over."""

    def close(self) -> None: ...


class Engine(Protocol):
    """Everything that a front end can ask for. Every method may raise `AckdError`."""

    @property
    def progress(self) -> ProgressApi: ...

    @property
    def dead(self) -> DeadLetterApi: ...

    @property
    def outbox(self) -> OutboxApi:
        """Accepted messages that a sidecar sends later."""

    def subscriptions(self) -> list[SubscriptionView]: ...

    def subscription(self, name: str) -> SubscriptionView:
        """Return one subscription. Raises UnknownSubscriptionError."""

    async def receive(self, name: str, request: ReceiveRequest) -> Received:
        """Lease messages. A cancelled call gives its leases back."""

    async def abandon(self, received: Received) -> None:
        """Release the leases of an answer of which not one byte was sent, without counting an
        attempt (R21).
        """

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleResult]:
        """Settle leases of any subscription. Returns one result per item and never raises
        because of a single item.
        """

    async def settle_and_receive(
        self, items: Sequence[SettleItem], name: str, request: ReceiveRequest
    ) -> tuple[list[SettleResult], Received | AckdError]:
        """Settle, then receive. If a settle is unavailable, the receive does not happen and
        returns a StoreError. If the receive fails, the results of the settles stay. Raises
        UnknownSubscriptionError, BadParameterError.
        """

    async def lease(self, token: str) -> LeaseView:
        """Read a lease without changing it."""

    async def publish(self, broker: str | None, request: PublishRequest) -> Published:
        """Publish messages. `broker` None = the only one, or the one whose subscription has the
        topic.
        """

    async def pause(
        self, name: str, scope: Scope, reason: str, for_ms: int | None
    ) -> SubscriptionView:
        """Stop deliveries at this sidecar (`pod`) or at all (`group`). Settles go on."""

    async def resume(self, name: str, scope: Scope) -> SubscriptionView: ...

    async def configure(self, name: str, changes: Mapping[str, object]) -> SubscriptionView:
        """Change settings at every sidecar; the value None takes a change back. Raises
        MistakesError.
        """

    async def cancel(self, name: str, message: str, then: CancelTo, reason: str) -> Cancel:
        """End a message that is in flight. Raises NotInFlightError."""

    def unsettled(self, name: str) -> Unsettled:
        """Begin to follow the leases of one consumer; the caller closes it. Raises
        UnknownSubscriptionError.
        """

    def lease_ms(self, name: str) -> int:
        """The lease time in force, which an operator may change at run time."""

    def hold_back(self, name: str, source: str, why: str | None) -> None:
        """Note for `explain` why `source` delivers nothing now; None when it delivers."""

    def warn(self, name: str, source: str, what: str | None) -> None:
        """Let readiness warn of something at `source`; None: it is over."""

    def group(self, name: str) -> GroupView:
        """Return what shows the whole group. Raises UnknownSubscriptionError."""

    async def explain(self, name: str) -> Explanation:
        """Explain what holds the progress of each partition that this sidecar owns."""

    async def in_flight(self, name: str, older_ms: int, limit: int) -> list[InFlight]:
        """List leased and waiting messages of its partitions, the oldest first."""

    async def lag(self, name: str) -> list[PartitionLag]:
        """Report the progress of each of its partitions, and who owns the others."""

    def readiness(self) -> list[Reason]:
        """Report on broker, store and partitions of every subscription, and `draining`."""

    def info(self) -> Mapping[str, object]:
        """Version, identity, uptime in ms and adapters, as `GET /v1/info` shows them."""
