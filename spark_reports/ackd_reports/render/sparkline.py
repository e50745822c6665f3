"""A line as small as a word: how something went, beside its figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from ackd_reports.render.parts import Raw

WIDTH: Final = 120
HEIGHT: Final = 24


def sparkline(values: Sequence[float], text: str) -> Raw:
    """`text` says it to whoever does not see it."""
    if not values:
        return Raw("–")
    top = max(values) or 1.0
    step = WIDTH / len(values)
    # Steps, as each value is one of a whole slice; flat stretches are one line.
    path, last = f"M0 {HEIGHT - 1}", 0.0
    for place, value in enumerate(values):
        if value != last:
            path += f"H{place * step:.1f}V{HEIGHT - 1 - (HEIGHT - 2) * value / top:.1f}"
            last = value
    path += f"H{WIDTH}"
    return Raw(
        f'<svg class="spark" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        f' height="{HEIGHT}" aria-label="{escape(text)}"><path d="{path}"/></svg>'
    )
