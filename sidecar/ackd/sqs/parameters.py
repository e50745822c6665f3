"""The parameters of an action, whichever protocol they came in, checked as they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ackd.sqs.fault import Fault, wrong

ENTRIES_MAX = 10
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}").fullmatch
_DIGITS_MAX = 12


class Parameters:
    """Members of a request, or of one entry of a batch. Every method may raise Fault."""

    def __init__(self, members: Mapping[str, object]) -> None:
        self._members = members

    def text(self, name: str) -> str:
        """A text that has to be there."""
        found = self.optional_text(name)
        if found is None:
            raise Fault("MissingParameter", f"The request must contain the parameter {name}.")
        return found

    def optional_text(self, name: str) -> str | None:
        found = self._members.get(name)
        if found is None or isinstance(found, str):
            return found
        raise wrong(name, found, "It has to be a string.")

    def number(self, name: str, least: int, most: int | None) -> int | None:
        """A whole number in its bounds; None without it. The query protocol has digits."""
        found = self._members.get(name)
        if found is None:
            return None
        if isinstance(found, str):
            found = int(found) if found.isascii() and found.isdigit() else found
        if not isinstance(found, int) or isinstance(found, bool):
            raise wrong(name, found, "It has to be an integer.")
        if found < least or (most is not None and found > most) or found >= 10**_DIGITS_MAX:
            upto = "" if most is None else f" and at most {most}"
            raise wrong(name, found, f"Reason: Must be at least {least}{upto}.")
        return found

    def names(self, name: str) -> Sequence[str]:
        """A list of texts; empty without it."""
        found = self._members.get(name)
        if found is None:
            return ()
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise wrong(name, found, "It has to be a list of strings.")
        return found

    def members(self, name: str) -> Mapping[str, object]:
        """A map; empty without it."""
        found = self._members.get(name)
        if found is None:
            return {}
        if not isinstance(found, dict) or not all(isinstance(each, str) for each in found):
            raise wrong(name, found, "It has to be a map.")
        return found

    def entries(self) -> list[tuple[str, Parameters]]:
        """The entries of a batch with their ids: 1 to 10, no id twice."""
        found = list(self._entries())
        if not found:
            raise Fault("EmptyBatchRequest", "There should be at least one entry in the request.")
        if len(found) > ENTRIES_MAX:
            raise Fault(
                "TooManyEntriesInBatchRequest",
                f"Maximum number of entries per request are {ENTRIES_MAX}. "
                f"You have sent {len(found)}.",
            )
        ids = [name for name, _ in found]
        for name in ids:
            if not _ENTRY_ID(name):
                raise Fault(
                    "InvalidBatchEntryId",
                    "A batch entry id can only contain alphanumeric characters, hyphens and "
                    "underscores. It can be at most 80 letters long.",
                )
        if len(set(ids)) < len(ids):
            twice = next(name for name in ids if ids.count(name) > 1)
            raise Fault("BatchEntryIdsNotDistinct", f"Id {twice} repeated.")
        return found

    def _entries(self) -> Iterator[tuple[str, Parameters]]:
        found = self._members.get("Entries")
        if found is None:
            return
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise wrong("Entries", found, "It has to be a list of maps.")
        for each in found:
            entry = Parameters(each)
            yield entry.text("Id"), entry
