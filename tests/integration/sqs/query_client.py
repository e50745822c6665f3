"""A boto3 of before the JSON protocol, through the life of a message. Argument: the port's URL."""

import json
import sys
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

URL = sys.argv[1]
CLIENT = boto3.client(
    "sqs",
    endpoint_url=URL,
    region_name="us-east-1",
    aws_access_key_id="any",
    aws_secret_access_key="any",
    config=Config(retries={"total_max_attempts": 1}),
)
assert CLIENT.meta.service_model.metadata["protocol"] == "query"


def refused(code: str, asked: Any, **given: object) -> None:
    """The call fails with this code."""
    found = None
    try:
        asked(**given)
    except ClientError as error:
        found = error.response["Error"]["Code"]
    assert found == code, (found, code)


def one(url: str, **more: object) -> dict[str, Any]:
    """The next message."""
    for _ in range(20):
        answer = CLIENT.receive_message(QueueUrl=url, WaitTimeSeconds=5, **more)
        for each in answer.get("Messages", ()):
            return dict(each)
    raise AssertionError("no message came")


url = CLIENT.get_queue_url(QueueName="plain")["QueueUrl"]
attributes = {
    "n": {"DataType": "Number", "StringValue": "5"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}
sent = CLIENT.send_message(QueueUrl=url, MessageBody='<a b="ü">&\r\n', MessageAttributes=attributes)
got = one(url, MessageAttributeNames=["All"], AttributeNames=["All"])
assert got["Body"] == '<a b="ü">&\r\n', got
assert got["MessageAttributes"] == attributes, got
assert got["MessageId"] == sent["MessageId"]
assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
assert got["Attributes"]["ApproximateReceiveCount"] == "1"
CLIENT.change_message_visibility(
    QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=0
)
again = one(url, AttributeNames=["ApproximateReceiveCount"])
assert again["Attributes"] == {"ApproximateReceiveCount": "2"}
gone = {"QueueUrl": url, "ReceiptHandle": got["ReceiptHandle"], "VisibilityTimeout": 3}
refused("AWS.SimpleQueueService.MessageNotInflight", CLIENT.change_message_visibility, **gone)
CLIENT.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])

entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(3)] + [
    {"Id": "x", "MessageBody": ""}
]
batch = CLIENT.send_message_batch(QueueUrl=url, Entries=entries)
assert [each["Id"] for each in batch["Successful"]] == ["0", "1", "2"], batch
assert [(each["Id"], each["SenderFault"]) for each in batch["Failed"]] == [("x", True)], batch
found = [one(url) for _ in range(3)]
assert sorted(each["Body"] for each in found) == ["0", "1", "2"]
handles = [
    {"Id": str(n), "ReceiptHandle": each["ReceiptHandle"], "VisibilityTimeout": 60}
    for n, each in enumerate(found)
]
assert len(CLIENT.change_message_visibility_batch(QueueUrl=url, Entries=handles)["Successful"]) == 3
for each in handles:
    del each["VisibilityTimeout"]
assert len(CLIENT.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]) == 3

fifo = CLIENT.get_queue_url(QueueName="lined.fifo")["QueueUrl"]
CLIENT.send_message(QueueUrl=fifo, MessageBody="1", MessageGroupId="g", MessageDeduplicationId="d")
CLIENT.delete_message(QueueUrl=fifo, ReceiptHandle=one(fifo)["ReceiptHandle"])

names = ["lined", "lined-dead", "plain", "plain-dead"]
listed = CLIENT.list_queues()["QueueUrls"]
assert [each.rpartition("/")[2] for each in listed] == names, listed
CLIENT.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "41"})
shown = CLIENT.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
assert shown["VisibilityTimeout"] == "41"
assert json.loads(shown["RedrivePolicy"])["maxReceiveCount"] == 3
refused("AWS.SimpleQueueService.NonExistentQueue", CLIENT.get_queue_url, QueueName="nothing")
refused("AWS.SimpleQueueService.UnsupportedOperation", CLIENT.purge_queue, QueueUrl=url)
sys.stdout.write("all of it\n")
