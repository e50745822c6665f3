"""OpenSLO v1 (https://github.com/OpenSLO/OpenSLO): what of it is honoured, to the letter.

`SLO` documents whose indicator, inside it or an `SLI` of the same file by `indicatorRef`, has the
source `ackd`. Durations are a `thresholdMetric` (`op: lte`, `value` in seconds), ratios a
`ratioMetric` with `raw` and `rawType: success`:

    ratioMetric: {rawType: success, raw: {metricSource: {type: ackd, spec: {metric: delivered}}}}

The `spec` of the source names `metric`, filters, `finished_within` and `least_messages`. `Service`
documents say nothing that a report needs. Everything else that a document holds would change what
it means, so it is a mistake, told with its line and place, and never passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ackd_reports.targets import (
    FILTERS,
    MEASURES,
    RATIOS,
    Target,
    TargetsError,
    target_of,
    window_of,
)

VERSION: Final = "openslo/v1"
_NOTHING: Final = "tag:yaml.org,2002:null"
_DOCUMENT: Final = ("apiVersion", "kind", "metadata", "spec")
_METADATA: Final = ("name", "displayName", "labels", "annotations")
_SPEC: Final = (
    *("description", "service", "indicator", "indicatorRef", "timeWindow", "budgetingMethod"),
    *("objectives", "alertPolicies"),
)
_OBJECTIVE: Final = ("displayName", "op", "value", "target", "targetPercent")
_WINDOW: Final = ("duration", "isRolling", "calendar")
_CALENDAR: Final = ("startTime", "timeZone")
_SOURCE: Final = ("type", "spec")
_SOURCE_SPEC: Final = ("metric", *FILTERS, "finished_within", "least_messages")
_DESCRIPTION_MAX: Final = 1050
_NOT_HONOURED: Final = {
    "alertPolicies": "alerts are those of Google's SRE workbook, at every objective",
    "timeSliceTarget": "only Occurrences are counted",
    "timeSliceWindow": "only Occurrences are counted",
    "indicatorRef": "an objective has the indicator of its SLO",
    "compositeWeight": "there are no composite objectives",
    "metricSourceRef": "say type: ackd here; there are no data sources",
    "counter": "only with good and total, which are not read; write raw and rawType",
}

_Steps = tuple[str | int, ...]


def targets_of(text: str, file: str, mistakes: list[str]) -> list[Target]:
    """Targets of a file's documents; mistakes are noted. `TargetsError`: it is no YAML."""
    documents = list(_documents(text, file, mistakes))
    indicators: dict[object, _Document] = {}
    found = []
    for each in documents:
        if each.has((), _DOCUMENT, needed=_DOCUMENT) and each.at("kind") == "SLI":
            name = each.at("metadata", "name")
            if name in indicators:
                each.wrong(("metadata", "name"), f'two indicators are called "{name}"')
            indicators[name] = each
    for each in documents:
        kind = each.at("kind")
        if each.at("apiVersion") != VERSION:
            each.wrong(("apiVersion",), f"must be {VERSION}")
        elif kind == "SLO":
            found += _Slo(each, indicators).targets()
        elif kind not in ("SLI", "Service"):
            each.wrong(("kind",), f"{kind!r} is not honoured; only SLO, SLI and Service")
    return found


@dataclass(frozen=True, slots=True)
class _Document:
    """One document with the line of each of its places."""

    root: object
    lines: Mapping[_Steps, int]
    file: str
    mistakes: list[str]

    def at(self, *path: str | int) -> Any:
        """What stands at a place; None where nothing does."""
        here: Any = self.root
        for step in path:
            try:
                here = here[step]
            except (KeyError, IndexError, TypeError):
                return None
        return here

    def place(self, path: _Steps) -> str:
        """`file:14: spec.timeWindow[0]`; the line is that of what is there of it."""
        there = path
        while there not in self.lines:
            there = there[:-1]
        shown = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)
        return f"{self.file}:{self.lines[there]}: {shown.removeprefix('.') or 'the document'}"

    def wrong(self, path: _Steps, why: str) -> None:
        self.mistakes.append(f"{self.place(path)}: {why}")

    def has(self, path: _Steps, known: Sequence[str], needed: Sequence[str] = ()) -> bool:
        """Whether a mapping is there; what it should not have, or lacks, is noted."""
        found = self.at(*path)
        if not isinstance(found, dict):
            self.wrong(path, f"a mapping with {', '.join(needed or known)}")
            return False
        for name in found:
            if name not in known:
                why = _NOT_HONOURED.get(name, f"allowed are {', '.join(known)}")
                self.wrong((*path, name), f"not honoured; {why}")
        for name in needed:
            if found.get(name) is None:
                self.wrong((*path, name), "is missing")
        return all(found.get(name) is not None for name in needed)


