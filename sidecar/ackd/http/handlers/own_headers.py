"""ackd's own headers of a publish.

An unknown one is refused, like an unknown field of a body: with `Ackd-Delay: 5` nobody means that
there is no delay.
"""

from __future__ import annotations

from collections.abc import Iterable

from ackd.config.mistakes import nearest

PREFIX = b"ackd-"
HEADER_PREFIX = b"ackd-header-"
READ = (
    "Ackd-Key",
    "Ackd-Key-Base64",
    "Ackd-Partition",
    "Ackd-Delay-Ms",
    "Ackd-Tombstone",
    "Ackd-Headers",
)
"""Headers that describe the message to publish."""
PASSED = (
    "Ackd-Worker",
    "Ackd-Id",
    "Ackd-Lease",
    "Ackd-Topic",
    "Ackd-Attempt",
    "Ackd-Attempts-Max",
    "Ackd-First-Seen-Ms",
    "Ackd-Deadline-Ms",
    "Ackd-Published-Ms",
    "Ackd-Note",
    "Ackd-Content-Type",
)
"""Known and of no effect: the worker's name, and what a received message brings along, so that it
can be published again as it came.
"""
_READ = tuple(name[len(PREFIX) :] for name in READ)
_NAMES = {False: PASSED, True: READ + PASSED}
_KNOWN = {each: frozenset(name.lower().encode() for name in _NAMES[each]) for each in _NAMES}


def unknown(
    headers: Iterable[tuple[bytes, bytes]], faults: list[tuple[str, str]], *, message: bool
) -> None:
    """Append each header that begins like ackd's and does not exist. `message`: the request is one
    message.
    """
    known = _KNOWN[message]
    for name, _ in headers:
        lower = name.lower()
        if not lower.startswith(PREFIX) or lower in known:
            continue
        if message and lower.startswith(HEADER_PREFIX) and len(lower) > len(HEADER_PREFIX):
            continue
        text = name.decode("ascii", "replace")
        hint = nearest(text[len(PREFIX) :], _READ) if message else None
        why = "There is no such header here."
        if hint is not None:
            why = f"There is no such header here; did you mean Ackd-{hint}?"
        elif not message and lower in _KNOWN[True]:
            why = "Not with a batch: its messages say it, each for itself."
        faults.append((f"header:{text}", why))
