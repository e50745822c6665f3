"""SendMessage and SendMessageBatch: publishing to the topic behind a queue."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from uuid import uuid4

from ackd.api.messages import Accepted, Published, PublishRequest
from ackd.core.ids import message_id
from ackd.errors import AckdError
from ackd.ports import Outgoing, Stored
from ackd.sqs.action_call import ActionCall, Result, batch, failed
from ackd.sqs.fault import Fault, fault_of, wrong
from ackd.sqs.message_attributes import (
    DEDUPLICATION_HEADER,
    ENCODING,
    Attributes,
    attributes_digest,
    digest,
    headers_of,
    read_attributes,
    read_system_attributes,
    text_of,
)
from ackd.sqs.parameters import Parameters
from ackd.sqs.queues import SqsQueue
from ackd.sqs.receiving import message_uuid, sequence_number

DELAY_S_MAX = 900
ID_CHARS_MAX = 128


@dataclass(slots=True)
class SentMessage:
    """A message as a client sent it. `deduplication`: its MessageDeduplicationId, or empty."""

    message: Outgoing
    body: bytes
    attributes: Attributes
    system: Attributes
    deduplication: str


async def send_message(action: ActionCall) -> Result:
    """SendMessage. `MessageGroupId` is the key, `MessageDeduplicationId` an idempotency key."""
    queue = action.queue()
    sent = _read(queue, action.parameters)
    [result] = (await _publish(action, [sent])).results
    if isinstance(result, AckdError):
        raise fault_of(result)
    return _stored(queue, sent, result)


async def send_message_batch(action: ActionCall) -> Result:
    """SendMessageBatch. What has a deduplication id is published by itself, the rest together."""
    queue = action.queue()
    done: list[dict[str, object]] = []
    failures: list[dict[str, object]] = []
    good: list[tuple[str, SentMessage]] = []
    for name, entry in action.parameters.entries():
        try:
            good.append((name, _read(queue, entry)))
        except Fault as fault:
            failures.append(failed(name, fault))
    plain = [each for each in good if not each[1].deduplication]
    groups = [plain] if plain and not queue.ordered else []
    # In order one by one: the next message of a key waits for the one before it.
    groups += [[each] for each in good if queue.ordered or each[1].deduplication]
    for group in groups:
        published = await _publish(action, [sent for _, sent in group])
        for (name, sent), result in zip(group, published.results, strict=True):
            if isinstance(result, AckdError):
                failures.append(failed(name, result))
            else:
                done.append({"Id": name} | _stored(queue, sent, result))
    return batch(done, failures)


async def _publish(action: ActionCall, sent: list[SentMessage]) -> Published:
    key = sent[0].deduplication if len(sent) == 1 else ""
    request = PublishRequest(
        [each.message for each in sent],
        # Of the topic, and apart from the keys of other front ends.
        idempotency_key=f"sqs/{sent[0].message.topic}/{key}" if key else None,
        fingerprint=b"sqs",  # SQS ignores what a repeated id carries
    )
    try:
        return await action.engine.publish(None, request)
    except AckdError as error:
        return Published([error] * len(sent))


def _read(queue: SqsQueue, given: Parameters) -> SentMessage:
    """Read one message. Raises Fault."""
    topic = queue.sends()
    text = given.text("MessageBody")
    body = text.encode("utf-8", "surrogatepass")
    if not body or text_of(body) is None:
        raise Fault(
            "InvalidMessageContents",
            "A body has at least one character, and only those that XML 1.0 allows.",
        )
    attributes = dict(read_attributes(given))
    system = read_system_attributes(given)
    group = _id(given, "MessageGroupId")
    if queue.ordered and not group:
        raise Fault("MissingParameter", "The request must contain the parameter MessageGroupId.")
    deduplication = _id(given, "MessageDeduplicationId")
    headers = headers_of(attributes)
    headers += [(name, each.value) for name, each in system.items()]
    if deduplication:
        headers.append((DEDUPLICATION_HEADER, deduplication.encode()))
    delay_s = given.number("DelaySeconds", 0, DELAY_S_MAX) or 0
    key = group.encode() if group else None
    message = Outgoing(topic, key, body, tuple(headers), delay_ms=delay_s * 1000)
    encoding = attributes.get(ENCODING)
    if encoding is not None:
        message = _decoded(message, encoding.value)
    return SentMessage(message, body, attributes, system, deduplication)


def _decoded(message: Outgoing, encoding: bytes) -> Outgoing:
    """The bytes that a body stands for: the way back of `receiving`."""
    headers = tuple(each for each in message.headers if each[0] != ENCODING)
    if encoding == b"null":
        value = None
    elif encoding == b"base64":
        try:
            value = b64decode(message.value or b"", validate=True)
        except (Base64Error, ValueError) as error:
            raise Fault("InvalidMessageContents", "The body is not base64.") from error
    else:
        raise wrong(ENCODING, encoding.decode(), "It is base64 or null.")
    return Outgoing(message.topic, message.key, value, headers, delay_ms=message.delay_ms)


def _id(given: Parameters, name: str) -> str:
    found = given.optional_text(name) or ""
    if len(found) > ID_CHARS_MAX or not (found.isascii() and found.isprintable()):
        raise wrong(name, found, f"It has at most {ID_CHARS_MAX} printable ASCII characters.")
    return found


def _stored(queue: SqsQueue, sent: SentMessage, result: Stored | Accepted) -> dict[str, object]:
    """The answer. A message with a delay has no place yet, so its id here is not the one with which
    it comes.
    """
    if isinstance(result, Accepted):
        found: dict[str, object] = {"MessageId": message_uuid(result.id)}
    elif result.offset < 0:
        found = {"MessageId": str(uuid4())}
    else:
        name = message_id(result.topic, result.partition, result.offset)
        found = {"MessageId": message_uuid(name)}
        if queue.ordered:
            found["SequenceNumber"] = sequence_number(result.offset)
    found["MD5OfMessageBody"] = digest(sent.body)
    if sent.attributes:
        found["MD5OfMessageAttributes"] = attributes_digest(sent.attributes)
    if sent.system:
        found["MD5OfMessageSystemAttributes"] = attributes_digest(sent.system)
    return found
