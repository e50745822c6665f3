"""Who gets which partition: a pure function of the members and of what they hold now.

Every process computes it from the same table, so no coordinator is needed. It is balanced (the
numbers of two members differ by one at most) and sticky (a member keeps what it holds up to its
share), so a rebalance moves only what must move.

The topics come first. Retry topics, where almost nothing comes, are shared among those who have
something of the topics, and who has least of them gets the larger share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

Shares = dict[str, set[int]]


def assign(
    wanted: Mapping[str, AbstractSet[int]],
    claims: Mapping[int, str],
    retry: AbstractSet[int] = frozenset(),
) -> Shares:
    """Distribute logs over members. `wanted`: the logs that each member asks for; `claims`: who has
    what now; `retry`: the logs that are partitions of retry topics.
    """
    shares: Shares = {member: set() for member in wanted}
    _deal({member: logs - retry for member, logs in wanted.items()}, claims, shares)
    busy = {member for member, share in shares.items() if share}
    for asked in {log for logs in wanted.values() for log in logs & retry}:
        askers = {member for member, logs in wanted.items() if asked in logs}
        if not askers & busy:
            busy |= askers
    _deal({member: wanted[member] & retry for member in busy}, claims, shares)
    return shares


def _deal(
    wanted: Mapping[str, AbstractSet[int]], claims: Mapping[int, str], shares: Shares
) -> None:
    """Add to the shares what is wanted. Logs that the same members want are balanced together."""
    classes: dict[tuple[str, ...], list[int]] = {}
    askers: dict[int, list[str]] = {}
    for member in sorted(wanted):
        for log in wanted[member]:
            askers.setdefault(log, []).append(member)
    for log in sorted(askers):
        classes.setdefault(tuple(askers[log]), []).append(log)
    counts = {member: len(share) for member, share in shares.items()}
    for members, logs in sorted(classes.items()):
        for member, share in _balance(members, logs, claims, counts).items():
            shares[member] |= share


def _balance(
    members: Iterable[str], logs: list[int], claims: Mapping[int, str], counts: Mapping[str, int]
) -> Shares:
    """`counts`: how many other logs each has already."""
    held: dict[str, list[int]] = {member: [] for member in members}
    free: list[int] = []
    for log in logs:
        mine = held.get(claims.get(log, ""))
        (free if mine is None else mine).append(log)
    # Of two that have as much else, the one with most partitions gets the larger share: it then
    # gives fewer away.
    order = sorted(held, key=lambda member: (counts[member], -len(held[member]), member))
    least, extra = divmod(len(logs), len(order))
    shares: Shares = {}
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
