"""One tree of errors. Each has a stable `type`, an HTTP status and a docstring that is its message.

`ClientError`: the caller made a mistake. `BrokerError`, `StoreError`, `PeerError`: the other side
is away or refuses. `BugError`: ackd made a mistake. HTTP turns them into RFC 9457 problems without
a second table.
"""

from __future__ import annotations

from typing import ClassVar


class AckdError(Exception):
    """The request failed for a reason that has no type of its own."""

    type: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retry_after_s: ClassVar[int | None] = None

    def __init__(self, detail: str = "", **facts: object) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.facts = facts
        super().__init__(self.detail)

    def tell(self, **facts: object) -> None:
        """Add facts of the case, for whoever gets the error."""
        self.facts.update(facts)

    @classmethod
    def title(cls) -> str:
        """The general sentence for this type of error (its docstring)."""
        return (cls.__doc__ or "").strip().splitlines()[0]


class ClientError(AckdError):
    """The request is wrong."""

    type = "bad-request"
    status = 400


class BadBodyError(ClientError):
    """The body can't be read as what its content type says."""

    type = "bad-body"


class BadParameterError(ClientError):
    """A parameter is missing, of the wrong kind or out of range."""

    type = "bad-parameter"
    status = 422


class UnconfirmedError(BadParameterError):
    """The request does not confirm that it means everything."""


class HttpVersionError(ClientError):
    """This server speaks HTTP/1.1 and HTTP/1.0 only."""

    type = "http-version"
    status = 505


class UnauthorizedError(ClientError):
    """The bearer token is missing or wrong."""

    type = "unauthorized"
    status = 401


class ForbiddenError(ClientError):
    """Web pages may not call a sidecar that has no token."""

    type = "forbidden"
    status = 403


class ForeignHostError(ClientError):
    """The request's `Host` is not a name of this sidecar."""

    type = "foreign-host"
    status = 421


class NotFoundError(ClientError):
    """Nothing exists at this address."""

    type = "not-found"
    status = 404


class UnknownSubscriptionError(NotFoundError):
    """No subscription of this name is configured on this sidecar."""

    type = "unknown-subscription"


class UnknownDeadLetterError(NotFoundError):
    """No dead letter has this id, or it is gone."""

    type = "unknown-dead-letter"


class NotInFlightError(NotFoundError):
    """The message is not in flight: it is finished, or was never delivered."""

    type = "not-in-flight"


class UnknownMessageError(NotFoundError):
    """The subscription has no message with this id."""

    type = "unknown-message"


class UnknownOperationError(NotFoundError):
    """No operation has this id, or its result is gone."""

    type = "unknown-operation"


class NothingToUndoError(NotFoundError):
    """Nobody moved the group's progress in the last 24 hours."""

    type = "nothing-to-undo"


class NotPausedError(ClientError):
    """The group is not paused: pause it first."""

    type = "not-paused"
    status = 409


class UnknownOutboxMessageError(NotFoundError):
    """No message in an outbox has this id, or its result is gone."""

    type = "unknown-outbox-message"


class NotFailedError(ClientError):
    """The broker did not refuse this message, so it can't be sent again."""

    type = "not-failed"
    status = 409


class OperationRunningError(ClientError):
    """Another operation is running on this subscription."""

    type = "operation-running"
    status = 409


class MethodNotAllowedError(ClientError):
    """This address does not take this method."""

    type = "method-not-allowed"
    status = 405


class NotAcceptableError(ClientError):
    """ackd can't answer in any of the accepted media types."""

    type = "not-acceptable"
    status = 406


class RequestTimeoutError(ClientError):
    """The request did not arrive in time."""

    type = "request-timeout"
    status = 408


class LeaseLostError(ClientError):
    """The lease has ended and the message went on without it; it will not come back."""

    type = "lease-lost"
    status = 410


class BodyTooLargeError(ClientError):
    """The body is larger than the configured limit."""

    type = "body-too-large"
    status = 413


class HeadTooLargeError(ClientError):
    """The request line and the headers are larger than the configured limit."""

    type = "head-too-large"
    status = 431


class UnsupportedMediaTypeError(ClientError):
    """This address does not read this content type."""

    type = "unsupported-media-type"
    status = 415


class BadLeaseTokenError(ClientError):
    """The lease token is incomplete, changed, or of another ackd."""

    type = "bad-lease-token"
    status = 422


class IdempotencyMismatchError(ClientError):
    """The idempotency key was used before with another payload."""

    type = "idempotency-mismatch"
    status = 422


class IdempotencyRunningError(ClientError):
    """The first request with this idempotency key is still running."""

    type = "idempotency-running"
    status = 409
    retry_after_s = 1


class AttemptMismatchError(ClientError):
    """The attempt_id was used before with other parameters."""

    type = "attempt-mismatch"
    status = 422


class NotSupportedError(ClientError):
    """The broker behind this subscription can't do that."""

    type = "not-supported"
    status = 422


class ReservedTopicError(ClientError):
    """Applications may not publish to this topic: it belongs to ackd or the broker."""

    type = "reserved-topic"
    status = 422


class TopicNotAllowedError(ClientError):
    """Applications may not publish to this topic: `publish.topics` does not list it."""

    type = "topic-not-allowed"
    status = 403


class PressureError(ClientError):
    """Too many requests at once, or a queue is full: try again a little later."""

    type = "too-many-requests"
    status = 429
    retry_after_s = 1


class TooManyConnectionsError(AckdError):
    """All connections of this sidecar are in use."""

    type = "too-many-connections"
    status = 503
    retry_after_s = 1


class StartingError(AckdError):
    """This sidecar is starting: its store and brokers are not connected yet."""

    type = "starting"
    status = 503
    retry_after_s = 1


class DrainingError(AckdError):
    """This sidecar is stopping and delivers nothing new."""

    type = "draining"
    status = 503
    retry_after_s = 1


class ConfigError(AckdError):
    """The configuration has mistakes."""

    type = "bad-configuration"


class BrokerError(AckdError):
    """The broker does not answer, or refuses."""

    type = "broker-unavailable"
    status = 503
    retry_after_s = 1


class BrokerFatalError(BrokerError):
    """The broker client can't go on; ackd makes a new one."""

    type = "broker-fatal"


class PublishRefusedError(ClientError):
    """The broker refuses this message for good."""

    type = "publish-refused"
    status = 422


class OutcomeUnknownError(BrokerError):
    """The broker's answer was lost: the message may or may not be stored."""

    type = "outcome-unknown"
    status = 504


class StoreError(AckdError):
    """The store does not answer: nothing was decided."""

    type = "store-unavailable"
    status = 503
    retry_after_s: ClassVar[int | None] = 1


class StoreUnknownError(StoreError):
    """The store's answer was lost: the call may or may not have been applied."""

    type = "store-outcome-unknown"


class StoreDataError(StoreError):
    """The store has lost data, or holds data of another layout."""

    type = "store-data"


class StoreLayoutError(StoreError):
    """This build of ackd can't read a record's layout: a newer one made it."""

    type = "store-layout"


class StoreCallError(StoreError):
    """ackd made a store call that is not possible; please report it."""

    type = "store-call"
    status = 500
    retry_after_s = None


class StoreSetupError(StoreError):
    """The store's own configuration can't keep ackd's promise."""

    type = "store-setup"


class PeerError(AckdError):
    """Another sidecar of this store does not answer, or refuses."""

    type = "peer-away"
    status = 503
    retry_after_s = 1


class BugError(AckdError):
    """ackd broke a rule of its own; please report it."""

    type = "bug"
