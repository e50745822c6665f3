"""Decide what a server's answers mean: whether it may have written anything."""

from __future__ import annotations

from collections.abc import Iterator

from ackd.core.record.protocol import RecordReply
from ackd.errors import StoreDataError, StoreError, StoreUnknownError
from ackd.store import codec
from ackd.store.connect import refusal
from ackd.store.exchange import Answer, ServerError
from ackd.store.nodes import ElsewhereError

_FAILED = bytes((codec.FAILED,))


def replies(answer: Answer | StoreError, calls: int) -> Iterator[RecordReply | StoreError]:
    """Split the apply script's answer: one reply for each call, or the same error for all.

    The script catches the error of a single call. So an error of the whole script means that it did
    not start (nothing was decided), or that it stopped half-way (the outcome of all its calls is
    unknown).
    """
    if isinstance(answer, StoreError):
        return (answer for _ in range(calls))
    return map(_reply, answer)


def _reply(data: bytes) -> RecordReply | StoreError:
    if data[:1] == _FAILED:
        text = data[1:].decode(errors="replace")
        error = checked(ServerError(text), "")
        return error if isinstance(error, StoreError) else StoreUnknownError(text)
    try:
        return codec.decode_reply(data)
    except StoreDataError as error:  # it was decided all the same
        return StoreUnknownError(error.detail)


def checked(answer: Answer, short: str) -> Answer | StoreError:
    """Return the answer, or the StoreError or StoreUnknownError that a server's error means.

    `short`: which durability was not reached, in words; empty if all was. The text of an error
    tells its kind: an old server puts the code of an error inside a script into the middle of the
    text.
    """
    if not isinstance(answer, Exception):
        return StoreUnknownError(short) if short else answer
    text = str(answer)
    if text.startswith("MOVED "):
        return ElsewhereError("the slot is served by another node")
    if text.startswith("ASK "):
        return StoreError("the slot is on its way to another node of the cluster")
    if any(code in text for code in _RECONNECT):
        return StoreError(f"the store refuses: {text}", reconnect=True)
    if "WRONGTYPE" in text:
        return StoreDataError(f"the store holds something that is not ackd's: {text}")
    if "user_script" in text and not any(code in text for code in _BEFORE_WRITING):
        return StoreUnknownError(f"the script failed: {text}")
    return refusal(answer)


def moving(error: StoreError) -> bool:
    """Whether this error means that another server may be the primary now, so connect again."""
    return "reconnect" in error.facts


_RECONNECT = ("READONLY", "MASTERDOWN", "CLUSTERDOWN")
_BEFORE_WRITING = (
    "OOM",
    "used memory",
    "NOREPLICAS",
    "MISCONF",
    "NOPERM",
    "non local key",
    "LOADING",
)
"""Errors that a script gets at its first write, or at a read before it (see ledger.lua)."""
