"""A report in Prometheus' text format, for a textfile collector or a pushgateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from ackd_reports.measures import BROKEN, INCOMPLETE, KEPT, NO_DATA
from ackd_reports.model import COUNTS, PERCENTILES, Report

_SUBSCRIPTION: Final = ("system", "cluster", "topic", "group")
_STREAM: Final = (*_SUBSCRIPTION, "application")

_Sample = tuple[Mapping[str, str], float | int]


def as_prometheus(report: Report) -> str:
    """Every family with its samples, in the same order for the same report."""
    families = {
        "verdict": ("1 for the verdict of the report.", _verdict(report)),
        "end_timestamp_seconds": ("End of the period.", _time(report["period"]["until"])),
        "last_event_timestamp_seconds": (
            "Last event in the traces.",
            _time(report["freshness"]["last_event"]),
        ),
        "complete_ratio": (
            "Share of the spans that sidecars wrote and that could be used.",
            _known({}, report["completeness"]["share"]),
        ),
        "silent_seconds": ("For how long nothing was heard of a subscription.", _silent(report)),
        "messages": ("Messages of the period by what became of them.", _messages(report)),
        "duration_seconds": ("Percentiles of durations in the period.", _durations(report)),
        "compliance": (
            "Share of the messages of its window for which a promise was kept.",
            _promises(report, "share"),
        ),
        "budget_spent": (
            "Share of the window's error budget that is spent.",
            _promises(report, "spent"),
        ),
        "burn_rate": (
            "How many times faster than allowed an error budget went at the end.",
            _burning(report),
        ),
        "subscription_compliance": (
            "The same share, of each subscription.",
            _subscriptions(report, "share"),
        ),
        "subscription_budget_spent": (
            "The same budget, of each subscription.",
            _subscriptions(report, "spent"),
        ),
        "breaches": (
            "Breaches of an objective in its window, by what was breached.",
            _breaches(report),
        ),
    }
    lines = []
    for name, (text, samples) in families.items():
        lines += [f"# HELP ackd_report_{name} {text}", f"# TYPE ackd_report_{name} gauge"]
        lines += [f"ackd_report_{name}{_braces(labels)} {value}" for labels, value in samples]
    return "".join(f"{line}\n" for line in lines)


def _verdict(report: Report) -> Iterator[_Sample]:
    for name in (KEPT, BROKEN, NO_DATA, INCOMPLETE):
        yield {"verdict": name}, int(report["verdict"] == name)


def _time(text: str | None) -> Iterator[_Sample]:
    yield from _known({}, None if text is None else datetime.fromisoformat(text).timestamp())


def _known(labels: Mapping[str, str], value: float | None) -> Iterator[_Sample]:
    if value is not None:
        yield labels, value


def _silent(report: Report) -> Iterator[_Sample]:
    for each in report["silent"]:
        yield {name: each[name] for name in _SUBSCRIPTION}, each["quiet_s"]


def _messages(report: Report) -> Iterator[_Sample]:
    for group in report["groups"]:
        for name in COUNTS:
            yield {**_labels(group), "what": name}, group[name]


def _durations(report: Report) -> Iterator[_Sample]:
    for group in report["groups"]:
        for name, found in group["durations"].items():
            for share, quantile in PERCENTILES.items():
                value = found[f"{share}_ms"]
                labels = {**_labels(group), "duration": name, "quantile": str(quantile)}
                yield from _known(labels, None if value is None else round(value / 1000, 6))


def _promises(report: Report, what: str) -> Iterator[_Sample]:
    for each in report["promises"]:
        yield from _known({"promise": each["name"]}, each.get(what))


def _burning(report: Report) -> Iterator[_Sample]:
    for promise in report["promises"]:
        for each in promise.get("burning", ()):
            yield {"promise": promise["name"], "window": each["long"]}, each["burn_long"]


def _subscriptions(report: Report, what: str) -> Iterator[_Sample]:
    for promise in report["promises"]:
        for each in promise.get("subscriptions", ()):
            labels = {"promise": promise["name"], **{name: each[name] for name in _SUBSCRIPTION}}
            yield from _known(labels, each[what])


def _breaches(report: Report) -> Iterator[_Sample]:
    counts = Counter((each["name"], each["kind"], each["severity"]) for each in report["breaches"])
    for (promise, kind, severity), count in sorted(counts.items()):
        yield {"promise": promise, "kind": kind, "severity": severity}, count


def _labels(group: Mapping[str, Any]) -> dict[str, str]:
    return {name: group[name] for name in _STREAM}


def _braces(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
