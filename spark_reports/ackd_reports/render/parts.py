"""What sections of the page are made of: tables, cells, states, links. Texts are escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from ackd_reports.durations import duration_text
from ackd_reports.links import address
from ackd_reports.measures import BROKEN, INCOMPLETE, KEPT, NO_DATA

SIGNS: Final = {KEPT: "✓", BROKEN: "✗", NO_DATA: "–", INCOMPLETE: "?"}
"""A state is told by a word and a sign, never by colour alone."""
STATES: Final = {
    KEPT: "met",
    BROKEN: "breached",
    NO_DATA: "no data",
    INCOMPLETE: "incomplete",
}


class Raw(str):
    """Text that is HTML already: it is not escaped again."""

    __slots__ = ()


def section(title: str, name: str, body: str) -> str:
    """A part of the page under a heading, with a name to link to."""
    return f'<section id="{name}"><h2>{escape(title)}</h2>\n{body}</section>'


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; texts are escaped here, numbers are set right. `Raw` cells stay as they are.

    Each cell names its column too, for where a row becomes a card (a phone).
    """
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = []
    for row in rows:
        cells = "".join(
            f'<th scope="row">{cell_text(cell)}</th>'
            if place == 0
            else f"<td{_right(cell)} data-of={_quoted(heads[place])}>{cell_text(cell)}</td>"
            for place, cell in enumerate(row)
        )
        body.append(f"<tr>{cells}</tr>")
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label={_quoted(caption)}><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>\n"
    )


def _right(cell: object) -> str:
    return ' class="n"' if isinstance(cell, int | float) or cell is None else ""


def _quoted(text: str) -> str:
    return f'"{escape(text)}"'


def figure(title: str, svg: str, more: str = "") -> str:
    """A drawing with what it shows below it; `more` is HTML."""
    return f"<figure>{svg}<figcaption>{escape(title)}{more}</figcaption></figure>\n"


def cell_text(value: object) -> str:
    """A cell as HTML."""
    if isinstance(value, Raw):
        return value
    if value is None:
        return "–"
    return count_text(value) if isinstance(value, int | float) else escape(str(value))


def count_text(value: float) -> str:
    """A number with commas between its thousands, and no zeros at its end."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


def time_text(text: str | None) -> str:
    """A time of the report to the second."""
    return "–" if text is None else text[:19].replace("T", " ")


def state_text(state: str) -> Raw:
    """A state in colour, by a sign and in a word."""
    name = state.replace(" ", "-")
    return Raw(f'<span class="state {name}"><b>{SIGNS[state]}</b> {STATES[state]}</span>')


def percent(share: float | None) -> str:
    """Enough digits that 99.99 % does not look like all."""
    if share is None:
        return "–"
    text = f"{min(100 * share, 99.9999):.4f}" if share != 1 else "100.0"
    return f"{text.rstrip('0').rstrip('.')}\N{NO-BREAK SPACE}%"


def share_text(share: float | None) -> str:
    """A share of causes: whole percents tell enough."""
    if share is None:
        return "–"
    text = f"{100 * share:.0f}"
    return f"{'< 1' if share and text == '0' else text}\N{NO-BREAK SPACE}%"


def budget_text(spent: float | None) -> str:
    """What is left of an error budget."""
    if spent is None:
        return "–"
    return "none" if spent == float("inf") else f"{100 * (1 - spent):.0f}\N{NO-BREAK SPACE}%"


def ms_text(value: float | None) -> str:
    """A duration in milliseconds, short."""
    return "–" if value is None else duration_text(value * 1000)


def where_text(row: Mapping[str, Any]) -> str:
    """A subscription."""
    return f"{row['topic']} / {row['group']}"


def trace_cell(message: Mapping[str, Any], links: Mapping[str, str]) -> Raw:
    """The trace of a message: a link where there is a viewer."""
    trace = message["trace_id"] or ""
    return _linked(f"<code>{escape(trace)}</code>", links["trace"] if trace else "", message)


def place_cell(message: Mapping[str, Any], links: Mapping[str, str]) -> Raw:
    """Where a message lies: a link where ackd can be asked about its subscription."""
    place = f"{message['topic']}/{message['partition']}/{message['message']}"
    return _linked(escape(place), links["ackd"], message)


def _linked(body: str, template: str, message: Mapping[str, Any]) -> Raw:
    if not template:
        return Raw(body)
    return Raw(f'<a href={_quoted(address(template, message))} rel="noreferrer">{body}</a>')
