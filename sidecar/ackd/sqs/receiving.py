"""ReceiveMessage: a receive with a long poll, and messages as SQS clients read them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from uuid import UUID, uuid5

from ackd.api.messages import Delivery, ReceiveRequest
from ackd.http.handlers.receive import wait_for_messages
from ackd.http.server.limits import ANSWER_BYTES_DEFAULT
from ackd.sqs.action_call import ActionCall, Result
from ackd.sqs.message_attributes import (
    DEDUPLICATION_HEADER,
    ENCODING,
    TRACE_HEADER,
    Attribute,
    attributes_digest,
    attributes_of,
    digest,
    header,
    selected,
    text_of,
)

RECEIVE_MAX = 10
WAIT_S_MAX = 20
LEASE_S_MAX = 43_200
ID_ATTRIBUTE = "ackd-id"
"""An attribute with ackd's own id of a message, for those who ask for it by name."""
_IDS = UUID("6c1f3f0e-3b57-4c1e-9a3e-5d1b7a0f2c44")
SENDER = "ackd"
SEQUENCE_DIGITS = 20


def message_uuid(name: str) -> str:
    """The SQS message id of the message with this public id: clients expect a UUID (RFC 9562)."""
    return str(uuid5(_IDS, name))


def sequence_number(offset: int) -> str:
    """Write an offset as SQS numbers the messages of FIFO queues."""
    return str(offset).zfill(SEQUENCE_DIGITS)


async def receive_message(action: ActionCall) -> Result:
    """ReceiveMessage. `VisibilityTimeout` is the lease's time, `ReceiveRequestAttemptId` the
    `attempt_id` (R21).
    """
    queue, given = action.queue(), action.parameters
    name = queue.receives()
    lease_s = given.number("VisibilityTimeout", 0, LEASE_S_MAX)
    request = ReceiveRequest(
        max=given.number("MaxNumberOfMessages", 1, RECEIVE_MAX) or 1,
        wait_ms=(given.number("WaitTimeSeconds", 0, WAIT_S_MAX) or 0) * 1000,
        # 0: it may come again at once.
        lease_ms=None if lease_s is None else max(lease_s * 1000, 1),
        bytes_max=ANSWER_BYTES_DEFAULT,
        attempt_id=given.optional_text("ReceiveRequestAttemptId"),
        holder=action.call.worker(),
    )
    wanted = frozenset(
        (*given.names("AttributeNames"), *given.names("MessageSystemAttributeNames"))
    )
    names = given.names("MessageAttributeNames")
    received = await wait_for_messages(action.call, name, request)
    action.received = received
    if not received.messages:
        return {}
    return {
        "Messages": [
            _message(each, wanted, names, ordered=queue.ordered) for each in received.messages
        ]
    }


def _message(
    delivery: Delivery, wanted: frozenset[str], names: Sequence[str], *, ordered: bool
) -> dict[str, object]:
    record = delivery.record
    attributes = attributes_of(record.headers) if names else {}
    body, encoding = _body(record.value)
    if encoding:
        attributes[ENCODING] = Attribute("String", encoding.encode())
    chosen = dict(selected(attributes, names))
    if ID_ATTRIBUTE in names:
        chosen[ID_ATTRIBUTE] = Attribute("String", delivery.id.encode())
    message: dict[str, object] = {
        "MessageId": message_uuid(delivery.id),
        "ReceiptHandle": delivery.lease,
        "MD5OfBody": digest(body.encode()),
        "Body": body,
    }
    if wanted:
        message["Attributes"] = _system(delivery, wanted, ordered=ordered)
    if chosen:
        message["MessageAttributes"] = {name: each.members() for name, each in chosen.items()}
        message["MD5OfMessageAttributes"] = attributes_digest(chosen)
    return message


def _body(value: bytes | None) -> tuple[str, str]:
    """The body as text, and how it holds what is no text."""
    if value is None:
        return "", "null"
    text = text_of(value)
    return (b64encode(value).decode(), "base64") if text is None else (text, "")


def _system(delivery: Delivery, wanted: frozenset[str], *, ordered: bool) -> dict[str, str]:
    record = delivery.record
    found = {
        "ApproximateReceiveCount": str(delivery.attempt),
        "SentTimestamp": str(record.timestamp_ms),
        "ApproximateFirstReceiveTimestamp": str(delivery.first_seen_ms),
        "SenderId": SENDER,
    }
    if record.key is not None:
        found["MessageGroupId"] = record.key.decode("utf-8", "replace")
    if ordered:
        found["SequenceNumber"] = sequence_number(record.offset)
    for name, from_header in (
        ("MessageDeduplicationId", DEDUPLICATION_HEADER),
        (TRACE_HEADER, TRACE_HEADER),
    ):
        value = header(record.headers, from_header)
        text = None if value is None else text_of(value)
        if text:
            found[name] = text
    if "All" in wanted:
        return found
    return {name: value for name, value in found.items() if name in wanted}
