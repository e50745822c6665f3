"""Requests of SQS clients: an action with its parameters, or a Fault that can be told in XML."""

import contextlib
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from ackd.sqs import aws_json, aws_query
from ackd.sqs.fault import Fault


def run(data: bytes) -> None:
    """The first byte says in which protocol."""
    json, raw = (data[:1] or b"\0")[0] % 2, data[1:]
    try:
        if json:
            aws_json.read("AmazonSQS.SendMessage", raw)
            return
        action, _ = aws_query.read(raw)
    except Fault as fault:
        said = bytes(aws_query.failure(fault, "r").body)
        assert b"ErrorResponse" in said
        aws_json.failure(fault, "r")
        with contextlib.suppress(UnicodeDecodeError):
            said.decode()
        return
    assert action or action == ""
    ET.fromstring(aws_query.answer("SendMessage", {"A": "x\r"}, "r").body)  # noqa: S314  our own


def seeds() -> Iterator[bytes]:
    """Forms with lists, maps and entries; JSON."""
    forms = (
        "Action=SendMessage&MessageBody=a%0D&MessageAttribute.1.Name=n&MessageAttribute.1.Value=v",
        "Action=DeleteMessageBatch&DeleteMessageBatchRequestEntry.1.ReceiptHandle=v1.x",
        "Action=ReceiveMessage&AttributeName.1=All&AttributeName.10=b&AttributeName.2=c",
        "Action.x=1&Action=2",
    )
    for form in forms:
        yield b"\0" + form.encode()
    yield b'\1{"QueueUrl": "http://a/b", "Entries": [{"Id": "1", "MessageBody": "x"}]}'
