"""The table of actions, for both protocols."""

from __future__ import annotations

from collections.abc import Mapping

from ackd.sqs import move_tasks, queue_attributes, receiving, sending, settling
from ackd.sqs.action_call import Action
from ackd.sqs.fault import Fault

ACTIONS: Mapping[str, Action] = {
    "CancelMessageMoveTask": move_tasks.cancel_message_move_task,
    "ChangeMessageVisibility": settling.change_message_visibility,
    "ChangeMessageVisibilityBatch": settling.change_message_visibility_batch,
    "CreateQueue": queue_attributes.create_queue,
    "DeleteMessage": settling.delete_message,
    "DeleteMessageBatch": settling.delete_message_batch,
    "GetQueueAttributes": queue_attributes.get_queue_attributes,
    "GetQueueUrl": queue_attributes.get_queue_url,
    "ListDeadLetterSourceQueues": queue_attributes.list_dead_letter_source_queues,
    "ListMessageMoveTasks": move_tasks.list_message_move_tasks,
    "ListQueueTags": queue_attributes.list_queue_tags,
    "ListQueues": queue_attributes.list_queues,
    "ReceiveMessage": receiving.receive_message,
    "SendMessage": sending.send_message,
    "SendMessageBatch": sending.send_message_batch,
    "SetQueueAttributes": queue_attributes.set_queue_attributes,
    "StartMessageMoveTask": move_tasks.start_message_move_task,
}


def action_named(name: str) -> Action:
    """Raises Fault."""
    found = ACTIONS.get(name)
    if found is not None:
        return found
    instead = queue_attributes.REFUSED.get(name)
    if instead is not None:
        raise Fault("UnsupportedOperation", f"{name}: {instead}")
    raise Fault("InvalidAction", f"The action {name[:100]} is not valid for this endpoint.")
