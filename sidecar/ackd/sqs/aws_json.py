"""The JSON protocol of SQS, AWS JSON 1.0.

https://smithy.io/2.0/aws/protocols/aws-json-1_0-protocol.html
"""

from __future__ import annotations

import orjson

from ackd.http.server.reply import Reply
from ackd.sqs.action_call import Result
from ackd.sqs.fault import Fault
from ackd.sqs.parameters import Parameters

MEDIA_TYPE = "application/x-amz-json-1.0"
TARGET = "X-Amz-Target"
_SERVICE = "AmazonSQS."


def read(target: str, body: bytes) -> tuple[str, Parameters]:
    """The action and its parameters. Raises Fault."""
    if not target.startswith(_SERVICE):
        raise Fault("InvalidAction", f"{TARGET} has to begin with {_SERVICE}")
    try:
        members = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise Fault("SerializationException", f"The body is not JSON: {error}.") from error
    if not isinstance(members, dict):
        raise Fault("SerializationException", "The body is not a JSON object.")
    return target.removeprefix(_SERVICE), Parameters(members)


def answer(result: Result, request_id: str) -> Reply:
    """Write what an action gives."""
    return Reply(
        orjson.dumps(result), content_type=MEDIA_TYPE, headers=(("x-amzn-RequestId", request_id),)
    )


def failure(fault: Fault, request_id: str) -> Reply:
    """Write an error; boto3 takes its code from the header, others from `__type`."""
    blame = "Sender" if fault.by_sender else "Receiver"
    return Reply(
        orjson.dumps({"__type": f"com.amazonaws.sqs#{fault.code}", "message": fault.message}),
        status=fault.status,
        content_type=MEDIA_TYPE,
        headers=(
            ("x-amzn-RequestId", request_id),
            ("x-amzn-query-error", f"{fault.query_code};{blame}"),
        ),
    )