def _documents(text: str, file: str, mistakes: list[str]) -> Iterator[_Document]:
    import yaml  # noqa: PLC0415 -- only this form needs it

    try:
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
        values = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        raise TargetsError(f"{file}: no YAML: {error}") from None
    # A document that says nothing has a node all the same.
    nodes = [each for each in nodes if each.tag != _NOTHING]
    for node, value in zip(nodes, values, strict=True):
        yield _Document(value, _lines_of(node, file, mistakes), file, mistakes)


def _lines_of(node: Any, file: str, mistakes: list[str]) -> dict[_Steps, int]:
    """The line of each place; a key that is there twice is a mistake, as one would be lost."""
    lines: dict[_Steps, int] = {}
    left: list[tuple[_Steps, Any]] = [((), node)]
    seen: set[int] = set()
    while left:
        path, here = left.pop()
        lines.setdefault(path, here.start_mark.line + 1)
        if id(here) in seen:  # an alias, which may lead back to itself
            continue
        seen.add(id(here))
        if here.id == "mapping":
            for key, value in here.value:
                below, line = (*path, str(key.value)), key.start_mark.line + 1
                if below in lines:
                    mistakes.append(f"{file}:{line}: {key.value}: is there twice")
                lines[below] = line
                left.append((below, value))
        elif here.id == "sequence":
            left += [((*path, number), each) for number, each in enumerate(here.value)]
    return lines


class _Slo:
    """One `SLO` document on its way to targets."""

    def __init__(self, document: _Document, indicators: Mapping[object, _Document]) -> None:
        self._document = document
        self._indicators = indicators

    def targets(self) -> list[Target]:
        """A target for each objective; none of one with mistakes."""
        document, before = self._document, len(self._document.mistakes)
        document.has(("metadata",), _METADATA, needed=("name",))
        needed = ("service", "budgetingMethod", "objectives")
        if not document.has(("spec",), _SPEC, needed=needed):
            return []
        self._plain_texts()
        if document.at("spec", "alertPolicies"):
            document.wrong(
                ("spec", "alertPolicies"), f"not honoured; {_NOT_HONOURED['alertPolicies']}"
            )
        if document.at("spec", "budgetingMethod") != "Occurrences":
            document.wrong(
                ("spec", "budgetingMethod"), "not honoured; only Occurrences are counted"
            )
        window = self._window()
        if window_of(window, document.place(("spec", "timeWindow")), document.mistakes) is None:
            window = {}
        source = self._source()
        found = [
            each
            for number in range(self._objectives())
            for each in self._target(number, source, window)
        ]
        return found if len(document.mistakes) == before else []

    def _plain_texts(self) -> None:
        for path in (("metadata", "name"), ("spec", "service"), ("spec", "description")):
            value = self._document.at(*path)
            if value is not None and not isinstance(value, str):
                self._document.wrong(path, f"{value!r}; a text")
        if len(str(self._document.at("spec", "description") or "")) > _DESCRIPTION_MAX:
            self._document.wrong(("spec", "description"), f"at most {_DESCRIPTION_MAX} characters")

    def _objectives(self) -> int:
        path = ("spec", "objectives")
        listed = self._document.at(*path)
        if not isinstance(listed, list) or not listed:
            self._document.wrong(path, "a list of at least one")
            return 0
        return len(listed)

    def _window(self) -> dict[str, object]:
        """Window, start and time zone under the names of a table."""
        document, path = self._document, ("spec", "timeWindow")
        windows = document.at(*path)
        if windows is None:
            return {}
        if not isinstance(windows, list) or len(windows) != 1:
            document.wrong(path, "a list of exactly one window")
            return {}
        first = (*path, 0)
        if not document.has(first, _WINDOW, needed=("duration",)):
            return {}
        window = {"window": document.at(*first, "duration")}
        is_rolling, aligned = document.at(*first, "isRolling"), document.at(*first, "calendar")
        if is_rolling not in (None, True, False):
            document.wrong((*first, "isRolling"), f"{is_rolling!r}; true or false")
        if aligned is None:
            if is_rolling is False:
                document.wrong((*first, "calendar"), "is missing, as the window is not rolling")
            return window
        if is_rolling is True:
            document.wrong((*first, "isRolling"), "a calendar's window is not rolling")
        if document.has((*first, "calendar"), _CALENDAR, needed=_CALENDAR):
            window["calendar"] = document.at(*first, "calendar", "startTime")
            window["time_zone"] = document.at(*first, "calendar", "timeZone")
        return window

    def _source(self) -> tuple[_Document, _Steps, bool] | None:
        """Where the source's `spec` stands, and whether it is that of a threshold."""
        document, reference = self._document, ("spec", "indicatorRef")
        own, name = document.at("spec", "indicator"), document.at(*reference)
        if (own is None) == (name is None):
            document.wrong(("spec",), "one of indicator and indicatorRef")
            return None
        if own is not None:
            document.has(("spec", "indicator"), ("metadata", "spec"), needed=("spec",))
            if document.at("spec", "indicator", "metadata") is not None:
                document.has(("spec", "indicator", "metadata"), _METADATA)
            return _metric(document, ("spec", "indicator", "spec"))
        there = self._indicators.get(name)
        if there is None:
            document.wrong(reference, f'there is no SLI "{name}" in this file')
            return None
        return _metric(there, ("spec",))

    def _target(
        self, number: int, source: tuple[_Document, _Steps, bool] | None, window: dict[str, object]
    ) -> list[Target]:
        document, path = self._document, ("spec", "objectives", number)
        if not document.has(path, _OBJECTIVE) or source is None:
            return []
        there, spec, is_threshold = source
        named = {key: value for key, value in there.at(*spec).items() if key in _SOURCE_SPEC}
        table: dict[str, object] = {**named, **window}
        table["measure"] = measure = table.pop("metric")
        table["name"] = document.at(*path, "displayName") or document.at("metadata", "name")
        table["objective"] = self._share(path)
        compared = is_threshold and measure not in RATIOS
        for key in ("op", "value"):
            if compared == (document.at(*path, key) is None):
                why = "is missing" if compared else f"{measure} is compared with no value"
                document.wrong((*path, key), why)
        if compared:
            if is_threshold and number:
                document.wrong(path, "a thresholdMetric has one objective; write another SLO")
            if document.at(*path, "op") not in (None, "lte"):
                document.wrong((*path, "op"), f"{document.at(*path, 'op')!r}; only lte")
            value = document.at(*path, "value")
            if isinstance(value, bool) or not isinstance(value, int | float):
                document.wrong((*path, "value"), f"{value!r}; a number of seconds")
                return []
            table["within"] = f"{value:.6f}s"
        target = target_of(table, document.place(path), document.mistakes)
        return [] if target is None else [target]

    def _share(self, path: _Steps) -> object:
        document = self._document
        share, percent = document.at(*path, "target"), document.at(*path, "targetPercent")
        if (share is None) == (percent is None):
            document.wrong(path, "one of target and targetPercent")
        if isinstance(percent, int | float) and not isinstance(percent, bool):
            # 99.9 / 100 is not what 0.999 is.
            return float(f"{percent / 100:.12g}")
        return share


