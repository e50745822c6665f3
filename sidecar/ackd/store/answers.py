"""What a server's answers mean; errors are told apart by whether anything can be written."""

from __future__ import annotations

from collections.abc import Iterator

from ackd.core.record.protocol import RecordReply
from ackd.errors import StoreDataError, StoreError, StoreUnknownError
from ackd.store import codec
from ackd.store.connect import refusal
from ackd.store.exchange import Answer, ServerError
from ackd.store.nodes import ElsewhereError


def replies(answer: Answer | StoreError, calls: int) -> Iterator[RecordReply | StoreError]:
    """Take the apply script's answer apart: one for each of its calls, or one error for all.

    The script catches what a single call fails with, so an error of the whole script means that it
    did not start (nothing was decided) or broke off (unknown for all of its calls).
    """
    if isinstance(answer, StoreError):
        return (answer for _ in range(calls))
    return map(_reply, answer)


def _reply(data: bytes) -> RecordReply | StoreError:
    if data[0] == codec.FAILED:
        text = data[1:].decode(errors="replace")
        error = checked(ServerError(text), "")
        return error if isinstance(error, StoreError) else StoreUnknownError(text)
    return codec.decode_reply(data)


def checked(answer: Answer, short: str) -> Answer | StoreError:
    """An answer, or why it does not count. Error answers are told apart by their text.

    Old servers put the code of an error inside a script into the middle of the text.
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
    """Whether the connection should be made again, since another server may have the part now."""
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
"""Errors that the first write of a script meets, or a read before it (see ledger.lua)."""
