"""Redrive of dead letters as SQS has it: StartMessageMoveTask, ListMessageMoveTasks,
CancelMessageMoveTask.
"""

from __future__ import annotations

from ackd.api.dead_letters import DeadRequest, DryRun, Kind, OperationView, To
from ackd.sqs.action_call import ActionCall, Result
from ackd.sqs.fault import Fault, wrong
from ackd.sqs.queues import SqsQueue

RATE_MAX = 500
LIST_MAX = 10
_STATES = {
    "running": "RUNNING",
    "cancelling": "CANCELLING",
    "done": "COMPLETED",
    "cancelled": "CANCELLED",
    "failed": "FAILED",
}


async def start_message_move_task(action: ActionCall) -> Result:
    """StartMessageMoveTask: a redrive of all dead letters of a subscription: to the group, or with
    the topic's ARN as DestinationArn to the topic, for every group.
    """
    action.operators_only()
    source = _source(action)
    request = DeadRequest(
        Kind.REDRIVE,
        rate_per_s=action.parameters.number("MaxNumberOfMessagesPerSecond", 1, RATE_MAX),
        to=_destination(action, source),
        confirm=source.subscription,
    )
    begun = await action.engine.dead.begin(source.subscription, request)
    if isinstance(begun, DryRun):
        raise TypeError("a redrive that is no dry run was begun")
    return {"TaskHandle": begun.id}


async def list_message_move_tasks(action: ActionCall) -> Result:
    """ListMessageMoveTasks, the newest first."""
    source = _source(action)
    most = action.parameters.number("MaxResults", 1, LIST_MAX) or 1
    found = [
        each
        for each in await action.engine.dead.operations(source.subscription)
        if each.kind == Kind.REDRIVE.value
    ]
    return {"Results": [_view(action, source, each) for each in found[:most]]}


async def cancel_message_move_task(action: ActionCall) -> Result:
    """CancelMessageMoveTask: it ends after its current batch."""
    action.operators_only()
    ended = await action.engine.dead.cancel(action.parameters.text("TaskHandle"))
    return {"ApproximateNumberOfMessagesMoved": ended.moved}


def _source(action: ActionCall) -> SqsQueue:
    queue = action.queues.of_arn("SourceArn", action.parameters.text("SourceArn"))
    if not queue.dead:
        raise Fault(
            "ResourceNotFoundException",
            f"{queue.name} is no queue of dead letters: add -dead to a subscription's name.",
        )
    return queue


def _destination(action: ActionCall, source: SqsQueue) -> To:
    arn = action.parameters.optional_text("DestinationArn")
    if arn is None:
        return To.GROUP
    queue = action.queues.of_arn("DestinationArn", arn)
    if queue.dead:
        raise wrong("DestinationArn", arn, "Dead letters go to their group or to their topic.")
    if queue.name.removesuffix(".fifo") == source.subscription:
        return To.GROUP
    view = action.engine.subscription(source.subscription)
    if queue.topic and queue.topic in view.topics:
        return To.ORIGIN
    raise wrong("DestinationArn", arn, "Dead letters go to their group or to their topic.")


def _view(action: ActionCall, source: SqsQueue, operation: OperationView) -> dict[str, object]:
    state = _STATES[operation.state]
    found: dict[str, object] = {
        "Status": state,
        "SourceArn": action.queues.arn(source.name),
        "DestinationArn": action.queues.arn(source.subscription),
        "ApproximateNumberOfMessagesMoved": operation.moved,
        "ApproximateNumberOfMessagesToMove": operation.total,
        "StartedTimestamp": operation.created_ms,
    }
    if state in {"RUNNING", "CANCELLING"}:
        found["TaskHandle"] = operation.id
    if operation.error:
        found["FailureReason"] = operation.error
    return found