def _metric(document: _Document, path: _Steps) -> tuple[_Document, _Steps, bool] | None:
    """The `spec` of the source of an indicator, looked through; None with the mistakes noted."""
    if not document.has(path, ("description", "thresholdMetric", "ratioMetric")):
        return None
    kinds = [each for each in ("thresholdMetric", "ratioMetric") if document.at(*path, each)]
    if len(kinds) != 1:
        document.wrong(path, "one of thresholdMetric and ratioMetric")
        return None
    metric = (*path, kinds[0])
    is_threshold = kinds[0] == "thresholdMetric"
    if not is_threshold:
        if not document.has(metric, ("rawType", "raw"), needed=("rawType", "raw")):
            return None
        if document.at(*metric, "rawType") != "success":
            document.wrong((*metric, "rawType"), "only success")
        metric = (*metric, "raw")
    spec = _source_spec(document, metric)
    if spec is None:
        return None
    measure = document.at(*spec, "metric")
    if measure not in MEASURES or (not is_threshold and measure not in RATIOS):
        allowed = MEASURES if is_threshold else RATIOS
        document.wrong((*spec, "metric"), f"{measure!r}; allowed are {', '.join(allowed)}")
        return None
    return document, spec, is_threshold


def _source_spec(document: _Document, metric: _Steps) -> _Steps | None:
    """Where what the source is asked for stands; None with the mistakes noted."""
    source = (*metric, "metricSource")
    if not document.has(metric, ("metricSource",), needed=("metricSource",)):
        return None
    if not document.has(source, _SOURCE, needed=_SOURCE):
        return None
    if document.at(*source, "type") != "ackd":
        document.wrong((*source, "type"), f"{document.at(*source, 'type')!r}; only ackd")
        return None
    spec = (*source, "spec")
    return spec if document.has(spec, _SOURCE_SPEC, needed=("metric",)) else None
