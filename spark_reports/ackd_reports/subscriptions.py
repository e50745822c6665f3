"""Each subscription in a row, what matters first: which one breaks what, how fast, since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ackd_reports import measures
from ackd_reports.histogram import percentile_us
from ackd_reports.plain import GROUP, Rows, by, iso, names, number
from ackd_reports.promises import series_of
from ackd_reports.targets import Target
from ackd_reports.words import BUCKET_US, HOUR_US

if TYPE_CHECKING:
    from ackd_reports.frames.figures import Figures

_ORDER: Final = (measures.BROKEN, measures.NO_DATA, measures.KEPT)
BURNS: Final = {"1 h": HOUR_US, "6 h": 6 * HOUR_US}
DRAWN: Final = ("messages", "redelivered", "dead")
DRAWN_MAX: Final = 12
"""So many subscriptions are drawn; the others are rows."""


def subscriptions(
    now: Figures,
    before: Figures | None,
    promises: Sequence[Mapping[str, Any]],
    targets: Sequence[Target],
    silent: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """`promises` are those of `targets`, as the report has them."""
    step = now.fine_us
    fine = dict(by(now.fine, GROUP))
    old = dict(by(before.buckets, GROUP)) if before is not None else {}
    found = []
    for key, rows in by(now.buckets, GROUP):
        named = names(GROUP, key)
        kept = [
            _promise(named, each, place, target, rows, old.get(key, []), now.until_us)
            for place, (each, target) in enumerate(zip(promises, targets, strict=True))
        ]
        listed = sorted((each for each in kept if each is not None), key=_worst)
        quiet = any(all(each[name] == named[name] for name in named) for each in silent)
        states = [each["state"] for each in listed] + [measures.NO_DATA] * quiet
        counts = {
            name: number(sum(row[name] for row in rows))
            for name in ("messages", "acked", "dead", "unfinished", "redelivered")
        }
        was = sum(row["messages"] for row in old.get(key, []))
        found.append(
            {
                **named,
                "state": next((each for each in _ORDER if each in states), measures.KEPT),
                "promises": listed,
                **counts,
                "messages_before": number(was) if before is not None else None,
                "series": _series(rows, fine.get(key, []), step, len(targets)),
            }
        )
    found.sort(key=_matters)
    for each in found[DRAWN_MAX:]:
        each["series"] = []
    return found


def _worst(promise: Mapping[str, Any]) -> tuple[int, float, str]:
    return (_ORDER.index(promise["state"]), -(promise["spent"] or 0.0), promise["name"])


def _matters(row: Mapping[str, Any]) -> tuple[Any, ...]:
    spent = max((each["spent"] or 0.0 for each in row["promises"]), default=0.0)
    where = tuple(row[name] for name in ("topic", "group", "system", "cluster"))
    return (_ORDER.index(row["state"]), -spent, -row["dead"], -row["messages"], where)


def _promise(
    named: Mapping[str, str],
    promise: Mapping[str, Any],
    place: int,
    target: Target,
    rows: Rows,
    old: Rows,
    until_us: int,
) -> dict[str, Any] | None:
    mine = [
        each
        for each in promise["subscriptions"]
        if all(each[name] == value for name, value in named.items())
    ]
    if not mine:
        return None
    series = series_of(rows, place)
    before = series_of(old, place)
    # Burn rates look back past the begin of the period.
    sums = measures.Sums([*before, *series])
    end = (until_us - 1) // BUCKET_US * BUCKET_US
    return {
        "name": promise["name"],
        "objective": promise["objective"],
        "within_ms": target.within_us / 1000 if target.measure == "time_to_ack" else None,
        **{name: mine[0][name] for name in ("good", "bad", "share", "state", "spent")},
        "burn": {
            name: round(sums.burn(end, length, target.objective).rate, 3)
            for name, length in BURNS.items()
        },
        "share_period": _share(series),
        "share_before": _share(before),
        "breached_since": _breached_since(series, target.objective),
    }


def _share(series: measures.Series) -> float | None:
    good = sum(each[1] for each in series)
    return measures.share(good, good + sum(each[2] for each in series))


def _breached_since(series: measures.Series, objective: float) -> str | None:
    """When the error budget of the period's messages was gone; it does not come back."""
    gone = (at for at, left in measures.remaining(series, objective) if left < 0)
    return next((iso(at) for at in gone), None)


def _series(rows: Rows, fine: Rows, step_us: int, targets: int) -> list[dict[str, Any]]:
    """A point a slice in which there was something: counts, and percentiles of publish to ack.

    `bad` counts a message once for each objective that it breaks.
    """
    points: dict[int, dict[str, Any]] = {}
    for row in rows:
        at = row["bucket_us"] // step_us * step_us
        point = points.setdefault(at, dict.fromkeys((*DRAWN, "bad"), 0))
        for name in DRAWN:
            point[name] += row[name]
        point["bad"] += sum(row[f"bad_{place}"] for place in range(targets))
    cells_at = {
        row["bucket_us"]: [(each["cell"], each["n"]) for each in row["cells"]] for row in fine
    }
    return [
        {
            "at": iso(at),
            **{name: number(value) for name, value in point.items()},
            **{
                f"{name}_ms": _ms(percentile_us(cells_at.get(at, []), share))
                for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
            },
        }
        for at, point in sorted(points.items())
    ]


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value / 1000, 3)
