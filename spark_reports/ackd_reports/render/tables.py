"""Reports for machines: JSON, CSV and JUnit XML; `prometheus` has one more."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from xml.etree import ElementTree as ET

from ackd_reports import words
from ackd_reports.flat import TABLES
from ackd_reports.measures import BROKEN, INCOMPLETE, NO_DATA
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


def as_flat_csv(name: str, report: Report) -> str:
    """One of `flat.TABLES`."""
    table = TABLES[name]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(table.columns), lineterminator="\n")
    writer.writeheader()
    for row in table.rows_of(report):
        writer.writerow({key: _safe(v) if isinstance(v, str) else v for key, v in row.items()})
    return out.getvalue()


def _safe(text: str) -> str:
    """Names come from traces: a spreadsheet must not take one for a formula (OWASP)."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _details(report: Report, promise: Mapping[str, Any]) -> Iterator[str]:
    """Since when, by whom and why an objective was breached, and messages that did."""
    for row in report["breaches"]:
        if row["name"] == promise["name"]:
            times = f"since {row['since']}" + (f" until {row['until']}" if row["until"] else "")
            yield f"{row['kind']} {row['value']:.6g}, bound {row['bound']:.6g}, {times}"
    for row in promise.get("causes", ()):
        yield f"{row['dimension']} {row['value']}: {row['messages']} bad messages"
    for message in promise["examples"]:
        place = f"{message['topic']}/{message['partition']}/{message['message']}"
        yield f"{place} trace {message['trace_id']}"


def as_junit(report: Report) -> str:
    """A test case a promise, for whatever shows test results."""
    promises, silent = report["promises"], report["silent"]
    unknown = sum(each["state"] == NO_DATA for each in promises)
    is_incomplete = report["verdict"] == INCOMPLETE
    suite = ET.Element(
        "testsuite",
        name="ackd report",
        tests=str(len(promises) + len(silent) + 1),
        failures=str(sum(each["state"] == BROKEN for each in promises)),
        errors=str(unknown + len(silent) + is_incomplete),
        timestamp=report["period"]["until"],
    )
    complete = ET.SubElement(suite, "testcase", classname="ackd.traces", name="complete")
    if is_incomplete:
        share, bound = (report["completeness"][name] for name in ("share", "bound"))
        ET.SubElement(complete, "error", message=f"{share:.6f} of what was written; bound {bound}")
    for each in silent:
        name = f"{each['topic']} / {each['group']}"
        case = ET.SubElement(suite, "testcase", classname="ackd.subscriptions", name=name)
        ET.SubElement(case, "error", message=f"nothing heard since {each['last']}")
    for each in promises:
        case = ET.SubElement(suite, "testcase", classname="ackd.promises", name=each["name"])
        if each["state"] == NO_DATA:
            # Not skipped: that looks green.
            ET.SubElement(case, "error", message=each.get("why") or "no data")
        elif each["state"] == BROKEN:
            text = f"{each['sentence']}: {each['bad']} of {each['good'] + each['bad']} were not"
            failure = ET.SubElement(case, "failure", message=text)
            failure.text = "\n".join(_details(report, each))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, "unicode") + "\n"
