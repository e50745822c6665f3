"""Shares things evenly among sidecars: all of them compute the same, and nobody asks."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b


def even(things: Collection[str], names: Collection[str]) -> dict[str, str]:
    """Give each thing to one of the names, so that no name has two more than another. When a name
    or a thing comes or goes, most others stay where they are.

    Each name ranks each thing by a hash; the best pairs win, as long as a name has room.
    """
    least, more = divmod(len(things), len(names))
    pairs = sorted(
        (
            (blake2b(f"{name} {thing}".encode()).digest(), thing, name)
            for thing in things
            for name in names
        ),
        reverse=True,
    )
    found: dict[str, str] = {}
    count = dict.fromkeys(names, 0)
    for _, thing, name in pairs:
        if thing in found or count[name] > least or (count[name] == least and not more):
            continue
        more -= count[name] == least
        count[name] += 1
        found[thing] = name
    return found
