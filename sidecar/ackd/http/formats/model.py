"""What goes over the wire, as msgspec structs: the one source for decoding, for the OpenAPI
schemas, and for the tests that read every hand-made answer back.

Requests refuse unknown members: `wait` instead of `wait_ms` would otherwise wait for nothing.
Answers may grow members within `/v1`, so clients must ignore those they don't know.
"""

from __future__ import annotations

from typing import Annotated, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, defstruct
from msgspec.structs import fields

from ackd.api.messages import (
    Reason,
    SettleItem,
    SettleVerb,
    Status,
    SubscriptionView,
)
from ackd.config.units import DAY_MS, HOUR_MS

LEASE_MS_MAX = 12 * HOUR_MS
DELAY_MS_MAX = 7 * DAY_MS
LEASE_CHARS_MAX = 256
HEADERS_MAX = 1000
TIME_MS_MAX = 1 << 52
INT32_MAX = 2**31 - 1

Lease = Annotated[
    str,
    Meta(
        max_length=LEASE_CHARS_MAX,
        description="The lease exactly as received.",
        examples=["v1.AAECAwQ"],
    ),
]
LeaseMs = Annotated[
    int,
    Meta(
        ge=1,
        le=LEASE_MS_MAX,
        description="Milliseconds from this call; default: the subscription's.",
    ),
]
DelayMs = Annotated[
    int,
    Meta(ge=0, le=DELAY_MS_MAX, description="Milliseconds; default: the subscription's schedule."),
]
ReasonText = Annotated[str, Meta(max_length=4096, description="Why, for people.")]

NoteText = Annotated[
    str,
    Meta(
        max_length=4096,
        description="For the next attempt, which gets it as `note`; at most 4096 bytes in UTF-8. "
        "Empty takes an earlier one away.",
    ),
]


# --- requests -------------------------------------------------------------------------------------


class _RequestBody(Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    pass


class _LeaseBody(_RequestBody, tag_field="do", frozen=True, gc=False):
    lease: Lease


class AckBody(_LeaseBody, tag="ack", frozen=True, gc=False):
    """The message is done."""

    def item(self) -> SettleItem:
        return SettleItem(self.lease, SettleVerb.ACK)


class RetryBody(_LeaseBody, tag="retry", frozen=True, gc=False):
    """Deliver the message again after a delay. `count` false: this attempt does not count."""

    delay_ms: DelayMs | None = None
    reason: ReasonText | None = None
    count: bool = True

    def item(self) -> SettleItem:
        return SettleItem(
            self.lease,
            SettleVerb.RETRY,
            delay_ms=self.delay_ms,
            reason=self.reason,
            count=self.count,
        )


class ExtendBody(_LeaseBody, tag="extend", frozen=True, gc=False):
    """Keep the lease for longer. `note`: what the next attempt should know."""

    lease_ms: LeaseMs | None = None
    note: NoteText | None = None

    def item(self) -> SettleItem:
        return SettleItem(self.lease, SettleVerb.EXTEND, lease_ms=self.lease_ms, note=self.note)


class DeadBody(_LeaseBody, tag="dead", frozen=True, gc=False):
    """Never deliver this message again: it becomes a dead letter."""

    reason: ReasonText | None = None

    def item(self) -> SettleItem:
        return SettleItem(self.lease, SettleVerb.DEAD, reason=self.reason)


class ReleaseBody(_LeaseBody, tag="release", frozen=True, gc=False):
    """Give the message back; the attempt does not count."""

    def item(self) -> SettleItem:
        return SettleItem(self.lease, SettleVerb.RELEASE)


Item = AckBody | RetryBody | ExtendBody | DeadBody | ReleaseBody


class SettleBody(_RequestBody, frozen=True, gc=False):
    """Leases to settle, of any subscription, decided in this order."""

    items: Annotated[list[Item], Meta(min_length=1)]


class NoOptions(_RequestBody, frozen=True, gc=False):
    """Body of `.../ack` and `.../release`: nothing, or an empty object."""


def _options(body: type[_LeaseBody]) -> type[Struct]:
    """The body of one lease's own address: an item of a batch without `lease` and `do`."""
    verb = str(body.__struct_config__.tag)
    own = [(each.name, each.type, each.default) for each in fields(body) if each.name != "lease"]
    if not own:
        return NoOptions
    text = {"__doc__": f"Body of `.../{verb}`; may be left out."}
    name = f"{verb.capitalize()}Options"
    return defstruct(name, own, bases=(_RequestBody,), namespace=text, frozen=True, gc=False)


OPTIONS = {SettleVerb(str(body.__struct_config__.tag)): _options(body) for body in get_args(Item)}


class ReceiveBody(_RequestBody, frozen=True, gc=False):
    """How many messages, and how long to wait for the first one; may be left out."""

    max: Annotated[
        int, Meta(ge=1, le=10_000, description="Most messages; cut to `server.receive_max`.")
    ] = 1
    wait_ms: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=HOUR_MS,
                description="How long to wait for the first message; if it is cut to "
                "`server.wait_ms_max`, the answer has `wait_ms_max`. Default: what `Prefer: wait=` "
                "says, else 0.",
            ),
        ]
        | None
    ) = None
    lease_ms: LeaseMs | None = None
    bytes_max: (
        Annotated[
            int,
            Meta(
                ge=1, le=INT32_MAX, description="Most bytes of messages; the first is always given."
            ),
        ]
        | None
    ) = None
    attempt_id: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=100,
                description="Repeat it after a broken connection to get the same leases again.",
            ),
        ]
        | None
    ) = None
    release_on_close: Annotated[
        bool, Meta(description="Give unsettled leases back, uncounted, when the connection ends.")
    ] = False
    settle: (
        Annotated[list[Item], Meta(min_length=1, description="Settle these first, then receive.")]
        | None
    ) = None


