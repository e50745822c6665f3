"""Reports for machines: JSON, CSV, JUnit XML and Prometheus text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from xml.etree import ElementTree as ET

from ackd_reports import words
from ackd_reports.measures import BROKEN, NO_DATA
from ackd_reports.model import COUNTS, PERCENTILES, Report

_STREAM: Final = ("system", "cluster", "topic", "group", "application")


def as_json(report: Report) -> str:
    """The whole report; the same bytes for the same traces."""
    return json.dumps(report, indent=1, sort_keys=True, allow_nan=False) + "\n"


def as_csv(report: Report) -> str:
    """A row a group of messages, with counts and percentiles."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    shares = [(name, share) for name in words.DURATIONS for share in PERCENTILES]
    writer.writerow([*_STREAM, *COUNTS, *(f"{name}_{share}_ms" for name, share in shares)])
    for group in report["groups"]:
        durations = [group["durations"][name][f"{share}_ms"] for name, share in shares]
        texts = [_safe(group[name]) for name in _STREAM]
        writer.writerow([*texts, *(group[name] for name in COUNTS), *durations])
    return out.getvalue()


def _safe(text: str) -> str:
    """Names come from traces: a spreadsheet must not take one for a formula (OWASP)."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def as_junit(report: Report) -> str:
    """A test case a promise, for whatever shows test results."""
    promises = report["promises"]
    suite = ET.Element(
        "testsuite",
        name="ackd report",
        tests=str(len(promises)),
        failures=str(sum(each["state"] == BROKEN for each in promises)),
        skipped=str(sum(each["state"] == NO_DATA for each in promises)),
        timestamp=report["period"]["until"],
    )
    for each in promises:
        case = ET.SubElement(suite, "testcase", classname="ackd.promises", name=each["name"])
        if each["state"] == NO_DATA:
            ET.SubElement(case, "skipped", message="no data")
        elif each["state"] == BROKEN:
            text = f"{each['sentence']}: {each['bad']} of {each['good'] + each['bad']} were not"
            failure = ET.SubElement(case, "failure", message=text)
            failure.text = "\n".join(
                f"{message['topic']}/{message['partition']}/{message['message']}"
                f" trace {message['trace_id']}"
                for message in each["examples"]
            )
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, "unicode") + "\n"


def as_prometheus(report: Report) -> str:
    """The period's figures in Prometheus' text format, for a textfile collector."""
    return "".join(f"{line}\n" for line in _prometheus(report))


def _prometheus(report: Report) -> Iterator[str]:
    yield "# HELP ackd_report_messages Messages of the period by what became of them."
    yield "# TYPE ackd_report_messages gauge"
    for group in report["groups"]:
        for name in COUNTS:
            labels = {**_labels(group), "what": name}
            yield f"ackd_report_messages{_braces(labels)} {group[name]}"
    yield "# HELP ackd_report_duration_seconds Percentiles of durations in the period."
    yield "# TYPE ackd_report_duration_seconds gauge"
    for group in report["groups"]:
        for name, found in group["durations"].items():
            for share, quantile in PERCENTILES.items():
                value = found[f"{share}_ms"]
                if value is not None:
                    labels = {**_labels(group), "duration": name, "quantile": str(quantile)}
                    yield f"ackd_report_duration_seconds{_braces(labels)} {value / 1000:.6f}"
    yield "# HELP ackd_report_compliance Share of messages for which a promise was kept."
    yield "# TYPE ackd_report_compliance gauge"
    for each in report["promises"]:
        if each["share"] is not None:
            yield f"ackd_report_compliance{_braces({'promise': each['name']})} {each['share']}"
    yield "# HELP ackd_report_budget_spent Share of the period's error budget that is spent."
    yield "# TYPE ackd_report_budget_spent gauge"
    for each in report["promises"]:
        if each.get("spent") is not None:
            yield f"ackd_report_budget_spent{_braces({'promise': each['name']})} {each['spent']}"


def _labels(group: Mapping[str, Any]) -> dict[str, str]:
    return {name: group[name] for name in _STREAM}


def _braces(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
