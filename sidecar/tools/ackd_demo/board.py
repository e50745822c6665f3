"""What the demo knows of its orders, and how it looks: a live board, or plain lines in a pipe."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from ackd_torture.history import EventKind, now_us

LINES_SHOWN = 12
MARKS = {
    "waiting": ("·", "dim"),
    "working": ("▶", "yellow"),
    "again": ("▶", "bold magenta"),
    "done": ("■", "green"),
}


@dataclass(slots=True)
class Order:
    """One order as seen from outside."""

    state: str = "waiting"
    worker: str = ""
    attempt: int = 0
    lease: str = ""
    deliveries: int = 0
    since_us: int = 0
    deadline_ms: int = 0


@dataclass(slots=True)
class Board:
    """All orders by name. `note` takes what passes the listening post."""

    orders: dict[str, Order] = field(default_factory=dict)
    leases: dict[str, str] = field(default_factory=dict)
    deliveries: int = 0

    def note(self, kind: EventKind, facts: Mapping[str, str | int]) -> None:
        """Take one event of the history into the counts and orders that the board shows."""
        if kind is EventKind.PUBLISHED:
            self.orders.setdefault(str(facts["msg"]), Order())
        elif kind is EventKind.DELIVERED:
            order = self.orders.setdefault(str(facts["msg"]), Order())
            order.deliveries += 1
            order.state = "again" if order.deliveries > 1 else "working"
            order.worker = str(facts["note"])
            order.attempt = int(facts["attempt"])
            order.lease = str(facts["lease"])
            order.deadline_ms = int(facts["deadline_ms"])
            order.since_us, _ = now_us()
            self.leases[order.lease] = str(facts["msg"])
            self.deliveries += 1
        elif kind is EventKind.SETTLED and facts["status"] in {"acked", "already_acked"}:
            self.orders[self.leases[str(facts["lease"])]].state = "done"

    def count(self, *states: str) -> int:
        """How many orders are in one of these states."""
        return sum(order.state in states for order in self.orders.values())

    def held_by(self, worker: str) -> str:
        """The name of an order that this worker has in hand, or ""."""
        for name, order in self.orders.items():
            if order.worker == worker and order.state in {"working", "again"}:
                return name
        return ""

    def all_done(self) -> bool:
        """Whether every order is finished."""
        return self.count("done") == len(self.orders)


class Screen:
    """Tells the story. On a terminal the board is drawn live above the last lines."""

    def __init__(self, board: Board, console: Console | None = None) -> None:
        self.board = board
        self.console = console or Console(highlight=False)
        self._start_us, _ = now_us()
        self._lines: list[Text] = []
        self._live: Live | None = None

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """The board is on the screen inside."""
        if not self.console.is_terminal:
            yield
            return
        with Live(
            self._draw(), console=self.console, refresh_per_second=8, transient=True
        ) as self._live:
            self._live.get_renderable = self._draw  # type: ignore[method-assign]  # drawn anew
            yield
        self._live = None
        for line in self._lines:
            self.console.print(line)

    def tell(self, text: str, style: str = "") -> None:
        """One sentence of the story."""
        seconds = (now_us()[0] - self._start_us) / 1e6
        line = Text.assemble((f"{seconds:5.1f} s  ", "dim"), (text, style))
        self._lines.append(line)
        if self._live is None:
            self.console.print(line)

    def _draw(self) -> Group:
        squares = Text()
        for order in self.board.orders.values():
            squares.append(*MARKS[order.state])
            squares.append(" ")
        legend = Text()
        for state, (mark, style) in MARKS.items():
            legend.append(f"{mark} ", style)
            legend.append(f"{state if state != 'again' else 'handed out again'}   ", "dim")
        orders = Panel(Group(squares, Text(), legend), title="60 orders", border_style="dim")
        return Group(orders, *self._lines[-LINES_SHOWN:])