class Base64(_RequestBody, frozen=True, gc=False):
    """Bytes that are not text."""

    base64: bytes


class MessageBody(_RequestBody, frozen=True, gc=False):
    """A message to publish. One of `json`, `text`, `base64` holds its value; a `tombstone` has
    none.
    """

    json: (
        Annotated[msgspec.Raw, Meta(description="Any JSON value; its bytes are kept.")] | UnsetType
    ) = UNSET
    text: str | UnsetType | None = UNSET
    base64: bytes | UnsetType | None = UNSET
    tombstone: Annotated[bool, Meta(description="No value at all.")] = False
    key: str | Base64 | None = None
    headers: Annotated[
        list[tuple[str, str | Base64 | None]],
        Meta(max_length=HEADERS_MAX, description="Pairs; order and repeats are kept."),
    ] = []
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)] | None = None
    delay_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] = 0


class BatchBody(_RequestBody, frozen=True, gc=False):
    """Messages for one topic, published in this order."""

    messages: Annotated[list[MessageBody], Meta(min_length=1)]


# --- answers --------------------------------------------------------------------------------------


class Problem(Struct, frozen=True):
    """A problem document (RFC 9457); further members tell facts of the case."""

    type: str
    title: str
    status: int
    detail: str
    docs: str
    errors: list[FieldError] | UnsetType = UNSET
    now: Now | UnsetType = UNSET


class FieldError(Struct, frozen=True):
    """A wrong field: its JSON Pointer, or `query:name`, `header:name`."""

    pointer: str
    detail: str


class Now(Struct, frozen=True):
    """Where the message is now that this lease is lost."""

    state: Annotated[
        str,
        Meta(
            description="`ready`, `leased`, `retrying`, `dead`, `moving` (to the retry topic); "
            "`finished`: in its partition, so it is acked or dead, or went on in the retry topic, "
            "where somebody may hold it; `deleted`, `unknown`."
        ),
    ]
    attempt: int | UnsetType = UNSET


class Cancelled(Struct, frozen=True):
    """An operator ended the message; `then`: as `ack`ed or as `dead`."""

    then: str
    reason: str


class Result(Struct, frozen=True):
    """The result of one item."""

    status: Annotated[str, Meta(pattern=f"^({'|'.join(Status)})$")]
    late: bool | UnsetType = UNSET
    deadline_ms: int | UnsetType = UNSET
    due_ms: int | UnsetType = UNSET
    now: Now | UnsetType = UNSET
    cancelled: Cancelled | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


class Results(Struct, frozen=True):
    """One result per item, in the order of the request."""

    results: list[Result]


class Base64Text(Struct, frozen=True):
    """Bytes that are not text, in base64."""

    base64: str


class Message(Struct, frozen=True):
    """A message under a lease. Exactly one of `json`, `text`, `base64` is there and holds the
    value.
    """

    id: str
    lease: str
    topic: str
    key: str | Base64Text | None
    attempt: int
    attempts_max: int
    first_seen_ms: int
    deadline_ms: int
    published_ms: int
    headers: list[tuple[str, str | Base64Text | None]]
    content_type: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    tombstone: bool | UnsetType = UNSET
    json: msgspec.Raw | UnsetType = UNSET
    text: str | UnsetType | None = UNSET
    base64: str | UnsetType | None = UNSET


class Messages(Struct, frozen=True):
    """The answer to a receive; `settled` belongs to `settle` of the request."""

    messages: list[Message]
    settled: list[Result] | UnsetType = UNSET
    replayed: bool | UnsetType = UNSET
    limited_by: str | UnsetType = UNSET
    paused: dict[str, object] | UnsetType = UNSET
    wait_ms_max: (
        Annotated[int, Meta(description="The longest wait, if the request asked for a longer one.")]
        | UnsetType
    ) = UNSET


class LeaseState(Struct, frozen=True):
    """`state` is leased, acked, retrying, dead or lost; `late`: past its deadline, still ours."""

    state: str
    attempt: int
    deadline_ms: int | UnsetType = UNSET
    due_ms: int | UnsetType = UNSET
    late: bool | UnsetType = UNSET


class Stored(Struct, frozen=True):
    """The broker has the message."""

    id: str | None
    topic: str
    partition: int
    offset: int | None


class Published(Struct, frozen=True):
    """What became of one message of a batch: `stored` with its id, `accepted` into the outbox, or
    `failed` with the problem.
    """

    status: Annotated[str, Meta(pattern="^(stored|accepted|failed)$")]
    id: str | UnsetType | None = UNSET
    outbox_id: str | UnsetType = UNSET
    due_ms: int | UnsetType = UNSET
    status_url: str | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


class Batch(Struct, frozen=True):
    """One result per message, in the order of the request."""

    results: list[Published]


class Subscriptions(Struct, frozen=True):
    """All subscriptions of this sidecar."""

    subscriptions: list[SubscriptionView]


class Liveness(Struct, frozen=True):
    """The process answers."""

    status: str


class Readiness(Struct, frozen=True):
    """Whether messages can be delivered, and every reason looked at."""

    ready: bool
    reasons: list[Reason]
