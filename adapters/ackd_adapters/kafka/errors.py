# ruff: noqa: SLF001  the underscore marks a code of the client's own, not a private name
"""What librdkafka's error codes mean for publish results, readiness and retries."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from ackd.errors import BrokerError, BrokerFatalError, ConfigError
from ackd.ports import Failure

# The broker (or the client, before sending) refused for good.
_REFUSED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._INVALID_ARG,
    }
)
_NOT_STORED = frozenset(
    {
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)
_PRESSURE = frozenset({KafkaError._QUEUE_FULL, KafkaError.THROTTLING_QUOTA_EXCEEDED})

# Conditions of the whole connection; the next answered question ends them.
CONNECTION = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError._RESOLVE,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)
# One broken connection is not a condition: librdkafka uses others and reports when all are down.
PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._DESTROY})
NO_ANSWER = frozenset({KafkaError._TIMED_OUT})

RETRIABLE = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._WAIT_COORD,
        KafkaError._TRANSPORT,
    }
)
# Codes of messages and callbacks that are handled one by one.
END_OF_PARTITION = KafkaError._PARTITION_EOF
OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
ALL_BROKERS_DOWN = KafkaError._ALL_BROKERS_DOWN
FATAL = KafkaError._FATAL
_FATAL_REASONS = tuple(
    KafkaError(code)
    for code in (
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.UNRELEASED_INSTANCE_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
)

TOPIC_REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED})
UNKNOWN_TOPIC = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)


def failure(code: int) -> Failure:
    """How sure it is that a message which failed with this code is not stored.

    A code in no list is UNKNOWN. So is a message that timed out or was purged: the client does not
    say whether it was ever sent.
    """
    if code in _REFUSED:
        return Failure.REFUSED
    if code in _NOT_STORED:
        return Failure.NOT_STORED
    return Failure.PRESSURE if code in _PRESSURE else Failure.UNKNOWN


def is_fatal(error: KafkaError) -> bool:
    """Whether the client can't go on. Errors that arrive as messages lack the flag."""
    return error.fatal() or error.code() == FATAL


def code_name(error: KafkaError) -> str:
    """The broker's own name of an error, without librdkafka's leading underscore."""
    if error.code() == FATAL:
        # The reason is the whole text.
        for reason in _FATAL_REASONS:
            if reason.str() in error.str():
                return reason.name()
    return error.name().lstrip("_")


def kafka_error(error: BaseException) -> KafkaError | None:
    """The `KafkaError` in a client's exception."""
    if isinstance(error, KafkaException) and error.args:
        inner = error.args[0]
        return inner if isinstance(inner, KafkaError) else None
    return None


def is_code(error: BaseException, codes: frozenset[int]) -> bool:
    """Whether a client's exception carries one of these codes."""
    inner = kafka_error(error)
    return inner is not None and inner.code() in codes


def config_error(error: BaseException) -> ConfigError:
    """A client that can't even be made has a wrong property."""
    inner = kafka_error(error)
    return ConfigError(str(error) if inner is None else inner.str())


def broker_error(what: str, error: BaseException) -> BrokerError:
    """The `BrokerError` for a client's exception."""
    inner = kafka_error(error)
    if inner is None:
        return BrokerError(f"{what}: {error}")
    kind = BrokerFatalError if is_fatal(inner) else BrokerError
    return kind(f"{what}: {inner.str()}", code=code_name(inner))
