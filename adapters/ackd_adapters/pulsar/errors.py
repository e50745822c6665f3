"""Maps the Pulsar client's errors to ackd's."""

from __future__ import annotations

from typing import Any, Final

import pulsar

from ackd.errors import BrokerError
from ackd.ports import Failure

_REFUSED: Final = frozenset(
    {
        "MessageTooBig",
        "InvalidMessage",
        "TopicTerminated",
        "AuthorizationError",
        "AuthenticationError",
        "TopicNotFound",
        "InvalidTopicName",
        "NotAllowedError",
        "IncompatibleSchema",
    }
)
_PRESSURE: Final = frozenset(
    {
        "ProducerQueueIsFull",
        "MemoryBufferIsFull",
        "ProducerBlockedQuotaExceededError",
        "ProducerBlockedQuotaExceededException",
        "TooManyLookupRequestException",
    }
)
_NOT_STORED: Final = frozenset({"AlreadyClosed", "NotConnected", "ProducerNotInitialized"})


def failure(code: str) -> Failure:
    """How sure it is that nothing was stored, by the name of a result of sending."""
    if code in _REFUSED:
        return Failure.REFUSED
    if code in _PRESSURE:
        return Failure.PRESSURE
    if code in _NOT_STORED:
        return Failure.NOT_STORED
    return Failure.UNKNOWN


def opening_failure(code: str) -> Failure:
    """As `failure`, for a producer that could not be made: nothing was sent in any case."""
    known = failure(code)
    return Failure.NOT_STORED if known is Failure.UNKNOWN else known


def code_of(result: Any) -> str:
    """The client's own name of a result or an exception."""
    if isinstance(result, pulsar.PulsarException):
        return type(result).__name__
    return str(getattr(result, "name", result))


def broker_error(what: str, error: Exception) -> BrokerError:
    """The `BrokerError` for an exception of the client."""
    return BrokerError(f"{what}: {code_of(error) if str(error) == '' else error}")
