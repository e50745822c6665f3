"""Queues as SQS clients ask for them: names, URLs, and attributes of which some can be set."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from ackd.api.dead_letters import DeadRequest, DryRun, Kind
from ackd.api.messages import GroupLag
from ackd.sqs.action_call import ActionCall, Result
from ackd.sqs.fault import Fault, wrong
from ackd.sqs.parameters import Parameters
from ackd.sqs.queues import DEAD, FIFO, SqsQueue
from ackd.sqs.receiving import LEASE_S_MAX

LIST_MAX = 1_000
ATTEMPTS_MAX = 1_000
_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_OTHERS = (
    "CreatedTimestamp",
    "DelaySeconds",
    "FifoQueue",
    "LastModifiedTimestamp",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "QueueArn",
    "ReceiveMessageWaitTimeSeconds",
    "RedrivePolicy",
    "VisibilityTimeout",
)
NAMES = frozenset({*_COUNTS, *_OTHERS})
_SINCE = "0"
"""When a queue was made, ackd does not know."""


async def get_queue_url(action: ActionCall) -> Result:
    """GetQueueUrl: at the address that the client called."""
    queue = action.queues.named(action.parameters.text("QueueName"))
    return {"QueueUrl": action.queues.url(queue, action.host)}


async def create_queue(action: ActionCall) -> Result:
    """CreateQueue. Gives the URL of a queue that is there; ackd makes none, because a subscription
    is configured. Attributes are not compared: frameworks send their defaults with every start.
    """
    name = action.parameters.text("QueueName")
    try:
        queue = action.queues.named(name)
    except Fault as fault:
        raise Fault(
            "UnsupportedOperation",
            f"ackd makes no queues: configure a subscription named {name[:100]}.",
        ) from fault
    return {"QueueUrl": action.queues.url(queue, action.host)}


async def list_queues(action: ActionCall) -> Result:
    """ListQueues, by prefix and page by page."""
    given = action.parameters
    prefix = given.optional_text("QueueNamePrefix") or ""
    after = given.optional_text("NextToken") or ""
    limit = given.number("MaxResults", 1, LIST_MAX)
    most = limit or LIST_MAX
    found = [
        queue
        for queue in action.queues.all()
        if queue.name.startswith(prefix) and queue.name > after
    ]
    if not found:
        return {}
    page = found[:most]
    result: dict[str, object] = {
        "QueueUrls": [action.queues.url(queue, action.host) for queue in page]
    }
    if limit is not None and len(found) > most:
        result["NextToken"] = page[-1].name
    return result


async def get_queue_attributes(action: ActionCall) -> Result:
    """GetQueueAttributes. The counts are those of the whole group."""
    queue = action.queue()
    wanted = action.parameters.names("AttributeNames")
    unknown = [name for name in wanted if name not in NAMES and name != "All"]
    if unknown:
        raise Fault("InvalidAttributeName", f"Unknown Attribute {unknown[0][:100]}.")
    chosen = NAMES if "All" in wanted else frozenset(wanted)
    if not chosen:
        return {}
    attributes = _fixed(action, queue)
    if chosen.intersection(_COUNTS):
        attributes |= await _counts(action, queue)
    return {"Attributes": {k: v for k, v in sorted(attributes.items()) if k in chosen}}


def _fixed(action: ActionCall, queue: SqsQueue) -> dict[str, str]:
    found = {
        "QueueArn": action.queues.arn(queue.name),
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "CreatedTimestamp": _SINCE,
        "LastModifiedTimestamp": _SINCE,
    }
    if queue.ordered or queue.name.endswith(FIFO):
        found["FifoQueue"] = "true"
    if not queue.subscription:
        return found
    view = action.engine.subscription(queue.subscription)
    found["MaximumMessageSize"] = str(view.capabilities.value_bytes_max)
    if not queue.dead:
        found["VisibilityTimeout"] = str(action.engine.lease_ms(queue.subscription) // 1000)
        policy = {
            "deadLetterTargetArn": action.queues.arn(f"{queue.subscription}{DEAD}"),
            "maxReceiveCount": view.settings["attempts_max"],
        }
        found["RedrivePolicy"] = orjson.dumps(policy).decode()
    return found


async def _counts(action: ActionCall, queue: SqsQueue) -> dict[str, str]:
    """How many messages there are; of dead letters those that a redrive would take."""
    if not queue.subscription:
        return {}
    if queue.dead:
        found = await action.engine.dead.begin(
            queue.subscription, DeadRequest(Kind.REDRIVE, dry_run=True, confirm=queue.subscription)
        )
        return {_COUNTS[0]: str(found.matched)} if isinstance(found, DryRun) else {}
    return counts(await action.engine.group(queue.subscription).lag())


def counts(lag: GroupLag) -> dict[str, str]:
    """The three counts of a group; what no sidecar knows is not counted."""
    waiting = leased = delayed = 0
    for row in lag.partitions:
        leased += max(row.leased, 0)
        delayed += max(row.retrying, 0)
        if row.end >= 0 and row.watermark >= 0:
            taken = max(row.done_above, 0) + max(row.leased, 0) + max(row.retrying, 0)
            waiting += max(row.end - row.watermark - taken, 0)
    return dict(zip(_COUNTS, (str(each) for each in (waiting, leased, delayed)), strict=True))


async def set_queue_attributes(action: ActionCall) -> Result:
    """SetQueueAttributes: what can be changed while ackd runs, at every sidecar of the group."""
    action.operators_only()
    queue = action.queue()
    name = queue.receives()
    given = Parameters(action.parameters.members("Attributes"))
    changes = _changes(given, action.parameters.members("Attributes"))
    if changes:
        await action.engine.configure(name, changes)
    return {}


def _changes(given: Parameters, members: Mapping[str, object]) -> dict[str, object]:
    changes: dict[str, object] = {}
    for name in members:
        if name == "VisibilityTimeout":
            seconds = given.number(name, 1, LEASE_S_MAX)
            changes["lease_ms"] = (seconds or 1) * 1000
        elif name == "RedrivePolicy":
            changes["attempts_max"] = _receives_max(given.text(name))
        elif name in NAMES:
            raise Fault("UnsupportedOperation", f"ackd can't change {name} while it runs.")
        else:
            raise Fault("InvalidAttributeName", f"Unknown Attribute {name[:100]}.")
    return changes


def _receives_max(policy: str) -> int:
    try:
        members = orjson.loads(policy)
    except orjson.JSONDecodeError:
        members = None
    if not isinstance(members, dict):
        raise wrong("RedrivePolicy", policy, "It is not a JSON object.")
    count = Parameters(members).number("maxReceiveCount", 1, ATTEMPTS_MAX)
    if count is None:
        raise wrong("RedrivePolicy", policy, "It has no maxReceiveCount.")
    return count


async def list_dead_letter_source_queues(action: ActionCall) -> Result:
    """ListDeadLetterSourceQueues: the subscription whose dead letters a queue stands for."""
    queue = action.queue()
    if not queue.dead:
        return {"queueUrls": []}
    source = action.queues.named(queue.subscription)
    return {"queueUrls": [action.queues.url(source, action.host)]}


async def list_queue_tags(action: ActionCall) -> Result:
    """ListQueueTags: there are none."""
    action.queue()
    return {"Tags": {}}


REFUSED: Mapping[str, str] = {
    "AddPermission": "Who may call is in the sidecar's configuration.",
    "DeleteQueue": "Take the subscription out of the configuration.",
    "PurgeQueue": "Pause the subscription, seek to `latest`, and resume: `ackd seek`.",
    "RemovePermission": "Who may call is in the sidecar's configuration.",
    "TagQueue": "ackd keeps no tags.",
    "UntagQueue": "ackd keeps no tags.",
}
"""Actions of SQS that ackd does not have, and what to do instead."""
