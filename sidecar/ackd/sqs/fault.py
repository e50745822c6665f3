"""Errors as SQS clients know them: a code for each protocol, a status, and who is to blame."""

from __future__ import annotations

from http import HTTPStatus

from ackd.errors import (
    AckdError,
    BadLeaseTokenError,
    ForbiddenError,
    IdempotencyRunningError,
    LeaseLostError,
    NotSupportedError,
    OperationRunningError,
    PressureError,
    PublishRefusedError,
    ReservedTopicError,
    TopicNotAllowedError,
    UnknownOperationError,
    UnknownSubscriptionError,
)

QUERY_CODES = {
    "BatchEntryIdsNotDistinct": "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
    "EmptyBatchRequest": "AWS.SimpleQueueService.EmptyBatchRequest",
    "InvalidBatchEntryId": "AWS.SimpleQueueService.InvalidBatchEntryId",
    "MessageNotInflight": "AWS.SimpleQueueService.MessageNotInflight",
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "TooManyEntriesInBatchRequest": "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
    "UnsupportedOperation": "AWS.SimpleQueueService.UnsupportedOperation",
}
"""Codes of the JSON protocol that have another name in the query protocol. Clients of the JSON
protocol read that one, too, from the header `x-amzn-query-error`.
"""

_CODES: tuple[tuple[type[AckdError], str], ...] = (
    (UnknownSubscriptionError, "QueueDoesNotExist"),
    (BadLeaseTokenError, "ReceiptHandleIsInvalid"),
    (LeaseLostError, "MessageNotInflight"),
    (NotSupportedError, "UnsupportedOperation"),
    (ReservedTopicError, "AccessDenied"),
    (TopicNotAllowedError, "AccessDenied"),
    (ForbiddenError, "AccessDenied"),
    (PublishRefusedError, "InvalidMessageContents"),
    (PressureError, "RequestThrottled"),
    (IdempotencyRunningError, "RequestThrottled"),
    (OperationRunningError, "UnsupportedOperation"),
    (UnknownOperationError, "ResourceNotFoundException"),
)


class Fault(Exception):  # noqa: N818  the word of SOAP and AWS for an answer that is an error
    """An answer that is an error. `code` is that of the JSON protocol."""

    def __init__(self, code: str, message: str, status: int = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status

    @property
    def query_code(self) -> str:
        return QUERY_CODES.get(self.code, self.code)

    @property
    def by_sender(self) -> bool:
        """Whether the client made the mistake, so that the same request fails again."""
        return self.status < HTTPStatus.INTERNAL_SERVER_ERROR


def fault_of(error: AckdError) -> Fault:
    """Say an error of ackd in the words of SQS. What passes by itself is 503: clients try again."""
    message = error.detail or error.title()
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Fault(code, message)
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Fault("ServiceUnavailable", message, HTTPStatus.SERVICE_UNAVAILABLE)
    return Fault("InvalidParameterValue", message)


def wrong(name: str, value: object, why: str) -> Fault:
    """A parameter with a value that can't be."""
    return Fault("InvalidParameterValue", f"Value {value!r} for parameter {name} is invalid. {why}")
