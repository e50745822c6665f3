"""The query protocol: forms become what the JSON protocol says, answers and errors become XML."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from ackd.sqs import aws_json, aws_query
from ackd.sqs.fault import Fault
from ackd.sqs.parameters import Parameters

SPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


def _parsed(body: bytes) -> ET.Element:
    return ET.fromstring(body)  # noqa: S314  ours


def members(form: bytes) -> dict[str, object]:
    return dict(aws_query.read(form)[1]._members)


def test_a_form_with_everything() -> None:
    form = (
        b"Action=SendMessageBatch&Version=2012-11-05&QueueUrl=http%3A%2F%2Fh%2F0%2Fq"
        b"&SendMessageBatchRequestEntry.2.Id=b&SendMessageBatchRequestEntry.2.MessageBody=2"
        b"&SendMessageBatchRequestEntry.1.Id=a&SendMessageBatchRequestEntry.1.MessageBody=%C3%BC+%26"
        b"&SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=n"
        b"&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=Number"
        b"&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue=5"
        b"&AttributeName.1=All&MessageAttributeName.10=b&MessageAttributeName.9=a"
        b"&Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=7"
    )
    action, _ = aws_query.read(form)
    assert action == "SendMessageBatch"
    assert members(form) == {
        "Version": "2012-11-05",
        "QueueUrl": "http://h/0/q",
        "Entries": [
            {
                "Id": "a",
                "MessageBody": "ü &",
                "MessageAttributes": {"n": {"DataType": "Number", "StringValue": "5"}},
            },
            {"Id": "b", "MessageBody": "2"},
        ],
        "AttributeNames": ["All"],
        "MessageAttributeNames": ["a", "b"],
        "Attributes": {"VisibilityTimeout": "7"},
    }


@pytest.mark.parametrize(
    "form",
    [
        b"",
        b"QueueUrl=x",
        b"Action=A&Action=B",
        b"Action=A&x=1&x.1=2",
        b"Action=A&x.1=2&x=1",
        b"Action=A&a.b.c.d.e.f.g=1",
        b"Action=A&Attribute.1=5",
        b"Action=A&Attribute.1.Value=5",
        b"Action=\xff",
        b"Action=%ff",
        b"Action.1=A",
        b"&".join(b"a%d=1" % n for n in range(3_000)),
    ],
)
def test_what_is_no_form_is_refused(form: bytes) -> None:
    with pytest.raises(Fault):
        aws_query.read(form)


def test_an_answer_in_xml() -> None:
    message = {
        "MessageId": "m",
        "Body": 'a <b> & "c"\r\n',
        "Attributes": {"SentTimestamp": "1"},
        "MessageAttributes": {"n": {"DataType": "Number", "StringValue": "5"}},
    }
    reply = aws_query.answer("ReceiveMessage", {"Messages": [message, message]}, "r-1")
    root = _parsed(reply.body)
    assert root.tag == f"{SPACE}ReceiveMessageResponse"
    first, second = root.findall(f"{SPACE}ReceiveMessageResult/{SPACE}Message")
    assert first.findtext(f"{SPACE}Body") == 'a <b> & "c"\r\n' == second.findtext(f"{SPACE}Body")
    attribute = first.find(f"{SPACE}MessageAttribute")
    assert attribute is not None
    assert attribute.findtext(f"{SPACE}Name") == "n"
    assert attribute.findtext(f"{SPACE}Value/{SPACE}StringValue") == "5"
    assert root.findtext(f"{SPACE}ResponseMetadata/{SPACE}RequestId") == "r-1"


def test_results_of_a_batch_are_named_by_their_action() -> None:
    failed = {"Id": "b", "SenderFault": True, "Code": "c", "Message": "m"}
    result = {"Successful": [{"Id": "a"}], "Failed": [failed]}
    root = _parsed(aws_query.answer("DeleteMessageBatch", result, "r").body)
    inside = root.find(f"{SPACE}DeleteMessageBatchResult")
    assert inside is not None
    assert [each.tag.removeprefix(SPACE) for each in inside] == [
        "DeleteMessageBatchResultEntry",
        "BatchResultErrorEntry",
    ]
    assert inside[1].findtext(f"{SPACE}SenderFault") == "true"


def test_an_error_in_both_protocols() -> None:
    fault = Fault("QueueDoesNotExist", "no <queue>")
    reply = aws_query.failure(fault, "r-2")
    root = _parsed(reply.body)
    error = root.find(f"{SPACE}Error")
    assert error is not None
    assert reply.status == 400
    assert error.findtext(f"{SPACE}Code") == "AWS.SimpleQueueService.NonExistentQueue"
    assert (error.findtext(f"{SPACE}Type"), error.findtext(f"{SPACE}Message")) == (
        "Sender",
        "no <queue>",
    )
    spoken = aws_json.failure(fault, "r-2")
    assert b'"com.amazonaws.sqs#QueueDoesNotExist"' in spoken.body
    assert (
        "x-amzn-query-error",
        "AWS.SimpleQueueService.NonExistentQueue;Sender",
    ) in spoken.headers
    away = aws_json.failure(Fault("ServiceUnavailable", "later", 503), "r-3")
    assert (away.status, away.headers[1][1]) == (503, "ServiceUnavailable;Receiver")


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("", b"{}"),
        ("AmazonSNS.Publish", b"{}"),
        ("AmazonSQS.ListQueues", b"no"),
        ("AmazonSQS.X", b"[]"),
    ],
)
def test_what_is_no_json_request_is_refused(target: str, body: bytes) -> None:
    with pytest.raises(Fault):
        aws_json.read(target, body)


@pytest.mark.parametrize("value", ["x", "-1", "1.5", 1.5, True, None, [], -1, 11, 10**30, "9" * 40])
def test_numbers_have_bounds(value: object) -> None:
    asked = Parameters({"Max": value})
    if value is None:
        assert asked.number("Max", 1, 10) is None
        return
    with pytest.raises(Fault):
        asked.number("Max", 1, 10)
