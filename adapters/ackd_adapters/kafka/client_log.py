"""Reads the fetching client's log to learn which topic it reads under a name (rule R1).

librdkafka fetches by topic identity (KIP-516), so it never returns a record of another topic. But
when its metadata bring another identity for a name, it reads on there from its old position, and
reports that in one debug line of its log only. With `log.queue`, which the binding sets, log lines
and messages share one queue: the line arrives before the first message of the other topic.
`test_fetch.py` proves both on a real broker.
"""

from __future__ import annotations

import logging
import re
from base64 import b64decode
from collections.abc import Callable

from ackd_adapters.kafka.config import CLIENT_LOG, Properties

NO_IDENTITY = bytes(16)
CONTEXT = "metadata"
"""The kind of debug lines that name topic identities: a few for each metadata refresh."""

_CHANGED = re.compile(r"Topic (\S+) changed id from (\S+) to (\S+)$")

# topic, identity before, identity now
Adopted = Callable[[str, bytes, bytes], None]


class ClientLog:
    """The logger that the client calls. It drops debug lines that nobody asked for."""

    def __init__(self, given: Properties, adopted: Adopted) -> None:
        asked = str(given.get("debug") or "")
        self._wanted = bool(asked)
        self._adopted = adopted
        self.properties: Properties = {
            "debug": f"{asked},{CONTEXT}" if asked else CONTEXT,
            "logger": self,
        }

    def log(self, level: int, form: str, *facts: object) -> None:
        """The binding calls this for each line, in the thread that polls."""
        if level <= logging.DEBUG:
            changed = _CHANGED.search(str(facts[-1]) if facts else form)
            if changed is not None:
                topic, before, now = changed.groups()
                self._adopted(topic, _identity(before), _identity(now))
            if not self._wanted:
                return
        CLIENT_LOG.log(level, form, *facts)


def _identity(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4))
