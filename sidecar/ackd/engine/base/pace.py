"""PURE: lets the subscriptions of a process beat at the same time, so that one call carries all."""

from __future__ import annotations


class Pace:
    """When each subscription's heartbeat is due next, in ms of a monotonic clock."""

    def __init__(self) -> None:
        self._due_ms: dict[str, int] = {}

    def rest_ms(self, name: str, now_ms: int, period_ms: int) -> int:
        """Return how long `name` waits: until another one is due, if that is in the second half of
        the period, else for the whole period.
        """
        latest_ms = now_ms + period_ms
        soonest_ms = latest_ms - period_ms // 2
        others = (due for other, due in self._due_ms.items() if other != name)
        joined_ms = min(
            (due for due in others if soonest_ms <= due <= latest_ms), default=latest_ms
        )
        self._due_ms[name] = joined_ms
        return joined_ms - now_ms
