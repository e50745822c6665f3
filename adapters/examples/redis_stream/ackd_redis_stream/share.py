"""Who should hold which partition of a topic: an even share, as few moves as possible. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32


def share(topic: str, members: Sequence[str], held: Mapping[int, str | None]) -> dict[int, str]:
    """Partition -> member. `held`: who has each partition now. Everybody computes the same."""
    if not members:
        return {}
    count = {name: sum(holder == name for holder in held.values()) for name in members}
    # Who has most keeps most; equal ones in an order that differs from topic to topic.
    order = sorted(members, key=lambda name: (-count[name], crc32(f"{topic} {name}".encode())))
    base, more = divmod(len(held), len(order))
    room = {name: base + (place < more) for place, name in enumerate(order)}
    found: dict[int, str] = {}
    for partition, holder in sorted(held.items()):
        if holder is not None and room.get(holder, 0) > 0:
            room[holder] -= 1
            found[partition] = holder
    free = [name for name in order for _ in range(room[name])]
    for partition in sorted(held.keys() - found.keys()):
        found[partition] = free.pop()
    return found
