"""An operator ends single messages, wherever they are: nobody gets one after it was told."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.book import Book, Coordinate
from tests.simulation.plan import Story

SETTINGS: Final = (("stuck_ms", 1_500), ("sidecars", 2))
WORK: Final = Story(
    ("cancel", "cancel", "cancel", "kill", "fuse", "net", "rebalance"), SETTINGS, "slow"
)
"""While sidecars die and messages are sent back."""
AWAY: Final = Story(("cancel", "cancel", "cancel", "store_failover", "net"), SETTINGS, "slow")
"""While the store forgets."""
MANY: Final = Story(
    ("cancel",) * 9 + ("net",) * 3,
    (("stuck_ms", 700), ("sidecars", 2), ("lease_ms", 700)),
    "retry",
)
"""So many that some end a message in the moment in which its copy claims it."""


def chosen(book: Book, topic_id: bytes, random: Random) -> Coordinate | None:
    """A message of this topic that somebody works on, or has."""
    found = [
        at
        for at, message in book.messages.items()
        if at.topic_id == topic_id and message.holdings and not message.done
    ]
    return random.choice(found) if found else None
