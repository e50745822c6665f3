"""The screens of one subscription, of its dead letters, and of one message."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import ClassVar, Protocol, cast

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from ackd.cli.figures import clean
from ackd_top import words
from ackd_top.sidecar import AwayError, SidecarClient, SidecarRefusedError
from ackd_top.subscription_rows import Json
from ackd_top.tables import Rows, fill

MESSAGES_MAX = 200
DEAD_MAX = 100
_MESSAGES = ("message", "state", "attempt", "age", "lease ends, or due", "holder")
_PARTITIONS = (
    "partition", "lag", "held by", "leased", "waiting", "ready", "done above", "unfinished",
    "owner",
)  # fmt: skip
_SIDECARS = (
    "sidecar", "partitions", "of the retry topic", "lag", "served: own", "for peers",
    "through peers",
)  # fmt: skip
_DEAD = ("dead letter", "message", "dead since", "attempts", "why")


class Top(Protocol):
    """What screens ask of the application that shows them."""

    every_s: float
    sidecars: list[SidecarClient]

    @property
    def screen(self) -> Screen[object]: ...


_BACK = Binding("escape,backspace", "app.pop_screen", "back", key_display="esc")


def now_ms() -> int:
    """Unix time; ages are told against it."""
    return time.time_ns() // 1_000_000


class SubscriptionScreen(Screen[None]):
    """Messages in flight, the oldest first; partitions and sidecars below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "other table"),
        Binding("d", "dead", "dead letters"),
        _BACK,
    ]

    def __init__(self, name: str) -> None:
        super().__init__()
        self.subscription = name
        self.detail = words.Detail()
        self._now = asyncio.Event()
        self._wrong: list[str] = []

    def compose(self) -> ComposeResult:
        """Heading, limits, messages, partitions, sidecars, keys."""
        yield Static(clean(self.subscription), id="head", markup=False)
        yield Static("", id="trouble", markup=False)
        yield Rows(id="messages", cursor_type="row")
        yield Rows(id="partitions", cursor_type="row")
        yield DataTable(id="sidecars", cursor_type="none")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        tables = (("#messages", _MESSAGES), ("#partitions", _PARTITIONS), ("#sidecars", _SIDECARS))
        for name, titles in tables:
            self.query_one(name, DataTable).add_columns(*titles)
        self.query_one("#sidecars").can_focus = False
        self.query_one("#messages").focus()
        self.run_worker(self._follow(), exclusive=True)

    def hurry(self) -> None:
        self._now.set()

    async def _follow(self) -> None:
        app = cast("Top", self.app)
        while True:
            await self._look(app.sidecars)
            with suppress(NoMatches):  # a screen that is taken down loses its widgets first
                self._draw()
                on_top = app.screen
                if isinstance(on_top, MessageScreen) and on_top.of is self:
                    on_top.draw()
            self._now.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._now.wait(), app.every_s)

    async def _look(self, sidecars: list[SidecarClient]) -> None:
        name = self.subscription
        self._wrong = []

        async def one(sidecar: SidecarClient) -> tuple[Json, Json, list[Json]] | None:
            try:
                return await asyncio.gather(
                    sidecar.explain(name),
                    sidecar.progress(name),
                    sidecar.in_flight(name, 0, MESSAGES_MAX),
                )
            except (AwayError, SidecarRefusedError) as error:
                self._wrong.append(f"NO ANSWER from {sidecar.name}: {error}; trying on")
                return None

        answers = await asyncio.gather(*(one(each) for each in sidecars))
        there = [each for each in answers if each is not None]
        if there:
            self.detail = words.detail(there)

    def _draw(self) -> None:
        found, at_ms = self.detail, now_ms()
        kept = list(found.messages.values())[:MESSAGES_MAX]
        in_flight = f"{len(kept)} in flight" + (", the oldest" if len(kept) == MESSAGES_MAX else "")
        head = f"{clean(self.subscription)}: {in_flight}, {len(found.partitions)} partitions"
        self.query_one("#head", Static).update(head)
        lines = [*self._wrong, *(f"held back: {clean(each)}" for each in found.limits)]
        widget = self.query_one("#trouble", Static)
        widget.display = bool(lines)
        widget.update("\n".join(lines))
        messages = {each["id"]: words.message_cells(each, at_ms) for each in kept}
        fill(self._of("#messages"), messages)
        partitions = {}
        for row in found.partitions:
            where = (row["topic"], row["partition"])
            partitions[f"{where[0]}/{where[1]}"] = words.partition_cells(
                row, found.heads.get(where)
            )
        fill(self._of("#partitions"), partitions)
        shares = {each["sidecar"]: words.share_cells(each) for each in found.sidecars}
        fill(self._of("#sidecars"), shares)

    def _of(self, name: str) -> DataTable[Text]:
        return self.query_one(name, DataTable)

    @on(DataTable.RowSelected)
    async def open(self) -> None:
        """The message under the cursor, or the one that holds the partition under it."""
        messages, partitions = self._of("#messages"), self._of("#partitions")
        if partitions.has_focus:
            at = partitions.cursor_row
            if 0 <= at < len(self.detail.partitions):
                row = self.detail.partitions[at]
                head = self.detail.heads.get((row["topic"], row["partition"]))
                if head is not None and head["head"] is not None:
                    await self._inspect(head["head"]["id"])
            return
        names = list(self.detail.messages)
        if 0 <= messages.cursor_row < len(names):
            await self._inspect(names[messages.cursor_row])

    async def _inspect(self, message_id: str) -> None:
        await self.app.push_screen(MessageScreen(self, message_id))

    async def action_dead(self) -> None:
        """Key: show the dead letters."""
        await self.app.push_screen(DeadScreen(self.subscription))


