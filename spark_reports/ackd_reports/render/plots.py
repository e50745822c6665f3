"""Plots as inline SVG: drawn by matplotlib, coloured by the page.

Colours in the drawing are stand-ins that become CSS variables, so that a plot follows the page
into dark mode and onto paper. Text stays text, for search and for screen readers; each plot has a
title and a description. The drawing has no date and no random ids, so the same figures give the
same bytes.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from html import escape
from typing import Any, Final

import matplotlib as mpl
from matplotlib import dates as mpl_dates
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

STAND_INS: Final = {
    "#010101": "var(--ink)",
    "#020202": "var(--faint)",
    "#030303": "var(--line-1)",
    "#040404": "var(--line-2)",
    "#050505": "var(--line-3)",
    "#060606": "var(--line-4)",
    "#070707": "var(--bad)",
    "#080808": "var(--out)",
}
INK, FAINT, *LINES, BAD, OUT = STAND_INS
STYLES: Final = ("-", "--", ":", "-.")
"""Lines differ in more than colour."""
_SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ackd",
    "font.family": "sans-serif",
    "font.size": 9,
    # What is behind a plot is the page's, light or dark.
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "legend.frameon": False,
}

Points = Sequence[tuple[str, float]]
"""(time as ISO text, value)."""


def lines(
    series: Mapping[str, Points],
    *,
    title: str,
    unit: str,
    log: bool = False,
    bound: float | None = None,
) -> str:
    """Lines over time as an `<svg>`; `bound` draws one more, level."""
    with figure_of((7.2, 2.4)) as figure:
        axes = figure.subplots()
        for number, (name, points) in enumerate(series.items()):
            axes.plot(
                [day_of(at) for at, _ in points],
                [value for _, value in points],
                color=LINES[number % len(LINES)],
                linestyle=STYLES[number % len(STYLES)],
                linewidth=1.4,
                label=name,
            )
        if bound is not None:
            axes.axhline(bound, color=INK, linewidth=0.8, linestyle=":")
        if log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.set_ylabel(unit)
        axes.grid(visible=True, linewidth=0.5)
        with_dates(axes)
        if len(series) > 1:
            # Above the plot: inside it would hide lines.
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, fontsize=8)
        return drawn(figure, title, _described(series, unit))


@contextmanager
def figure_of(size: tuple[float, float]) -> Iterator[Figure]:
    """An empty drawing in the page's hand."""
    with mpl.rc_context(_SETTINGS):
        yield Figure(figsize=size, layout="constrained")


def drawn(figure: Figure, title: str, description: str) -> str:
    """A drawing as an element for a page."""
    # matplotlib's own annotations leave these out.
    canvas: Any = FigureCanvasSVG(figure)
    out = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    canvas.print_svg(out, metadata=nothing)
    return _inline(out.getvalue(), title, description)


def with_dates(axes: Any) -> None:
    """Write times below a drawing, not more than there is room for."""
    dates: Any = mpl_dates
    locator = dates.AutoDateLocator(minticks=3, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def day_of(text: str) -> float:
    """Matplotlib's own measure of time: days since 1970, UTC."""
    return datetime.fromisoformat(text).timestamp() / 86_400


def _described(series: Mapping[str, Points], unit: str) -> str:
    """What a reader who does not see the plot should know of it."""
    parts = []
    for name, points in series.items():
        if points:
            low, high = min(points, key=lambda each: each[1]), max(points, key=lambda each: each[1])
            parts.append(
                f"{name}: lowest {low[1]:.6g} {unit} at {low[0]},"
                f" highest {high[1]:.6g} {unit} at {high[0]}"
            )
    return "; ".join(parts) or "no data"


_PATH: Final = re.compile(r' d="[^"]*"')
_FRACTION: Final = re.compile(r"-?\d+\.\d{2,}")


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.1f}".removesuffix(".0")


def _inline(svg: str, title: str, description: str) -> str:
    """A whole SVG file -> an element for a page, with names and the page's colours."""
    body = svg[svg.index("<svg") :]
    for stand_in, variable in STAND_INS.items():
        body = body.replace(stand_in, variable)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    # A tenth of a point is finer than a screen; six digits make the page three times as large.
    body = _PATH.sub(lambda found: _FRACTION.sub(_rounded, found[0]), body)
    # Ids must differ between the plots of a page.
    mark = re.sub(r"\W+", "-", title) + f"-{zlib.crc32(title.encode()):08x}"
    body = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{mark}-", body)
    title = f'<title id="{mark}-name">{escape(title)}</title>'
    title += f'<desc id="{mark}-text">{escape(description)}</desc>'
    body = body.replace("<svg", f'<svg role="img" aria-labelledby="{mark}-name {mark}-text"', 1)
    end = body.index(">") + 1
    return body[:end] + title + body[end:]
