"""Values that were read from a password, token or key file: no log line may ever hold one.

Whoever reads such a file tells `HIDDEN`, adapters too; what writes lines for people asks it. A
secret that is read again (a new connection, a rotated file) counts as new, so that the bound drops
those that are out of use.
"""

from __future__ import annotations

from collections import OrderedDict

SECRETS_MAX = 100
SECRET_CHARS_MIN = 4
"""Shorter ones are not hidden: they would blot out ordinary words, and they protect nothing."""


class Hidden:
    """Known secrets, at most `SECRETS_MAX`."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()

    def add(self, secret: str | bytes) -> None:
        """Never write this value. Bytes that are no text can't stand in a line anyway."""
        text = secret if isinstance(secret, str) else secret.decode("utf-8", "replace")
        if len(text) >= SECRET_CHARS_MIN:
            self._known[text] = None
            self._known.move_to_end(text)
            while len(self._known) > SECRETS_MAX:
                self._known.popitem(last=False)

    def values(self) -> tuple[str, ...]:
        """All that are known now; callable from any thread."""
        return tuple(self._known)


HIDDEN = Hidden()
"""The secrets of this process."""
