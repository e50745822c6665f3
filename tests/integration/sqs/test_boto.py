"""boto3, unmodified, through the life of messages: on a local queue and on Kafka, the main of it on
every broker.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any
from urllib.request import urlopen

import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.integration.engine.linked import ALL, ROCKETMQ, WITH_PARTITIONS
from tests.integration.http.conftest import call
from tests.integration.sqs.conftest import KEYS, MakeSidecar, SqsSidecar
from tests.support.paths import REPO
from tests.support.wait import wait_until

pytestmark = pytest.mark.timeout(240)


def refused(code: str, asked: Any, **given: Any) -> str:
    """The message of the error with this code."""
    with pytest.raises(ClientError) as found:
        asked(**given)
    error = found.value.response["Error"]
    assert error["Code"] == code, error
    return str(error["Message"])


@pytest.mark.parametrize("sqs", ALL, indirect=True)
def test_a_message_is_sent_extended_failed_and_deleted(sqs: SqsSidecar) -> None:
    client = sqs.client()
    url = client.get_queue_url(QueueName="plain")["QueueUrl"]
    assert url == sqs.queue("plain")
    attributes = {
        "shop": {"DataType": "String", "StringValue": "nord"},
        "size": {"DataType": "Number.int", "StringValue": "17"},
        "raw": {"DataType": "Binary.gz", "BinaryValue": b"\x00\xff"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3f"}}
    sent = client.send_message(
        QueueUrl=url,
        MessageBody="grün <&> \r\n",
        MessageAttributes=attributes,
        MessageSystemAttributes=trace,
    )
    everything: dict[str, Any] = {
        "MessageAttributeNames": ["All"],
        "MessageSystemAttributeNames": ["All"],
    }
    [first] = sqs.received(client, "plain", VisibilityTimeout=60, **everything)
    assert first["Body"] == "grün <&> \r\n"
    assert first["MessageAttributes"] == attributes
    if sqs.broker != "rocketmq":  # its answer to a publish does not tell the queue
        assert first["MessageId"] == sent["MessageId"]
    assert first["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert first["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert first["Attributes"]["ApproximateReceiveCount"] == "1"
    assert first["Attributes"]["AWSTraceHeader"] == "Root=1-5759e988-bd862e3f"

    handle = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
    client.change_message_visibility(**handle, VisibilityTimeout=300)
    client.change_message_visibility(**handle, VisibilityTimeout=0)
    [again] = sqs.received(client, "plain", AttributeNames=["ApproximateReceiveCount"])
    assert again["Attributes"] == {"ApproximateReceiveCount": "2"}
    assert again["MessageId"] == first["MessageId"]
    assert "MessageAttributes" not in again
    refused("AWS.SimpleQueueService.MessageNotInflight", client.change_message_visibility,
            **handle, VisibilityTimeout=5)  # fmt: skip
    client.delete_message(**handle)  # as SQS: by a lease that is lost it succeeds, and does nothing
    now = {"QueueUrl": url, "ReceiptHandle": again["ReceiptHandle"]}
    client.change_message_visibility(**now, VisibilityTimeout=60)
    client.delete_message(**now)
    client.delete_message(**now)
    assert "Messages" not in client.receive_message(QueueUrl=url, WaitTimeSeconds=1)


def test_an_expired_lease_comes_again(sqs: SqsSidecar) -> None:
    client = sqs.client()
    client.send_message(QueueUrl=sqs.queue("plain"), MessageBody="1")
    [first] = sqs.received(client, "plain", VisibilityTimeout=1)
    began_s = time.monotonic()
    [second] = sqs.received(client, "plain", AttributeNames=["All"])
    assert time.monotonic() - began_s > 0.8
    assert second["MessageId"] == first["MessageId"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"


def test_batches(sqs: SqsSidecar) -> None:
    client = sqs.client()
    url = sqs.queue("plain")
    entries: list[dict[str, Any]]
    entries = [{"Id": f"n-{n}", "MessageBody": f"{n}"} for n in range(9)]
    entries.append({"Id": "bad", "MessageBody": "", "DelaySeconds": 0})
    sent = client.send_message_batch(QueueUrl=url, Entries=entries)
    assert len(sent["Successful"]) == 9
    [bad] = sent["Failed"]
    assert (bad["Id"], bad["SenderFault"], bad["Code"]) == ("bad", True, "InvalidMessageContents")
    found = sqs.received(client, "plain", 9)
    assert sorted(each["Body"] for each in found) == [f"{n}" for n in range(9)]
    handles: list[dict[str, Any]] = [
        {"Id": f"{n}", "ReceiptHandle": each["ReceiptHandle"], "VisibilityTimeout": 60}
        for n, each in enumerate(found)
    ]
    changed = client.change_message_visibility_batch(QueueUrl=url, Entries=handles)
    assert len(changed["Successful"]) == 9
    deleting = [{k: v for k, v in each.items() if k != "VisibilityTimeout"} for each in handles]
    deleting.append({"Id": "no", "ReceiptHandle": "nothing"})
    deleted = client.delete_message_batch(QueueUrl=url, Entries=deleting)
    assert len(deleted["Successful"]) == 9
    assert [each["Code"] for each in deleted["Failed"]] == ["ReceiptHandleIsInvalid"]
    service = "AWS.SimpleQueueService"
    twice = [{"Id": "a", "MessageBody": "1"}] * 2
    refused(
        f"{service}.BatchEntryIdsNotDistinct",
        client.send_message_batch,
        QueueUrl=url,
        Entries=twice,
    )
    refused(f"{service}.EmptyBatchRequest", client.send_message_batch, QueueUrl=url, Entries=[])
    eleven = [{"Id": f"{n}", "MessageBody": "1"} for n in range(11)]
    refused(
        f"{service}.TooManyEntriesInBatchRequest",
        client.send_message_batch,
        QueueUrl=url,
        Entries=eleven,
    )
    refused(f"{service}.InvalidBatchEntryId", client.send_message_batch, QueueUrl=url,
            Entries=[{"Id": "a b", "MessageBody": "1"}])  # fmt: skip


def test_a_delayed_message_comes_when_it_is_due(sqs: SqsSidecar) -> None:
    client = sqs.client()
    began_s = time.monotonic()
    client.send_message(QueueUrl=sqs.queue("plain"), MessageBody="later", DelaySeconds=2)
    [found] = sqs.received(client, "plain")
    assert found["Body"] == "later"
    assert time.monotonic() - began_s > 1.9


@pytest.mark.parametrize("sqs", ALL, indirect=True)
def test_a_fifo_queue_keeps_order_and_drops_repeats(sqs: SqsSidecar) -> None:
    """A key's next message waits for the one before it, and a deduplication id counts once."""
    client = sqs.client()
    url = client.get_queue_url(QueueName="lined.fifo")["QueueUrl"]
    sent = []
    for number in (1, 1, 2, 3):
        group = {"MessageGroupId": "shop-7", "MessageDeduplicationId": f"d{number}"}
        sent.append(client.send_message(QueueUrl=url, MessageBody=f"{number}", **group))
    assert sent[0]["SequenceNumber"] == sent[1]["SequenceNumber"] < sent[2]["SequenceNumber"]
    assert sent[0]["MessageId"] == sent[1]["MessageId"]
    missing = refused("MissingParameter", client.send_message, QueueUrl=url, MessageBody="4")
    assert "MessageGroupId" in missing
    for number in (1, 2, 3):
        [found] = sqs.received(client, "lined.fifo", AttributeNames=["All"])
        assert found["Body"] == f"{number}"
        assert found["Attributes"]["MessageGroupId"] == "shop-7"
        assert found["Attributes"]["MessageDeduplicationId"] == f"d{number}"
        assert "Messages" not in client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        client.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
    entries = [{"Id": f"{n}", "MessageBody": f"{n}", "MessageGroupId": "shop-8"} for n in range(10)]
    assert len(client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
    for number in range(10):
        [found] = sqs.received(client, "lined.fifo")
        assert found["Body"] == f"{number}"
        last = {"QueueUrl": url, "ReceiptHandle": found["ReceiptHandle"]}
        client.delete_message(**last)
        client.delete_message(**last)  # again is no mistake


def fail_too_often(sqs: SqsSidecar, client: Any) -> None:
    """Send a message, and fail as often as the queue allows."""
    url = sqs.queue("plain")
    client.send_message(QueueUrl=url, MessageBody="poison")
    for _ in range(3):
        [found] = sqs.received(client, "plain")
        handle = {"QueueUrl": url, "ReceiptHandle": found["ReceiptHandle"]}
        client.change_message_visibility(**handle, VisibilityTimeout=0)


@pytest.mark.parametrize("sqs", [ROCKETMQ], indirect=True)
def test_a_message_that_fails_too_often_is_put_aside(sqs: SqsSidecar) -> None:
    client = sqs.client()
    fail_too_often(sqs, client)
    labels = 'outcome="stored",subscription="plain",topic="dead-letter-topic"'

    def there() -> bool:
        with urlopen(f"{sqs.sidecar.admin_url}/metrics", timeout=60) as answer:  # noqa: S310
            return f"ackd_copies_total{{{labels}}} 1.0" in answer.read().decode()

    wait_until(there, "the dead letter")
    url = sqs.queue("plain")
    assert "Messages" not in client.receive_message(QueueUrl=url, WaitTimeSeconds=1)


@pytest.mark.parametrize("sqs", WITH_PARTITIONS, indirect=True)
def test_a_message_that_fails_too_often_is_redriven(sqs: SqsSidecar) -> None:
    client = sqs.client()
    url = sqs.queue("plain")
    fail_too_often(sqs, client)
    policy = client.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
    dead = json.loads(policy["Attributes"]["RedrivePolicy"])
    assert dead["maxReceiveCount"] == 3
    dead_url = client.get_queue_url(QueueName=dead["deadLetterTargetArn"].rpartition(":")[2])
    counted = {"QueueUrl": dead_url["QueueUrl"], "AttributeNames": ["All"]}

    def there() -> bool:
        found = client.get_queue_attributes(**counted)["Attributes"]
        return bool(found["ApproximateNumberOfMessages"] == "1")

    wait_until(there, "the dead letter")
    sources = client.list_dead_letter_source_queues(QueueUrl=dead_url["QueueUrl"])
    assert sources["queueUrls"] == [url]
    arn = {"SourceArn": dead["deadLetterTargetArn"]}
    task = client.start_message_move_task(**arn)["TaskHandle"]
    [again] = sqs.received(client, "plain", AttributeNames=["All"])
    assert (again["Body"], again["Attributes"]["ApproximateReceiveCount"]) == ("poison", "1")
    client.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])

    def done() -> bool:
        [shown] = client.list_message_move_tasks(**arn)["Results"]
        return bool(
            (shown["Status"], shown["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 1)
        )

    wait_until(done, "the task to be done")
    refused("ResourceNotFoundException", client.cancel_message_move_task, TaskHandle=f"{task}x")
    refused("AWS.SimpleQueueService.UnsupportedOperation", client.receive_message,
            QueueUrl=dead_url["QueueUrl"])  # fmt: skip


def test_attributes_of_queues(sqs: SqsSidecar) -> None:
    client = sqs.client()
    url = sqs.queue("plain")
    for number in range(5):
        client.send_message(QueueUrl=url, MessageBody=f"{number}")
    sqs.received(client, "plain", 2, VisibilityTimeout=600)
    counts = (
        *("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"),
        "ApproximateNumberOfMessagesDelayed",
    )

    def shown() -> bool:
        asked = client.get_queue_attributes(QueueUrl=url, AttributeNames=list(counts))
        return [asked["Attributes"][name] for name in counts] == ["3", "2", "0"]

    wait_until(shown, "three to wait and two to be leased")
    changes = {"VisibilityTimeout": "77", "RedrivePolicy": json.dumps({"maxReceiveCount": "9"})}
    client.set_queue_attributes(QueueUrl=url, Attributes=changes)
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert found["VisibilityTimeout"] == "77"
    assert json.loads(found["RedrivePolicy"])["maxReceiveCount"] == 9
    assert found["QueueArn"].endswith(":plain")
    path = "/v1/subscriptions/plain"
    _, view = call(sqs.sidecar.admin_port, "GET", path)
    assert (view["settings"]["lease_ms"], view["settings"]["attempts_max"]) == (77_000, 9)
    refused(
        "InvalidAttributeName", client.get_queue_attributes, QueueUrl=url, AttributeNames=["Size"]
    )
    refused(
        "InvalidAttributeName", client.set_queue_attributes, QueueUrl=url, Attributes={"Size": "1"}
    )
    unsupported = "AWS.SimpleQueueService.UnsupportedOperation"
    refused(
        unsupported, client.set_queue_attributes, QueueUrl=url, Attributes={"DelaySeconds": "1"}
    )
    assert "ackd seek" in refused(unsupported, client.purge_queue, QueueUrl=url)


def test_queues_are_listed_and_never_made(sqs: SqsSidecar) -> None:
    client = sqs.client()
    names = ["lined", "lined-dead", "plain", "plain-dead"]
    assert client.list_queues()["QueueUrls"] == [sqs.queue(name) for name in names]
    pages = client.get_paginator("list_queues").paginate(PaginationConfig={"PageSize": 3})
    assert [url for page in pages for url in page["QueueUrls"]] == [
        sqs.queue(each) for each in names
    ]
    assert client.list_queues(QueueNamePrefix="pl")["QueueUrls"] == [
        sqs.queue(each) for each in names[2:]
    ]
    assert "QueueUrls" not in client.list_queues(QueueNamePrefix="z")
    assert client.create_queue(QueueName="plain")["QueueUrl"] == sqs.queue("plain")
    unsupported = "AWS.SimpleQueueService.UnsupportedOperation"
    assert "configure" in refused(unsupported, client.create_queue, QueueName="new")
    refused("AWS.SimpleQueueService.NonExistentQueue", client.get_queue_url, QueueName="new")
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.receive_message(QueueUrl=sqs.queue("new"))
    topic = f"{sqs.stamp}-plain"
    client.send_message(QueueUrl=sqs.queue(topic), MessageBody="by its topic")
    [found] = sqs.received(client, topic)
    assert found["Body"] == "by its topic"


def test_bytes_that_are_no_text_come_as_base64(sqs: SqsSidecar) -> None:
    """And go back as the bytes that they stand for."""
    client = sqs.client()
    port, topic = sqs.sidecar.port, f"/v1/topics/{sqs.stamp}-plain/messages"
    assert call(port, "POST", topic, b"\x00\xff\xfe")[0] == 201
    [found] = sqs.received(client, "plain", MessageAttributeNames=["All"])
    assert found["Body"] == "AP/+"
    encoding = {"ackd-encoding": {"DataType": "String", "StringValue": "base64"}}
    assert found["MessageAttributes"] == encoding
    url = sqs.queue("plain")
    client.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
    client.send_message(QueueUrl=url, MessageBody="AP/+", MessageAttributes=encoding)
    path = "/v1/subscriptions/plain/receive"

    def there() -> dict[str, Any] | None:
        got = call(port, "POST", path, b'{"wait_ms": 2000}')[1]["messages"]
        return dict(got[0]) if got else None

    message = wait_until(there, "the message")
    assert message is not None
    assert (message["base64"], message["headers"]) == ("AP/+", [])


def test_a_wrong_signature_gets_nothing(make: MakeSidecar, tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"# of the tests\n{KEYS[0]} {KEYS[1]}\n")
    sqs = make(sqs=f'credentials_file = "{keys}"', keys=KEYS)
    good = sqs.client()
    good.send_message(QueueUrl=sqs.queue("plain"), MessageBody="a & b=ü")
    assert [each["Body"] for each in sqs.received(good, "plain")] == ["a & b=ü"]
    other = sqs.client(aws_secret_access_key="a-wrong-one")
    refused("SignatureDoesNotMatch", other.list_queues)
    unknown = sqs.client(aws_access_key_id="AKIANOBODY")
    refused("InvalidClientTokenId", unknown.list_queues)
    unsigned = sqs.client(config=Config(signature_version=UNSIGNED))
    refused("MissingAuthenticationToken", unsigned.list_queues)
    assert KEYS[1] not in sqs.sidecar.process.log()
    # What is for operators is not for clients, if nothing else is said.
    arn = "arn:aws:sqs:us-east-1:000000000000:plain-dead"
    refused("AccessDenied", good.start_message_move_task, SourceArn=arn)
    refused("AccessDenied", good.set_queue_attributes, QueueUrl=sqs.queue("plain"),
            Attributes={"VisibilityTimeout": "5"})  # fmt: skip


def test_a_web_page_gets_nothing(make: MakeSidecar) -> None:
    sqs = make()
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    for told in ({"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        status, answer = call(sqs.port, "POST", "/", b"Action=ListQueues", **form, **told)
        assert (status, answer["type"]) == (403, "/problems/forbidden"), told


def test_the_guides_lines_work(make: MakeSidecar) -> None:
    """`docs/guides/sqs.md`, as it stands but for names of this test."""
    text = (REPO / "docs" / "guides" / "sqs.md").read_text()
    [lines] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    sqs = make()
    lines = lines.replace("http://127.0.0.1:9324", sqs.url).replace('"orders"', '"plain"')
    exec(lines, {})  # noqa: S102  the guide's own
    client = sqs.client()
    assert "Messages" not in client.receive_message(QueueUrl=sqs.queue("plain"), WaitTimeSeconds=1)
