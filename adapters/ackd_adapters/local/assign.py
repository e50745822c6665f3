"""Who gets which partition: a pure function of the members and of what they hold now.

Every process computes it from the same table, so no coordinator is needed. It is balanced (the
numbers of two members differ by one at most) and sticky (a member keeps what it holds up to its
share), so a rebalance moves only what must move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet


def assign(
    wanted: Mapping[str, AbstractSet[int]], claims: Mapping[int, str]
) -> dict[str, set[int]]:
    """Distribute logs over members. `wanted`: the logs that each member asks for; `claims`: who has
    what now.
    """
    shares: dict[str, set[int]] = {member: set() for member in wanted}
    classes: dict[tuple[str, ...], list[int]] = {}
    askers: dict[int, list[str]] = {}
    for member in sorted(wanted):
        for log in wanted[member]:
            askers.setdefault(log, []).append(member)
    for log in sorted(askers):
        classes.setdefault(tuple(askers[log]), []).append(log)
    for members, logs in sorted(classes.items()):
        for member, share in _balance(members, logs, claims).items():
            shares[member] |= share
    return shares


def _balance(
    members: Iterable[str], logs: list[int], claims: Mapping[int, str]
) -> dict[str, set[int]]:
    held: dict[str, list[int]] = {member: [] for member in members}
    free: list[int] = []
    for log in logs:
        mine = held.get(claims.get(log, ""))
        (free if mine is None else mine).append(log)
    # The member with most partitions gets the larger share: it then gives fewer away.
    order = sorted(held, key=lambda member: (-len(held[member]), member))
    least, extra = divmod(len(logs), len(order))
    shares: dict[str, set[int]] = {}
    for rank, member in enumerate(order):
        quota = least + (rank < extra)
        shares[member] = set(held[member][:quota])
        free += held[member][quota:]
    free.sort(reverse=True)
    for rank, member in enumerate(order):
        quota = least + (rank < extra)
        while len(shares[member]) < quota:
            shares[member].add(free.pop())
    return shares
