"""Filling a table again and again without moving what somebody looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable


class Rows(DataTable[Text]):
    """A table of whole rows; `enter` stands among the keys at the screen's foot."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "open", key_display="enter")
    ]


def fill(table: DataTable[Text], wanted: Mapping[str, Sequence[str]]) -> None:
    """Rows by key, in this order. The cursor stays on its key; content is never read as markup."""
    there = [str(row.key.value) for row in table.ordered_rows]
    if there == list(wanted):
        columns = [column.key for column in table.ordered_columns]
        for key, cells in wanted.items():
            for column, cell in zip(columns, cells, strict=True):
                if table.get_cell(key, column).plain != cell:
                    table.update_cell(key, column, Text(cell), update_width=True)
        return
    at, offset = table.cursor_row, table.scroll_offset
    kept = there[at] if 0 <= at < len(there) else None
    table.clear()
    for name, cells in wanted.items():
        table.add_row(*(Text(cell) for cell in cells), key=name)
    names = list(wanted)
    if kept in wanted:
        table.move_cursor(row=names.index(str(kept)), animate=False, scroll=False)
    elif names and at > 0:
        table.move_cursor(row=min(at, len(names) - 1), animate=False, scroll=False)
    table.scroll_to(offset.x, offset.y, animate=False)
