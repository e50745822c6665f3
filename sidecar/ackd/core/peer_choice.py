"""PURE: at which owner a receive waits, when there is nothing for it in its own sidecar.

A receive waits at one owner at a time, so that it never gets more than it asked for. It goes where
messages are known to lie ready, the most first; otherwise to the owner at which fewest wait, and of
these to the one that gave messages last. One that had none comes last: it may have nothing but
partitions of the retry topic, while another's messages go to receives that wait there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

SKIP_MS = 300
"""An owner that answered at once without messages (it drains, say), or that can't be reached, is
not asked again for this long.
"""


@dataclass(slots=True)
class _OwnerState:
    waiting: int = 0
    skip_until_ms: int = 0
    answered: int = 0
    """The number of its last answer; below 0 if that had no messages."""


class PeerChoice:
    """The owners of one subscription's partitions, as one other sidecar knows them."""

    def __init__(self) -> None:
        self._owners: dict[str, _OwnerState] = {}
        self._ready: dict[str, int] = {}
        self._reported: Mapping[str, int] = {}
        self._answers = 0

    def __len__(self) -> int:
        return len(self._owners)

    def owners(self, names: Iterable[str]) -> None:
        """Take in who owns partitions."""
        self._owners = {name: self._owners.get(name) or _OwnerState() for name in names}
        self._ready = {name: count for name, count in self._ready.items() if name in self._owners}

    def seen(self, ready: Mapping[str, int], *, whole: bool = True) -> None:
        """Take in what a heartbeat says: how many messages lie ready at whom. Not `whole`: these
        are some of those owners; what others said themselves stays.
        """
        for name in list(self._ready) if whole else self._reported:
            if name not in ready:
                self._ready.pop(name, None)
        self._reported = ready
        for name, count in ready.items():
            self._set(name, count)

    def _set(self, name: str, count: int) -> None:
        if count > 0 and name in self._owners:
            self._ready[name] = count
        else:
            self._ready.pop(name, None)

    def ready(self, name: str, count: int) -> None:
        """Note how many messages an owner reported as ready; it grants them."""
        self._set(name, count)
        self.reachable(name)

    def gave(self, name: str, left: int) -> None:
        """An owner has answered with messages; `left`: how many more lie ready there."""
        self.ready(name, left)
        self._answers += 1
        owner = self._owners.get(name)
        if owner is not None:
            owner.answered = self._answers

    def empty(self, name: str) -> None:
        """An owner has answered without messages: whatever lies there, it grants none of it now."""
        self._answers += 1
        owner = self._owners.get(name)
        self._set(name, 0)
        if owner is not None:
            owner.answered = -self._answers

    def reachable(self, name: str) -> None:
        """There is a link to this owner now."""
        owner = self._owners.get(name)
        if owner is not None:
            owner.skip_until_ms = 0

    def skip(self, name: str, now_ms: int) -> None:
        """Don't ask this owner for a while."""
        owner = self._owners.get(name)
        if owner is not None:
            owner.skip_until_ms = now_ms + SKIP_MS

    def began(self, name: str, most: int) -> None:
        """A receive for up to `most` messages begins to wait there."""
        owner = self._owners.get(name)
        if owner is not None:
            owner.waiting += 1
            self._set(name, self._ready.get(name, 0) - most)

    def ended(self, name: str) -> None:
        """A receive does not wait there any more."""
        owner = self._owners.get(name)
        if owner is not None:
            owner.waiting = max(owner.waiting - 1, 0)

    def best(self, now_ms: int, may: Callable[[str], bool] | None = None) -> str | None:
        """Choose the owner for the next receive, of those of which `may` is true; None: no owner
        may be asked now.
        """
        return self._best(self._ready, now_ms, may) or self._best(self._owners, now_ms, may)

    def _best(
        self, names: Iterable[str], now_ms: int, may: Callable[[str], bool] | None
    ) -> str | None:
        best, key = None, (0, 0, 0)
        for name in names:
            owner = self._owners[name]
            if owner.skip_until_ms > now_ms or (may is not None and not may(name)):
                continue
            mine = -self._ready.get(name, 0), owner.waiting, -owner.answered
            if best is None or mine < key:
                best, key = name, mine
        return best

    def any_ready(self, now_ms: int) -> bool:
        """Whether an owner that may be asked has messages."""
        return any(self._owners[name].skip_until_ms <= now_ms for name in self._ready)
