"""The page about states is the table's own text."""

from __future__ import annotations

from tests.tidy.states_page import PAGE, page


def test_the_page_is_not_older_than_the_table() -> None:
    """After a change of the table: `python -m tests.tidy.states_page`."""
    assert PAGE.read_text(encoding="utf-8") == page()
