"""Reports to other sidecars of what became of their answers: taken, or lost (R21).

The owner gives the leases of a lost answer back, and forgets the tokens of one that was taken. What
may not have arrived, because the link closed, is reported again on the next one. Lost ones are told
in heartbeats, too, as there may be no link for long.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ackd.engine.peers.frames import NUMBERS_MAX, PeerLost, PeerTaken, write_frame
from ackd.ports import Clock, PeerLink

REPORTED_MAX = 10_000
"""Answers, lost or taken, that are kept for each sidecar until it can be told of them, at most."""
UNHEARD_MAX = 100
"""Sidecars for which such answers are kept, at most."""
UNTOLD_MAX = 1_000
"""Answers that were taken, of which a link's other side is told with the next request, or after the
next heartbeat: at once if there are more than this.
"""
ARRIVED_MS = 30_000
"""A frame has arrived if its link was still open this long after it was sent."""
WORD_MS = 5_000
"""Heartbeats tell of lost answers for so long after their link closed: the owner lives, so it has
read some of these by then.
"""
WORD_MAX = 256
"""Of so many for each sidecar at most, the last ones: all sidecars read what heartbeats say."""


class _Unheard(NamedTuple):
    """What a sidecar must still hear of its answers. `instance`: which process of it."""

    instance: str
    closed_ms: int
    lost: list[int]
    taken: list[int]


class AnswerReports:
    """Of one subscription, to all sidecars. `_reported`: the answers that were reported on each
    link as taken (or else as lost), and when; one that comes twice is not reported again.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._reported: dict[PeerLink, OrderedDict[int, tuple[int, bool]]] = {}
        self._untold: dict[PeerLink, list[int]] = {}
        self._unheard: dict[str, _Unheard] = {}

    def taken(self, link: PeerLink, numbers: list[int]) -> None:
        """Receives have the messages of these answers: said with the next request."""
        if not numbers:
            return
        self._remember(link, numbers, taken=True)
        untold = self._untold.setdefault(link, [])
        untold += numbers
        if len(untold) > UNTOLD_MAX:
            self._tell_taken(link)

    def lost(self, link: PeerLink, numbers: list[int]) -> None:
        """No receive takes the messages of these answers; those reported before are left out."""
        reported = self._reported.get(link) or OrderedDict()
        new = [number for number in numbers if number not in reported]
        if not new:
            return
        self._remember(link, new, taken=False)
        for start in range(0, len(new), NUMBERS_MAX):
            link.send(write_frame(PeerLost(self._name, new[start : start + NUMBERS_MAX])))

    def with_request(self, link: PeerLink) -> list[int]:
        """Return the answers that were taken, of which a request on this link tells the owner."""
        return self._untold.pop(link, [])

    def tell_all(self) -> None:
        """Say which answers were taken without waiting for the next request. Until then the owner
        keeps the tokens of these answers, and does nothing with them.
        """
        for link in list(self._untold):
            self._tell_taken(link)

    def unheard(self) -> Iterable[str]:
        """The sidecars that must still hear of answers."""
        return self._unheard

    def lost_lately(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the processes whose link has closed lately, with the lost answers that they must
        hear of.
        """
        since_ms = self._clock.monotonic_ms() - WORD_MS
        for unheard in self._unheard.values():
            if unheard.lost and unheard.closed_ms > since_ms:
                yield unheard.instance, unheard.lost[-WORD_MAX:]

    def closed(self, link: PeerLink, unanswered: list[int]) -> bool:
        """Keep what may not have arrived, and the requests without an answer: what comes to these
        is lost. Returns whether there is anything to tell.
        """
        self._untold.pop(link, None)
        now_ms = self._clock.monotonic_ms()
        since_ms = now_ms - ARRIVED_MS
        reported = self._reported.pop(link, OrderedDict())
        lately = [
            (number, taken) for number, (at_ms, taken) in reported.items() if at_ms >= since_ms
        ]
        lost = [number for number, taken in lately if not taken] + unanswered
        taken = [number for number, taken in lately if taken]
        if not lost and not taken:
            return False
        before = self._unheard.pop(link.name, None)
        if before is not None and before.instance == link.instance:
            lost, taken = [*before.lost, *lost], [*before.taken, *taken]
        kept = _Unheard(link.instance, now_ms, lost[-REPORTED_MAX:], taken[-REPORTED_MAX:])
        self._unheard[link.name] = kept
        while len(self._unheard) > UNHEARD_MAX:
            del self._unheard[next(iter(self._unheard))]
        return True

    def opened(self, link: PeerLink) -> None:
        """Report what the other sidecar may not have heard, because a link closed. Leases that an
        earlier process of it granted end by themselves.
        """
        unheard = self._unheard.pop(link.name, None)
        if unheard is not None and unheard.instance == link.instance:
            self.taken(link, unheard.taken)
            self._tell_taken(link)
            self.lost(link, unheard.lost)

    def _remember(self, link: PeerLink, numbers: list[int], *, taken: bool) -> None:
        now_ms = self._clock.monotonic_ms()
        reported = self._reported.setdefault(link, OrderedDict())
        reported.update((number, (now_ms, taken)) for number in numbers)
        while (
            len(reported) > REPORTED_MAX or next(iter(reported.values()))[0] < now_ms - ARRIVED_MS
        ):
            reported.popitem(last=False)

    def _tell_taken(self, link: PeerLink) -> None:
        for number in self._untold.pop(link, ()):
            link.send(write_frame(PeerTaken(self._name, number)))
