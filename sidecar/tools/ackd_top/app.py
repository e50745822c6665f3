"""The terminal view. What it shows comes from `board`, `columns` and `words`; here are keys and
widgets only. Colours are the terminal's own, and none of them says what no word says.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.css.query import NoMatches
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from ackd.cli.client.endpoint import AdminEndpoint
from ackd.cli.message_lines import message_line
from ackd_top import columns
from ackd_top.screens import SubscriptionScreen, now_ms
from ackd_top.sidecar import SidecarClient
from ackd_top.style import STYLE
from ackd_top.subscription_rows import BoardRow, rows
from ackd_top.tables import Rows, fill

STUCK_LINES = 6
THEME = "ansi-dark"


class BoardScreen(Screen[None]):
    """All subscriptions, and below what is stuck in the one under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "clear", "all", show=False),
    ]

    def __init__(self, only: str) -> None:
        super().__init__()
        self._only = only
        self._rows: dict[str, BoardRow] = {}
        self._shown_width = 0

    def compose(self) -> ComposeResult:
        """Heading, table, what is stuck, filter, keys."""
        yield Static("", id="head", markup=False)
        yield Static("", id="trouble", markup=False)
        yield Rows(id="board", cursor_type="row", cell_padding=0)
        with Vertical(id="below"):
            yield Static("", id="stuck", markup=False)
        yield Input(self._only, placeholder="names that contain ...", id="filter")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Hide the filter unless there is one."""
        self.query_one("#filter", Input).display = bool(self._only)
        self.query_one("#board").focus()

    def show(self, sidecars: Sequence[SidecarClient]) -> None:
        """Draw what the last looks at these sidecars found."""
        seen = [each.seen for each in sidecars]
        before = {each.name: each.before for each in sidecars if each.before is not None}
        found = rows(before, {each.name: each.seen for each in sidecars})
        self._rows = {row.name: row for row in found if self._only in row.name}
        self.query_one("#head", Static).update(columns.headline(seen, now_ms()))
        warnings = columns.warnings(seen, time.monotonic())
        widget = self.query_one("#trouble", Static)
        widget.display = bool(warnings)
        widget.update("\n".join(warnings))
        self._draw()

    def _draw(self) -> None:
        table, layout = self._table(), columns.table(max(self.size.width - 1, 1))
        at = table.cursor_row
        wider = self._shown_width != self.size.width
        if wider:
            self._shown_width = self.size.width
            table.clear(columns=True)
            for title in layout.titles:
                table.add_column(Text(title), key=title.strip())
        fill(table, {row.name: layout.cells(row) for row in self._rows.values()})
        if wider:
            table.move_cursor(row=at, animate=False)
        self._draw_stuck()

    def _draw_stuck(self) -> None:
        row = self._chosen()
        lines = []
        if row is None:
            lines.append(
                "nothing fits the filter" if self._only else "no subscription is known yet"
            )
        else:
            width, at_ms = max(self.size.width - 1, 1), now_ms()
            if row.limits:
                lines.append(f"held back: {columns.limits(row)}")
            more = len(row.messages) - STUCK_LINES
            rest = f", {more} more" if more > 0 else ""
            stuck = (
                f"stuck in {row.name}{rest}:" if row.messages else f"nothing stuck in {row.name}"
            )
            lines.append(stuck)
            shown = row.messages[:STUCK_LINES]
            lines += [message_line(each, width, at_ms) for each in shown]
        self.query_one("#stuck", Static).update("\n".join(lines))

    def _table(self) -> Rows:
        return self.query_one("#board", Rows)

    def _chosen(self) -> BoardRow | None:
        names = list(self._rows)
        at = self._table().cursor_row
        return self._rows[names[at]] if 0 <= at < len(names) else None

    # --- keys

    @on(DataTable.RowHighlighted)
    def moved(self) -> None:
        """Another subscription is under the cursor."""
        self._draw_stuck()

    @on(DataTable.RowSelected)
    async def open(self) -> None:
        """Open the subscription under the cursor."""
        row = self._chosen()
        if row is not None:
            await self.app.push_screen(SubscriptionScreen(row.name))

    def action_filter(self) -> None:
        """Begin to type a part of a name."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def action_clear(self) -> None:
        """Key: remove the filter, so that all rows show."""
        box = self.query_one("#filter", Input)
        box.value = ""
        box.display = False
        self._table().focus()

    @on(Input.Changed)
    def typed(self, event: Input.Changed) -> None:
        """Each letter counts at once."""
        self._only = event.value
        self.redraw()

    @on(Input.Submitted)
    def done(self) -> None:
        """Back to the table; the filter stays."""
        self._table().focus()

    def on_resize(self, _event: Resize) -> None:
        """The terminal has another width: choose columns that fit."""
        self.redraw()

    def redraw(self) -> None:
        """Draw again what the sidecars answered last, without asking them."""
        app = self.app
        if isinstance(app, TopApp):
            self.show(app.sidecars)


class TopApp(App[None]):
    """Looks at every sidecar by itself, so that a silent one holds up no other."""

    TITLE = "ackd top"
    ENABLE_COMMAND_PALETTE = False
    CSS = STYLE
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit", key_display="q"),
        Binding("r", "look", "look now"),
    ]

    def __init__(
        self, places: Sequence[AdminEndpoint], *, every_s: float, older_ms: int, only: str = ""
    ) -> None:
        super().__init__(ansi_color=True)
        self.theme = THEME
        self.every_s = every_s
        self.sidecars = [SidecarClient(place, older_ms=older_ms) for place in places]
        self.board = BoardScreen(only)

    async def on_mount(self) -> None:
        await self.push_screen(self.board)
        for sidecar in self.sidecars:
            self.run_worker(self._follow(sidecar), name=sidecar.name, exit_on_error=True)

    async def _follow(self, sidecar: SidecarClient) -> None:
        """Look, show, wait; until the view ends."""
        async with sidecar:
            while True:
                await sidecar.look()
                self.show()
                await sidecar.pause(self.every_s)

    def show(self) -> None:
        """Draw what is known on the screen that is on top."""
        screen = self.screen
        if isinstance(screen, BoardScreen) and screen.is_mounted:
            with suppress(NoMatches):  # a screen that is taken down loses its widgets first
                screen.show(self.sidecars)

    def action_look(self) -> None:
        for sidecar in self.sidecars:
            sidecar.hurry()
        screen = self.screen
        if isinstance(screen, SubscriptionScreen):
            screen.hurry()
