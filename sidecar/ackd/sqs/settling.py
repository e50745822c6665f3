"""DeleteMessage and ChangeMessageVisibility: settles by lease tokens (`ReceiptHandle`).

SQS has no word for a lease that is lost. Deleting by one succeeds on a standard queue, as there
(the metric of lost acks counts it), and is refused on a FIFO queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from ackd.api.messages import SettleItem, SettleResult, SettleVerb, Status
from ackd.errors import BadLeaseTokenError, StoreError
from ackd.sqs.action_call import ActionCall, Result, batch, failed
from ackd.sqs.fault import Fault, fault_of
from ackd.sqs.parameters import Parameters
from ackd.sqs.queues import SqsQueue
from ackd.sqs.receiving import LEASE_S_MAX


async def delete_message(action: ActionCall) -> Result:
    """DeleteMessage: the ack."""
    queue = action.queue()
    [result] = await _settle(action, [_ack(action.parameters)])
    _raise(_ack_fault(queue, result))
    return {}


async def delete_message_batch(action: ActionCall) -> Result:
    """DeleteMessageBatch."""
    queue = action.queue()
    entries = action.parameters.entries()
    results = await _settle(action, [_ack(each) for _, each in entries])
    return _batch([name for name, _ in entries], [_ack_fault(queue, each) for each in results])


async def change_message_visibility(action: ActionCall) -> Result:
    """ChangeMessageVisibility: an extend, or with 0 a retry at once, which counts as an attempt."""
    action.queue()
    [result] = await _settle(action, [_visibility(action.parameters)])
    _raise(_visibility_fault(result))
    return {}


async def change_message_visibility_batch(action: ActionCall) -> Result:
    """ChangeMessageVisibilityBatch."""
    action.queue()
    entries = action.parameters.entries()
    results = await _settle(action, [_visibility(each) for _, each in entries])
    return _batch([name for name, _ in entries], [_visibility_fault(each) for each in results])


def _ack(given: Parameters) -> SettleItem:
    return SettleItem(given.text("ReceiptHandle"), SettleVerb.ACK)


def _visibility(given: Parameters) -> SettleItem:
    lease = given.text("ReceiptHandle")
    timeout_s = given.number("VisibilityTimeout", 0, LEASE_S_MAX)
    if timeout_s is None:
        raise Fault("MissingParameter", "The request must contain the parameter VisibilityTimeout.")
    if timeout_s == 0:
        return SettleItem(lease, SettleVerb.RETRY, delay_ms=0)
    return SettleItem(lease, SettleVerb.EXTEND, lease_ms=timeout_s * 1000)


async def _settle(action: ActionCall, items: list[SettleItem]) -> list[SettleResult]:
    for item in items:
        if item.do is not SettleVerb.ACK:
            item.holder = action.call.worker()
    return await action.engine.settle(items)


def _unserved(result: SettleResult) -> Fault | None:
    """What is wrong with a settle of any kind."""
    if result.status is Status.INVALID:
        return fault_of(result.error or BadLeaseTokenError())
    if result.status is Status.UNAVAILABLE:
        return fault_of(result.error or StoreError())
    return None


def _ack_fault(queue: SqsQueue, result: SettleResult) -> Fault | None:
    if result.status is Status.LOST and queue.ordered:
        return Fault(
            "InvalidParameterValue",
            "Value for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.",
        )
    return _unserved(result)


def _visibility_fault(result: SettleResult) -> Fault | None:
    if result.status is Status.LOST:
        return Fault(
            "MessageNotInflight", "The specified message isn't in flight: its lease is over."
        )
    return _unserved(result)


def _raise(fault: Fault | None) -> None:
    if fault is not None:
        raise fault


def _batch(names: Sequence[str], faults: Sequence[Fault | None]) -> Result:
    both = list(zip(names, faults, strict=True))
    away = [fault for fault in faults if fault is not None and not fault.by_sender]
    if away and len(away) == len(faults):
        raise away[0]  # clients look at a batch's status first (R22)
    return batch(
        [{"Id": name} for name, fault in both if fault is None],
        [failed(name, fault) for name, fault in both if fault is not None],
    )
