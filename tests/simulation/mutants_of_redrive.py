"""Planted mistakes of a redrive; see `mutants`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from ackd.engine.operations.redrive_job import Work


def to_everybody() -> Any:
    """Dead letters go to their topic, although only this group was meant."""
    return patch.object(Work, "_to_group", Work._to_origin)


def marked_before_its_copy() -> Any:
    """A dead letter is gone before its copy is stored."""
    original = Work._send

    async def send(self: Work, taken: Any, letters: Sequence[Any]) -> tuple[list[Any], int]:
        homes, before = await original(self, taken, letters)
        if homes:
            await self._mark(taken, homes)
        return homes, before

    return patch.object(Work, "_send", send)
