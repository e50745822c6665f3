"""Good and bad of promises over their windows, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ackd_reports.measures import BURN_US
from ackd_reports.plain import GROUP, Rows, by
from ackd_reports.targets import Target

_BUCKET: Final = ("bucket_us",)


@dataclass(frozen=True, slots=True)
class PromiseCourse:
    """Sums of `good_i` and `bad_i` of each target, in millionths of a message.

    `buckets`: a row for every 5 minutes, from before the windows on (burn rates look back) to the
    end. `subscriptions`: a row a subscription, each target over its window.
    """

    buckets: Rows
    subscriptions: Rows


def sides_of(targets: Sequence[Target]) -> list[str]:
    """The columns of a course."""
    return [f"{side}_{number}" for number in range(len(targets)) for side in ("good", "bad")]


def reaches_back_to(targets: Sequence[Target], until_us: int) -> int:
    """The begin of the longest window, and of what burn rates at its begin look back on."""
    windows = [target.window.around(until_us)[0] for target in targets]
    return min(windows, default=until_us) - BURN_US


def course_of(
    buckets: Sequence[Mapping[str, Any]], targets: Sequence[Target], until_us: int
) -> PromiseCourse:
    """The same from rows of streams and 5 minutes, where a period has all there is."""
    columns = sides_of(targets)
    since = [target.window.around(until_us)[0] for target in targets]

    def summed(rows: Rows, *, within: bool) -> dict[str, int]:
        return {
            name: sum(
                row[name] for row in rows if not within or row["bucket_us"] >= since[place // 2]
            )
            for place, name in enumerate(columns)
        }

    rows = [dict(row) for row in buckets]
    return PromiseCourse(
        [{"bucket_us": at, **summed(each, within=False)} for (at,), each in by(rows, _BUCKET)],
        [
            {**dict(zip(GROUP, key, strict=True)), **summed(each, within=True)}
            for key, each in by(rows, GROUP)
        ],
    )
