"""The chart's README is the values' own text."""

from __future__ import annotations

from tests.tidy.chart_page import PAGE, page


def test_the_page_is_not_older_than_the_values() -> None:
    """After a change of the values: `python -m tests.tidy.chart_page`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_each_value_is_on_the_page() -> None:
    text = page()
    for name in ("injector.mode", "sidecar.networkPolicy.linked", "config.app", "reports.args"):
        assert f"| `{name}` |" in text