class MessageScreen(Screen[None]):
    """All that is known of one message, and what becomes of it meanwhile."""

    BINDINGS: ClassVar[list[BindingType]] = [_BACK]

    def __init__(self, of: SubscriptionScreen, message_id: str) -> None:
        super().__init__()
        self.of = of
        self._message_id = message_id
        self._history = words.History()
        self._last: Json | None = None

    def compose(self) -> ComposeResult:
        """One text, which can be scrolled, and the keys."""
        with VerticalScroll(id="page"):
            yield Static("", id="facts", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#page").focus()
        self.draw()

    def draw(self) -> None:
        if not self.is_mounted:
            return
        at_ms, found = now_ms(), self.of.detail
        message = found.find(self._message_id)
        self._history.saw(message, at_ms)
        self._last = message or self._last
        lines = words.message_lines(self._message_id, found, self._last, self._history, at_ms)
        self.query_one("#facts", Static).update("\n".join(lines))


class DeadScreen(Screen[None]):
    """The first dead letters; each look reads them at the broker, so it looks once."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "look", "look again"), _BACK]

    def __init__(self, name: str) -> None:
        super().__init__()
        self._subscription = name

    def compose(self) -> ComposeResult:
        yield Static("", id="head", markup=False)
        yield DataTable(id="dead", cursor_type="row")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#dead", DataTable).add_columns(*_DEAD)
        self.query_one("#dead").focus()
        self.action_look()

    def action_look(self) -> None:
        """Ask the first sidecar that answers."""
        self.run_worker(self._look(), exclusive=True)

    async def _look(self) -> None:
        head = self.query_one("#head", Static)
        head.update(f"dead letters of {clean(self._subscription)}: asking ...")
        wrong = "no sidecar"
        for sidecar in cast("Top", self.app).sidecars:
            try:
                letters = await sidecar.dead(self._subscription, DEAD_MAX)
            except (AwayError, SidecarRefusedError) as error:
                wrong = str(error)
                continue
            many = "the first " if len(letters) == DEAD_MAX else ""
            head.update(f"dead letters of {clean(self._subscription)}: {many}{len(letters)}")
            with suppress(NoMatches):  # it was closed meanwhile
                table: DataTable[Text] = self.query_one("#dead", DataTable)
                fill(table, {each["id"]: words.dead_cells(each) for each in letters})
            return
        head.update(f"dead letters of {clean(self._subscription)}: {wrong}")
