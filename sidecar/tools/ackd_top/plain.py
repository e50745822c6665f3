"""The view as plain text, for pipes and for terminals without Textual."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict

from ackd.cli import exit_codes
from ackd.cli.client.endpoint import AdminEndpoint
from ackd.cli.message_lines import message_line
from ackd_top import columns
from ackd_top.sidecar import SidecarClient
from ackd_top.subscription_rows import BoardRow, rows

STUCK_SHOWN = 5
FIRST_S = 1.0
"""Rates need two looks; the first two are so far apart at most."""

Write = Callable[[str], None]


class Plain:
    """Prints looks: text, or one JSON object a look."""

    def __init__(self, sidecars: Sequence[SidecarClient], write: Write, *, width: int) -> None:
        self._sidecars = sidecars
        self._write = write
        self._width = width

    async def look(self) -> None:
        """Ask all, side by side."""
        await asyncio.gather(*(each.look() for each in self._sidecars))

    @property
    def answered(self) -> bool:
        """Whether any sidecar answered."""
        return any(not each.seen.error for each in self._sidecars)

    def board(self, only: str) -> list[BoardRow]:
        """The rows whose name contains `only`."""
        before = {each.name: each.before for each in self._sidecars if each.before is not None}
        found = rows(before, {each.name: each.seen for each in self._sidecars})
        return [row for row in found if only in row.name]

    def text(self, only: str) -> None:
        """The look as a table, what is stuck by name, and what is wrong."""
        now_ms, seen = time.time_ns() // 1_000_000, [each.seen for each in self._sidecars]
        found, table = self.board(only), columns.table(self._width)
        lines = [columns.headline(seen, now_ms), *columns.warnings(seen, time.monotonic())]
        lines.append("".join(table.titles))
        for row in found:
            lines.append("".join(table.cells(row)))
            if row.limits:
                lines.append(f"  held back: {columns.limits(row)}")
            for message in row.messages[:STUCK_SHOWN]:
                line = message_line(message, self._width - 9, now_ms)
                lines.append(f"  stuck: {line}")
            if len(row.messages) > STUCK_SHOWN:
                lines.append(f"  stuck: {len(row.messages) - STUCK_SHOWN} more")
        self._write("\n".join(line.rstrip() for line in lines))

    def json(self, only: str) -> None:
        """The look as one JSON object."""
        seen = [each.seen for each in self._sidecars]
        sidecars = [
            {
                "name": each.name,
                "identity": each.identity,
                "version": each.version,
                "error": each.error or None,
                "not_ready": list(each.reasons),
            }
            for each in seen
        ]
        found = {"sidecars": sidecars, "subscriptions": [asdict(row) for row in self.board(only)]}
        self._write(json.dumps(found, ensure_ascii=False))


async def show(
    places: Sequence[AdminEndpoint],
    write: Write,
    *,
    every_s: float,
    older_ms: int,
    only: str,
    width: int,
    once: bool,
    as_json: bool,
) -> int:
    """Print look after look; with `once` one, behind a first that rates are counted from."""
    async with AsyncExitStack() as stack:
        sidecars = [
            await stack.enter_async_context(SidecarClient(place, older_ms=older_ms))
            for place in places
        ]
        plain = Plain(sidecars, write, width=width)
        show_one = plain.json if as_json else plain.text
        await plain.look()
        await asyncio.sleep(min(every_s, FIRST_S))
        while True:
            await plain.look()
            show_one(only)
            if once:
                return exit_codes.DONE if plain.answered else exit_codes.UNREACHABLE
            await asyncio.sleep(every_s)
